"""Draws random PromQL over known data from a seed, for comparisons with other implementations and for fuzzing.

An `ExpressionMaker` draws well-typed expressions of a kind (vector, scalar, window) by families of functions. With
`modern` it also draws functions and modifiers that Prometheus 2 does not have. The data's values are quarters, and
expressions compare them with numbers between quarters, so that rounding seldom decides which elements there are.
Calendar functions get times only: for any other number, Prometheus' result depends on the machine's conversion to
integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spm.query.fake import STALE, FakeStorage

START = 1_700_000_000_000 - 1_700_000_000_000 % 86_400_000
MINUTES = 40
_HIGH = 1_000_000
HOSTS = ("h0", "h1", "h2", "h10")
BOUNDS = ("0.1", "0.5", "1", "2.5", "+Inf")

Labels = dict[str, str]
Sample = tuple[int, float]


def dataset(seed: int, *, low_counters: bool) -> list[tuple[Labels, list[Sample]]]:
    """Return gauges, counters with resets, classic histograms and info series, with jitter, gaps and stale markers.

    No time is a whole or half second, so that none lies on the border of a window or subquery. `low_counters` are reset
    to zero; other counters grow within a window by much less than their first value, so that Prometheus 2 and 3
    extrapolate them equally.
    """
    rng = np.random.default_rng(seed)
    series: list[tuple[Labels, list[Sample]]] = []
    for host in HOSTS:
        for dc in ("x", "y") if host == "h1" else ("x",):
            labels = {"instance": host, "job": "node", "dc": dc}
            series.append(({"__name__": "g", **labels}, _gauge(rng)))
            series.append(({"__name__": "h", **labels}, _gauge(rng)))
            series.append(({"__name__": "c_total", **labels}, _counter(rng, low=low_counters)))
        series += _histogram(rng, host)
        info = {"__name__": "target_info", "instance": host, "job": "node", "version": f"v{host[1:]}", "dc": "x"}
        series.append((info, [(t, 1.0) for t, _ in _gauge(rng, special=0)]))
    series.append(({"__name__": "lonely"}, _gauge(rng)))
    return series


def stored(data: Sequence[tuple[Labels, list[Sample]]]) -> FakeStorage:
    """Put the data into a storage."""
    storage = FakeStorage()
    for labels, points in data:
        others = {name: value for name, value in labels.items() if name != "__name__"}
        storage.add(labels["__name__"], others, [t for t, _ in points], np.array([value for _, value in points]))
    return storage


def _times(rng: np.random.Generator) -> list[int]:
    count = MINUTES * 4
    jitter = rng.integers(-4_000, 4_000, count)
    times = START + np.arange(count) * 15_000 + jitter
    times += np.where(times % 500 == 0, 7, 0)
    present = rng.random(count) > rng.choice([0.0, 0.1, 0.5])
    gap = rng.integers(0, count)
    present[gap : gap + rng.integers(0, 50)] = False
    return [int(t) for t in np.unique(times[present])]


def _gauge(rng: np.random.Generator, special: float = 0.02) -> list[Sample]:
    times = _times(rng)
    values = rng.integers(-400, 400, len(times)) / 4
    if rng.random() < 0.3 and special:
        is_special = rng.random(len(times)) < special
        values[is_special] = rng.choice([np.nan, np.inf, -np.inf], is_special.sum())
    values[rng.random(len(times)) < special] = STALE
    return list(zip(times, values.tolist(), strict=True))


def _counter(rng: np.random.Generator, *, low: bool) -> list[Sample]:
    times = _times(rng)
    values = np.cumsum(rng.integers(0, 40, len(times))) / 4 + _HIGH
    resets = np.sort(rng.integers(0, max(len(times), 1), rng.integers(0, 4)))
    for nth, reset in enumerate(resets, start=1):  # what remains after a reset counts as growth: less than was before
        values[reset:] -= values[reset] - (0 if low else _HIGH * 0.4**nth)
    return list(zip(times, values.tolist(), strict=True))


def _histogram(rng: np.random.Generator, host: str) -> list[tuple[Labels, list[Sample]]]:
    times = _times(rng)
    steps = rng.integers(0, 9, (len(BOUNDS), len(times)))
    counts = np.cumsum(np.cumsum(steps, axis=0), axis=1) + 10_000 * np.arange(1, len(BOUNDS) + 1)[:, None]
    buckets = []
    for bound, row in zip(BOUNDS, counts, strict=True):
        labels = {"__name__": "lat_bucket", "instance": host, "job": "node", "le": bound}
        buckets.append((labels, list(zip(times, row.astype(float).tolist(), strict=True))))
    return buckets


_MATCHERS = ("", '{instance="h1"}', '{instance!="h1"}', '{instance=~"h[01]"}', '{dc!~"x|z"}', '{dc=""}', '{dc=~".+"}')
_AT = f" @ {START // 1000 + 600}.25"
_TIME_MODIFIERS = ("", "", "", "", " offset 1m", " offset -30s", " @ end()", " @ start() offset 2m", _AT)
_SPANS = ("20s", "45s", "1m", "5m", "10m", "1h")
_BY = ("", "by (instance)", "by (dc)", "by (instance, dc)", "without (instance)", "without (dc, job)", "by ()")
_NUMBERS = ("0", "1", "2", "-3", "10", "50.125", "0.5", "1e3", "-Inf", "NaN", "0x10")
_BETWEEN = ("0.1", "-7.3", "33.33", "80.9", "10100.1")  # between two quarters
_PLAIN = (
    "abs",
    "ceil",
    "floor",
    "exp",
    "ln",
    "log2",
    "log10",
    "sqrt",
    "sgn",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "deg",
    "rad",
    "-",
    "+",
    "timestamp",
    "absent",
)
_CALENDAR = ("minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year")
_OVER_TIME = (
    "count_over_time",
    "present_over_time",
    "last_over_time",
    "sum_over_time",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "changes",
    "resets",
    "deriv",
    "idelta",
    "delta",
    "irate",
)
_MODERN_OVER_TIME = (
    "mad_over_time",
    "first_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "ts_of_min_over_time",
    "ts_of_max_over_time",
)


@dataclass
class ExpressionMaker:
    """Draws random expressions."""

    rng: np.random.Generator
    modern: bool

    def pick(self, choices: Sequence[str]) -> str:
        """Draw one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def expression(self) -> str:
        """Draw an instant vector, or in one of 25 cases a scalar."""
        return self.scalar(2) if self.rng.random() < 0.04 else self.vector(int(self.rng.integers(0, 4)))

    def vector(self, depth: int) -> str:
        """Draw an instant vector of at most this depth."""
        families: list[Callable[[int], str]] = [self._selected, self._over_time, self._over_time, self._rated]
        if depth > 0:
            families += [
                self._plain,
                self._parameters,
                self._aggregated,
                self._aggregated,
                self._with_number,
                self._compared,
                self._matched,
                self._set,
                self._subquery,
                self._relabelled,
                self._quantile,
                self._odd,
                self._extremes,
            ]
            if self.modern:
                families += [self._modern, self._modern, self._split]
        return families[int(self.rng.integers(len(families)))](depth - 1)

    def scalar(self, depth: int) -> str:
        """Draw a scalar of at most this depth."""
        if depth <= 0 or self.rng.random() < 0.5:
            return self.pick((*_NUMBERS, "time()", "pi()"))
        if self.rng.random() < 0.3:
            return f"scalar({self.vector(depth - 1)})"
        op = self.pick(("+", "-", "*", "/", "%", "^", "atan2", "< bool", "== bool", ">= bool"))
        return f"({self.scalar(depth - 1)} {op} {self.scalar(depth - 1)})"

    def selector(self, *metrics: str) -> str:
        """Draw a selector without offset and `@`."""
        return self.pick(metrics or ("g", "h", "c_total", "g", "lonely")) + self.pick(_MATCHERS)

    def window(self, *metrics: str) -> str:
        """Draw a range of samples."""
        return f"{self.selector(*metrics)}[{self.pick(_SPANS)}]{self.pick(_TIME_MODIFIERS)}"

    def _prediction_window(self) -> str:
        """Draw a range, without `@` for Prometheus 2: with it, that version predicts from another time."""
        return (
            self.window() if self.modern else f"{self.selector()}[{self.pick(_SPANS)}]{self.pick(_TIME_MODIFIERS[:6])}"
        )

    # --- families ---

    def _selected(self, depth: int) -> str:
        return self.selector() + self.pick(_TIME_MODIFIERS)

    def _over_time(self, depth: int) -> str:
        name = self.pick((*_OVER_TIME, "absent_over_time"))
        return f"{name}({self.window()})"

    def _rated(self, depth: int) -> str:
        return f"{self.pick(('rate', 'increase'))}({self.window('c_total', 'c_total', 'lat_bucket')})"

    def _plain(self, depth: int) -> str:
        if self.rng.random() < 0.15:
            seconds = self.pick(("timestamp(g)", "vector(time() * 7.3)", "c_total * 86399", "vector(-1e9)"))
            return f"{self.pick(_CALENDAR)}({seconds})"
        return f"{self.pick(_PLAIN)}({self.vector(depth)})"

    def _parameters(self, depth: int) -> str:
        inner, low, high = self.vector(depth), self.scalar(1), self.scalar(1)
        smoothing = "double_exponential_smoothing" if self.modern else "holt_winters"
        return self.pick(
            (
                f"clamp({inner}, {low}, {high})",
                f"clamp_min({inner}, {low})",
                f"clamp_max({inner}, {high})",
                f"round({inner}, {self.pick(('0.1', '5', '2.5', '-1'))})",
                f"round({inner})",
                f"quantile_over_time({self.pick(('-0.5', '0', '0.3', '0.9', '1', '2'))}, {self.window()})",
                f"predict_linear({self._prediction_window()}, {self.pick(('60', '-300', '3600'))})",
                f"{smoothing}({self.window()}, {self.pick(('0.1', '0.5', '0.9'))}, {self.pick(('0.1', '0.8'))})",
                f"vector({self.scalar(2)})",
            )
        )

    def _aggregated(self, depth: int) -> str:
        op = self.pick(("sum", "avg", "min", "max", "count", "group", "quantile", "count_values"))
        if self.modern and self.rng.random() < 0.2:
            op = self.pick(("stddev", "stdvar"))  # before Prometheus 3, these were 0 for a single NaN
        inner = self._selected(0) if op == "count_values" else self.vector(depth)
        first = {"quantile": self.pick(("0.5, ", "0.99, ", "0, ", "1.5, ")), "count_values": '"v", '}.get(op, "")
        return f"{op} {self.pick(_BY)} ({first}{inner})"

    def _extremes(self, depth: int) -> str:
        # Which of equal elements are selected is not specified, so the values are those of functions that hardly ever
        # give equal ones. (Deviations do, for single samples.)
        inner = f"{self.pick(('deriv', 'predict_linear'))}({self.selector()}[10m]"
        inner += ", 60)" if inner.startswith("predict") else ")"
        return f"{self.pick(('topk', 'bottomk'))} {self.pick(_BY)} ({self.pick('0123')}, {inner})"

    def _with_number(self, depth: int) -> str:
        # Prometheus 2 does not remove the name after atan2.
        op = self.pick(("+", "-", "*", "/", "%", "^", "atan2" if self.modern else "+"))
        sides = [self.vector(depth), self.scalar(1)]
        if self.rng.random() < 0.5:
            sides.reverse()
        return f"({sides[0]} {op} {sides[1]})"

    def _compared(self, depth: int) -> str:
        op = self.pick(("==", "!=", "<", ">", "<=", ">=")) + self.pick((" ", " bool "))
        sides = [self.vector(depth), self.pick(_BETWEEN)]
        if self.rng.random() < 0.5:
            sides.reverse()
        return f"({sides[0]} {op}{sides[1]})"

    def _matched(self, depth: int) -> str:
        op = self.pick(("+", "-", "*", "/", "> bool", "<= bool"))
        matching = self.pick(
            ("", "ignoring (job)", "on (instance, dc)", "on (instance) group_left (dc)", "on (dc) group_right ()")
        )
        return f"({self.vector(depth)} {op} {matching} {self.vector(depth)})"

    def _set(self, depth: int) -> str:
        op, matching = self.pick(("and", "or", "unless")), self.pick(("", "on (instance)", "ignoring (dc)"))
        return f"({self.vector(depth)} {op} {matching} {self.vector(depth)})"

    def _subquery(self, depth: int) -> str:
        name = self.pick([name for name in _OVER_TIME if name != "absent_over_time"])
        inner = self.vector(min(depth, 1))
        if not self.modern and ":" in inner:  # a border of an inner subquery would lie on a step of the outer one
            inner = self._over_time(0)
        span, step = self.pick(("3m", "10m")), self.pick(("1m", "30s", "20s", ""))
        return f"{name}(({inner})[{span}:{step}]{self.pick(_TIME_MODIFIERS)})"

    def _relabelled(self, depth: int) -> str:
        inner = self.vector(depth)
        return self.pick(
            (
                f'label_replace({inner}, "new", "$1-${{2}}", "instance", "(h)(.*)")',
                f'label_replace({inner}, "dc", "", "dc", "x")',
                f'label_join({inner}, "new", "/", "instance", "dc", "none")',
                f"sort({inner})",
                f"sort_desc({inner})",
            )
        )

    def _quantile(self, depth: int) -> str:
        q = self.pick(("0.5", "0.9", "0.99", "0", "1", "-1", "2", "NaN"))
        inner = self.pick(
            (
                "rate(lat_bucket[5m])",
                "lat_bucket",
                "sum by (le) (rate(lat_bucket[5m]))",
                "increase(lat_bucket[10m] offset 1m)",
            )
        )
        return f"histogram_quantile({q}, {inner})"

    def _odd(self, depth: int) -> str:
        return self.pick(
            (
                'absent(nothing{a="b",c=~"d"})',
                f"absent_over_time({self.window('g', 'nothing')})",
                f"vector(scalar({self.vector(depth)}))",
                "hour()",
                "day_of_week() + on () group_right () g",
                f"timestamp({self._selected(0)})",
                f"({self.vector(depth)})",
            )
        )

    def _split(self, depth: int) -> str:
        """Draw a function that removes the metric's name, of elements of which some have it and others do not."""
        selector, function = self.selector(), self.pick(("abs", "deg", "-", "1 +", "timestamp", "label_join"))
        inner = f"(({selector} {self.pick(('<', '>'))} {self.pick(_BETWEEN)}) or ({selector} * 2))"
        if function == "label_join":
            return f'label_join(abs({inner}), "new", "/", "instance", "dc")'
        return f"({function}({inner}))"

    def _modern(self, depth: int) -> str:
        return self.pick(
            (
                f"{self.pick(_MODERN_OVER_TIME)}({self.window()})",
                f"histogram_fraction(0.2, {self.pick(('1', '2', '+Inf'))}, rate(lat_bucket[5m]))",
                f'histogram_quantiles(rate(lat_bucket[5m]), "q", 0.5, {self.pick(("0.9", "0.25"))})',
                f"info({self.pick(('g', 'c_total', 'h offset 1m'))})",
                'info(g, {version=~"v[01]"})',
                f"{self.pick(('rate', 'increase', 'delta'))}({self.selector('c_total')}[{self.pick(_SPANS)}] anchored)",
                f"{self.pick(('rate', 'increase', 'delta'))}({self.selector('c_total')}[{self.pick(_SPANS)}] smoothed)",
                f"{self.selector('g', 'c_total')} smoothed",
                f"{self.selector('g')} + on (instance, dc) fill ({self.pick(('0', '-1'))}) {self.selector('h')}",
                f'sort_by_label({self.vector(depth)}, "instance")',
                f"sum_over_time({self.selector()}[{self.pick(('2m + 30s', '2 * step()', 'max_of(step(), 1m)'))}])",
                f"clamp_max({self.vector(depth)}, min_of(5, time()))",
                f"limitk {self.pick(_BY)} (9, {self.vector(depth)})",
            )
        )
