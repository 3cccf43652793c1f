"""The values of telling: an episode as receivers may hear of it, and the last word that a receiver has.

A *level* is what one can believe of an episode: nothing, that it is open, that it ended, or that it never was. Telling
compares levels, not changes, so an episode that went to and fro between two notifications says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from alerts.telling.decide.windows import Schedule


class Level(StrEnum):
    """What a receiver believes of an episode, or what is true of it now."""

    NOTHING = "nothing"
    OPEN = "open"
    ENDED = "ended"
    VOID = "void"


class LineKind(StrEnum):
    """What one line of a notification says of one episode."""

    FIRING = "firing"
    BRIEF = "brief"
    LATE = "late"
    RESOLVED = "resolved"
    RETRACTED = "retracted"
    REOPENED = "reopened"
    REINSTATED = "reinstated"
    REPEAT = "repeat"


FIRST_KINDS = frozenset({LineKind.FIRING, LineKind.BRIEF, LineKind.LATE})  # the first that a receiver hears


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """An episode: times in milliseconds, ``end_ms`` None while it goes on, ``severity`` higher for worse.

    ``labels`` are those of the series with ``alertname``, ``severity`` and ``app``. An episode that became a part of
    another one is ``merged``; its level is that of one that ended. ``period_ms`` is the grid on which it was judged.
    ``schedule``: when its rule is told, None if always.
    """

    id: int
    labels: Mapping[str, str]
    severity: int
    start_ms: int
    end_ms: int | None
    level: Level
    created_ms: int
    merged: bool = False
    found_late: bool = False
    period_ms: int = 10_000
    schedule: Schedule | None = None

    @property
    def rank(self) -> tuple[int, int, int]:
        """The strict order of inhibition: worse first, then older, then the lower id."""
        return (-self.severity, self.start_ms, self.id)

    @property
    def name(self) -> str:
        """The name of its rule."""
        return self.labels.get("alertname", "")


@dataclass(frozen=True, slots=True)
class LastWord:
    """What a receiver was last told of an episode; ``doubtful`` if nobody knows whether that arrived."""

    level: Level = Level.NOTHING
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Which line a receiver gets of an episode, or None, and why; ``until_ms``: when this may change by itself."""

    kind: LineKind | None
    reason: str
    until_ms: int | None = None
