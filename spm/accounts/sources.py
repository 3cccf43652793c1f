"""The sources of an app, and when each was last heard of.

``seen`` is called for every accepted message by every accepting process; a write happens at most once in
``SOURCE_SEEN_EVERY_MS`` per source and process, and never moves the time back, but where our own clock was far ahead
when it was written. ``announced`` notes how often a source says that it sends, since when, and what it said before. How
late one is stands in ``state``.
"""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Min

from spm.accounts.models import App, Source
from spm.clock import moment
from spm.limits import (
    SOURCE_GONE_AFTER_MS,
    SOURCE_GONE_PERIODS,
    SOURCE_LATE_AFTER_MS,
    SOURCE_LATE_PERIODS,
    SOURCE_SEEN_EVERY_MS,
    SOURCES_SEEN_MAX,
)

OWN = "spm"  # what the system says of an app's sources: nobody's host
_written: dict[tuple[int, str], int] = {}  # (app, source) -> ms of the last write by this process; bounded below


def seen(app_id: int, source: str, now_ms: int, *, period_ms: int = 0) -> None:
    """Note that the source was heard of now; ``period_ms``: what it announces, 0 if nothing."""
    key = (app_id, source)
    if source == OWN:
        return
    if 0 <= now_ms - _written.get(key, -SOURCE_SEEN_EVERY_MS) < SOURCE_SEEN_EVERY_MS:
        return
    at = moment(now_ms)
    if Source.objects.filter(app_id=app_id, name=source, last_seen__lt=at).update(last_seen=at) == 0:
        _settle(app_id, source, at)
    if period_ms:
        announced(app_id, source, period_ms, now_ms)
    if len(_written) >= SOURCES_SEEN_MAX:
        _written.clear()
    _written[key] = now_ms


def announced(app_id: int, source: str, period_ms: int, now_ms: int) -> None:
    """Note that the source says it sends this often; from now on, if it is news."""
    news = Source.objects.filter(app_id=app_id, name=source).exclude(period_ms=period_ms)
    news.update(period_ms=period_ms, period_since=moment(now_ms), period_before_ms=F("period_ms"))


def forget_written() -> None:
    """Forget what this process wrote: the next ``seen`` of every source writes again."""
    _written.clear()


def history_ms(app: App, now_ms: int) -> int:
    """How long ago the app was first heard of; 0 before."""
    first = Source.objects.filter(app=app).aggregate(first=Min("first_seen"))["first"]
    return now_ms - round(first.timestamp() * 1000) if first else 0


def state(last_seen_ms: int, now_ms: int, period_ms: int | None = None) -> str:
    """``up``, ``late`` or ``gone``, by the age of the last message and the announced period.

    Nobody knows when a message came that is of the future: our clock was ahead. Until the next one the source is late.
    """
    late_ms, gone_ms = patience_ms(period_ms)
    age_ms = now_ms - last_seen_ms
    if -SOURCE_GONE_AFTER_MS <= age_ms < late_ms:
        return "up"
    return "late" if age_ms < gone_ms else "gone"


def patience_ms(period_ms: int | None) -> tuple[int, int]:
    """The ages from which a source of this period is late, and gone."""
    period_ms = period_ms or 0
    late_ms = max(SOURCE_LATE_AFTER_MS, SOURCE_LATE_PERIODS * period_ms)
    return late_ms, max(SOURCE_GONE_AFTER_MS, SOURCE_GONE_PERIODS * period_ms)


def _settle(app_id: int, source: str, at: datetime) -> None:
    """A source that was not known, or seems to have been heard of later: then what lies far ahead was our clock's."""
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
