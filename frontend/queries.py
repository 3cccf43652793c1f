"""The way from a page or an interface to the query engine: one evaluator per app, on the store the settings name."""

from spm.query import storage_for
from spm.query.promql.engine import Engine


def engine_for(app_id: int) -> Engine:
    """The evaluator over the data of one app, and of no other."""
    return Engine(storage_for(app_id))
