"""Lists the names in an app's data of the last week, for pickers: metrics, and the labels of one metric."""

from spm.limits import PICKER_VALUES_MAX
from spm.query import storage_for
from spm.query.request.batches import METRIC_NAME, Matcher

SPAN_MS = 7 * 86_400_000


def metrics(app_id: int, now_ms: int) -> list[str]:
    """List metric names, sorted."""
    return storage_for(app_id).label_values(METRIC_NAME, [], now_ms - SPAN_MS, now_ms)


def labels(app_id: int, metric: str, now_ms: int) -> dict[str, list[str]]:
    """List the sorted values of each label of the metric, at most ``PICKER_VALUES_MAX`` of one."""
    storage, start_ms = storage_for(app_id), now_ms - SPAN_MS
    selectors = [[Matcher(METRIC_NAME, "=", metric)]]
    names = [name for name in storage.label_names(selectors, start_ms, now_ms) if name != METRIC_NAME]
    return {name: storage.label_values(name, selectors, start_ms, now_ms)[:PICKER_VALUES_MAX] for name in names}
