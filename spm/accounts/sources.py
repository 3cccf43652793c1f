"""The sources of an app, and when each sent its last message.

``note_seen`` is called for every accepted message by every accepting process. It writes at most once in
``SOURCE_SEEN_EVERY_MS`` per source and process, and never moves the time back, unless our own clock was far ahead when
the time was written. ``note_period`` records the period that a source announces, since when, and the one before.
``state`` says whether a source is overdue.
"""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Min

from spm.accounts.models import App, Source
from spm.bounded import LruCache
from spm.clock import moment
from spm.limits import (
    SOURCE_GONE_AFTER_MS,
    SOURCE_GONE_PERIODS,
    SOURCE_OVERDUE_AFTER_MS,
    SOURCE_OVERDUE_PERIODS,
    SOURCE_SEEN_EVERY_MS,
    SOURCES_SEEN_MAX,
)

SYSTEM_SOURCE = "spm"  # of the system's own series about an app's sources; no host has this name
_written: LruCache[tuple[int, str], int] = LruCache(SOURCES_SEEN_MAX)  # (app, source) -> ms of our last write


def note_seen(app_id: int, source: str, now_ms: int, *, period_ms: int = 0) -> None:
    """Note that the source sent a message now; ``period_ms``: the period it announces, 0 if none."""
    key = (app_id, source)
    if source == SYSTEM_SOURCE:
        return
    if is_recent(_written.get(key), now_ms):
        return
    at = moment(now_ms)
    if Source.objects.filter(app_id=app_id, name=source, last_seen__lt=at).update(last_seen=at) == 0:
        _note_other(app_id, source, at)
    if period_ms:
        note_period(app_id, source, period_ms, now_ms)
    _written.put(key, now_ms)


def is_recent(last_ms: int | None, now_ms: int) -> bool:
    """Whether a write at ``last_ms`` spares one now; a write of the future spares none, since a clock was ahead."""
    return last_ms is not None and 0 <= now_ms - last_ms < SOURCE_SEEN_EVERY_MS


def note_period(app_id: int, source: str, period_ms: int, now_ms: int) -> None:
    """Note the period that a source announces; if it is another one, it holds from now on."""
    news = Source.objects.filter(app_id=app_id, name=source).exclude(period_ms=period_ms)
    news.update(period_ms=period_ms, period_since=moment(now_ms), period_before_ms=F("period_ms"))


def history_ms(app: App, now_ms: int) -> int:
    """The time since the app's first message; 0 before."""
    first = Source.objects.filter(app=app).aggregate(first=Min("first_seen"))["first"]
    return now_ms - round(first.timestamp() * 1000) if first else 0


def state(last_seen_ms: int, now_ms: int, period_ms: int | None = None) -> str:
    """``up``, ``late`` (overdue) or ``gone``, by the age of the last message and the announced period.

    A last message in the future came while our clock was ahead, so that its time is not known: the source is overdue
    until its next one.
    """
    late_ms, gone_ms = overdue_ages_ms(period_ms)
    age_ms = now_ms - last_seen_ms
    if -SOURCE_GONE_AFTER_MS <= age_ms < late_ms:
        return "up"
    return "late" if age_ms < gone_ms else "gone"


def overdue_ages_ms(period_ms: int | None) -> tuple[int, int]:
    """The ages from which on a source of this period is overdue, and gone."""
    period_ms = period_ms or 0
    late_ms = max(SOURCE_OVERDUE_AFTER_MS, SOURCE_OVERDUE_PERIODS * period_ms)
    return late_ms, max(SOURCE_GONE_AFTER_MS, SOURCE_GONE_PERIODS * period_ms)


def _note_other(app_id: int, source: str, at: datetime) -> None:
    """Note a new source, or one with a later time; a time far ahead came from our own clock and is corrected."""
    known = Source.objects.filter(app_id=app_id, name=source)
    ahead = at + timedelta(milliseconds=SOURCE_GONE_AFTER_MS)
    if known.filter(last_seen__gt=ahead).update(last_seen=at):
        known.filter(first_seen__gt=at).update(first_seen=at)
        known.filter(period_since__gt=at).update(period_since=at)
    elif not known.exists():
        _add(app_id, source, at)


def _add(app_id: int, source: str, at: datetime) -> None:
    try:
        with transaction.atomic():
            Source.objects.create(app_id=app_id, name=source, first_seen=at, last_seen=at)
    except IntegrityError:  # another process added it at the same moment
        Source.objects.filter(app_id=app_id, name=source, last_seen__lt=at).update(last_seen=at)
