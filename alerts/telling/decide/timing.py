"""When a group of alerts is told: after a wait for its first alert, at most once per interval, again after a pause."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from alerts.telling import limits
from alerts.telling.decide.episodes import Decision, EpisodeView


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of a policy, in milliseconds."""

    wait_ms: int = limits.GROUP_WAIT_MS
    interval_ms: int = limits.GROUP_INTERVAL_MS
    repeat_ms: int = limits.GROUP_REPEAT_MS


AT_ONCE = Waits(0, 0)  # of a receiver that groups alerts itself


@dataclass(frozen=True, slots=True)
class GroupState:
    """When the group was last told to its receiver (None: never), and until when it is blocked."""

    last_flush_ms: int | None = None
    blocked_until_ms: int = 0


def due_ms(group: GroupState, waits: Waits, episodes: Iterable[EpisodeView], now_ms: int) -> int:
    """Return when lines of these episodes may be told: there must be one.

    An episode of a clock that was set back since waits no more.
    """
    created_ms = min(episode.created_ms for episode in episodes)
    waited_ms = created_ms + waits.wait_ms if created_ms <= now_ms else now_ms
    after_last_ms = 0 if group.last_flush_ms is None else group.last_flush_ms + waits.interval_ms
    return max(waited_ms, after_last_ms, group.blocked_until_ms)


def repeat_ms(group: GroupState, waits: Waits, taken_until_ms: Collection[int]) -> int | None:
    """Return when open alerts of the group are said again; None if the group was never told, or nothing is open.

    ``taken_until_ms`` has an entry for each of them: until when it is acknowledged, 0 if nobody has taken it.
    """
    if group.last_flush_ms is None or not taken_until_ms:
        return None
    return max(group.last_flush_ms + waits.repeat_ms, group.blocked_until_ms, min(taken_until_ms))


def next_look_ms(decisions: Iterable[Decision], *others: int | None) -> int | None:
    """Return the earliest time at which what is due can change by itself; None if only an event can change it."""
    times = [*(each.until_ms for each in decisions if each.kind is None), *others]
    return min((each for each in times if each is not None), default=None)
