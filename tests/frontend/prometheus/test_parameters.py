"""Claims about frontend/prometheus/parameters.py: query strings are read as the standard library reads them."""

import random
from typing import Any
from urllib.parse import parse_qsl

import pytest

from frontend.prometheus import parameters
from spm.errors import BadQuery

_PIECES = (
    "a",
    "b=",
    "=",
    "&",
    "&&",
    "+",
    "%20",
    "%2B",
    "%25",
    "%",
    "%e2%82%ac",
    "%zz",
    "ä",
    ";",
    "match[]",
    "x" * 1_100,
)


def by_library(raw: bytes) -> dict[str, list[str]] | None:
    """What the standard library reads; ``None`` where it refuses."""
    values: dict[str, list[str]] = {}
    try:
        for name, value in parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=1_000):
            values.setdefault(name, []).append(value)
    except ValueError:
        return None
    return values


def ours(raw: bytes) -> dict[str, list[str]] | None:
    """What is read here; ``None`` where it is refused."""
    try:
        return parameters.fields(raw)
    except BadQuery:
        return None


@pytest.mark.parametrize("seed", range(300))
def test_any_query_string_is_read_as_by_the_library(seed: int) -> None:
    dice = random.Random(seed)
    raw = "".join(dice.choices(_PIECES, k=dice.randrange(30))).encode()
    assert ours(raw) == by_library(raw)
    assert ours(raw) == by_library(raw)  # from memory


@pytest.mark.parametrize("raw", [b"", b"a=%ff", b"\xff=1", b"&".join([b"a=b"] * 1_000), b"&".join([b"a=b"] * 1_001)])
def test_what_the_library_refuses_is_refused(raw: bytes) -> None:
    assert ours(raw) == by_library(raw)


def test_a_text_that_a_dashboard_repeats_is_unquoted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(text: str, **how: Any) -> str:
        calls.append(text)
        return text

    parameters._unquoted_short.cache_clear()
    monkeypatch.setattr(parameters, "unquote_plus", count)
    for at in range(20):
        parameters.fields(f"query=sum%28rate%28up%5B1m%5D%29%29&start={at}&end={at + 60}&step=60".encode())
    parameters._unquoted_short.cache_clear()
    assert calls == ["sum%28rate%28up%5B1m%5D%29%29"]
