"""Series about an app's sources, sent into the app itself: charts and alerts can ask who is up and what is missing.

Enter by ``tell``, which beat calls every minute. Apps are those with a source that announced a period and was heard of
within a day. Who is up is said with the time of now; the sums of an hour are said once it is over and settled, with the
time of its end, and again by every process that has just started: equal values at one time are one sample. What fails
for one app waits for the next minute.
"""

import logging
from collections.abc import Sequence

import numpy as np
from django.db.models import Count, Q

from ingest.accept.acceptor import FrontDoor, Sender
from ingest.accounting import completeness
from spm import limits
from spm.accounts import sources
from spm.accounts.models import App
from spm.clock import moment, random_bytes
from spm.errors import SpmError
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.telemetry import Reading
from spm.wire import Parsed, SeriesTable, canonical

_LOG = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_told_hour: dict[int, int] = {}  # app → the last hour that this process told; bounded by the number of apps


def tell(store: Backend, door: FrontDoor, now_ms: int) -> int:
    """One round over all apps; how many were told."""
    done = 0
    for app in due(now_ms):
        try:
            _tell(store, door, app, now_ms)
            done += 1
        except SpmError as error:
            _LOG.warning("sources of app %d are not told now: %s", app, error)
    return done


def due(now_ms: int) -> Sequence[int]:
    """The apps of which something is to be told."""
    since = moment(now_ms - _DAY_MS)
    lively = Count("sources", filter=Q(sources__period_ms__isnull=False, sources__last_seen__gte=since))
    found = App.objects.filter(going=None).annotate(lively=lively).filter(lively__gt=0).order_by("pk")
    return list(found.values_list("pk", flat=True))


def forget() -> None:
    """Tell every hour again."""
    _told_hour.clear()


def _tell(store: Backend, door: FrontDoor, app: int, now_ms: int) -> None:
    known = completeness.of_app(app, now_ms)
    _send(door, app, list(completeness.readings(known, now_ms)), now_ms)
    hour = (now_ms - limits.ACCOUNT_SLACK_MS) // HOUR_MS - 1
    if _told_hour.get(app, -1) < hour:
        found = completeness.hour_of(store, app, known, hour, now_ms)
        _send(door, app, list(completeness.hour_readings(found)), (hour + 1) * HOUR_MS)
        if len(_told_hour) >= limits.ACCEPT_APPS_MAX:
            _told_hour.clear()
        _told_hour[app] = hour


def _send(door: FrontDoor, app: int, readings: Sequence[Reading], at_ms: int) -> None:
    if not readings:
        return
    table = SeriesTable.from_canonical([canonical(each.name, each.labels) for each in readings])
    values = np.array([each.value for each in readings], np.float64)
    times = np.full(len(readings), at_ms, np.int64)
    parsed = Parsed(table, np.arange(len(readings), dtype=np.int32), times, values)
    door.push(parsed, sender=Sender(app, sources.OWN), message_id=random_bytes(16))
