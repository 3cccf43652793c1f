"""Acknowledgement, and escalation of what nobody acknowledged."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from alerts.telling.decide.episodes import EpisodeView, Level


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A person has taken an episode until a time, at the severity that it had then."""

    by: str
    until_ms: int
    severity: int

    def holds(self, episode: EpisodeView, now_ms: int) -> bool:
        """Whether it keeps the episode from being repeated and escalated. A higher severity ends it."""
        return now_ms < self.until_ms and episode.severity <= self.severity


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """After so many milliseconds without acknowledgement these receivers are notified too."""

    after_ms: int
    receivers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Escalation:
    """The receivers that an episode has reached by escalation, and when the next step is due."""

    receivers: frozenset[int] = frozenset()
    next_ms: int | None = None


def escalate(
    episode: EpisodeView,
    steps: Sequence[EscalationStep],
    *,
    acknowledged: bool,
    failing: Collection[int],
    first_told_ms: int | None,
    now_ms: int,
) -> Escalation:
    """Return which receivers beyond the route are due. The clock starts with the first notification of the episode.

    A step whose receivers are all failing counts as passed at once, so the next one's time is brought forward to it.
    """
    if episode.level is not Level.OPEN or acknowledged or first_told_ms is None:
        return Escalation()
    ordered = sorted(steps, key=lambda each: each.after_ms)
    reached: set[int] = set()
    skipped_ms = 0
    for step, following in zip_longest(ordered, ordered[1:]):
        due_ms = first_told_ms + step.after_ms - skipped_ms
        if due_ms > now_ms:
            return Escalation(frozenset(reached), due_ms)
        reached |= step.receivers
        if following is not None and step.receivers <= set(failing):
            skipped_ms += following.after_ms - step.after_ms
    return Escalation(frozenset(reached))
