"""Any text gets an answer or an error with its reason, in bounded time, and never another exception.

Texts are drawn in three ways: expressions that mean something, such ones with a piece taken out, doubled or replaced,
and bombs, each made to be deep, long, wide or slow. As a proof: `SPM_FUZZ=100000 bin/test --proof fuzz`.
"""

from __future__ import annotations

import contextlib
import os
import time

import numpy as np
import pytest

from spm import limits
from spm.errors import SpmError
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.request.budget import QueryLimits
from tests.spm.query.promql.generated import START, ExpressionMaker, dataset, stored

LIMIT_S = 2.0
_PIECES = (
    *"()[]{},:@+-*/%^=<>!~\"'`#\\ 0",
    "5m",
    "offset",
    "by",
    "on",
    "bool",
    "or",
    "and",
    "group_left",
    "sum",
    "rate",
    "NaN",
    "1h30m",
    "1_0",
    "0x",
    "@ end()",
    "[5m:",
    "anchored",
    "smoothed",
    "fill(0)",
    "le",
    "{}",
    "\x00",
    "é",
    "\n",
    "$1",
    "step()",
    "max_of",
    "1e400",
    "9" * 40,
    '=~"(a+)+$"',
    "atan2",
    "without",
    "start",
    "\\C",
    "info",
    "$",
)

BOMBS = {
    "five thousand operands": "g" + "+g" * 5_000,
    "ten thousand parentheses": "(" * 10_000 + "g" + ")" * 10_000,
    "a megabyte of text": "g" * 1_000_000,
    "a megabyte in a string": 'g{a="' + "x" * 1_000_000 + '"}',
    "operands at the limit": "g" + "+g" * limits.QUERY_OPERATORS_MAX,
    "powers at the limit": "2" + "^2" * limits.QUERY_OPERATORS_MAX,
    "signs at the limit": "-" * limits.QUERY_OPERATORS_MAX + "g",
    "signs with brackets at the limit": "-(" * limits.QUERY_DEPTH_MAX + "g" + ")" * limits.QUERY_DEPTH_MAX,
    "calls at the limit": "abs(" * limits.QUERY_DEPTH_MAX + "g" + ")" * limits.QUERY_DEPTH_MAX,
    "subqueries in subqueries": "max_over_time(" * 20 + "g" + "[1h:1s])" * 20,
    "a subquery of a million years": "sum_over_time(vector(1)[9999y:1ms])",
    "a subquery of many steps": "sum_over_time((g + g)[11d:1s])",
    "a regular expression that explodes": 'g{instance=~"(a+)+(b+)+(c+)+$"}',
    "a regular expression of many states": 'g{instance=~"(((a{1,100}){1,100}){1,100})"}',
    "a template for a label": 'label_replace(g, "a", "' + "$1" * 500 + '", "instance", "(.*)")',
    "a label that doubles": "label_join(" * 40 + "g" + ', "x", "", "x", "x", "instance")' * 40,
    "a count of everything": 'count_values("a", ' * 30 + "g" + ")" * 30,
    "a quantile per step": 'histogram_quantiles(lat_bucket, "q", ' + ", ".join(["time() / 1e10"] * 9) + ")",
    "numbers beyond floats": "1" + "0" * 400 + " * g",
    "times beyond numbers": "g @ 1e300",
    "an offset beyond time": "g offset 99999999y",
    "a range beyond time": "rate(g[99999999y])",
    "nulls": 'g{a="\\u0000"} \x00',
    "half a surrogate pair": 'g{a="\ud800"}',
    "open quotes": "'" * 4_000,
    "open brackets": "[" * 4_000,
    "escapes without end": 'g{a="' + "\\\\" * 2_000,
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    warmed = Engine(stored(dataset(1, low_counters=True)), QueryLimits(timeout_s=LIMIT_S))
    rng = np.random.default_rng(0)
    for _ in range(300):
        _cpu_seconds(warmed, ExpressionMaker(rng, True).expression(), 60_000)
    return warmed


@pytest.mark.timed
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize("step_ms", [1, 60_000, 86_400_000])
def test_bomb_is_refused_or_answered_in_time(engine: Engine, text: str, step_ms: int) -> None:
    assert _cpu_seconds(engine, text, step_ms) < LIMIT_S + 1


@pytest.mark.slow
def test_any_text_is_answered_or_refused(engine: Engine) -> None:
    assert _fuzzed(engine, 2_000) < LIMIT_S + 1


@pytest.mark.proof
def test_fuzz_of_many_texts(engine: Engine) -> None:
    assert _fuzzed(engine, int(os.environ.get("SPM_FUZZ", "100000"))) < LIMIT_S + 1


@pytest.mark.timed
def test_stored_samples_are_not_visited_past_the_time_limit() -> None:
    ts = START + np.arange(200_000) * 15_000
    storage = FakeStorage().add("long", {}, ts, np.arange(200_000.0))
    slow = Engine(storage, QueryLimits(timeout_s=0.3))
    for function in ("sum_over_time", "quantile_over_time(0.5,", "mad_over_time", "rate"):
        call = f"{function} long[30d])" if "," in function else f"{function}(long[30d])"
        assert _cpu_seconds(slow, call, 60_000, start=int(ts[-1]) - 10_000 * 60_000, steps=11_000) < 2 * (0.3 + 1)


def _fuzzed(engine: Engine, count: int) -> float:
    """Run random texts; return the longest time that one of them took."""
    rng = np.random.default_rng(int(os.environ.get("SPM_FUZZ_SEED", "1")))
    maker, longest = ExpressionMaker(rng, True), 0.0
    for number in range(count):
        text = maker.expression()
        for _ in range(int(rng.integers(0, 4))):
            text = _spoiled(rng, text)
        longest = max(longest, _cpu_seconds(engine, text, int(rng.choice([1, 1_000, 60_000, 86_400_000]))))
        if number % 10_000 == 9_999:
            print(f"{number + 1} of {count} texts, the longest took {longest:.3f} s", flush=True)
    return longest


def _spoiled(rng: np.random.Generator, text: str) -> str:
    at, end = sorted(rng.integers(0, len(text) + 1, 2).tolist())
    end = min(end, at + 8)
    head, tail, piece = text[:at], text[end:], _PIECES[int(rng.integers(len(_PIECES)))]
    return (head + tail, head + piece + text[at:], text[:end] + text[at:], head + piece + tail)[int(rng.integers(4))]


def _cpu_seconds(engine: Engine, text: str, step_ms: int, *, start: int = START + 600_500, steps: int = 12) -> float:
    """Return the CPU seconds of an instant and a range query."""
    began = time.process_time()
    with contextlib.suppress(SpmError):
        engine.instant(text, start)
    with contextlib.suppress(SpmError):
        engine.range(text, start, start + (steps - 1) * step_ms, step_ms)
    return time.process_time() - began
