"""Draws an expression as columns: the engine's answer over round steps, with its provenance and warnings.

Steps are round numbers of seconds and lie on multiples of themselves, so that a chart that moves on draws the same
points again. No step is shorter than the learned period of the series: points between two samples would draw stairs.
``VARIABLES`` lists what an expression may contain in place of a duration; windows hold enough samples of that period,
so that a sender that reports once a minute shows no false gaps, and a real gap shows early.

A reader cannot tell more than ``CHART_SERIES_MAX`` lines apart, and they take long to draw: of more, or of more than
``top``, only the highest are returned, and the range of all others as a band. Enter by ``chart``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontend.presenters.names import why_empty
from frontend.presenters.periods import learn_period
from frontend.queries import QuerySession
from spm.arrays import I64
from spm.errors import BadQuery
from spm.limits import CHART_SERIES_MAX, HOUR_MS, QUERY_POINTS_MAX
from spm.query.promql.engine import Result
from spm.query.request.provenance import Provenance

RANGE_MS = 3_600_000
VARIABLES = ("$__rate_interval", "$__interval", "$__range", "$window")
UNKNOWN_PERIOD_MS = 15_000  # of series whose period cannot be learned
_WINDOW_MS_MIN = 60_000
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


def chart(session: QuerySession, now_ms: int, query: Mapping[str, Any]) -> tuple[dict[str, Any], Provenance]:
    """Evaluate ``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one."""
    end_ms = query.get("end", now_ms)
    start_ms, expr = query.get("start", end_ms - RANGE_MS), query["expr"]
    period_ms = _period(session, expr, min(end_ms, now_ms))
    steps = steps_of(start_ms, end_ms, query.get("step"), period_ms=period_ms)
    filled = fill_variables(expr, steps, period_ms or UNKNOWN_PERIOD_MS)
    result = session.engine().range(filled, steps.start_ms, steps.end_ms, steps.step_ms)
    rows = np.flatnonzero(result.present.any(axis=1))
    drawn, rest = select_highest(result, rows, min(query.get("top", CHART_SERIES_MAX), CHART_SERIES_MAX))
    lines = result.lines(drawn)
    names = [result.labels[row] for row in drawn.tolist()]
    infos, warnings = list(result.notes), list(result.warnings)
    if len(rest):
        infos.append(f"{len(rows)} series match; the {len(drawn)} highest are drawn, the others as a band")
    if not len(rows):
        infos.extend(filter(None, [why_empty(session.storage, filled, now_ms)]))
    answer = {
        "times": result.times.tolist(),
        "step": steps.step_ms,
        "series": [{"labels": labels, "values": line} for labels, line in zip(names, lines, strict=True)],
        **({"rest": _band(result, rest)} if len(rest) else {}),
        "infos": infos,
        "warnings": warnings,
    }
    return answer, result.provenance


def select_highest(result: Result, rows: I64, count: int) -> tuple[I64, I64]:
    """Split rows into the ``count`` with the highest mean, and the rest; both in the order of the result."""
    if len(rows) <= count:
        return rows, rows[:0]
    present = result.present[rows]
    values = np.where(present & np.isfinite(result.values[rows]), result.values[rows], 0.0)
    means = values.sum(axis=1) / present.sum(axis=1)
    highest = np.sort(np.argsort(-means, kind="stable")[:count])
    return rows[highest], np.delete(rows, highest)


def _band(result: Result, rows: I64) -> dict[str, Any]:
    """Return the range of some series at each step, and their number."""
    has_value = result.present[rows] & np.isfinite(result.values[rows])
    low = np.where(has_value, result.values[rows], np.inf).min(axis=0)
    high = np.where(has_value, result.values[rows], -np.inf).max(axis=0)
    some = np.logical_or.reduce(has_value, axis=0).tolist()
    columns = [[v if any_ else None for v, any_ in zip(side.tolist(), some, strict=True)] for side in (low, high)]
    return {"count": len(rows), "low": columns[0], "high": columns[1]}


def steps_of(start_ms: int, end_ms: int, step_ms: int | None, *, period_ms: int | None = None) -> Steps:
    """Choose round steps for the range, of at least the period of the series; ``step_ms`` overrides the choice."""
    if end_ms <= start_ms:
        raise BadQuery("the range must end after it starts")
    step = step_ms or round_step(end_ms - start_ms, period_ms or 0)
    first, last = start_ms // step * step, end_ms // step * step
    if (last - first) // step >= QUERY_POINTS_MAX:
        raise BadQuery(f"a chart has at most {QUERY_POINTS_MAX} points; use a longer step")
    return Steps(first, last, step)


def first_range(history_ms: int) -> str:
    """Return the first range of a page: a new app's few minutes would be lost in an empty hour."""
    return "15m" if history_ms < 20 * 60_000 else "1h"


def round_step(range_ms: int, period_ms: int = 0) -> int:
    """Return the smallest round step of a period or more that gives at most ``POINTS`` points.

    Short ranges get finer steps. Series of a very long period get a few points nevertheless.
    """
    smallest_ms = max(range_ms / POINTS, min(_USUAL_STEP_MS, range_ms / 60), min(period_ms, range_ms / _POINTS_MIN))
    return next(
        (s * 1000 for s in _ROUND_S if s * 1000 >= smallest_ms), -(-range_ms // POINTS // 86_400_000) * 86_400_000
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


def _period(session: QuerySession, expr: str, end_ms: int) -> int | None:
    """Learn the period of the expression's series; ``None`` for an expression that the engine will refuse."""
    try:
        return learn_period(session.storage, session.budget(), _VARIABLE.sub(_any_duration, expr), end_ms)
    except BadQuery:
        return None


def _any_duration(match: re.Match[str]) -> str:
    return match["string"] or "1m"
