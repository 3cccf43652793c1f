"""Requests to a service on this host (or near it) over HTTP or a plain socket, with limits of time and size.

``fetch`` fetches one document; ``open_socket`` opens a socket. Both raise ``Unreachable`` with the address and the
problem. Redirects are not followed: a service that moves needs a new configuration. Never: no message holds a password.
"""

import base64
import json
import socket
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from spm import limits
from spm.clock import SystemClock
from spm.errors import SpmError

_CLOCK = SystemClock()
_CHUNK = 65_536


class Unreachable(SpmError):
    """A service did not answer, or not as expected."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a service: login, trusted authority, timeout, size limit."""

    user: str = ""
    password: str = ""
    ca_file: str = ""
    timeout_s: float = limits.AGENT_FETCH_S
    bytes_max: int = limits.AGENT_FETCH_BYTES_MAX

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request."""
        headers = {"User-Agent": "spm-agent", "Accept-Encoding": "identity"}
        if self.user or self.password:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return headers


def fetch(url: str, access: Access = Access(), *, accept: str = "*/*") -> bytes:  # a frozen value
    """Returns the body of a 200 answer; ``Unreachable``: there was none."""
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=access.ca_file or None)
            link: HTTPConnection = HTTPSConnection(
                parts.hostname or "", parts.port, timeout=access.timeout_s, context=context
            )
        else:
            link = HTTPConnection(parts.hostname or "", parts.port, timeout=access.timeout_s)
        try:
            return _exchange(link, f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", access, accept)
        finally:
            link.close()
    except (OSError, HTTPException, ValueError) as error:
        raise Unreachable(f"{where}: {_describe(error)}") from None


def fetch_json(url: str, access: Access = Access()) -> Any:
    """Returns the body of a 200 answer as a JSON value."""
    raw = fetch(url, access, accept="application/json")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        start = raw[:60].decode(errors="replace")
        raise Unreachable(f"{urlsplit(url).path}: the answer is no JSON; it begins with {start!r}") from None


def open_socket(address: str, port: int, access: Access, *, tls: bool = False) -> socket.socket:
    """Returns a socket connected to ``host[:port]`` or ``/path/of/a/socket``."""
    try:
        if address.startswith("/"):
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(access.timeout_s)
            link.connect(address)
            return link
        host, port = split_address(address, port)
        link = socket.create_connection((host, port), timeout=access.timeout_s)
        if not tls:
            return link
        return ssl.create_default_context(cafile=access.ca_file or None).wrap_socket(link, server_hostname=host)
    except (OSError, ValueError) as error:
        raise Unreachable(f"{address}: {_describe(error)}") from None


def split_address(address: str, port: int) -> tuple[str, int]:
    """Returns (host, port) of ``host``, ``host:port`` or ``[::1]:port``; ``ValueError``: it is not valid."""
    parts = urlsplit(f"//{address}")
    return parts.hostname or "", parts.port or port


def _exchange(link: HTTPConnection, target: str, access: Access, accept: str) -> bytes:
    until = _CLOCK.monotonic() + access.timeout_s
    link.request("GET", target, headers={**access.headers(), "Accept": accept})
    response = link.getresponse()
    if response.status != 200:
        raise OSError(f"HTTP {response.status} {response.reason}")
    parts, size = [], 0
    while chunk := response.read1(_CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if size > access.bytes_max:
            raise OSError(f"the answer is larger than {access.bytes_max:,} bytes")
        if _CLOCK.monotonic() > until:
            raise OSError(f"the answer took longer than {access.timeout_s:g} s")
    return b"".join(parts)


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
