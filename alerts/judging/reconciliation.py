"""Brings episodes in step with what judging says now, and lets each keep its identity. Pure.

1. The stretches in which an instance alerts and which reach beyond the first step that was judged are matched with the
   episodes that reach there too, latest first. Touching counts as overlap; episodes that are not void come first, then
   those that are not merged.
2. A matched episode takes the start and end of its stretch. A stretch without an episode gets a new one.
3. An episode without a stretch is merged into a matched one that it overlaps, else it is void: by what is known now it
   never was.

So a start that late data moved, two episodes that became one and one that became two are never new episodes. Enter by
``reconcile``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from alerts.judging.automaton import InstanceState
from alerts.judging.instances.keys import EndReason, Transition


class EpisodeStatus(StrEnum):
    """Whether an episode goes on, is over, never was by what is known now, or became a part of another one."""

    OPEN = "open"
    ENDED = "ended"
    VOID = "void"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Stretch:
    """One maximal stretch of steps at which an instance alerts: start ≤ step < end (None: it goes on)."""

    start_ms: int
    end_ms: int | None
    reason: EndReason | None = None
    start_value: float | None = None
    last_value: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """An episode as far as matching needs it. ``id`` is None for a new one; ``host`` is what it was merged into."""

    id: int | None
    start_ms: int
    end_ms: int | None
    status: EpisodeStatus
    host: "Span | None" = None
    stretch: Stretch | None = None

    def meets(self, start_ms: int, end_ms: int | None) -> bool:
        """Whether it overlaps or touches a stretch."""
        return (self.end_ms is None or start_ms <= self.end_ms) and (end_ms is None or self.start_ms <= end_ms)


def stretches_of(before: InstanceState, transitions: Iterable[Transition]) -> list[Stretch]:
    """Return the stretches of an instance that began with the state ``before``, in order of time."""
    result, last = list[Stretch](), None
    if before.is_alerting:
        assert before.start_ms is not None, "BUG: an alerting state without a start"
        last = Stretch(before.start_ms, None)
    for each in transitions:
        if last is not None and not each.after.is_alerting:
            result.append(replace(last, end_ms=each.at_ms, reason=each.reason, last_value=each.value))
            last = None
        elif last is None and each.after.is_alerting:
            last = Stretch(each.at_ms, None, None, each.value, each.value)
    return result + ([last] if last is not None else [])


def reconcile(spans: Sequence[Span], stretches: Sequence[Stretch], *, after_ms: int, position_ms: int) -> list[Span]:
    """Return the episodes that are new or change, so that they equal the stretches that reach beyond ``after_ms``.

    ``position_ms`` is where judging was before: an episode that never was ends there at the latest.
    """
    reaching = [each for each in stretches if each.end_ms is None or each.end_ms > after_ms]
    free = sorted(
        (each for each in spans if each.end_ms is None or each.end_ms > after_ms),
        key=lambda each: (
            each.status is not EpisodeStatus.VOID,
            each.status is not EpisodeStatus.MERGED,
            each.start_ms,
        ),
    )
    matched, changed = list[Span](), list[Span]()
    for stretch in reversed(reaching):
        old = next((each for each in reversed(free) if each.meets(stretch.start_ms, stretch.end_ms)), None)
        status = EpisodeStatus.OPEN if stretch.end_ms is None else EpisodeStatus.ENDED
        span = Span(old.id if old else None, stretch.start_ms, stretch.end_ms, status, None, stretch)
        if old is not None:
            free.remove(old)
        if old is None or (old.start_ms, old.end_ms, old.status) != (span.start_ms, span.end_ms, status):
            changed.append(span)
        matched.append(span)
    left = [_without_stretch(each, matched, position_ms) for each in free]
    return [*(each for each in left if each is not None), *changed]


def _without_stretch(span: Span, matched: Sequence[Span], position_ms: int) -> Span | None:
    """Return an episode that lost its stretch, as merged or void; None if it is that already."""
    host = next((each for each in matched if each.meets(span.start_ms, span.end_ms)), None)
    status = EpisodeStatus.VOID if host is None else EpisodeStatus.MERGED
    end_ms = max(position_ms, span.start_ms) if span.end_ms is None else span.end_ms
    if (status, end_ms) == (span.status, span.end_ms):
        return None
    return replace(span, status=status, end_ms=end_ms, host=host)
