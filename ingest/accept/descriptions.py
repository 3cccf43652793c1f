"""What senders say about metrics (type, help, unit), for people and Grafana.

``write_descriptions`` writes it, for the process's note writer; the newest description counts. An app has room for
``METADATA_APP_MAX`` metrics; descriptions of further metrics are dropped. ``of_app`` reads them.
"""

from collections.abc import Mapping
from typing import Any

from ingest.models import MetricDescription
from spm.accounts.bulk import execute_many, fitting_keys
from spm.limits import METADATA_APP_MAX, METRIC_BYTES_MAX
from spm.wire import Metadata

_WRITE = """
INSERT INTO ingest_metricdescription (app_id, metric, type, help, unit) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (app_id, metric) DO UPDATE SET type = excluded.type, help = excluded.help, unit = excluded.unit
"""


def write_descriptions(descriptions: Mapping[int, Mapping[str, Metadata]]) -> None:
    """Write descriptions, by app and metric; within a transaction."""
    notes = {(app, _text(name)): one for app, metrics in descriptions.items() for name, one in metrics.items()}
    keys = [key for key in notes if len(key[1]) <= METRIC_BYTES_MAX]
    fitting = fitting_keys(MetricDescription, "metric", keys, METADATA_APP_MAX) if keys else set()
    execute_many(_WRITE, [_row(app, metric, notes[app, metric]) for app, metric in sorted(fitting)])


def newer_description(before: Metadata, later: Metadata) -> Metadata:
    """Return the later of two descriptions of a metric."""
    return later


def of_app(app_id: int, metric: str | None = None) -> dict[str, Metadata]:
    """Return the descriptions of an app's metrics, or of one of them."""
    rows = MetricDescription.objects.filter(app_id=app_id)
    if metric is not None:
        rows = rows.filter(metric=metric)
    return {row.metric: Metadata(row.metric, row.type, row.help, row.unit) for row in rows}


def _row(app: int, metric: str, one: Metadata) -> tuple[Any, ...]:
    return app, metric, _text(one.type)[:20], _text(one.help), _text(one.unit)[:100]


def _text(text: str) -> str:
    return text.replace("\0", "\ufffd")  # PostgreSQL takes no NUL in text
