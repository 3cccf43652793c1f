"""Draws an expression as columns: the engine's answer over round steps, with its provenance and warnings.

Steps are round numbers of seconds and lie on multiples of themselves, so that a chart that moves on draws the same
points again. No step is shorter than the learned period of the series: points between two samples would draw stairs.
``VARIABLES`` lists what an expression may contain in place of a duration; windows hold enough samples of that period,
so that a sender that reports once a minute shows no false gaps, and a real gap shows early.

A reader cannot tell more than ``CHART_SERIES_MAX`` lines apart, and they take long to draw: of more, or of more than
``top``, only the highest are returned, and the range of all others as a band.

No spike is lost, and no gap, in a chart of so many ``pixels``. A selector alone draws the lowest and the highest sample
of each step, where a step has several, else the samples themselves, without five minutes of the last one after an end;
more points than two per pixel are thinned to the extremes of each pixel. With ``cells``, each step has one value.

Enter by ``chart``, or by ``draw`` for the columns themselves.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from frontend.presenters.charting import thinning
from frontend.presenters.charting.unmatched import why_unmatched
from frontend.presenters.names import why_empty
from frontend.presenters.periods import learn_period
from frontend.queries import QuerySession
from spm.arrays import F64, I64
from spm.errors import BadQuery
from spm.limits import CHART_SERIES_MAX, HOUR_MS, QUERY_POINTS_MAX
from spm.query.promql.engine import Result
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.query.request.batches import METRIC_NAME
from spm.query.request.provenance import Provenance

RANGE_MS = 3_600_000
VARIABLES = ("$__rate_interval", "$__interval", "$__range", "$window")
CELL_VALUES = {"mean": "avg_over_time", "last": "last_over_time"}  # what a cell of a heat map or of states shows
QUICK_RANGES = ("5m", "15m", "30m", "1h", "3h", "6h", "12h", "24h", "2d", "7d", "30d", "90d")
UNKNOWN_PERIOD_MS = 15_000  # of series whose period cannot be learned
_WINDOW_MS_MIN = 60_000
_SETTLED_MS = 60_000  # a point of that age seldom changes
_SETTLED_STEPS = 2
POINTS = 360
_POINTS_MIN = 3
_ROUND_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_USUAL_STEP_MS = 10_000  # agents rarely report more often: finer steps would draw stairs
_STRING = r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)"""
_VARIABLE = re.compile(rf"{_STRING}|(?P<variable>{'|'.join(map(re.escape, VARIABLES))})\b", re.DOTALL)
_GROWTH_OF_WINDOW = re.compile(r"\b((?:rate|irate|increase|delta|idelta|deriv)\s*\([^()\[\]]*\[)\$window\]")


@dataclass(frozen=True, slots=True)
class Steps:
    """First time, last time and step in ms; both times are multiples of the step."""

    start_ms: int
    end_ms: int
    step_ms: int


@dataclass(frozen=True, slots=True)
class Band:
    """The range of ``count`` lines that are not drawn one by one."""

    count: int
    low: F64
    high: F64


