"""Who sent a request behind proxies, by the table; and no word of a stranger changes it, by properties."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import Refused
from spm.web.client_address import Origin, TrustedProxies, origin

PROXIES = TrustedProxies.parse(["10.0.0.0/8", "127.0.0.1", "fd00::/8"])
PEER = Origin("10.0.0.1", 999, "http")

TABLE: dict[str, tuple[dict[bytes, list[bytes]], Origin]] = {
    "no header": ({}, PEER),
    "one hop": ({b"x-forwarded-for": [b"1.2.3.4"]}, Origin("1.2.3.4", 0, "http")),
    "one hop with a port": ({b"x-forwarded-for": [b"1.2.3.4:55"]}, Origin("1.2.3.4", 55, "http")),
    "an IPv6 hop": ({b"x-forwarded-for": [b"2001:DB8::1"]}, Origin("2001:db8::1", 0, "http")),
    "an IPv6 hop with a port": ({b"x-forwarded-for": [b"[2001:db8::1]:55"]}, Origin("2001:db8::1", 55, "http")),
    "an IPv4 address in IPv6": ({b"x-forwarded-for": [b"::ffff:1.2.3.4"]}, Origin("1.2.3.4", 0, "http")),
    "what the client claims before": ({b"x-forwarded-for": [b"6.6.6.6, 1.2.3.4"]}, Origin("1.2.3.4", 0, "http")),
    "that in a header of its own": ({b"x-forwarded-for": [b"6.6.6.6", b"1.2.3.4"]}, Origin("1.2.3.4", 0, "http")),
    "two proxies": ({b"x-forwarded-for": [b"6.6.6.6, 1.2.3.4, 10.9.9.9"]}, Origin("1.2.3.4", 0, "http")),
    "proxies alone": ({b"x-forwarded-for": [b"10.7.7.7, 10.9.9.9"]}, Origin("10.7.7.7", 0, "http")),
    "a hop that is no address": ({b"x-forwarded-for": [b"1.2.3.4, unknown"]}, PEER),
    "one behind a proxy": ({b"x-forwarded-for": [b"1.2.3.4, evil, 10.9.9.9"]}, Origin("10.9.9.9", 0, "http")),
    "an empty header": ({b"x-forwarded-for": [b""]}, PEER),
    "a port that is none": ({b"x-forwarded-for": [b"1.2.3.4:x"]}, PEER),
    "a scheme": ({b"x-forwarded-for": [b"1.2.3.4"], b"x-forwarded-proto": [b"https"]}, Origin("1.2.3.4", 0, "https")),
    "a scheme alone": ({b"x-forwarded-proto": [b"HTTPS"]}, Origin("10.0.0.1", 999, "https")),
    "another scheme": ({b"x-forwarded-proto": [b"gopher"]}, PEER),
    "a scheme of each hop": (
        {b"x-forwarded-for": [b"6.6.6.6, 1.2.3.4, 10.9.9.9"], b"x-forwarded-proto": [b"http, https, http"]},
        Origin("1.2.3.4", 0, "https"),
    ),
    "more schemes than hops": (
        {b"x-forwarded-for": [b"1.2.3.4"], b"x-forwarded-proto": [b"http, https"]},
        Origin("1.2.3.4", 0, "https"),
    ),
    "the standard's header": (
        {b"forwarded": [b'for=6.6.6.6;proto=http, For="[2001:db8::1]:55";Proto=https;by=10.0.0.1']},
        Origin("2001:db8::1", 55, "https"),
    ),
    "an obfuscated hop": ({b"forwarded": [b"for=1.2.3.4, for=_hidden"]}, PEER),
    "a broken standard's header": ({b"forwarded": [b"for=1.2.3.4 for=5.6.7.8"]}, PEER),
    "both headers": ({b"forwarded": [b"for=6.6.6.6"], b"x-forwarded-for": [b"1.2.3.4"]}, Origin("1.2.3.4", 0, "http")),
    "very many hops": ({b"x-forwarded-for": [b", ".join([b"10.9.9.9"] * 20_000)]}, Origin("10.9.9.9", 0, "http")),
}


@pytest.mark.parametrize(("headers", "wanted"), TABLE.values(), ids=TABLE)
def test_the_client_is_the_first_hop_from_the_end_that_is_no_proxy(
    headers: dict[bytes, list[bytes]], wanted: Origin
) -> None:
    assert origin(PEER, headers, PROXIES) == wanted


@given(claimed=st.binary(max_size=60), name=st.sampled_from([b"x-forwarded-for", b"forwarded", b"x-real-ip"]))
def test_what_a_client_claims_does_not_change_what_its_proxy_saw(claimed: bytes, name: bytes) -> None:
    headers = {b"x-forwarded-for": [b"1.2.3.4"]}
    headers[name] = [claimed, *headers.get(name, [])]
    assert origin(PEER, headers, PROXIES) == Origin("1.2.3.4", 0, "http")
    if name == b"forwarded":
        alone = {b"forwarded": [claimed, b"for=1.2.3.4"]}
        assert origin(PEER, alone, PROXIES) == Origin("1.2.3.4", 0, "http")


@given(
    headers=st.dictionaries(
        st.sampled_from([b"x-forwarded-for", b"forwarded", b"x-forwarded-proto"]),
        st.lists(st.one_of(st.binary(max_size=40), st.from_regex(rb'(for="?[\[\]0-9a-f.:]+"?[;,] ?)*')), min_size=1),
    )
)
def test_every_header_gives_an_address_and_a_scheme(headers: dict[bytes, list[bytes]]) -> None:
    sender = origin(PEER, headers, PROXIES)
    ipaddress.ip_address(sender.host)
    assert sender.scheme in ("http", "https")
    assert 0 <= sender.port <= 99_999


def test_a_network_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(Refused, match=r"10\.0\.0\.0/8"):
        TrustedProxies.parse(["the office"])


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("fd00::1%eth0", True),
        ("::1", False),
        ("", False),
    ],
)
def test_a_proxy_is_trusted_by_its_network(host: str, trusted: bool) -> None:
    assert PROXIES.trusts(host) is trusted
