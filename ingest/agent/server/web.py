"""The way to the server over HTTP: TLS with an authority or a certificate of one's own, and a proxy.

``Web`` knows all of that and opens connections; who uses one says what to send. Behind an ``http://`` proxy an https
address is reached by CONNECT, so that the proxy sees the name of the server and nothing else. The proxy of the
environment (``HTTPS_PROXY``, ``NO_PROXY``…) counts only where the settings do not name one.
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
    """Whom we trust beside the system's authorities, and who we are. Paths of PEM files."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """For connections; ``Refused`` when a file cannot be used."""
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


class Web:
    """One server, and how it is reached."""

    def __init__(self, url: str, *, tls: Tls | None = None, proxy: str = "") -> None:
        self.url = checked(url)
        self._context = (tls or Tls()).context() if self.url.scheme == "https" else None
        self.proxy = self._chosen(proxy, os.environ)

    @property
    def host(self) -> str:
        """The server's name."""
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        """The server's port."""
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    def path(self, rest: str) -> str:
        """What a request asks for: below the address' own path; the whole address where a proxy has to know it."""
        path = f"{self.url.path.rstrip('/')}{rest}"
        return f"http://{self.url.netloc.rpartition('@')[2]}{path}" if self.proxy and self._context is None else path

    def headers(self) -> dict[str, str]:
        """What a proxy in front of a plain server wants to know of us."""
        return self._proxy_headers() if self.proxy and self._context is None else {}

    def connect(self, timeout_s: float = limits.AGENT_TIMEOUT_S) -> HTTPConnection:
        """A connection that is open."""
        place = self.proxy or self.url
        if self._context is not None:
            port = place.port or (443 if place is self.url else 80)
            made: HTTPConnection = HTTPSConnection(place.hostname or "", port, timeout=timeout_s, context=self._context)
            if self.proxy:
                made.set_tunnel(self.host, self.port, headers=self._proxy_headers())
        else:
            made = HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
        made.connect()
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _chosen(self, proxy: str, environment: Mapping[str, str]) -> SplitResult | None:
        if proxy == "none":
            return None
        if not proxy and not passed_by(self.host, environment.get("no_proxy") or environment.get("NO_PROXY") or ""):
            name = f"{self.url.scheme}_proxy"
            proxy = environment.get(name) or environment.get(name.upper()) or ""
        if not proxy:
            return None
        parts = checked(proxy, "not a proxy")
        if parts.scheme != "http":
            raise Refused("not a proxy", got=without_user(proxy), wanted="http://host:port, or none")
        return parts

    def _proxy_headers(self) -> dict[str, str]:
        if self.proxy is None or not self.proxy.username:
            return {}
        who = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return {"Proxy-Authorization": "Basic " + base64.b64encode(who.encode()).decode()}


def without_user(url: str) -> str:
    """An address as it may be shown: who we are there is nobody's business."""
    scheme, slashes, rest = url.rpartition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def passed_by(host: str, names: str) -> bool:
    """Whether ``NO_PROXY`` names the host, a domain it is in, or everything."""
    wanted = [name.strip().lstrip(".").partition(":")[0].lower() for name in names.split(",") if name.strip()]
    return any(name == "*" or host == name or host.endswith(f".{name}") for name in wanted)


def checked(url: str, what: str = "not an address") -> SplitResult:
    """An address taken apart; ``Refused`` when it is none."""
    try:
        parts = urlsplit(url)
        right = bool(parts.hostname) and parts.scheme in ("http", "https") and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    if not right:
        raise Refused(what, got=without_user(url), wanted="http[s]://host[:port][/path]")
    return parts
