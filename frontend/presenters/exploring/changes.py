"""Finds what changed in an app: the series of a range that differ most from the time of equal length before it.

1. The names of the app's metrics are read, in an order that a deadline cuts evenly. 2. Some metrics at a time are
evaluated over both times by the query engine, on round steps: whole hours come from rollup rows, all else from samples.
3. Numpy compares the halves of all series at once: the shift of the mean, in units of the spread before and of a tenth
of the value, so that a constant that moves by a percent ranks below one that doubles. Counters are compared by their
growth. 4. The highest scores stay, at most three of a metric.

The cost is bounded: by the deadline, by the limits of each query, and by what is kept. The answer says how much was
looked at. Enter by ``find_changes``; ``score_changes`` is pure.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from frontend.presenters.charts import round_step
from frontend.presenters.names import SPAN_MS
from frontend.queries import QuerySession
from spm.arrays import BOOL, F64, I64
from spm.clock import Clock
from spm.errors import BadQuery, QueryTimeout, QueryTooLarge
from spm.query.formats.promql_format import format_selector
from spm.query.promql.engine import Engine, Result
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.request.budget import Budget, QueryLimits

CHANGES_SECONDS = 4.0  # a person waits for the answer
CHANGES_SHOWN = 20
_OF_ONE_METRIC = 3
_METRICS_AT_ONCE = 32
_STEPS = 30  # of each half; at least half as many
_SCORE_MIN = 1.0
_APPEARED, _STOPPED = 3.0, 5.0  # as scores: 10 is the highest shift that a constant can have
_OF_VALUE = 0.1  # a shift below that share of the value is small
_GROWING_MIN = 5  # steps in which a counter grows
_COPY = "__changed__"  # a label that keeps the metric's name while the function drops it


@dataclass(frozen=True, slots=True)
class Span:
    """The two times that are compared, on round steps: before from ``start_ms`` on, and after from ``middle_ms`` on."""

    start_ms: int
    middle_ms: int
    end_ms: int
    step_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """A series that changed. ``before`` and ``after`` are means, of a counter its growth a second; NaN: no samples."""

    metric: str
    labels: dict[str, str]
    is_counter: bool
    before: float
    after: float
    score: float
    values: Sequence[float | None]  # of both times, from 0 to 100

    @property
    def kind(self) -> str:
        """What happened to the series."""
        if np.isnan(self.before) or np.isnan(self.after):
            return "stopped" if np.isnan(self.after) else "appeared"
        return "higher" if self.after > self.before else "lower"

    @property
    def expr(self) -> str:
        """The expression that draws the series."""
        selector = format_selector(self.metric, [Matcher(name, "=", value) for name, value in self.labels.items()])
        return f"rate({selector}[$__rate_interval])" if self.is_counter else selector


@dataclass(slots=True)
class Changes:
    """The changes of an app, and how much of it was looked at."""

    span: Span
    metrics: int
    rows: list[Change] = field(default_factory=list)
    metrics_read: int = 0
    series_read: int = 0
    too_large: list[str] = field(default_factory=list)
    is_late: bool = False
    others: int = 0  # series that changed as much as those shown at the end, or less

    def keep(self, rows: Sequence[Change], others: int) -> None:
        """Add changes, and keep the highest."""
        ranked = sorted([*self.rows, *rows], key=lambda each: (-each.score, each.metric, sorted(each.labels.items())))
        self.rows, dropped = ranked[:CHANGES_SHOWN], ranked[CHANGES_SHOWN:]
        self.others += len(dropped) + others


def span_of(start_ms: int, end_ms: int) -> Span:
    """Choose round steps for a range and the time before it; raises ``BadQuery`` for an empty one."""
    if end_ms <= start_ms:
        raise BadQuery("the range must end after it starts")
    step_ms = round_step(end_ms - start_ms, points=_STEPS)
    end_ms = end_ms // step_ms * step_ms
    count = max((end_ms - start_ms) // step_ms, 2)
    return Span(end_ms - 2 * count * step_ms, end_ms - count * step_ms, end_ms, step_ms)


def find_changes(
    session: QuerySession,
    span: Span,
    *,
    clock: Clock,
    among: Sequence[Matcher] = (),
    seconds: float = CHANGES_SECONDS,
) -> Changes:
    """Rank the series of an app, or those ``among`` it, by how much they changed; ends after so many seconds."""
    until_s = clock.monotonic() + seconds
    selectors = [list(among)] if among else []
    names = session.storage.label_values(METRIC_NAME, selectors, span.end_ms - SPAN_MS, span.end_ms)
    names = sorted(names, key=lambda name: zlib.crc32(name.encode()))
    changes = Changes(span, len(names))
    waiting = [names[at : at + _METRICS_AT_ONCE] for at in range(0, len(names), _METRICS_AT_ONCE)][::-1]
    while waiting:
        chunk, left_s = waiting.pop(), until_s - clock.monotonic()
        try:
            if left_s <= 0:
                raise QueryTimeout("the time of the search is over")
            budget = Budget(QueryLimits(timeout_s=left_s), clock, session.cancellation)
            result = _read(Engine(session.storage, budget=budget), chunk, among, span)
        except QueryTimeout:
            changes.is_late = True
            break
        except QueryTooLarge:
            half = len(chunk) // 2
            waiting += [part for part in (chunk[half:], chunk[:half]) if part] if half else []
            changes.too_large += [] if half else chunk
            continue
        changes.metrics_read += len(chunk)
        changes.series_read += len(result.labels)
        changes.keep(*_changed(result, span))
    return changes


def _read(engine: Engine, metrics: Sequence[str], among: Sequence[Matcher], span: Span) -> Result:
    """Evaluate the mean of each step; the first one reaches back to the start of the time before."""
    names = "|".join(map(_escape, metrics))
    selector = format_selector("", [Matcher(METRIC_NAME, "=~", names), *among])
    means = f"avg_over_time({selector}[{span.step_ms}ms])"
    expr = f'label_replace({means}, "{_COPY}", "$1", "{METRIC_NAME}", "(?s:(.*))")'
    return engine.range(expr, span.start_ms + span.step_ms, span.end_ms, span.step_ms)


def _escape(name: str) -> str:
    """Write a name as a regular expression that matches it alone."""
    return re.sub(r"[^\w:]", lambda sign: f"\\{sign[0]}" if sign[0] in "^\\" else f"[{sign[0]}]", name)


def _changed(result: Result, span: Span) -> tuple[list[Change], int]:
    """Return the series of a result that changed, at most three of a metric, and how many more there are."""
    values = np.where(result.present & np.isfinite(result.values), result.values, np.nan)
    if not len(values):
        return [], 0
    values, counters, before, after, scores = score_changes(values, span.step_ms)
    order = np.argsort(-scores, kind="stable")
    order = order[: int(np.count_nonzero(scores >= _SCORE_MIN))]
    rows: list[Change] = []
    shown: dict[str, int] = {}
    for at in _highest_of_each(order, result, shown):
        labels = dict(result.labels[at])
        metric = labels.pop(_COPY)
        means = float(before[at]), float(after[at])
        rows.append(Change(metric, labels, bool(counters[at]), *means, float(scores[at]), _scaled(values[at])))
    return rows, len(order) - len(rows)


def _highest_of_each(order: I64, result: Result, shown: dict[str, int]) -> Iterator[int]:
    """Yield rows in their order, of each metric the first ones, until the page is full."""
    count = 0
    for at in order.tolist():
        metric = result.labels[at][_COPY]
        shown[metric] = shown.get(metric, 0) + 1
        if shown[metric] <= _OF_ONE_METRIC:
            yield at
            count += 1
        if count == CHANGES_SHOWN:
            return


def score_changes(values: F64, step_ms: int) -> tuple[F64, BOOL, F64, F64, F64]:
    """Score series [S, T] by the shift of their mean between the halves; NaN where a step has no samples. Pure.

    Returns the values that were compared (of counters their growth a second), which series are counters, the means
    before and after, and the scores: 0 for a series that has too few values.
    """
    counters = _are_counters(values)
    growth = np.full_like(values, np.nan)
    growth[:, 1:] = np.maximum(np.diff(values, axis=1), 0.0) * (1000 / step_ms)
    compared = np.where(counters[:, None], growth, values)
    half = values.shape[1] // 2
    (mean_before, spread, has_before), (mean_after, _, has_after) = map(_mean_and_spread, np.split(compared, [half], 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = spread + _OF_VALUE * np.maximum(np.abs(mean_before), np.abs(mean_after))
        shifts = np.abs(mean_after - mean_before) / scale
    scores = np.where(np.isfinite(shifts), shifts, 0.0)
    scores = np.where(has_before & ~has_after, _STOPPED, np.where(has_after & ~has_before, _APPEARED, scores))
    return compared, counters, mean_before, mean_after, scores


def _are_counters(values: F64) -> BOOL:
    """Which series only grow, in several steps, but for one fall: a counter starts again at 0."""
    steps = np.diff(values, axis=1)
    grows, falls = np.count_nonzero(steps > 0, axis=1), np.count_nonzero(steps < 0, axis=1)
    counters: BOOL = (grows >= _GROWING_MIN) & (falls <= 1) & (grows > 10 * falls)
    return counters


def _mean_and_spread(values: F64) -> tuple[F64, F64, BOOL]:
    """Return the mean and standard deviation of each row's values, NaN without any, and whether there are some."""
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(present, values, 0.0).sum(axis=1) / count
        spread = np.sqrt((np.where(present, values - mean[:, None], 0.0) ** 2).sum(axis=1) / count)
    return mean, spread, count > 0


def _scaled(values: F64) -> list[float | None]:
    """Scale values to 0 to 100, for a small line."""
    present = values[~np.isnan(values)]
    if not len(present):
        return []
    low, high = present.min(), present.max()
    scaled = (values - low) / (high - low) * 100 if high > low else values * 0 + 50
    return [None if value != value else round(value, 1) for value in scaled.tolist()]  # NaN
