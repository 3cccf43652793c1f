"""Chooses which steps of a lane to judge next. Pure.

All steps are judged in order, also those missed during a stall, in chunks. Steps more than a day old are skipped by an
operation of their own, so that the gap is on record. A position ahead of now, which a wrong clock wrote, is taken back.
Enter by ``next_steps``.
"""

from dataclasses import dataclass
from enum import StrEnum

from alerts.judging import limits


class OperationKind(StrEnum):
    """What an operation did with its steps."""

    JUDGE = "judge"
    SKIP = "skip"
    REWIND = "rewind"


@dataclass(frozen=True, slots=True)
class Operation:
    """The steps (after, upto] of a lane and what to do with them; both are steps."""

    kind: OperationKind
    after_ms: int
    upto_ms: int


def aligned_ms(time_ms: int, period_ms: int) -> int:
    """Return the latest step that is not after a time."""
    return time_ms // period_ms * period_ms


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
