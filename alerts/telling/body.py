"""Freezes what a notification says: all facts as they are when it is written, as JSON.

Notifiers make text, pages and requests from this body alone, so that a retry sends the same bytes. The worst and the
ends come first; at most ``LINES_IN_FULL_MAX`` lines and ``GROUPS_IN_FULL_MAX`` groups are written in full, the others
are numbers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.models import Aspect, Episode, Lane
from alerts.models.telling import LastWord, NotificationGroup, Receiver
from alerts.newest_texts import reading_of
from alerts.telling import limits
from alerts.telling.alert_facts import annotations_of, labels_of
from alerts.telling.configuration import judged_positions
from alerts.telling.decide.episodes import EpisodeView, Level, LineKind

_ORDER = (
    LineKind.RESOLVED,
    LineKind.RETRACTED,
    LineKind.FIRING,
    LineKind.REOPENED,
    LineKind.REINSTATED,
    LineKind.REPEAT,
    LineKind.BRIEF,
    LineKind.LATE,
)


class Line(Protocol):
    """One line: the receiver's last word of an episode, the episode, and what is said of it."""

    @property
    def word(self) -> LastWord: ...
    @property
    def view(self) -> EpisodeView: ...
    @property
    def kind(self) -> LineKind: ...


def write(
    receiver: Receiver, groups: Sequence[NotificationGroup], lines: Sequence[Line], *, key: str, n: int, now_ms: int
) -> Mapping[str, Any]:
    """Return the body of a notification about these groups."""
    ordered = sorted(lines, key=_place)
    first = groups[0].first_key if len(groups) == 1 else ""
    knowledge = _knowledge_of(ordered[0])
    in_full = ordered[: limits.LINES_IN_FULL_MAX]
    judged = judged_positions(line.word.episode.rule.app_id for line in in_full)
    return {
        "key": key,
        "n": n,
        "thread": first or key,
        "receivers": [receiver.target],
        "may_stop": not receiver.is_member,
        "at_ms": now_ms,
        "known": knowledge and {"vector": knowledge.vector.hex(), "retractions": knowledge.retractions},
        "groups": [{"id": group.pk, "labels": group.labels} for group in groups[: limits.GROUPS_IN_FULL_MAX]],
        "groups_more": max(len(groups) - limits.GROUPS_IN_FULL_MAX, 0),
        "counts": dict(Counter(map(_word, lines))),
        "lines": [write_line(line, judged.get(line.word.episode.rule.app_id, 0)) for line in in_full],
        "more": dict(Counter(map(_word, ordered[limits.LINES_IN_FULL_MAX :]))),
    }


def _knowledge_of(line: Line) -> KeptKnowledge | None:
    """Return what judging of the line's app knew when this was written: its chart shows that, and nothing newer."""
    lane = Lane.objects.filter(app=line.word.episode.rule.app_id).first()
    return None if lane is None else lane.knowledge


def _word(line: Line) -> str:
    """Name what a line says: absent data and rules that cannot be judged are not said as an alert that fires."""
    aspect = line.word.episode.aspect
    is_plain = line.kind not in (LineKind.FIRING, LineKind.REPEAT, LineKind.REOPENED) or aspect == Aspect.VALUE
    return line.kind.value if is_plain else str(aspect)


def _place(line: Line) -> tuple[int, int, int, int]:
    """Criticals first, then ends, then in the order of their beginning."""
    return (-line.view.severity, _ORDER.index(line.kind), line.view.start_ms, line.view.id)


def write_line(line: Line, judged_ms: int) -> dict[str, Any]:
    """Copy what is said of one episode. Numbers are stored as text, because JSON has neither NaN nor infinity.

    ``judged_ms``: how far its app is judged; what its texts show of data is read there later (``newest_texts``).
    """
    episode: Episode = line.word.episode
    rule = episode.rule
    is_repeated = line.word.is_doubtful and line.word.level != Level.NOTHING
    return {
        "kind": line.kind.value,
        "word": _word(line),
        "perhaps": is_repeated,
        "episode": episode.pk,
        "aspect": str(episode.aspect),
        "rule": rule.pk,
        "name": rule.name,
        "app": rule.app_id,
        "app_name": rule.app.name,
        "severity": episode.severity,
        "labels": dict(episode.labels),
        "alert_labels": labels_of(episode),
        "annotations": annotations_of(episode),
        "reading": reading_of(episode, judged_ms),
        "is_of_file": rule.group_id is not None,
        "value": _number(episode.last_value),
        "expr": rule.expr,
        "comparator": rule.comparator,
        "threshold": _number(rule.threshold),
        "for_ms": rule.for_ms,
        "start_ms": episode.start_ms,
        "end_ms": episode.end_ms,
        "end_reason": episode.end_reason,
    }


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
