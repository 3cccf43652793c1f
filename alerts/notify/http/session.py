"""A session of ``requests`` for addresses that customers choose.

1. The name is resolved once, all its addresses are checked, and the connection goes to a checked one: a name that
   answers differently a moment later changes nothing. TLS still verifies the name.
2. Redirects are not followed, proxies and passwords of the environment are not used.
3. A whole exchange takes at most ``EXCHANGE_S``, however slowly the other side sends, and an answer is read up to a
   bound.

``Exchange`` opens one; only this folder speaks HTTP to receivers.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, ClassVar

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from alerts.notify.http import limits
from alerts.notify.http.addresses import AddressRefused, Network, is_allowed

Resolve = Callable[[str, int], Sequence[tuple[int, str]]]  # (family, address) of a name
FAILURES = (requests.RequestException, HTTPError, OSError)  # what a request raises that got no answer


def resolve(host: str, port: int) -> Sequence[tuple[int, str]]:
    """Return all addresses of a name, by the machine's resolver."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in infos]


class Exchange:
    """Requests of one hand-over: a context that ends them all when its time is over.

    ``has_connected``: from then on nobody knows whether a request that failed had arrived.
    """

    def __init__(self, networks: Sequence[Network] = (), resolver: Resolve = resolve) -> None:
        self.networks, self.resolver = networks, resolver
        self.has_connected = False
        self.session = requests.Session()
        self.session.trust_env = False
        adapter = _Adapter(self)
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, adapter)
        self._sockets: list[socket.socket] = []
        self._is_over = False
        self._timer = threading.Timer(limits.EXCHANGE_S, self.end)
        self._timer.daemon = True

    def __enter__(self) -> "Exchange":
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        self.end()
        self.session.close()

    def request(self, method: str, url: str, **named: Any) -> requests.Response:
        """Send one request and read its answer, up to a bound."""
        headers = {"Accept-Encoding": "identity", **(named.pop("headers", None) or {})}  # no answer that unpacks
        named |= {
            "timeout": limits.STEP_S,
            "allow_redirects": False,
            "stream": True,
            "headers": headers,
            "verify": True,
        }
        named.pop("proxies", None)
        response = self.session.request(method, url, **named)
        with response:
            content = response.raw.read(limits.ANSWER_BYTES_MAX, decode_content=False)
        if self._is_over:  # half of a header reads as a whole one
            raise requests.ReadTimeout(f"no whole answer in {limits.EXCHANGE_S} s")
        response._content = content or b""  # what ``content`` and ``text`` read, instead of a body without a bound
        return response

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a checked address of the name."""
        addresses = self.resolver(host.strip("[]"), port)
        for _, address in addresses:
            if not is_allowed(address, self.networks):
                raise AddressRefused(f"{host} leads to {address}, which notifications must not reach")
        error: OSError = OSError(f"{host} has no address")
        for family, address in addresses:
            with ExitStack() as stack:
                sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                sock.settimeout(limits.STEP_S)
                try:
                    sock.connect((address, port))
                except OSError as failure:
                    error = failure
                    continue
                self._sockets.append(sock.dup())  # TLS takes the socket itself over
                stack.pop_all()
                if self._is_over:
                    self.end()
                return sock
        raise error

    def end(self) -> None:
        """Break all connections."""
        self._is_over = True
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._sockets.clear()


class _Adapter(HTTPAdapter):
    """Makes connections by ``Exchange.connect``."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        manager: PoolManager = self.poolmanager
        plain = type("Plain", (_OfExchange,), {"exchange": self._exchange})
        secure = type("Secure", (_OfExchange, HTTPSConnection), {"exchange": self._exchange})
        manager.pool_classes_by_scheme = {
            "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }


class _OfExchange(HTTPConnection):
    """Connects to the addresses that its exchange has checked, and tells it that a connection was made."""

    exchange: ClassVar[Exchange]

    def _new_conn(self) -> socket.socket:
        return self.exchange.connect(self.host, self.port or self.default_port)

    def connect(self) -> None:
        super().connect()
        self.exchange.has_connected = True
