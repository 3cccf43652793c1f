"""The chart page: an expression, a time range and a chart. The address holds the whole state."""

from contextlib import suppress
from typing import Any

from frontend.pages.base import AppPage
from frontend.presenters import names, panels
from frontend.presenters.charts import VARIABLES
from frontend.presenters.exploring.query_builder import AGGREGATIONS, FUNCTIONS
from spm.errors import SpmError
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
        return {**context, "expr": self.request.GET.get("expr") or self._first_expression(context)}

    def _first_expression(self, context: dict[str, Any]) -> str:
        with suppress(SpmError):  # the chart says what is wrong with the store
            return names.first_expression(context["app"].pk, context["now_ms"])
        return panels.BUSY
