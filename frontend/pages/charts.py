"""The chart page: an expression, a time range and a chart. The address holds the whole state."""

from typing import Any

from frontend.pages.base import AppPage
from frontend.presenters import panels


class Explore(AppPage):
    """Draws any expression; without one, the CPU of all hosts."""

    template_name = "frontend/chart.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the expression of the address."""
        expr = self.request.GET.get("expr") or panels.BUSY
        return super().get_context_data(expr=expr, **kwargs)
