"""Stores what senders say about metrics (type, help, unit), for people and Grafana.

Enter by ``record_descriptions`` and ``of_app``. The newest description counts. A process remembers what it wrote, so
that senders that repeat themselves (Prometheus does each minute) cost the database nothing. An app has room for
``METADATA_APP_MAX`` metrics; descriptions of further metrics are dropped. An app that sends something new with every
message is throttled; a description that is dropped then is written when it is sent again.
"""

from collections.abc import Iterable

from ingest.accept.write_throttle import WriteThrottle
from ingest.models import MetricDescription
from spm.bounded import LruCache
from spm.clock import Clock, SystemClock
from spm.limits import METADATA_APP_MAX, METADATA_KNOWN_MAX
from spm.wire import Metadata

_written: LruCache[tuple[int, str], Metadata] = LruCache(METADATA_KNOWN_MAX)  # by app and metric
_throttle = WriteThrottle()
_clock = SystemClock()


def record_descriptions(app_id: int, descriptions: Iterable[Metadata], clock: Clock = _clock) -> None:
    """Store the descriptions that are new, unless the throttle drops them."""
    news = {one.metric: one for one in descriptions if _written.get((app_id, one.metric)) != one}
    if not news or not _throttle.allows(app_id, clock.now_ms()):
        return
    known = set(MetricDescription.objects.filter(app_id=app_id).values_list("metric", flat=True))
    room = max(METADATA_APP_MAX - len(known), 0)
    added = set([metric for metric in news if metric not in known][:room])
    MetricDescription.objects.bulk_create(
        (_row(app_id, one) for metric, one in news.items() if metric in known or metric in added),
        update_conflicts=True,
        unique_fields=["app", "metric"],
        update_fields=["type", "help", "unit"],
    )
    _written.put_many(((app_id, metric), one, 1) for metric, one in news.items())


def of_app(app_id: int, metric: str | None = None) -> dict[str, Metadata]:
    """Return the descriptions of an app's metrics, or of one of them."""
    rows = MetricDescription.objects.filter(app_id=app_id)
    if metric is not None:
        rows = rows.filter(metric=metric)
    return {row.metric: Metadata(row.metric, row.type, row.help, row.unit) for row in rows}


def _row(app_id: int, one: Metadata) -> MetricDescription:
    metric, kind, text, unit = (part.replace("\0", "\ufffd") for part in (one.metric, one.type, one.help, one.unit))
    return MetricDescription(app_id=app_id, metric=metric, type=kind[:20], help=text, unit=unit[:100])
