"""From where a login comes: the account it names, the client's address, and the device, if its browser has been here.

A device is a browser with our cookie, a random number that says nothing. It is known for an account once that account
has logged in with it; ``budgets`` gives a browser whose number is not known a new one. Neighbours in IPv6 share the
upper 64 bits of their addresses, so they count as one network. Enter by ``origin_of``.
"""

import hmac
import ipaddress
import re
import unicodedata
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest

from spm.accounts.logins.rules import Scope
from spm.clock import random_bytes

DEVICE_COOKIE = "spm_device"
_DEVICE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The account that a login names, and from where it comes. ``keys`` are those of its budgets.

    ``device``: the id in the browser's cookie, which may be one that somebody made up; empty if it has none.
    """

    address: str
    device: str
    keys: dict[Scope, str]

    @property
    def account(self) -> str:
        """The keyed hash of the account's name, whether there is such an account or not."""
        return self.keys[Scope.ACCOUNT]

    def device_key(self, device: str) -> str:
        """The key of the account's budget on a device."""
        return _keyed(Scope.DEVICE, self.account, device)


def origin_of(request: HttpRequest, login: str, act: str = "login") -> Origin:
    """The origin of a request to log in as ``login``, or to do another act, whose tries are counted apart."""
    address = address_of(request)
    network, device = network_of(address), device_of(request)
    apart = () if act == "login" else (act,)
    account = _keyed(Scope.ACCOUNT, unicodedata.normalize("NFKC", login).strip().casefold(), *apart)
    keys = {
        Scope.ACCOUNT: account,
        Scope.NETWORK: _keyed(Scope.NETWORK, network, *apart),
        Scope.PAIR: _keyed(Scope.PAIR, account, network),
    }
    return Origin(address, device, keys | ({Scope.DEVICE: _keyed(Scope.DEVICE, account, device)} if device else {}))


def address_of(request: HttpRequest) -> str:
    """The address of the client."""
    return str(request.META.get("REMOTE_ADDR", ""))


def network_of(address: str) -> str:
    """The address, or its upper 64 bits if it is one of IPv6; an address that is none counts as one network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


def device_of(request: HttpRequest) -> str:
    """The id in the browser's cookie; empty if it has none."""
    return checked_device(request.COOKIES.get(DEVICE_COOKIE, ""))


def checked_device(text: str) -> str:
    """The text if it has the form of an id, else an empty one."""
    return text if _DEVICE.fullmatch(text) else ""


def new_device() -> str:
    """An id that no device has."""
    return random_bytes(16).hex()


def _keyed(*parts: str) -> str:
    text = "\0".join(("login", *parts))
    return hmac.digest(settings.SPM_PEPPER.encode(), text.encode(), "sha256").hex()[:32]
