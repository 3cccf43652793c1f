"""The way from a page or an interface to the query engine: one evaluator per app, on the store the settings name."""

from django.conf import settings

from spm import query
from spm.query.promql.engine import Engine


def engine_for(app_id: int) -> Engine:
    """The evaluator over the data of one app, and of no other."""
    query.configure(settings.SPM_STORE_URL)
    return Engine(query.storage_for(app_id))
