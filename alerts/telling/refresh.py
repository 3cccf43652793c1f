"""Says again to Alertmanagers what goes on: they end an alert of which they hear nothing more.

What a receiver was told is sent again, and what ended lately, as it is now. An Alertmanager knows alerts by their
labels, so this says nothing new; it has no number, no outcome, and is not in the log. If a word comes after
the end of its alert, the next round ends it again. Enter by ``refresh_due``.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from alerts.models.telling import LastWord, Receiver
from alerts.notify.alertmanager import AlertmanagerNotifier
from alerts.notify.base import DeliveryFailed
from alerts.telling import limits
from alerts.telling.body import write_line
from alerts.telling.configuration import view
from alerts.telling.decide.episodes import EpisodeView, Level, LineKind

KIND = "alertmanager"
_KINDS = {Level.OPEN: LineKind.REPEAT, Level.ENDED: LineKind.RESOLVED, Level.VOID: LineKind.RETRACTED}
log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class _Line:
    """What is said again of one episode."""

    word: LastWord
    view: EpisodeView
    kind: LineKind


def refresh_due(now_ms: int) -> int:
    """Refresh every Alertmanager that has not been for a while; returns how many requests were taken."""
    due = Receiver.objects.filter(kind=KIND, refreshed_ms__lte=now_ms - limits.REFRESH_MS)
    requests = []
    for receiver in due.order_by("refreshed_ms")[: limits.ROUND_MAX]:
        mine = Receiver.objects.filter(pk=receiver.pk, refreshed_ms=receiver.refreshed_ms)
        if mine.update(refreshed_ms=now_ms):
            requests += [(receiver.target, lines, now_ms) for lines in _batches(receiver, now_ms)]
    with ThreadPoolExecutor(limits.SEND_THREADS, thread_name_prefix="refresh") as pool:
        return sum(pool.map(_send, requests))


def _batches(receiver: Receiver, now_ms: int) -> Iterator[Sequence[dict[str, Any]]]:
    lately = Q(episode__end_ms__gt=now_ms - limits.REFRESH_ENDED_MS)
    rows = LastWord.objects.filter(Q(level=Level.OPEN, episode__end_ms=None) | lately, receiver=receiver)
    rows = rows.exclude(level=Level.NOTHING).select_related("episode__rule__app", "episode__rule__group")
    words = rows.order_by("-episode__start_ms")
    lines = [_line(word) for word in words[: limits.REFRESH_EPISODES_MAX]]
    for first in range(0, len(lines), limits.REFRESH_LINES_MAX):
        yield lines[first : first + limits.REFRESH_LINES_MAX]


def _line(word: LastWord) -> dict[str, Any]:
    seen = view(word.episode)
    return write_line(_Line(word, seen, _KINDS[seen.level]))


def _send(request: tuple[str, Sequence[dict[str, Any]], int]) -> bool:
    try:
        AlertmanagerNotifier().send_lines(*request)
    except DeliveryFailed as failure:
        log.warning("an Alertmanager was not refreshed: %s", failure)
        return False
    return True
