"""Chooses the steps of a chart, and with them whether samples, hours or days can answer it. Pure.

Steps are round numbers of seconds and lie on multiples of themselves, so that a chart that moves on draws the same
points again. ``$window`` in an expression stands for the time each point looks back: the step, but at least a minute,
so that agents that report once a minute show no false gaps, and a real gap shows early.
"""

from dataclasses import dataclass

from spm.errors import BadQuery
from spm.limits import QUERY_POINTS_MAX

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
