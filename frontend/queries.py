"""The way from a page or an interface to the query engine: one evaluator per app, on the store the settings name."""

from spm.query import storage_for
from spm.query.promql.engine import Engine
from spm.query.storage import AppStorage


def storage_of(app_id: int, asof_ms: int | None = None) -> AppStorage:
    """The data of one app, and of no other: as it is, or as accepted by a time."""
    storage = storage_for(app_id)
    return storage if asof_ms is None else storage.asof(asof_ms)


def engine_for(app_id: int, asof_ms: int | None = None) -> Engine:
    """The evaluator over that."""
    return Engine(storage_of(app_id, asof_ms))
