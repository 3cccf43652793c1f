"""A call with any parameters gets an answer or an error in Prometheus' form, and never an error of the server.

Calls, texts, times, numbers and the bytes of addresses and forms are drawn apart, sound and spoiled ones. 503 is right
only for a query whose time was over. As a proof: `SPM_FUZZ=100000 bin/test --proof parameters`.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from django.test import Client

from spm import query
from tests.model.world import START, World
from tests.spm.query.promql.test_fuzz import BOMBS
from tests.support.people import Tenant

SECONDS = START // 1_000
TIMES = (
    str(SECONDS + 60),
    str(SECONDS + 3_600),
    f"{SECONDS}.5",
    "2023-08-31T00:10:00Z",
    "2023-08-31T00:10:00+02:00",
    "0",
    "-1",
    "",
    "1e400",
    "-1e308",
    "NaN",
    "inf",
    "Infinity",
    "1_0",
    "0x10",
    "9" * 40,
    "2023-08-31T00:10:00",
    "now",
    " 1 ",
    "99999-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "١٢",
    "\x00",
    "\ud800",
    "1;2",
    "1e15",
    "253402300800",
    "-62135596801",
)
SPANS = (
    "60",
    "1m",
    "1h30m",
    "0",
    "-5m",
    "1ms",
    "1e-9",
    "0.001",
    "99999999y",
    "5",
    "1d1h",
    "m5",
    "1e300",
    "",
    "NaN",
    "+1",
    "٣m",
)
NUMBERS = ("1", "0", "-1", "2", "100", "1e3", "9" * 30, "٣", "", " 1", "1.5", "true")
FLAGS = ("1", "0", "true", "all", "", "x", "é")
TEXTS = (
    "m0",
    "m1[1h]",
    "rate(m0[5m])",
    "sum by (n) ({__name__=~'m.'})",
    "m0 @ end()",
    "max_over_time(m0[1h:1m])",
    "1",
    "'a'",
    "m0{n=~'a|b'}",
    "m0{n!~'[0-9]+'}",
    "topk(NaN, m0)",
    "info(m0)",
    "absent(m9)",
    "m0 offset -1h",
    "{n=''}",
    "{",
    "",
    "m0{",
    "m0[5m",
    "{__name__='m\x00'}",
    "{é='1'}",
    'm0{n="\ud800"}',
    "m0[step()]",
    "m0 / 0 > bool 1",
    "*",
    "{n=~'('}",
)
VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("time", "start", "end", "asof"), TIMES),
    **dict.fromkeys(("step", "timeout", "lookback_delta"), SPANS),
    **dict.fromkeys(("query", "match[]"), TEXTS + tuple(BOMBS.values())),
    **dict.fromkeys(("limit", "app", "limit_per_metric", "group_limit", "max_lookback"), NUMBERS),
    **dict.fromkeys(("explain", "stats", "dedup", "exclude_alerts", "type", "state", "metric", "rule_name[]"), FLAGS),
}
USUAL = ("query", "start", "end", "step", "time", "match[]")
NAMES = ("n", "__name__", "U__a_2e_b", "U__a_zz_", "U___110000_", "é", "%00", "a b", "x" * 3_000, "..", "%2F", "U__")
CALLS = (
    *("query", "query_range") * 6,
    "series",
    "labels",
    *(f"label/{quote(name)}/values" for name in NAMES),
    "metadata",
    "query_exemplars",
    "format_query",
    "parse_query",
    "rules",
    "alerts",
    "targets",
    "status/tsdb",
    "status/runtimeinfo",
    "../../federate",
)
JUNK = (
    "&",
    "=",
    "%zz",
    "%",
    "%ff",
    "+",
    ";",
    "&&==&",
    "query=%80",
    "match[]",
    "start&end",
    "[]=1",
    "\xff",
    "&a=1" * 1_200,
)


@pytest.fixture
def world(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return two hours of six series, one hour of them rolled up."""
    world = World()
    world.send(*((n, minute * 60_000, float(n * minute)) for n in range(6) for minute in range(1, 60)))
    world.roll()
    world.send(*((n, minute * 60_000, float(n * minute)) for n in range(6) for minute in range(60, 119)))
    monkeypatch.setattr(query, "storage_for", lambda app: world.readers)
    return world


def parameters(draw: np.random.Generator) -> bytes:
    """Draw random parameters, as a query string."""
    names = [name for name in USUAL if draw.random() < 0.8]
    names += [name for name in VALUES if name not in USUAL and draw.random() < 0.1]
    parts = []
    for name in names:
        known = VALUES[name]
        sound = draw.random() < 0.7  # the first ones of each kind mean something
        value = known[int(draw.integers(min(4, len(known)) if sound else len(known)))]
        parts.append(f"{quote_plus(name)}={quote_plus(value, errors='surrogatepass')}".encode())
    if draw.random() < 0.1:
        parts.insert(int(draw.integers(len(parts) + 1)), JUNK[int(draw.integers(len(JUNK)))].encode("latin-1"))
    return b"&".join(parts)


def fuzzed(client: Client, token: str, count: int, seed: int) -> tuple[Counter[int], float]:
    """Make random calls; return (responses by status, CPU seconds of the longest)."""
    draw, statuses, longest = np.random.default_rng(seed), Counter[int](), 0.0
    for number in range(count):
        address = f"/prometheus/api/v1/{CALLS[int(draw.integers(len(CALLS)))]}".replace("/api/v1/../..", "")
        query, more = parameters(draw), parameters(draw) if draw.random() < 0.3 else b""
        headers: dict[str, Any] = {"HTTP_AUTHORIZATION": f"Bearer {token}", "QUERY_STRING": query.decode("latin-1")}
        began = time.process_time()
        if more and draw.random() < 0.9:
            kind = "application/x-www-form-urlencoded" if draw.random() < 0.9 else "text/plain"
            answer = client.generic("POST", address, more, content_type=kind, **headers)
        else:
            answer = client.generic("GET", address, **headers)
        longest = max(longest, time.process_time() - began)
        statuses[answer.status_code] += 1
        check(answer, f"{address}?{query!r} {more!r}")
        if (number + 1) % 10_000 == 0:
            print(f"{number + 1} calls, {dict(statuses)}, the longest took {longest:.3f} s", flush=True)
    return statuses, longest


def check(answer: Any, query: str) -> None:
    """Check that a response has Prometheus' form; only federation answers with text."""
    if answer["Content-Type"].startswith("text/plain") and answer.status_code == 200:
        return
    if answer.status_code == 404 and not answer["Content-Type"].startswith("application/json"):
        return  # an unknown address
    body = json.loads(answer.content)
    assert body["status"] == ("success" if answer.status_code == 200 else "error"), query
    timed_out = answer.status_code == 503 and body["errorType"] == "timeout"
    assert answer.status_code < 500 or timed_out, f"{answer.status_code} {body} to {query}"


def test_any_parameters_are_answered_or_refused(client: Client, alpha: Tenant, world: World) -> None:
    statuses, _ = fuzzed(client, alpha.token, 250, int(os.environ.get("SPM_FUZZ_SEED", "1")))
    assert statuses[200] > 50
    assert statuses[400] > 50


@pytest.mark.proof
def test_fuzz_of_many_parameters(client: Client, alpha: Tenant, world: World) -> None:
    statuses, longest = fuzzed(client, alpha.token, int(os.environ.get("SPM_FUZZ", "100000")), 2)
    print(f"{sum(statuses.values())} calls, {dict(statuses)}, the longest took {longest:.3f} s")
    assert statuses[200] > sum(statuses.values()) // 10
    assert longest < 31
