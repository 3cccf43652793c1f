"""The chart page: queries, a time range and a chart, and what changed. The address holds the whole state."""

from contextlib import suppress
from typing import Any

from frontend.pages.base import AppPage, clock
from frontend.presenters import names, panels
from frontend.presenters.charting.overlays import read_overlays
from frontend.presenters.charts import VARIABLES
from frontend.presenters.exploring.changes import CHANGES_SECONDS, find_changes, span_of
from frontend.presenters.exploring.first_parts import read_parts
from frontend.presenters.exploring.query_builder import AGGREGATIONS, FUNCTIONS
from frontend.queries import asof_of, query_session
from spm.errors import BadQuery, SpmError
from spm.limits import TIME_MAX_MS
from spm.query.promql.planning.planner import parse_selector
from spm.query.promql.planning.signatures import NATIVE, SIGNATURES

_AGGREGATIONS = ("avg", "bottomk", "count", "count_values", "group", "max", "min", "quantile", "stddev", "sum", "topk")
OFFERED = " ".join(sorted({*SIGNATURES, *_AGGREGATIONS} - NATIVE))  # functions that the completion knows
BUILDER = {
    "functions": [(name, name.removesuffix("_over_time").replace("_", " ")) for name in FUNCTIONS],
    "aggregations": AGGREGATIONS,
    "windows": (*VARIABLES, "1m", "5m", "15m", "1h", "6h", "1d"),
}


class Explore(AppPage):
    """Draws any expression; without one, the CPU of all hosts, or what else the app has."""

    template_name = "frontend/chart.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the expression of the address, and the functions that the completion offers."""
        context = super().get_context_data(functions=OFFERED, builder=BUILDER, **kwargs)
        expr = self.request.GET.get("expr") or self._first_expression(context)
        return {**context, "expr": expr, "given": read_parts(expr)}

    def _first_expression(self, context: dict[str, Any]) -> str:
        with suppress(SpmError):  # the chart says what is wrong with the store
            return names.first_expression(context["app"].pk, context["now_ms"])
        return panels.BUSY


class ChangesPart(AppPage):
    """What changed in a range: the series that differ most from the time before, and what happened meanwhile."""

    template_name = "frontend/parts/changes.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the changes between ``from`` and ``to``, among the series that ``match``."""
        context, given = super().get_context_data(seconds=CHANGES_SECONDS, **kwargs), self.request.GET
        app, now_ms = context["app"], context["now_ms"]
        try:
            start_ms, end_ms = (_time_of(given.get(name, "")) for name in ("from", "to"))
            span = span_of(start_ms, min(end_ms, now_ms))
            among = parse_selector(match) if (match := given.get("match", "")) else ()
            with query_session(app, self.request, asof_of(given.get("asof"), now_ms)) as session:
                changes = find_changes(session, span, clock=clock, among=among)
        except SpmError as error:
            return {**context, "problem": str(error)}
        overlays = read_overlays(app, span.middle_ms, span.end_ms)
        return {**context, "changes": changes, "overlays": overlays}


def _time_of(text: str) -> int:
    """Read a time in ms; raises ``BadQuery``."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(TIME_MAX_MS)) and int(text) <= TIME_MAX_MS):
        raise BadQuery(f'got the time "{text[:40]}"; from and to are milliseconds since 1970')
    return int(text)
