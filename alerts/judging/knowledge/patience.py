"""How long a step waits for sources that have not sent yet. Pure.

A source lacks at a step if its next message was due by then. It is waited for until the frontier, not a clock, has come
to two periods and its usual lag after that. So a slow pipeline never looks like a dead host, a host that died delays
the others once and not at every step, and a source whose clock is late is waited for and does not amend every step.
Enter by ``SourceLog.add`` and ``ready_ms``.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from alerts.judging import limits


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """A source: its newest sample, the usual time between messages, and how late they usually are."""

    newest_ms: int
    period_ms: int
    lag_ms: int

    @property
    def due_ms(self) -> int:
        """When its next sample is due."""
        return self.newest_ms + self.period_ms

    @property
    def patience_ms(self) -> int:
        """Up to where the frontier must come before it is no longer waited for."""
        return self.due_ms + min(2 * self.period_ms, limits.PATIENCE_MAX_MS) + self.lag_ms


class SourceLog:
    """The last messages of each source of an app, as far as a judge knows them."""

    def __init__(self) -> None:
        self._messages: dict[str, deque[tuple[int, int]]] = {}  # those that sent last at the end

    def add(self, sources: Sequence[str], newest_ms: Iterable[int], accepted_ms: Iterable[int]) -> None:
        """Add messages: source, newest sample, and when it was accepted."""
        rows = sorted(zip(newest_ms, accepted_ms, sources, strict=True))
        for newest, accepted, source in rows:
            known = self._messages.pop(source, None) or deque(maxlen=limits.SOURCE_MESSAGES)
            known.append((newest, accepted))
            self._messages[source] = known
        for source in list(self._messages)[: -limits.SOURCES_WATCHED_MAX]:
            del self._messages[source]

    def times(self) -> dict[str, SourceTimes]:
        """Return the times of each source that sent often enough to have a period."""
        return {name: times for name, known in self._messages.items() if (times := _times_of(known)) is not None}


def ready_ms(sources: Mapping[str, SourceTimes], frontier_ms: int) -> int:
    """Return the time up to which steps may be judged: all is known, and no source is waited for."""
    bounds = (
        max(each.due_ms, frontier_ms - limits.WAIT_MAX_MS + 1)
        for each in sources.values()
        if frontier_ms < each.patience_ms
    )
    return min(frontier_ms, min(bounds, default=frontier_ms + 1) - 1)


def not_waited_for(sources: Mapping[str, SourceTimes], at_ms: int) -> tuple[str, ...]:
    """Return some of the sources that lack at a step that is judged."""
    return tuple(sorted(name for name, each in sources.items() if each.due_ms <= at_ms))[: limits.SILENT_NAMED_MAX]


def _times_of(known: Sequence[tuple[int, int]]) -> SourceTimes | None:
    newest = sorted({sample_ms for sample_ms, _ in known})
    gaps = [after - before for before, after in pairwise(newest)]
    if not gaps:
        return None
    lags = [max(0, accepted_ms - sample_ms) for sample_ms, accepted_ms in known]
    lag_ms = min(int(quantiles(lags, n=4, method="inclusive")[2]), limits.WAIT_MAX_MS)
    return SourceTimes(newest[-1], int(median(gaps)), lag_ms)
