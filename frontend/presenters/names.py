"""Lists the names in an app's data of the last week, for pickers, and says why an expression matches no series."""

from bisect import bisect_left
from collections.abc import Sequence
from difflib import get_close_matches

from frontend.presenters import panels
from frontend.presenters.periods import selectors_of
from spm.limits import PICKER_VALUES_MAX
from spm.query import storage_for
from spm.query.promql.planning.planner import parse
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher

SPAN_MS = 7 * 86_400_000
OFFERED = 50  # names of one completion: more are typed, not picked
_MEANT = 3
_BUSY = Matcher(METRIC_NAME, "=", "cpu_usage_total")
_COMPARED = 300  # names, each in 0.1 ms: those beside the wrong one in the order of the alphabet


def metrics(app_id: int, now_ms: int, text: str = "", most: int | None = None) -> list[str]:
    """List metric names that contain a text, sorted, those that begin with it first; at most ``most``."""
    return values(METRIC_NAME, app_id, now_ms, text, most)


def first_expression(app_id: int, now_ms: int) -> str:
    """Return what an app is drawn by first: the CPU of its hosts, else the first metric that it has."""
    if storage_for(app_id).series([[_BUSY]], now_ms - SPAN_MS, now_ms, most=1):
        return panels.BUSY
    return next(iter(metrics(app_id, now_ms, "", 1)), panels.BUSY)


def values(label: str, app_id: int, now_ms: int, text: str = "", most: int | None = None) -> list[str]:
    """List the values of a label that contain a text, sorted, those that begin with it first; at most ``most``."""
    names = storage_for(app_id).label_values(label, [], now_ms - SPAN_MS, now_ms)
    folded = text.casefold()
    matching = [name for name in names if folded in name.casefold()] if folded else names
    return sorted(matching, key=lambda name: not name.casefold().startswith(folded))[:most]


def why_empty(storage: AppStorage, expr: str, now_ms: int) -> str:
    """Say which part of an expression matches no series at all, and what was meant; empty where all match some."""
    start_ms = now_ms - SPAN_MS
    for selector in selectors_of(parse(expr)):
        if storage.series([selector.matchers], start_ms, now_ms, most=1):
            continue
        known: list[Matcher] = []
        for matcher in sorted(selector.matchers, key=lambda each: each.name != METRIC_NAME):
            if not storage.series([[*known, matcher]], start_ms, now_ms, most=1):
                choices = storage.label_values(matcher.name, [known] if known else [], start_ms, now_ms)
                return _no_match(matcher, choices)
            known.append(matcher)
    return ""


def names_like(value: str, names: Sequence[str]) -> list[str]:
    """Return up to three of the sorted names that resemble a value, of those beside it in the alphabet. Pure."""
    first = max(bisect_left(names, value) - _COMPARED // 2, 0)
    return get_close_matches(value, names[first : first + _COMPARED], n=_MEANT, cutoff=0.5)


def _no_match(matcher: Matcher, choices: list[str]) -> str:
    *others, last = names_like(matcher.value, choices) or [""]
    meant = f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
    if matcher.name == METRIC_NAME and matcher.op == "=":
        return f"No metric is called {matcher.value}.{meant}"
    return f'No such series has {matcher.name}{matcher.op}"{matcher.value}".{meant}'


def labels(app_id: int, metric: str, now_ms: int) -> dict[str, list[str]]:
    """List the sorted values of each label of the metric, at most ``PICKER_VALUES_MAX`` of one."""
    storage, start_ms = storage_for(app_id), now_ms - SPAN_MS
    selectors = [[Matcher(METRIC_NAME, "=", metric)]]
    names = [name for name in storage.label_names(selectors, start_ms, now_ms) if name != METRIC_NAME]
    return {name: storage.label_values(name, selectors, start_ms, now_ms)[:PICKER_VALUES_MAX] for name in names}
