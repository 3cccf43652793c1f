"""No form of an internal address is reached, whatever name, notation or translation hides it."""

import socket
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.notify.base import DeliveryFailed
from alerts.notify.http import session
from alerts.notify.http.addresses import AddressRefused, is_allowed, read_networks
from alerts.notify.http.post import post_json
from tests.alerts.notify.http.servers import HttpServer

_NETWORKS_4 = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
]
_NETWORKS_6 = [
    "::/128",
    "::1/128",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fd00:ec2::/32",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]
_INSIDE = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0"]


def edges() -> list[str]:
    """The first, second and last address of each network that is not public."""
    networks = map(ip_network, _NETWORKS_4 + _NETWORKS_6)
    return [str(network[at]) for network in networks for at in sorted({0, min(1, network.num_addresses - 1), -1})]


def hiding_forms() -> list[str]:
    """Internal IPv4 addresses within IPv6 ones: mapped, compatible, translated, 6to4, Teredo, with a zone."""
    forms = []
    for text in _INSIDE:
        n = int(ip_address(text))
        high, low = n >> 16, n & 0xFFFF
        forms += [f"::ffff:{text}", f"::{text}", f"64:ff9b::{text}", f"64:ff9b:1::{text}", f"::ffff:0:{text}"]
        forms += [f"2002:{high:x}:{low:x}::1", f"2001:0:{high:x}:{low:x}::{~high & 0xFFFF:x}:{~low & 0xFFFF:x}"]
    return [*forms, "fe80::1%eth0", "::1%lo"]


def notations() -> list[str]:
    """Hosts of URLs that the machine's resolver reads as an address of the loopback or of a private network."""
    hosts = ["localhost", "127.1", "127.0.1", "2130706433", "0x7f000001", "017700000001", "0x7f.0.0.1", "0177.0.0.1"]
    hosts += [
        "0",
        "0x0",
        "00000.0",
        "127.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
    ]
    hosts += ["10.1", "0xa000001", "167772161", "192.168.257", "3232235777", "0xc0a80101", "2852039166", "0xa9fea9fe"]
    return hosts


REFUSED = [*edges(), *hiding_forms()]


def test_the_table_is_long_enough() -> None:
    assert len(set(REFUSED)) + len(notations()) >= 150


@pytest.mark.parametrize("address", sorted(set(REFUSED)))
def test_an_internal_address_is_refused(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:82a::200e"])
def test_an_address_of_the_internet_is_allowed(address: str) -> None:
    assert is_allowed(address)


@pytest.mark.parametrize("text", ["", "localhost", "1.1.1", "1.1.1.1/32", "1.1.1.1 "])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert not is_allowed(text)


def test_a_network_of_the_setting_is_allowed_but_never_the_metadata_of_a_cloud() -> None:
    networks = read_networks(["10.0.0.0/8", "0.0.0.0/0", "::/0"])
    assert is_allowed("10.1.2.3", networks)
    assert not is_allowed("169.254.169.254", networks)
    assert not is_allowed("fd00:ec2::254", networks)


@given(st.ip_addresses())
def test_no_allowed_address_is_private_reserved_or_stands_for_another(address: object) -> None:
    ip = ip_address(str(address))
    if is_allowed(str(ip)):
        assert ip.is_global
        assert not (ip.is_private)
        assert not (ip.is_multicast)
        assert not (ip.is_reserved)
        assert not (ip.is_loopback)
        assert not (ip.is_link_local)
        assert not any(getattr(ip, name, None) for name in ("ipv4_mapped", "sixtofour", "teredo"))


def test_no_connection_is_made_to_any_refused_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address as a name's answer, and each notation as the host of a URL; a connection would be seen."""
    reached: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: reached.append(address))
    for address in REFUSED:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with session.Exchange(resolver=lambda host, port, f=family, a=address: [(f, a)]) as exchange:  # type: ignore[misc]
            with pytest.raises(AddressRefused):
                exchange.request("POST", "http://rebind.example/")
            assert not exchange.has_connected
    for host in notations():
        with pytest.raises(DeliveryFailed):
            post_json(f"http://{host}/", b"{}", {})
    assert reached == []


def test_a_name_with_one_internal_address_is_refused_though_the_others_are_public() -> None:
    def resolve(host: str, port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET, "1.1.1.1"), (socket.AF_INET, "10.0.0.1")]

    with session.Exchange(resolver=resolve) as exchange, pytest.raises(AddressRefused):
        exchange.request("GET", "http://two.example/")


def test_a_server_on_the_machine_itself_is_not_reached(hidden: HttpServer) -> None:
    with pytest.raises(DeliveryFailed) as caught:
        post_json(hidden.url, b"{}", {})
    assert (caught.value.permanent, caught.value.perhaps, hidden.connections) == (True, False, 0)


def test_a_name_is_resolved_once_so_another_answer_a_moment_later_changes_nothing(server: HttpServer) -> None:
    answers = [[(socket.AF_INET, "127.0.0.1")], [(socket.AF_INET, "169.254.169.254")]]
    networks = read_networks(["127.0.0.0/8"])
    with session.Exchange(networks, resolver=lambda host, port: answers.pop(0)) as exchange:
        assert exchange.request("POST", f"http://rebind.example:{server.port}/", data=b"x").status_code == 200
    assert len(answers) == 1
