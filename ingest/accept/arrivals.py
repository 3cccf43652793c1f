"""By which ways data comes to an app: what the page that waits for the first data looks at.

A way is a protocol, told apart by who speaks it where one protocol has many senders. ``noted`` is called for every
accepted message; it writes the first one of a way at once, later ones at most once in ``SOURCE_SEEN_EVERY_MS`` per
process. ``way_of`` names a way, ``ways`` lists them.
"""

from datetime import datetime

from django.db import IntegrityError, transaction

from ingest.models import Arrival
from spm.clock import moment
from spm.limits import SOURCE_SEEN_EVERY_MS, SOURCES_SEEN_MAX

# Protocol → word in the sender's User-Agent → way. A protocol's own name is the way of all others that speak it.
_SPEAKERS = {
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
_written: dict[tuple[int, str], int] = {}  # (app, way) → ms of the last write by this process; bounded below


def way_of(protocol: str, user_agent: str) -> str:
    """The way of a message that came in a protocol from a sender that calls itself so."""
    called = user_agent[:200].lower()
    return next((way for word, way in _SPEAKERS.get(protocol, {}).items() if word in called), protocol)


def noted(app_id: int, way: str, source: str, now_ms: int) -> None:
    """Note that data came by this way now; a way without a name is nobody's."""
    key = (app_id, way)
    if not way or 0 <= now_ms - _written.get(key, -SOURCE_SEEN_EVERY_MS) < SOURCE_SEEN_EVERY_MS:
        return
    at = moment(now_ms)
    known = Arrival.objects.filter(app_id=app_id, way=way)
    if known.filter(last_seen__lt=at).update(last_seen=at, source=source) == 0 and not known.exists():
        _add(app_id, way, source, at)
    if len(_written) >= SOURCES_SEEN_MAX:
        _written.clear()
    _written[key] = now_ms


def forget_written() -> None:
    """Forget what this process wrote."""
    _written.clear()


def _add(app_id: int, way: str, source: str, at: datetime) -> None:
    try:
        with transaction.atomic():
            Arrival.objects.create(app_id=app_id, way=way, source=source, first_seen=at, last_seen=at)
    except IntegrityError:  # another process added it at the same moment
        return
