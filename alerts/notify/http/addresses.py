"""Says which IP addresses notifications may reach: those of the internet, and networks that a setting names.

There are two degrees of refusal. Private networks and what else is not the internet are refused until the setting names
them; those where clouds hand out credentials (``_NEVER``) are refused even if it does. Addresses that stand for others
(mapped, translated, tunnelled) are refused as a whole, so no form of an internal address passes. Pure; enter by
``is_allowed``.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

# What ``is_global`` lets pass or has judged differently from version to version.
_REFUSED = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",  # the relay of 6to4
        "198.18.0.0/15",
        "224.0.0.0/3",
        "2001::/23",  # Teredo, ORCHID and other protocols' own
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address within
        "3fff::/20",
    )
]
_UNICAST = IPv6Network("2000::/3")  # of IPv6, all that is routed in the internet: no mapped, translated, local address
_NEVER = [ip_network("169.254.0.0/16"), ip_network("fe80::/10"), ip_network("fd00:ec2::/32")]  # clouds' metadata


class AddressRefused(Exception):
    """The name leads to an address that notifications must not reach. No byte was sent."""


def is_allowed(text: str, networks: Sequence[Network] = ()) -> bool:
    """Whether a notification may be sent to the address; ``networks`` are allowed besides the internet."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if any(address in network for network in _NEVER):
        return False
    return _is_public(address) or any(address in network for network in networks)


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse the networks of the setting; raises ``ValueError`` for one that is none."""
    return tuple(ip_network(text.strip()) for text in texts if text.strip())


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    return address.is_global and not any(address in network for network in _REFUSED)
