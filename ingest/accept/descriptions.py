"""What senders say about metrics, type, help and unit, for people and Grafana. Enter by ``note`` and ``of_app``.

The newest word counts. A process remembers what it wrote, so that senders that repeat themselves (Prometheus does each
minute) cost the database nothing; an app has room for ``METADATA_APP_MAX`` metrics, what comes beyond is passed over.
One that says something new with every message is written as seldom as its refusals are; what is passed over is written
when it is said again.
"""

from collections.abc import Iterable

from ingest.accept.write_throttle import Seldom
from ingest.models import MetricDescription
from spm.clock import Clock, SystemClock
from spm.limits import METADATA_APP_MAX, METADATA_KNOWN_MAX
from spm.wire import Metadata

_written: dict[tuple[int, str], Metadata] = {}  # by app and metric; bounded below
_seldom = Seldom()
_clock = SystemClock()


def note(app_id: int, told: Iterable[Metadata], clock: Clock = _clock) -> None:
    """Keep what is new of this, unless the app had much to say just now."""
    news = {one.metric: one for one in told if _written.get((app_id, one.metric)) != one}
    if not news or not _seldom.allows(app_id, clock.now_ms()):
        return
    known = set(MetricDescription.objects.filter(app_id=app_id).values_list("metric", flat=True))
    room = max(METADATA_APP_MAX - len(known), 0)
    kept_too = set([metric for metric in news if metric not in known][:room])
    kept = [one for metric, one in news.items() if metric in known or metric in kept_too]
    MetricDescription.objects.bulk_create(
        (_row(app_id, one) for one in kept),
        update_conflicts=True,
        unique_fields=["app", "metric"],
        update_fields=["type", "help", "unit"],
    )
    if len(_written) + len(news) > METADATA_KNOWN_MAX:
        _written.clear()
    _written.update({(app_id, metric): one for metric, one in news.items()})


def of_app(app_id: int, metric: str | None = None) -> dict[str, Metadata]:
    """What is known of an app's metrics, or of one of them."""
    rows = MetricDescription.objects.filter(app_id=app_id)
    if metric is not None:
        rows = rows.filter(metric=metric)
    return {row.metric: Metadata(row.metric, row.type, row.help, row.unit) for row in rows}


def forget() -> None:
    """Write again what was written before."""
    _written.clear()
    _seldom.forget()


def _row(app_id: int, one: Metadata) -> MetricDescription:
    metric, kind, text, unit = (part.replace("\0", "\ufffd") for part in (one.metric, one.type, one.help, one.unit))
    return MetricDescription(app_id=app_id, metric=metric, type=kind[:20], help=text, unit=unit[:100])
