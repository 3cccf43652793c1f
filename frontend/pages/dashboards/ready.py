"""The page that shows a ready dashboard on the app's own data, before anybody makes a copy of it."""

from typing import Any

from django.http import Http404

from frontend.dashboards.ready import offers
from frontend.pages.dashboards.documents import DashboardPage
from spm.errors import Refused


class Ready(DashboardPage):
    """One ready dashboard, drawn and not saved."""

    template_name = "frontend/dashboards/ready_view.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add its variables and panels; 404 for a key that there is not."""
        context = super().get_context_data(**kwargs)
        try:
            ready = offers.find(self.kwargs["key"])
        except Refused as error:
            raise Http404(str(error)) from error
        return {**context, "ready": ready, **self.drawn(context["app"], ready.document())}
