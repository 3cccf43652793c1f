"""Draws random series and expressions over them, for tests that compute one answer in two ways.

Values are quarters, so that sums and products are exact and no comparison depends on rounding. Comparisons, rounding
and ranking are only applied to such exact expressions.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from spm.query.fake import STALE, FakeStorage
from tests.spm.query.promql.reference import Samples

START = 1_700_000_000_000 - 1_700_000_000_000 % 86_400_000
STEP_MS = 15_000
METRICS = ("a", "b", "requests_total")
HOSTS = ("h0", "h1", "h2")


def random_samples(seed: int, *, minutes: int = 20, special: float = 0.02) -> Samples:
    """Return series with jitter, gaps, counter resets, stale markers, NaN and infinities."""
    rng = np.random.default_rng(seed)
    samples: Samples = {}
    for metric in METRICS:
        for host in HOSTS:
            for dc in ("x", "") if rng.random() < 0.4 else ("y",):
                if rng.random() < 0.15:
                    continue
                labels = {"__name__": metric, "host": host} | ({"dc": dc} if dc else {})
                samples[tuple(sorted(labels.items()))] = _points(rng, metric, minutes, special)
    return samples


def _points(rng: np.random.Generator, metric: str, minutes: int, special: float) -> list[tuple[int, float]]:
    count = minutes * 60_000 // STEP_MS
    ts = START + np.arange(count) * STEP_MS + (rng.integers(-4_000, 4_000, count) if rng.random() < 0.7 else 0)
    values = rng.integers(-400, 400, count) / 4
    if metric.endswith("_total"):
        values = np.cumsum(rng.integers(0, 40, count)) / 4 + rng.integers(0, 100)
        for reset in rng.integers(0, count, rng.integers(0, 4)):
            values[reset:] -= values[reset]
    if rng.random() < 0.5:
        is_special = rng.random(count) < special
        values[is_special] = rng.choice([np.nan, np.inf, -np.inf, -0.0], is_special.sum())
    values[rng.random(count) < special] = STALE
    present = rng.random(count) > rng.choice([0.0, 0.1, 0.6])
    gap = rng.integers(0, count)
    present[gap : gap + rng.integers(0, 40)] = False
    pairs = dict(zip(ts[present].tolist(), np.flatnonzero(present).tolist(), strict=True))
    return [(t, float(values[i])) for t, i in sorted(pairs.items())]


def stored(samples: Samples) -> FakeStorage:
    """Put the samples into a storage."""
    storage = FakeStorage()
    for key, points in samples.items():
        labels = dict(key)
        storage.add(labels.pop("__name__"), labels, [t for t, _ in points], np.array([v for _, v in points]))
    return storage


_MATCHERS = ("", '{host="h1"}', '{host!="h1"}', '{host=~"h[01]"}', '{dc!~"x|z"}', '{dc=""}', '{dc="x",host=~".+"}')
_WHOLE = st.sampled_from(("0", "1", "2", "-3", "10", "50.25", "100"))
_ARITHMETIC = st.sampled_from(("+", "-", "*"))
_COMPARISON = st.sampled_from(("==", "!=", "<", ">", "<=", ">="))
_EXACT_RANGE = st.sampled_from(
    [f"{name}_over_time" for name in ("count", "present", "last", "first", "min", "max", "sum")] + ["idelta"]
)
_RANGE = st.sampled_from(
    ["rate", "increase", "delta", "irate", "avg_over_time", "stddev_over_time", "stdvar_over_time"]
)
_BY = st.sampled_from(("", "by (host)", "by (dc)", "by (host, dc)", "without (host)", "without (dc)", "by (__name__)"))
_MATCHING = ("", "on (host)", "on (host, dc)", "ignoring (dc)", "on (host) group_left ()", "on (dc) group_right (host)")
_TIME_MODIFIERS = ("", "", "", "offset 1m", "offset -30s", "@ end()", "@ start() offset 2m", f"@ {START // 1000 + 300}")


@st.composite
def selectors(draw: st.DrawFn) -> str:
    metric = draw(st.sampled_from((*METRICS, '{__name__=~"a|b"}')))
    return metric if metric.startswith("{") else metric + draw(st.sampled_from(_MATCHERS))


@st.composite
def windows(draw: st.DrawFn, ranges: tuple[str, ...] = ("20s", "45s", "1m", "5m", "10m")) -> str:
    return f"{draw(selectors())}[{draw(st.sampled_from(ranges))}] {draw(st.sampled_from(_TIME_MODIFIERS))}"


def _leaves() -> st.SearchStrategy[str]:
    instant = st.tuples(selectors(), st.sampled_from(_TIME_MODIFIERS)).map(" ".join)
    ranged = st.tuples(_EXACT_RANGE, windows()).map(lambda f: f"{f[0]}({f[1]})")
    return instant | ranged


def _exact(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, _ARITHMETIC, _WHOLE).map(lambda f: f"({f[0]} {f[1]} {f[2]})"),
        st.tuples(_WHOLE, _ARITHMETIC, inner).map(lambda f: f"({f[0]} {f[1]} {f[2]})"),
        st.tuples(inner, _COMPARISON, st.sampled_from(("", "bool ")), _WHOLE).map(
            lambda f: f"({f[0]} {f[1]} {f[2]}{f[3]})"
        ),
        st.tuples(_WHOLE, _COMPARISON, inner).map(lambda f: f"({f[0]} {f[1]} {f[2]})"),
        st.tuples(st.sampled_from(("sum", "min", "max", "count", "group")), _BY, inner).map(
            lambda f: f"{f[0]} {f[1]} ({f[2]})"
        ),
        st.tuples(st.sampled_from(("topk", "bottomk")), _BY, st.sampled_from("0123"), inner).map(
            lambda f: f"{f[0]} {f[1]} ({f[2]}, {f[3]})"
        ),
        st.tuples(st.sampled_from(("abs", "ceil", "floor", "round", "sgn", "-")), inner).map(
            lambda f: f"{f[0]}({f[1]})"
        ),
        st.tuples(st.sampled_from(("clamp_min", "clamp_max")), inner, _WHOLE).map(lambda f: f"{f[0]}({f[1]}, {f[2]})"),
        st.tuples(inner, _WHOLE, _WHOLE).map(lambda f: f"clamp({f[0]}, {f[1]}, {f[2]})"),
        st.tuples(inner, st.sampled_from(("+", "-", ">", "<= bool", "==")), st.sampled_from(_MATCHING), inner).map(
            lambda f: f"({f[0]} {f[1]} {f[2]} {f[3]})"
        ),
        st.tuples(inner, st.sampled_from(("and", "or", "unless")), st.sampled_from(_MATCHING[:4]), inner).map(
            lambda f: f"({f[0]} {f[1]} {f[2]} {f[3]})"
        ),
        inner.map(lambda f: f"vector(scalar({f}))"),
    )


def _inexact(exact: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(_RANGE, windows()).map(lambda f: f"{f[0]}({f[1]})"),
        st.tuples(st.sampled_from(("-0.5", "0", "0.3", "0.9", "2")), windows()).map(
            lambda f: f"quantile_over_time({f[0]}, {f[1]})"
        ),
        st.tuples(st.sampled_from(("sqrt", "exp", "ln")), exact).map(lambda f: f"{f[0]}({f[1]})"),
        st.tuples(exact, st.sampled_from(("/", "%", "^")), _WHOLE).map(lambda f: f"({f[0]} {f[1]} {f[2]})"),
        exact.map(lambda f: f"({f} + time())"),
    )


def expressions() -> st.SearchStrategy[str]:
    """Draw expressions of vectors, of all supported kinds."""
    exact = st.recursive(_leaves(), _exact, max_leaves=4)
    inexact = _inexact(exact)
    outer = st.tuples(st.sampled_from(("avg", "stddev", "stdvar", "sum", "max")), _BY, exact | inexact).map(
        lambda f: f"{f[0]} {f[1]} ({f[2]})"
    )
    quantiles = st.tuples(_BY, st.sampled_from(("0", "0.25", "0.9", "1")), exact | inexact).map(
        lambda f: f"quantile {f[0]} ({f[1]}, {f[2]})"
    )
    return exact | inexact | outer | quantiles
