"""Answers queries of variables, as Grafana writes them for Prometheus, from the names in an app's data."""

import re

from frontend.dashboards.limits import OPTIONS_MAX
from frontend.queries import QuerySession
from spm.errors import BadQuery
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.query.request.batches import METRIC_NAME, Matcher

_SPAN_MS = 7 * 86_400_000  # names of the last week, as all pickers have them
_CALL = re.compile(r"\s*(label_values|label_names|metrics|query_result)\s*\((.*)\)\s*", re.DOTALL)


class AppCatalogue:
    """The names and values of one app up to a time."""

    def __init__(self, session: QuerySession, now_ms: int) -> None:
        self._session, self._now_ms = session, now_ms
        self._budget = session.budget()

    def find(self, query: str) -> list[str]:
        """List what a query finds, sorted; raises ``BadQuery`` for one of another form.

        All queries of a page together have the time of one, for they hold one slot of query admission.
        """
        self._budget.check_deadline()
        match = _CALL.fullmatch(query)
        if match is None:
            raise BadQuery("a variable asks label_values(…), label_names(), metrics(…) or query_result(…)")
        name, inside = match[1], match[2].strip()
        if name == "query_result":
            return self._results(inside)
        if name == "label_names":
            return self._session.storage.label_names([], *self._span)
        if name == "metrics":
            pattern = f"(?:.*)(?:{inside})(?:.*)" if inside else ".+"
            return self._values(METRIC_NAME, [Matcher(METRIC_NAME, "=~", pattern)])
        selector, _, label = inside.rpartition(",")
        return self._values(label.strip(), _matchers(selector) if selector.strip() else [])

    @property
    def _span(self) -> tuple[int, int]:
        return self._now_ms - _SPAN_MS, self._now_ms

    def _values(self, label: str, matchers: list[Matcher]) -> list[str]:
        values = self._session.storage.label_values(label, [matchers] if matchers else [], *self._span)
        return sorted(values)[:OPTIONS_MAX]

    def _results(self, expr: str) -> list[str]:
        result = self._session.engine().instant(expr, self._now_ms)
        texts = []
        for labels, (value, *_) in zip(result.labels, result.values.tolist(), strict=True):
            inside = ",".join(f'{name}="{text}"' for name, text in labels.items() if name != METRIC_NAME)
            texts.append(f"{labels.get(METRIC_NAME, '')}{{{inside}}} {value:g} {self._now_ms}")
        return texts[:OPTIONS_MAX]


def _matchers(selector: str) -> list[Matcher]:
    node = parse(selector)
    if not isinstance(node, plan.Selector):
        raise BadQuery("label_values takes a selector of series and a label")
    return list(node.matchers)
