"""Who sends a request, when proxies stand between: pure functions over addresses and headers.

Only a trusted proxy is believed. ``X-Forwarded-For`` goes before ``Forwarded``, since most proxies set the former and
pass the latter on as their client sent it. Enter by ``TrustedProxies`` and ``origin``.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from spm.errors import Refused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDING_HEADERS = frozenset(
    b"""forwarded x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-prefix
    x-forwarded-server x-forwarded-ssl x-forwarded-scheme x-real-ip x-scheme x-url-scheme front-end-https
    x-original-url x-rewrite-url script-name x-script-name proxy remote-user x-client-ip true-client-ip
    cf-connecting-ip""".split()
)
_HOPS_MAX = 32  # of one header: real chains have three
_ADDRESSES_MAX = 4_096  # remembered answers of one ``TrustedProxies``
_PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s";,=]*)\s*')


class TrustedProxies:
    """The networks whose word about the client is taken. A Unix socket's peer has no address and is trusted."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self.networks = tuple(networks)
        self.trusts = lru_cache(maxsize=_ADDRESSES_MAX)(self._trusts)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "TrustedProxies":
        """Reads addresses and networks such as ``10.0.0.0/8``; raises ``Refused`` for anything else."""
        networks = []
        for text in texts:
            try:
                networks.append(ipaddress.ip_network(text.strip()))
            except ValueError as error:
                raise Refused(
                    "unknown network of a proxy", got=text, wanted="an address or a network such as 10.0.0.0/8"
                ) from error
        return cls(networks)

    def _trusts(self, host: str) -> bool:
        """Returns whether ``host`` is the address of a trusted proxy."""
        address = _address(host)
        return address is not None and any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from: the client's address, its port (0 if unknown), and its scheme."""

    host: str
    port: int
    scheme: str


def origin(peer: Origin, headers: Mapping[bytes, list[bytes]], proxies: TrustedProxies) -> Origin:
    """Returns who sent a request that came from the trusted proxy ``peer``.

    ``headers`` has the values of forwarding headers by their names in lower case. The chain of addresses is followed
    from its end, as far as each hop is a trusted proxy; at an entry that is no address it ends with the hop that wrote
    it. Without a scheme of its hop, the connection's own holds.
    """
    if b"x-forwarded-for" in headers:
        addresses, schemes = _listed(headers, b"x-forwarded-for"), _listed(headers, b"x-forwarded-proto")
        if len(schemes) != len(addresses):
            schemes = schemes[-1:] * len(addresses) or [""] * len(addresses)
        hops = list(zip(addresses, schemes, strict=True))
    else:
        hops = [hop for line in headers.get(b"forwarded", []) for hop in _forwarded(line.decode("latin-1"))]
    sender, scheme = peer, (_listed(headers, b"x-forwarded-proto") or [""])[-1]
    for hop, hop_scheme in hops[: -_HOPS_MAX - 1 : -1]:
        address = _host_and_port(hop)
        if address is None:
            break
        sender, scheme = Origin(*address, peer.scheme), hop_scheme
        if not proxies.trusts(address[0]):
            break
    return Origin(sender.host, sender.port, scheme if scheme in ("http", "https") else peer.scheme)


def _listed(headers: Mapping[bytes, list[bytes]], name: bytes) -> list[str]:
    return [item.strip().lower() for line in headers.get(name, []) for item in line.decode("latin-1").split(",")]


def _forwarded(line: str) -> list[tuple[str, str]]:
    """Returns address and scheme of each hop in a ``Forwarded`` header (RFC 7239).

    A header that is broken gives one hop without an address.
    """
    hops, at = [("", "")], 0
    while at < len(line):
        pair = _PAIR.match(line, at)
        separator = line[pair.end() : pair.end() + 1] if pair else ""
        if pair is None or separator not in ("", ",", ";"):
            return [("", "")]
        name, value = pair[1].lower(), pair[2].strip('"').lower()
        if name == "for":
            hops[-1] = (value, hops[-1][1])
        elif name == "proto":
            hops[-1] = (hops[-1][0], value)
        if separator == ",":
            hops.append(("", ""))
        at = pair.end() + 1
    return hops


def _host_and_port(text: str) -> tuple[str, int] | None:
    """Returns the address and port (0 if there is none) of ``1.2.3.4``, ``1.2.3.4:5``, ``::1`` or ``[::1]:5``."""
    port = ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host = text
    address = _address(host)
    if address is None or len(port) > 5 or (port and not (port.isascii() and port.isdigit())):
        return None
    return str(address), int(port or 0)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
