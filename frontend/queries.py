"""The way from a page or an interface to the query engine: one evaluator per app, on the store the settings name."""

from spm.query import storage_for
from spm.query.promql.engine import Engine


def engine_for(app_id: int, asof_ms: int | None = None) -> Engine:
    """The evaluator over the data of one app, and of no other: as it is, or as accepted by a time."""
    storage = storage_for(app_id)
    return Engine(storage if asof_ms is None else storage.asof(asof_ms))
