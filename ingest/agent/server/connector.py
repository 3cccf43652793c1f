"""Opens HTTP connections to the server: with TLS, own authorities, a client certificate, and a proxy.

Enter by ``ServerConnector``. Through an ``http://`` proxy it reaches an https address with CONNECT, so that the proxy
sees only the name of the server. The proxy of the environment (``HTTPS_PROXY``, ``NO_PROXY``…) counts only if the
settings name none.
"""

import base64
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit

from spm import limits
from spm.errors import Refused


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: an authority to trust besides the system's, and the client certificate with its key."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for connections; raise ``Refused`` if a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise Refused("ca_file cannot be used", got=f"{self.ca_file}: {error}", wanted="a PEM file") from None
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file or None)
            except OSError as error:
                raise Refused(
                    "cert_file cannot be used",
                    got=f"{self.cert_file}: {error}",
                    wanted="a PEM file, with its key in it or in key_file",
                ) from None
        return context


class ServerConnector:
    """Opens connections to one server, directly or through a proxy."""

    def __init__(self, url: str, *, tls: Tls | None = None, proxy: str = "") -> None:
        self.url = parse_url(url)
        self._context = (tls or Tls()).context() if self.url.scheme == "https" else None
        self.proxy = self._choose_proxy(proxy, os.environ)

    @property
    def host(self) -> str:
        """The server's name."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """The server's port."""
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    def path(self, rest: str) -> str:
        """Returns the target of a request: the path below that of the address; for a proxy the complete address."""
        path = f"{self.url.path.rstrip('/')}{rest}"
        return f"http://{self.url.netloc.rpartition('@')[2]}{path}" if self.proxy and self._context is None else path

    def headers(self) -> dict[str, str]:
        """Returns the headers that a proxy in front of a server without TLS needs."""
        return self._proxy_headers() if self.proxy and self._context is None else {}

    def connect(self, timeout_s: float = limits.AGENT_TIMEOUT_S) -> HTTPConnection:
        """Returns an open connection."""
        place = self.proxy or self.url
        if self._context is not None:
            port = place.port or (443 if place is self.url else 80)
            connection: HTTPConnection = HTTPSConnection(
                place.hostname or "", port, timeout=timeout_s, context=self._context
            )
            if self.proxy:
                connection.set_tunnel(self.host, self.port, headers=self._proxy_headers())
        else:
            connection = HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _choose_proxy(self, proxy: str, environment: Mapping[str, str]) -> SplitResult | None:
        if proxy == "none":
            return None
        if not proxy and not bypasses_proxy(
            self.host, environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        ):
            name = f"{self.url.scheme}_proxy"
            proxy = environment.get(name) or environment.get(name.upper()) or ""
        if not proxy:
            return None
        parts = parse_url(proxy, "not a proxy")
        if parts.scheme != "http":
            raise Refused("not a proxy", got=without_credentials(proxy), wanted="http://host:port, or none")
        return parts

    def _proxy_headers(self) -> dict[str, str]:
        if self.proxy is None or not self.proxy.username:
            return {}
        credentials = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return {"Proxy-Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}


def without_credentials(url: str) -> str:
    """Returns an address without user and password, so that it can be shown."""
    scheme, slashes, rest = url.rpartition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def bypasses_proxy(host: str, names: str) -> bool:
    """Whether ``NO_PROXY`` names the host, its domain, or everything."""
    domains = [name.strip().lstrip(".").partition(":")[0].lower() for name in names.split(",") if name.strip()]
    return any(name == "*" or host == name or host.endswith(f".{name}") for name in domains)


def parse_url(url: str, what: str = "not an address") -> SplitResult:
    """Returns the parts of an address; ``Refused``: it is not valid."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.scheme in ("http", "https") and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise Refused(what, got=without_credentials(url), wanted="http[s]://host[:port][/path]")
    return parts
