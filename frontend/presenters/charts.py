"""Draws an expression as columns: the engine's answer over round steps, with its provenance and warnings.

Steps are round numbers of seconds and lie on multiples of themselves, so that a chart that moves on draws the same
points again. ``$window`` in an expression stands for the time each point looks back: the step, but at least a minute,
so that agents that report once a minute show no false gaps, and a real gap shows early.

A reader cannot tell more than ``CHART_SERIES_MAX`` lines apart, and they take long to draw: only the first ones are
returned, and ``infos`` says how many there are. Enter by ``chart``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spm.errors import BadQuery
from spm.limits import CHART_SERIES_MAX, QUERY_POINTS_MAX
from spm.query.promql.engine import Engine
from spm.query.request.provenance import Provenance

RANGE_MS = 3_600_000
WINDOW = "$window"
WINDOW_MS_MIN = 60_000
POINTS = 360
_ROUND_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_USUAL_STEP_MS = 10_000  # agents rarely report more often: finer steps would draw stairs


@dataclass(frozen=True, slots=True)
class Steps:
    """First time, last time and step in ms; both times are multiples of the step."""

    start_ms: int
    end_ms: int
    step_ms: int


def chart(engine: Engine, now_ms: int, query: Mapping[str, Any]) -> tuple[dict[str, Any], Provenance]:
    """Evaluate ``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one."""
    end_ms = query.get("end", now_ms)
    steps = steps_of(query.get("start", end_ms - RANGE_MS), end_ms, query.get("step"))
    result = engine.range(fill_window(query["expr"], steps.step_ms), steps.start_ms, steps.end_ms, steps.step_ms)
    rows = np.flatnonzero(result.present.any(axis=1))
    drawn = rows[:CHART_SERIES_MAX]
    lines = result.lines(drawn)
    names = [result.labels[row] for row in drawn.tolist()]
    infos, warnings = list(result.notes), list(result.warnings)
    if len(rows) > CHART_SERIES_MAX:
        infos.append(f"{len(rows)} series match; the first {CHART_SERIES_MAX} are drawn")
    answer = {
        "times": result.times.tolist(),
        "step": steps.step_ms,
        "series": [{"labels": labels, "values": line} for labels, line in zip(names, lines, strict=True)],
        "infos": infos,
        "warnings": warnings,
    }
    return answer, result.provenance


def steps_of(start_ms: int, end_ms: int, step_ms: int | None) -> Steps:
    """Choose round steps for the range; ``step_ms`` overrides the choice."""
    if end_ms <= start_ms:
        raise BadQuery("the range must end after it starts")
    step = step_ms or round_step(end_ms - start_ms)
    first, last = start_ms // step * step, end_ms // step * step
    if (last - first) // step >= QUERY_POINTS_MAX:
        raise BadQuery(f"a chart has at most {QUERY_POINTS_MAX} points; use a longer step")
    return Steps(first, last, step)


def first_range(history_ms: int) -> str:
    """Return the first range of a page: a new app's few minutes would be lost in an empty hour."""
    return "15m" if history_ms < 20 * 60_000 else "1h"


def round_step(range_ms: int) -> int:
    """Return the smallest round step that gives at most ``POINTS`` points; short ranges get finer steps."""
    smallest_ms = max(range_ms / POINTS, min(_USUAL_STEP_MS, range_ms / 60))
    return next(
        (s * 1000 for s in _ROUND_S if s * 1000 >= smallest_ms), -(-range_ms // POINTS // 86_400_000) * 86_400_000
    )


def window_of(step_ms: int) -> str:
    """Write the value of ``$window`` as PromQL."""
    return f"{max(step_ms, WINDOW_MS_MIN)}ms"


def fill_window(expr: str, step_ms: int) -> str:
    """Replace ``$window`` in the expression."""
    return expr.replace(WINDOW, window_of(step_ms))
