"""Sends to Alertmanagers again what goes on, as Prometheus does: they end an alert of which they hear nothing more.

An alert of which a receiver was told is sent again a minute after it was last sent, with its newest annotations; one
that ended, for a quarter of an hour, unless its series is active again. An Alertmanager knows alerts by their labels,
so this says nothing new; it has no number, no outcome, and is not in the log.

1. An Alertmanager is claimed for a while. Its alerts that are due are read.
2. They are sent in threads that touch no database: texts that rest on data are read there first.
3. When all were taken, they count as sent, and the receiver is looked at again soon; else after a pause.

Enter by ``refresh_due``.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q

from alerts import newest_texts
from alerts.models import Instance
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
    lines: Sequence[dict[str, Any]]


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
    same = {"rule": OuterRef("episode__rule"), "fingerprint": OuterRef("episode__fingerprint")}
    is_active = Exists(Instance.objects.filter(aspect=OuterRef("episode__aspect"), **same))
    goes_on = Q(level=Level.OPEN, episode__end_ms=None)
    ended = Q(episode__end_ms__gt=now_ms - limits.REFRESH_ENDED_MS) & ~is_active
    is_of_wrong_clock = Q(sent_ms__gt=now_ms + limits.REFRESH_MS)  # one just sent may be a little ahead of this look
    due = Q(sent_ms__lte=now_ms - limits.REFRESH_MS) | is_of_wrong_clock
    rows = LastWord.objects.filter(goes_on | ended, due, receiver=receiver).exclude(level=Level.NOTHING)
    rows = rows.select_related("episode__rule__app", "episode__rule__group").order_by("sent_ms", "pk")
    words = list(rows[: limits.REFRESH_LINES_MAX])
    judged = judged_positions(word.episode.rule.app_id for word in words)
    return _Round(receiver, words, [_line(word, judged.get(word.episode.rule.app_id, 0)) for word in words])


def _line(word: LastWord, judged_ms: int) -> dict[str, Any]:
    seen = view(word.episode)
    return write_line(_Line(word, seen, _KINDS[seen.level]), judged_ms)


def _send(round_: _Round, now_ms: int) -> bool:
    try:
        lines = with_texts(round_.lines, newest_texts.read_texts(round_.lines))
        AlertmanagerNotifier().send_lines(round_.receiver.target, lines, now_ms)
    except DeliveryFailed as failure:
        log.warning("an Alertmanager was not refreshed: %s", failure)
        return False
    except Exception:  # a loop's top: the other Alertmanagers must be refreshed, and this one is due again
        log.exception("the Alertmanager %d could not be refreshed", round_.receiver.pk)
        return False
    return True
