"""Which steps a chart shows. Pure.

Steps are round numbers of seconds and lie on multiples of themselves, so that a chart that moves on draws the same
points again. ``$window`` in an expression stands for the stretch each point should look at: the step, but at least a
minute, so that agents that report every few seconds or once a minute show no false gaps, and a real gap shows early.
"""

from dataclasses import dataclass

from spm.errors import BadQuery
from spm.limits import QUERY_POINTS_MAX

WINDOW = "$window"
WINDOW_MS_MIN = 60_000
POINTS = 360
_ROUND_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_USUAL_STEP_MS = 10_000  # agents rarely look more often: finer steps would draw stairs


@dataclass(frozen=True, slots=True)
class Steps:
    """First and last time and the distance, in ms; both times are multiples of the distance."""

    start_ms: int
    end_ms: int
    step_ms: int


def steps_of(start_ms: int, end_ms: int, step_ms: int | None) -> Steps:
    """Round steps for the range; ``step_ms`` overrides the choice."""
    if end_ms <= start_ms:
        raise BadQuery("the range must end after it starts")
    step = step_ms or round_step(end_ms - start_ms)
    first, last = start_ms // step * step, end_ms // step * step
    if (last - first) // step >= QUERY_POINTS_MAX:
        raise BadQuery(f"a chart has at most {QUERY_POINTS_MAX} points: use a longer step")
    return Steps(first, last, step)


def first_range(history_ms: int) -> str:
    """The range a page begins with: a new app's few minutes are not lost in an empty hour."""
    return "15m" if history_ms < 20 * 60_000 else "1h"


def round_step(range_ms: int) -> int:
    """The smallest round step that gives at most ``POINTS`` points, finer than usual only for short ranges."""
    wanted = max(range_ms / POINTS, min(_USUAL_STEP_MS, range_ms / 60))
    return next((s * 1000 for s in _ROUND_S if s * 1000 >= wanted), -(-range_ms // POINTS // 86_400_000) * 86_400_000)


def window_of(step_ms: int) -> str:
    """What ``$window`` stands for, as PromQL writes it."""
    return f"{max(step_ms, WINDOW_MS_MIN)}ms"


def filled(expr: str, step_ms: int) -> str:
    """The expression with its ``$window`` filled in."""
    return expr.replace(WINDOW, window_of(step_ms))
