"""Which logins count as coming from one place, and for one account."""

import pytest
from django.http import HttpRequest
from django.test import RequestFactory

from spm.accounts.logins import origins
from spm.accounts.logins.rules import Scope

DEVICE = "0123456789abcdef" * 2


def request_from(address: str, device: str = "") -> HttpRequest:
    request = RequestFactory().post("/login", REMOTE_ADDR=address)
    request.COOKIES.update({origins.DEVICE_COOKIE: device} if device else {})
    return request


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unknown"),
        ("unix:", "unknown"),
    ],
)
def test_neighbours_in_ipv6_are_one_network(address: str, network: str) -> None:
    assert origins.network_of(address) == network


@pytest.mark.parametrize("name", ["Ada@example.org", " ada@example.org ", "\uff41da@example.org"])
def test_spellings_of_a_login_share_one_budget(name: str) -> None:
    request = request_from("192.0.2.1")
    assert origins.origin_of(request, name).keys == origins.origin_of(request, "ada@example.org").keys


def test_account_and_network_each_make_another_key() -> None:
    keys = [
        origins.origin_of(request_from(address), login).keys[Scope.PAIR]
        for address in ("192.0.2.1", "192.0.2.2")
        for login in ("ada", "bob")
    ]
    assert len(set(keys)) == 4


@pytest.mark.parametrize("cookie", ["", "x", DEVICE.upper(), DEVICE + "0", "'; drop table"])
def test_a_cookie_that_is_no_device_id_counts_as_none(cookie: str) -> None:
    assert Scope.DEVICE not in origins.origin_of(request_from("192.0.2.1", cookie), "ada").keys


def test_a_key_says_neither_account_nor_address() -> None:
    for key in origins.origin_of(request_from("192.0.2.1", DEVICE), "ada").keys.values():
        assert len(key) == 32
        assert int(key, 16)
