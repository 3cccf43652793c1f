"""Sends to Alertmanagers again what goes on, as Prometheus does: they end an alert of which they hear nothing more.

An alert of which a receiver was told is sent again a minute after it was last sent, with its newest annotations; one
that ended, for a quarter of an hour, unless its series is active again. An Alertmanager knows alerts by their labels,
so this says nothing new; it has no number, no outcome, and is not in the log. That an alert ended is always told by a
notification first. One that goes on is sent again when judging has confirmed it; judging that is late is not waited for
long, because the Alertmanager would end the alert.

1. An Alertmanager is claimed for a while. Its alerts that are due are read.
2. Texts that rest on data are read in threads that touch no database.
3. What has changed meanwhile is left out: its notification is newer. The rest is sent in threads.
4. When all were taken, they count as sent, and the receiver is looked at again soon; else after a pause.

Enter by ``refresh_due``.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, Subquery

from alerts import newest_texts
from alerts.judging.automaton import Phase
from alerts.models import Instance, Lane
from alerts.models.telling import LastWord, Receiver, with_texts
from alerts.notify.alertmanager import KIND, AlertmanagerNotifier
from alerts.notify.base import DeliveryFailed
from alerts.telling import limits
from alerts.telling.body import write_line
from alerts.telling.configuration import judged_positions, view
from alerts.telling.decide.episodes import EpisodeView, Level, LineKind

_KINDS = {Level.OPEN: LineKind.REPEAT, Level.ENDED: LineKind.RESOLVED, Level.VOID: LineKind.RETRACTED}
log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class _Line:
    """What is said again of one episode."""

    word: LastWord
    view: EpisodeView
    kind: LineKind


@dataclass(frozen=True, slots=True)
class _Round:
    """What one Alertmanager is sent again: the words that are due, and a line of each."""

    receiver: Receiver
    words: Sequence[LastWord]
    lines: Sequence[Mapping[str, Any]]


def refresh_due(now_ms: int) -> int:
    """Send again to every Alertmanager what is due; returns how many took it."""
    free = Q(refresh_from_ms__lte=now_ms) | Q(refresh_from_ms__gt=now_ms + limits.REFRESH_CLAIM_MS)
    due = Receiver.objects.filter(free, kind=KIND).order_by("refresh_from_ms")[: limits.ROUND_MAX]
    rounds = [_round(receiver, now_ms) for receiver in due if _claim(receiver, now_ms)]
    for each in rounds:
        if not each.words:
            _look_again(each.receiver, now_ms + limits.REFRESH_LOOK_MS)
    full = [each for each in rounds if each.words]
    with ThreadPoolExecutor(limits.SEND_THREADS, thread_name_prefix="refresh") as pool:
        full = [_unchanged(each) for each in pool.map(_with_newest_texts, full)]
        taken = list(pool.map(lambda each: _send(each, now_ms), full))
    for each, is_taken in zip(full, taken, strict=True):
        if is_taken:
            LastWord.objects.filter(pk__in=[word.pk for word in each.words]).update(sent_ms=now_ms)
        _look_again(each.receiver, now_ms + (limits.REFRESH_LOOK_MS if is_taken else limits.REFRESH_MS // 2))
    return sum(taken)


def _claim(receiver: Receiver, now_ms: int) -> bool:
    mine = Receiver.objects.filter(pk=receiver.pk, refresh_from_ms=receiver.refresh_from_ms)
    return bool(mine.update(refresh_from_ms=now_ms + limits.REFRESH_CLAIM_MS))


def _look_again(receiver: Receiver, from_ms: int) -> None:
    Receiver.objects.filter(pk=receiver.pk).update(refresh_from_ms=from_ms)


def _round(receiver: Receiver, now_ms: int) -> _Round:
    is_of_wrong_clock = Q(sent_ms__gt=now_ms + limits.REFRESH_MS)  # one just sent may be a little ahead of this look
    due = Q(sent_ms__lte=now_ms - limits.REFRESH_MS) | is_of_wrong_clock
    position = Lane.objects.filter(app=OuterRef("episode__rule__app")).values("position_ms")[:1]
    rows = LastWord.objects.filter(due, receiver=receiver).annotate(judged_ms=Subquery(position))
    rows = rows.filter(_goes_on(now_ms) | _ended(now_ms))
    rows = rows.select_related("episode__rule__app", "episode__rule__group").order_by("sent_ms", "pk")
    words = list(rows[: limits.REFRESH_LINES_MAX])
    judged = judged_positions(word.episode.rule.app_id for word in words)
    return _Round(receiver, words, [_line(word, judged.get(word.episode.rule.app_id, 0)) for word in words])


def _goes_on(now_ms: int) -> Q:
    """Select alerts that were still there a minute after they were sent, or of which judging says nothing for long."""
    is_confirmed = Q(judged_ms__gte=F("sent_ms") + limits.REFRESH_MS)
    is_late = Q(sent_ms__lte=now_ms - limits.REFRESH_UNCONFIRMED_MS) | Q(sent_ms__gt=now_ms)
    return Q(is_confirmed | is_late, level=Level.OPEN, episode__end_ms=None)


def _ended(now_ms: int) -> Q:
    """Select alerts of whose end the receiver was told, while they are due before the end of a quarter of an hour."""
    same = {"rule": OuterRef("episode__rule"), "fingerprint": OuterRef("episode__fingerprint")}
    active = Instance.objects.filter(aspect=OuterRef("episode__aspect"), **same).exclude(phase=Phase.CLOSED)
    is_active = Exists(active)
    is_recent = Q(episode__end_ms__gt=F("sent_ms") + limits.REFRESH_MS - limits.REFRESH_ENDED_MS)
    is_recent &= Q(episode__end_ms__gt=now_ms - limits.REFRESH_ENDED_MS - limits.REFRESH_MS)
    return Q(is_recent, ~is_active, level__in=(Level.ENDED, Level.VOID))


def _line(word: LastWord, judged_ms: int) -> dict[str, Any]:
    seen = view(word.episode)
    return write_line(_Line(word, seen, _KINDS[seen.level]), judged_ms)


def _with_newest_texts(round_: _Round) -> _Round:
    try:
        return replace(round_, lines=with_texts(round_.lines, newest_texts.read_texts(round_.lines)))
    except Exception:  # a loop's top: an alert with older texts is better than none
        log.exception("the texts for the Alertmanager %d could not be read", round_.receiver.pk)
        return round_


def _unchanged(round_: _Round) -> _Round:
    """Leave out alerts that changed, or that a notification spoke of, since the round was read."""
    rows = LastWord.objects.filter(pk__in=[word.pk for word in round_.words]).select_related("episode")
    now = {row.pk: _said(row) for row in rows}
    pairs = [pair for pair in zip(round_.words, round_.lines, strict=True) if now.get(pair[0].pk) == _said(pair[0])]
    return replace(round_, words=[word for word, _ in pairs], lines=[line for _, line in pairs])


def _said(word: LastWord) -> tuple[str, int, int]:
    return word.level, word.sent_ms, word.episode.revision


def _send(round_: _Round, now_ms: int) -> bool:
    if not round_.words:
        return True
    try:
        AlertmanagerNotifier().send_lines(round_.receiver.target, round_.lines, now_ms)
    except DeliveryFailed as failure:
        log.warning("an Alertmanager was not refreshed: %s", failure)
        return False
    except Exception:  # a loop's top: the other Alertmanagers must be refreshed, and this one is due again
        log.exception("the Alertmanager %d could not be refreshed", round_.receiver.pk)
        return False
    return True
