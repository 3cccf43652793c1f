"""The sources of an app, and when each sent its last message.

``write_seen`` writes when sources sent, for the process's note writer. It never moves a time back, unless our own
clock was far ahead when the time was written. An app has at most ``SOURCES_PER_APP_MAX`` sources; messages of further
ones count for ``OTHER_SOURCES``, which is shown as one more. ``note_period`` records the period that a source
announces, since when, and the one before. ``state`` says whether a source is overdue.
"""

from collections.abc import Mapping
from typing import Any

from django.db.models import F, Min

from spm.accounts.bulk import execute_many, fitting_keys, time_parameter
from spm.accounts.models import App, Source
from spm.clock import moment
from spm.limits import (
    SOURCE_GONE_AFTER_MS,
    SOURCE_GONE_PERIODS,
    SOURCE_NOTES_MAX,
    SOURCE_OVERDUE_AFTER_MS,
    SOURCE_OVERDUE_PERIODS,
    SOURCES_PER_APP_MAX,
)

SYSTEM_SOURCE = "spm"  # of the system's own series about an app's sources; no host has this name
OTHER_SOURCES = "(other sources)"  # all those beyond an app's bound
Seen = tuple[int, int]  # the ms at which a source sent, and the period it announced then, 0 for none

# One sighting: the time moves on; a time far ahead came from our own clock, and goes back. Then the period.
_WRITE_SEEN = """
INSERT INTO accounts_source AS known (app_id, name, first_seen, last_seen, period_ms, period_since)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (app_id, name) DO UPDATE SET
    last_seen = CASE WHEN known.last_seen < excluded.last_seen OR known.last_seen > %s
        THEN excluded.last_seen ELSE known.last_seen END,
    first_seen = CASE WHEN known.last_seen > %s AND known.first_seen > excluded.first_seen
        THEN excluded.first_seen ELSE known.first_seen END,
    period_since = CASE WHEN COALESCE(known.period_ms, 0) <> excluded.period_ms
            OR (known.last_seen > %s AND known.period_since > excluded.last_seen)
        THEN excluded.last_seen ELSE known.period_since END,
    period_before_ms = CASE WHEN COALESCE(known.period_ms, 0) <> excluded.period_ms
        THEN known.period_ms ELSE known.period_before_ms END,
    period_ms = COALESCE(excluded.period_ms, known.period_ms)
"""


def write_seen(sightings: Mapping[int, Mapping[str, tuple[Seen, ...]]]) -> None:
    """Write when sources sent, by app and name, each source's sightings in their order; within a transaction."""
    keys = [(app, name) for app, names in sightings.items() for name in names]
    fitting = fitting_keys(Source, "name", keys, SOURCES_PER_APP_MAX)
    others: dict[int, int] = {}
    for app, name in keys:
        if (app, name) not in fitting:
            others[app] = max(others.get(app, 0), *(ms for ms, _ in sightings[app][name]))
    rows = [_row(app, name, seen) for app, name in sorted(fitting) for seen in sightings[app][name]]
    rows += [_row(app, OTHER_SOURCES, (ms, 0)) for app, ms in sorted(others.items())]
    execute_many(_WRITE_SEEN, rows)


def merge_seen(before: tuple[Seen, ...], later: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """Join the sightings of one source, leaving out those between two others that change nothing.

    More than ``SOURCE_NOTES_MAX`` come only from a clock that jumps to and fro, or a source that changes its period
    each time, while the database fails. Then the first one and the newest remain.
    """
    merged = list(before)
    for seen in later:
        if len(merged) > 1 and _adds_nothing(merged[-1], merged[-2], seen):
            merged.pop()
        merged.append(seen)
    return (*merged[:1], *merged[1:][1 - SOURCE_NOTES_MAX :])


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


def _adds_nothing(seen: Seen, before: Seen, after: Seen) -> bool:
    """Whether a sighting only moves the time on, from the one before it towards the one after it."""
    return before[0] <= seen[0] <= after[0] and seen[1] in (0, before[1])


def _row(app: int, name: str, seen: Seen) -> tuple[Any, ...]:
    """The parameters of ``_WRITE_SEEN`` for one sighting."""
    ms, period_ms = seen
    at, ahead = time_parameter(ms), time_parameter(ms + SOURCE_GONE_AFTER_MS)
    return app, name, at, at, period_ms or None, at if period_ms else None, ahead, ahead, ahead
