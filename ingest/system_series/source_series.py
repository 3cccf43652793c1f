"""Series about an app's sources, sent into the app itself: charts and alerts can ask who is up and what is missing.

Enter by ``send_source_series``, which beat calls every minute, for the apps that have a source with an announced period
and a message within a day. The state of sources is sent with the present time. The sums of an hour are sent once it is
over and settled, with the time of its end, and again by every process that has just started: equal values at one time
are one sample. An app that fails waits for the next minute.
"""

import logging
from collections.abc import Sequence

import numpy as np
from django.db.models import Count, Q

from ingest.accept.acceptor import Acceptor
from ingest.accept.identity import Sender
from ingest.accounting import completeness
from spm import limits
from spm.accounts import sources
from spm.accounts.models import App
from spm.bounded import LruCache
from spm.clock import moment, random_bytes
from spm.errors import SpmError
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.telemetry import MetricValue
from spm.wire import Parsed, SeriesTable, canonical

_LOG = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_sent_hours: LruCache[int, int] = LruCache(limits.ACCEPT_APPS_MAX)  # app → the last hour that this process sent


def send_source_series(store: Backend, acceptor: Acceptor, now_ms: int) -> int:
    """Send the series of all due apps; return of how many."""
    count = 0
    for app in due_apps(now_ms):
        try:
            _send_app(store, acceptor, app, now_ms)
            count += 1
        except SpmError as error:
            _LOG.warning("series about the sources of app %d cannot be sent now: %s", app, error)
    return count


def due_apps(now_ms: int) -> Sequence[int]:
    """Return the apps with a source that has a period and sent within a day."""
    since = moment(now_ms - _DAY_MS)
    active = Count("sources", filter=Q(sources__period_ms__isnull=False, sources__last_seen__gte=since))
    apps = App.objects.filter(going=None).annotate(active=active).filter(active__gt=0).order_by("pk")
    return list(apps.values_list("pk", flat=True))


def _send_app(store: Backend, acceptor: Acceptor, app: int, now_ms: int) -> None:
    known = completeness.announcing_sources(app, now_ms)
    _send(acceptor, app, list(completeness.source_readings(known, now_ms)), now_ms)
    hour = (now_ms - limits.BALANCE_SLACK_MS) // HOUR_MS - 1
    last = _sent_hours.get(app)
    if last is None or last < hour:
        rows = completeness.hour_completeness(store, app, known, hour, now_ms)
        _send(acceptor, app, list(completeness.hour_readings(rows)), (hour + 1) * HOUR_MS)
        _sent_hours.put(app, hour)


def _send(acceptor: Acceptor, app: int, rows: Sequence[MetricValue], at_ms: int) -> None:
    if not rows:
        return
    table = SeriesTable.from_canonical([canonical(row.name, row.labels) for row in rows])
    values = np.array([row.value for row in rows], np.float64)
    times = np.full(len(rows), at_ms, np.int64)
    parsed = Parsed(table, np.arange(len(rows), dtype=np.int32), times, values)
    acceptor.accept(parsed, sender=Sender(app, sources.SYSTEM_SOURCE), message_id=random_bytes(16))
