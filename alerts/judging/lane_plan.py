"""Chooses which steps of a lane to judge next, and which to judge again. Pure.

1. All steps are judged in order, also those missed during a stall, in chunks. Steps more than a day old are skipped by
   an operation of their own, so that the gap is on record. A position ahead of now, which a wrong clock wrote, is taken
   back.
2. A step is judged when everything is known that it waits for. If the pipeline is so slow that a step is five minutes
   old, it is judged without its absences, and again when the pipeline has caught up.
3. What became known since the last operation and reaches back behind the position makes the operation begin there. It
   is bounded by a look-back, and put off if the lane was judged again a moment ago; what is put off is owed.

Enter by ``decide``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from alerts.judging import limits


class OperationKind(StrEnum):
    """What an operation did with its steps."""

    JUDGE = "judge"
    SKIP = "skip"
    REWIND = "rewind"


@dataclass(frozen=True, slots=True)
class Operation:
    """The steps (after, upto] of a lane and what to do with them; both are steps.

    ``behind_ms``: from this step on absences are not judged, because the pipeline was behind.
    """

    kind: OperationKind
    after_ms: int
    upto_ms: int
    behind_ms: int | None = None


@dataclass(frozen=True, slots=True)
class News:
    """What reaches back: samples or retractions from ``from_ms`` on, of some metrics (ids; None: of any)."""

    from_ms: int
    metrics: frozenset[int] | None = None

    def join(self, other: "News | None") -> "News":
        """Return both as one."""
        if other is None:
            return self
        metrics = None if self.metrics is None or other.metrics is None else self.metrics | other.metrics
        return News(min(self.from_ms, other.from_ms), metrics)


@dataclass(frozen=True, slots=True)
class LaneState:
    """What a decision needs of a lane: its position, what it owes, and since which step it was judged behind."""

    position_ms: int
    first_ms: int = 0
    owed: News | None = None
    behind_ms: int | None = None
    rejudged_ms: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """An operation, and what the lane owes, lacks and did after it. ``news``: why steps are judged again."""

    operation: Operation
    news: News | None = None
    owed: News | None = None
    rejudged_ms: int = 0


def aligned_ms(time_ms: int, period_ms: int) -> int:
    """Return the latest step that is not after a time."""
    return time_ms // period_ms * period_ms


def decide(
    lane: LaneState,
    *,
    now_ms: int,
    ready_ms: int,
    frontier_ms: int,
    news: Callable[[], News | None],
    period_ms: int,
) -> Decision | None:
    """Return what to do next with a lane; None if no step is due.

    ``ready_ms`` is the time up to which nothing is waited for, ``frontier_ms`` that up to which all is known. ``news``
    is asked only when there is a step to judge; what reaches back is judged again together with it.
    """
    behind_ms, upto_ms = _behind(lane, now_ms, ready_ms, frontier_ms, period_ms)
    operation = next_steps(lane.position_ms, now_ms=now_ms, ready_ms=upto_ms, period_ms=period_ms)
    if operation is None:
        return None
    if operation.kind is not OperationKind.JUDGE:
        behind = lane.behind_ms if operation.kind is OperationKind.SKIP else None
        return Decision(replace(operation, behind_ms=behind), None, lane.owed, lane.rejudged_ms)
    is_caught_up = lane.behind_ms is not None and behind_ms is None
    reasons = [news(), lane.owed, News(lane.behind_ms) if lane.behind_ms is not None and is_caught_up else None]
    reason = _joined(reasons)
    after_ms = _begin(lane, reason, period_ms)
    is_soon = 0 <= now_ms - lane.rejudged_ms < limits.REJUDGE_EVERY_MS and not is_caught_up
    if after_ms < lane.position_ms and not is_soon:
        return Decision(replace(operation, after_ms=after_ms, behind_ms=behind_ms), reason, None, now_ms)
    owed = reason if after_ms < lane.position_ms else None
    return Decision(replace(operation, behind_ms=behind_ms), None, owed, lane.rejudged_ms)


def _joined(reasons: Iterable[News | None]) -> News | None:
    joined: News | None = None
    for each in reasons:
        joined = joined if each is None else each.join(joined)
    return joined


def _behind(lane: LaneState, now_ms: int, ready_ms: int, frontier_ms: int, period_ms: int) -> tuple[int | None, int]:
    """Return from which step on absences are not judged, and up to where steps may be judged."""
    overdue_ms = aligned_ms(now_ms - limits.PIPELINE_MAX_MS, period_ms)
    next_ms = lane.position_ms + period_ms
    if frontier_ms < overdue_ms and next_ms <= overdue_ms:
        first_ms = max(next_ms, aligned_ms(ready_ms, period_ms) + period_ms)
        return lane.behind_ms if lane.behind_ms is not None else first_ms, max(ready_ms, overdue_ms)
    is_caught_up = lane.behind_ms is not None and ready_ms >= lane.position_ms
    return None if is_caught_up else lane.behind_ms, ready_ms


def _begin(lane: LaneState, news: News | None, period_ms: int) -> int:
    """Return the step after which judging begins: one before the oldest news, but bounded."""
    if news is None:
        return lane.position_ms
    before_ms = -(-news.from_ms // period_ms) * period_ms - period_ms
    oldest_ms = max(lane.first_ms, lane.position_ms - limits.LOOK_BACK_MS)
    return min(lane.position_ms, max(before_ms, oldest_ms))


def next_steps(position_ms: int, *, now_ms: int, ready_ms: int, period_ms: int) -> Operation | None:
    """Return what to do next with a lane that is judged up to ``position_ms``; None if no step is due.

    ``ready_ms`` is the time up to which steps may be judged: now, or earlier while data is on its way.
    """
    newest = aligned_ms(min(now_ms, ready_ms), period_ms)
    if position_ms > now_ms + limits.REWIND_AFTER_MS:
        return Operation(OperationKind.REWIND, aligned_ms(now_ms, period_ms), aligned_ms(now_ms, period_ms))
    oldest = aligned_ms(now_ms - limits.CATCH_UP_MAX_MS, period_ms)
    if position_ms < oldest:
        return Operation(OperationKind.SKIP, position_ms, oldest)
    if newest <= position_ms:
        return None
    return Operation(OperationKind.JUDGE, position_ms, min(newest, position_ms + limits.CHUNK_STEPS_MAX * period_ms))