@dataclass(frozen=True, slots=True)
class Columns:
    """The lines of a chart; ``values`` is [S, T]."""

    times: I64
    step_ms: int
    labels: Sequence[Mapping[str, str]]
    values: F64
    rest: Band | None = None

    def settled_ms(self) -> int:
        """Return the time up to which points seldom change: 0 if there are none."""
        if not len(self.times):
            return 0
        until_ms = int(self.times[-1]) - max(_SETTLED_MS, _SETTLED_STEPS * self.step_ms)
        settled = self.times[self.times <= until_ms]
        return int(settled[-1]) if len(settled) else 0

    def digest(self, until_ms: int) -> str:
        """Return a digest of the lines up to a time."""
        count = int(np.searchsorted(self.times, until_ms, "right"))
        digest = hashlib.blake2b(orjson.dumps([self.step_ms, self.labels]), digest_size=12)
        digest.update(self.times[:count].tobytes())
        rest = [] if self.rest is None else [self.rest.low, self.rest.high]
        for column in (*self.values, *rest):
            digest.update(column[:count].tobytes())
        return digest.hexdigest()

    def newer_than(self, until_ms: int) -> "Columns":
        """Return the points after a time."""
        first = int(np.searchsorted(self.times, until_ms, "right"))
        rest = self.rest and Band(self.rest.count, self.rest.low[first:], self.rest.high[first:])
        return replace(self, times=self.times[first:], values=self.values[:, first:], rest=rest)

    def rounded(self) -> "Columns":
        """Return the same lines with six digits, which take half the bytes."""
        rest = self.rest and Band(self.rest.count, *map(thinning.round_digits, (self.rest.low, self.rest.high)))
        return replace(self, values=thinning.round_digits(self.values), rest=rest)

    def thinned(self, pixels: int) -> "Columns":
        """Return at most two points per pixel: of each pixel, the lowest and the highest of each line."""
        width = -(-len(self.times) // pixels)
        if width <= 2:
            return self
        times, values = thinning.extremes(self.times, self.values, width)
        rest = self.rest and Band(self.rest.count, *thinning.outline(self.rest.low, self.rest.high, width, len(times)))
        return replace(self, times=times, step_ms=self.step_ms * width, values=values, rest=rest)

    def as_dict(self) -> dict[str, Any]:
        """Return what is sent; arrays become lists as they are written."""
        values = np.ascontiguousarray(self.values)
        answer: dict[str, Any] = {
            "times": np.ascontiguousarray(self.times),
            "step": self.step_ms,
            "series": [{"labels": labels, "values": line} for labels, line in zip(self.labels, values, strict=True)],
        }
        if self.rest is not None:
            low, high = np.ascontiguousarray(self.rest.low), np.ascontiguousarray(self.rest.high)
            answer["rest"] = {"count": self.rest.count, "low": low, "high": high}
        return answer


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart before it is written: its columns, and what its answer says about them."""

    expr: str  # with durations in place of variables
    step_ms: int  # of the evaluation; thinned columns have a longer one
    columns: Columns
    infos: Sequence[str]
    warnings: Sequence[str]
    provenance: Provenance
    shows_extremes: bool  # two points per step: the lowest and the highest sample of each


def chart(session: QuerySession, now_ms: int, query: Mapping[str, Any]) -> tuple[dict[str, Any], Provenance]:
    """Evaluate ``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one."""
    drawing = draw(session, now_ms, query)
    answer = drawing.columns.as_dict() | {"infos": drawing.infos, "warnings": drawing.warnings}
    return answer, drawing.provenance


def draw(session: QuerySession, now_ms: int, query: Mapping[str, Any]) -> Drawing:
    """Evaluate a query; with ``since``, from its ``start`` on if that is the start of the same steps."""
    end_ms = query.get("end", now_ms)
    start_ms, expr = query.get("start", end_ms - RANGE_MS), query["expr"]
    period_ms = _period(session, expr, min(end_ms, now_ms))
    pixels = query.get("pixels")
    steps = steps_of(start_ms, end_ms, query.get("step"), period_ms=period_ms, points=pixels or POINTS)
    since = query.get("since")
    if since and since["step"] == steps.step_ms and 0 <= steps.start_ms - since["start"] <= (end_ms - start_ms) // 4:
        steps = replace(steps, start_ms=since["start"])
    filled = fill_variables(expr, steps, period_ms or UNKNOWN_PERIOD_MS)
    most = min(query.get("top", CHART_SERIES_MAX), CHART_SERIES_MAX)
    metric = _metric_of_selector(filled) if pixels and period_ms else ""
    cells = query.get("cells")
    has_several = bool(metric) and steps.step_ms > (period_ms or 0)  # samples in a step
    extremes = _extremes(session, filled, metric, steps, most) if has_several and not cells else None
    window_ms = steps.step_ms if has_several else window_of(steps.step_ms, period_ms or 0)
    value = CELL_VALUES.get(cells or "", "last_over_time")
    looked = f"{value}({filled}[{window_ms}ms])" if metric else filled
    columns, result = extremes or _lines(session, looked, steps, most)
    if pixels:
        columns = columns.thinned(pixels)
    infos, warnings = list(result.notes), list(result.warnings)
    if columns.rest:
        drawn, count = len(columns.labels), columns.rest.count + len(columns.labels)
        infos.append(f"{count} series match; the {drawn} highest are drawn, the others as a band")
    if not columns.labels:
        infos.extend(
            filter(None, [why_empty(session.storage, filled, now_ms) or _why_unmatched(session, filled, steps)])
        )
    return Drawing(filled, steps.step_ms, columns, infos, warnings, result.provenance, extremes is not None)


def steps_for(session: QuerySession, now_ms: int, query: Mapping[str, Any], exprs: Sequence[str]) -> Steps:
    """Choose steps that suit several expressions: the slowest of their series counts."""
    end_ms = query.get("end", now_ms)
    start_ms = query.get("start", end_ms - RANGE_MS)
    periods_ms = [_period(session, expr, min(end_ms, now_ms)) for expr in exprs]
    slowest_ms = max((each for each in periods_ms if each), default=None)
    return steps_of(start_ms, end_ms, None, period_ms=slowest_ms, points=query.get("pixels", POINTS))


def _lines(session: QuerySession, expr: str, steps: Steps, most: int) -> tuple[Columns, Result]:
    result = session.engine().range(expr, steps.start_ms, steps.end_ms, steps.step_ms)
    return columns_of(result, steps.step_ms, most), result


def _why_unmatched(session: QuerySession, expr: str, steps: Steps) -> str:
    def evaluate(text: str) -> Sequence[Mapping[str, str]]:
        return session.engine().range(text, steps.start_ms, steps.end_ms, steps.step_ms).labels

    return why_unmatched(evaluate, expr)


def _extremes(session: QuerySession, expr: str, metric: str, steps: Steps, most: int) -> tuple[Columns, Result]:
    """Draw the lowest and the highest sample of each step of a selector of one metric."""
    window, at = f"[{steps.step_ms}ms]", (steps.start_ms, steps.end_ms, steps.step_ms)
    low, high = (session.engine().range(f"{side}_over_time({expr}{window})", *at) for side in ("min", "max"))
    columns = columns_of(thinning.interleave(low, high, steps.step_ms), steps.step_ms, most)
    return replace(columns, labels=[{METRIC_NAME: metric, **labels} for labels in columns.labels]), replace(
        low, notes=[*low.notes, "the lowest and the highest sample of each step are drawn"]
    )


def _metric_of_selector(expr: str) -> str:
    """Return the metric of an expression that selects series of one metric and does nothing else; empty for others."""
    try:
        node = parse(expr)
    except BadQuery:
        return ""  # the engine says what is wrong
    text = expr.strip()
    if not isinstance(node, plan.Selector) or node.at is not None or node.offset_ms or "#" in text or text[0] == "(":
        return ""
    return next((each.value for each in node.matchers if each.name == METRIC_NAME and each.op == "="), "")


def columns_of(result: Result, step_ms: int, most: int) -> Columns:
    """Take the ``most`` highest series of a result as lines, and the range of all others."""
    values = np.where(result.present & np.isfinite(result.values), result.values, np.nan)
    rows = np.flatnonzero(result.present.any(axis=1))
    drawn, others = select_highest(values, rows, most)
    labels = [result.labels[row] for row in drawn.tolist()]
    return Columns(result.times, step_ms, labels, values[drawn], _band(values[others]) if len(others) else None)


def select_highest(values: F64, rows: I64, count: int) -> tuple[I64, I64]:
    """Split rows into the ``count`` with the highest mean, and the rest; both in the order of the rows."""
    if len(rows) <= count:
        return rows, rows[:0]
    has_value = ~np.isnan(values[rows])
    means = np.where(has_value, values[rows], 0.0).sum(axis=1) / np.maximum(has_value.sum(axis=1), 1)
    highest = np.sort(np.argsort(-means, kind="stable")[:count])
    return rows[highest], np.delete(rows, highest)


def _band(values: F64) -> Band:
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return Band(len(values), low, high)


def steps_of(
    start_ms: int, end_ms: int, step_ms: int | None, *, period_ms: int | None = None, points: int = POINTS
) -> Steps:
    """Choose round steps for the range, of at least the period of the series; ``step_ms`` overrides the choice."""
    if end_ms <= start_ms:
        raise BadQuery("the range must end after it starts")
    step = step_ms or round_step(end_ms - start_ms, period_ms or 0, points)
    first, last = start_ms // step * step, end_ms // step * step
    if (last - first) // step >= QUERY_POINTS_MAX:
        raise BadQuery(f"a chart has at most {QUERY_POINTS_MAX} points; use a longer step")
    return Steps(first, last, step)


def first_range(history_ms: int) -> str:
    """Return the first range of a page: a new app's few minutes would be lost in an empty hour."""
    return "15m" if history_ms < 20 * 60_000 else "1h"


def round_step(range_ms: int, period_ms: int = 0, points: int = POINTS) -> int:
    """Return the smallest round step of a period or more that gives at most so many points.

    Short ranges get finer steps. Series of a very long period get a few points nevertheless.
    """
    smallest_ms = max(range_ms / points, min(_USUAL_STEP_MS, range_ms / 60), min(period_ms, range_ms / _POINTS_MIN))
    return next(
        (s * 1000 for s in _ROUND_S if s * 1000 >= smallest_ms), -(-range_ms // points // 86_400_000) * 86_400_000
    )


def rate_interval(step_ms: int, period_ms: int) -> int:
    """Return the window of ``rate`` and ``increase`` in ms, as Grafana has it: max(step + period, 4 periods).

    A window holds at least two samples that way, and neighbouring windows leave no growth out. Steps of whole hours
    stay: hourly rollup rows answer them exactly, with the growth between two hours.
    """
    if step_ms % HOUR_MS == 0 and step_ms >= 4 * period_ms:
        return step_ms
    return max(step_ms + period_ms, 4 * period_ms)


def window_of(step_ms: int, period_ms: int) -> int:
    """Return the time in ms that each point of a gauge looks back: the step, at least a minute and 1.5 periods."""
    return max(step_ms, _WINDOW_MS_MIN, period_ms * 3 // 2)


def fill_variables(expr: str, steps: Steps, period_ms: int) -> str:
    """Replace the variables in the expression, except in texts. In ``rate`` and its like, ``$window`` suits rates."""
    durations_ms = {
        "$__rate_interval": rate_interval(steps.step_ms, period_ms),
        "$__interval": steps.step_ms,
        "$__range": max(steps.end_ms - steps.start_ms, steps.step_ms),
        "$window": window_of(steps.step_ms, period_ms),
    }
    upgraded = _GROWTH_OF_WINDOW.sub(r"\1$__rate_interval]", expr)
    return _VARIABLE.sub(lambda match: match["string"] or f"{durations_ms[match['variable']]}ms", upgraded)


def without_variables(expr: str) -> str:
    """Put a minute in place of each variable: a text that can be parsed, with all its parts where they were."""
    return _VARIABLE.sub(lambda match: match["string"] or "1m".ljust(len(match["variable"])), expr)


def _period(session: QuerySession, expr: str, end_ms: int) -> int | None:
    """Learn the period of the expression's series; ``None`` for an expression that the engine will refuse."""
    try:
        return learn_period(session.storage, session.budget(), without_variables(expr), end_ms)
    except BadQuery:
        return None
