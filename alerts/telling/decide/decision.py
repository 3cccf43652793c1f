"""Decides which line a receiver gets of an episode now, and why.

1. The difference of the receiver's last word and the episode's level names the line; without one, nothing is said.
2. A receiver that has heard of the episode hears everything else of it, whatever routes, silences and labels say since.
3. A receiver by escalation hears of an alert that is open at its time and that nobody has acknowledged then.
4. The first line needs a route, no cover now, and a step of the episode that no cover met: what happened wholly inside
   a window is not told because it was judged after it.
5. An alert that was over before anybody could hear of it is BRIEF, or LATE if that was long ago. One that was kept from
   being told until nobody knows any more what covered it is never told.
6. While judging catches up after a stall, first lines wait for a while: what is known is of long ago.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from alerts.telling import limits
from alerts.telling.decide.covers import Cover, cover_at, is_exposed
from alerts.telling.decide.difference import difference
from alerts.telling.decide.episodes import Decision, EpisodeView, LastWord, Level, LineKind


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a decision rests on, besides the episode: the time, how far its app is judged, its route and its covers.

    ``not_before_ms`` is 0, or the time from which on escalation leads to the receiver; ``taken_until_ms``: until when
    the episode is acknowledged.
    """

    now_ms: int
    judged_ms: int
    is_routed: bool = True
    mutes: Sequence[Cover] = field(default=())
    inhibitors: Sequence[Cover] = field(default=())
    not_before_ms: int = 0
    taken_until_ms: int = 0


def decide(last: LastWord, episode: EpisodeView, about: Circumstances) -> Decision:
    """Decide what the receiver with this last word gets of the episode."""
    kind = difference(last, episode.level)
    if kind is None:
        return Decision(None, "nothing to add")
    if last.level is not Level.NOTHING:
        return Decision(kind, "this receiver was notified of it before")
    if episode.merged:
        return Decision(None, "it became a part of another alert")
    if not about.is_routed:
        return Decision(None, "no route leads to this receiver")
    return _not_escalated(episode, about) or _covered(episode, about) or _first(kind, episode, about)


def _not_escalated(episode: EpisodeView, about: Circumstances) -> Decision | None:
    """Return why escalation has not come to the receiver, or None if it has or is not what leads there.

    An acknowledgement may end before its time, when the alert begins anew: so it is looked at again soon.
    """
    if not about.not_before_ms:
        return None
    if episode.level is not Level.OPEN:
        return Decision(None, "it was over before it escalated to this receiver")
    if about.now_ms < about.not_before_ms:
        return Decision(None, "it has not escalated to this receiver yet", about.not_before_ms)
    if about.now_ms < about.taken_until_ms:
        look_ms = min(about.taken_until_ms, about.now_ms + limits.GROUP_INTERVAL_MS)
        return Decision(None, "somebody has acknowledged it", look_ms)
    return None


def _covered(episode: EpisodeView, about: Circumstances) -> Decision | None:
    """Return why the episode must not be told now, or None if nothing covers it.

    All of the time of one that is over is known: whether it is covered changes only with settings and inhibitors, and
    their changes have it looked at.
    """
    if _is_forgotten(episode, about.now_ms):
        return Decision(None, "it was over so long ago that nobody knows what covered it")
    if mute := cover_at(about.mutes, about.now_ms):
        return Decision(None, mute.reason, mute.to_ms)
    if episode.end_ms is None and (inhibitor := _inhibitor(about)):
        lag_ms = about.now_ms - about.judged_ms
        return Decision(None, inhibitor.reason, None if inhibitor.to_ms is None else inhibitor.to_ms + max(lag_ms, 0))
    end_ms = about.judged_ms + 1 if episode.end_ms is None else episode.end_ms
    covers = [*about.mutes, *about.inhibitors]
    if covers and not is_exposed(covers, start_ms=episode.start_ms, end_ms=end_ms, period_ms=episode.period_ms):
        reason = max(covers, key=lambda each: each.from_ms).reason
        look_ms = about.now_ms + episode.period_ms if episode.end_ms is None else None
        return Decision(None, f"for all of its time {reason}", look_ms)
    return None


def _is_forgotten(episode: EpisodeView, now_ms: int) -> bool:
    """Whether the episode ended, and was known, before the windows that are still worked out."""
    return episode.end_ms is not None and now_ms - max(episode.end_ms, episode.created_ms) > limits.WINDOWS_SPAN_MS


def _inhibitor(about: Circumstances) -> Cover | None:
    """Return an inhibitor that holds at the step that was judged last; one that has not ended always does."""
    return next((each for each in about.inhibitors if each.to_ms is None or about.judged_ms < each.to_ms), None)


def _first(kind: LineKind, episode: EpisodeView, about: Circumstances) -> Decision:
    if kind is LineKind.BRIEF and (episode.found_late or _is_long_over(episode, about.now_ms)):
        return Decision(LineKind.LATE, "it was over before it was known")
    hold_until_ms = episode.created_ms + limits.CATCH_UP_HOLD_MS
    if about.now_ms - about.judged_ms > limits.CATCH_UP_LAG_MS and about.now_ms < hold_until_ms:
        return Decision(None, "judging catches up with the present", hold_until_ms)
    return Decision(kind, "routed to this receiver")


def _is_long_over(episode: EpisodeView, now_ms: int) -> bool:
    return episode.end_ms is not None and now_ms - episode.end_ms > limits.LATE_AFTER_MS
