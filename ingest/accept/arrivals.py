"""Records by which ways data comes to an app; the page that waits for the first data shows them.

A way is a protocol; where many programs speak one protocol, it is the program. Enter by ``record_arrival``, called for
every accepted message: it writes the first arrival of a way at once, later ones at most once in
``SOURCE_SEEN_EVERY_MS`` per process. ``way_of`` names the way of a message.
"""

from datetime import datetime

from django.db import IntegrityError, transaction

from ingest.models import Arrival
from spm.accounts import sources
from spm.bounded import LruCache
from spm.clock import moment
from spm.limits import SOURCES_SEEN_MAX

# Protocol → part of the sender's User-Agent → way. All other senders of a protocol have the protocol's name as way.
_PROGRAMS = {
    "influx": {
        "spm-agent": "agent",
        "spm-graphite": "graphite",
        "spm-statsd": "statsd",
        "telegraf": "telegraf",
        "collectd": "collectd",
    },
    "remote_write": {"prometheus": "prometheus"},
    "otlp": {"opentelemetry collector": "collector", "otelcol": "collector"},
}
_written: LruCache[tuple[int, str], int] = LruCache(SOURCES_SEEN_MAX)  # (app, way) → ms of our last write


def way_of(protocol: str, user_agent: str) -> str:
    """Return the way of a message from its protocol and its sender's User-Agent."""
    agent = user_agent[:200].lower()
    return next((way for part, way in _PROGRAMS.get(protocol, {}).items() if part in agent), protocol)


def record_arrival(app_id: int, way: str, source: str, now_ms: int) -> None:
    """Record that data came by this way now; an empty way is not recorded."""
    key = (app_id, way)
    if not way or sources.is_recent(_written.get(key), now_ms):
        return
    at = moment(now_ms)
    known = Arrival.objects.filter(app_id=app_id, way=way)
    if known.filter(last_seen__lt=at).update(last_seen=at, source=source) == 0 and not known.exists():
        _add(app_id, way, source, at)
    _written.put(key, now_ms)


def _add(app_id: int, way: str, source: str, at: datetime) -> None:
    try:
        with transaction.atomic():
            Arrival.objects.create(app_id=app_id, way=way, source=source, first_seen=at, last_seen=at)
    except IntegrityError:  # another process added it at the same moment
        return
