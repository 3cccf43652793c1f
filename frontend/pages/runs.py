"""The page of runs, for owners: what each run did for the app, its progress, and its roll back."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.pages.base import AppPage
from frontend.presenters import runs
from rollups.services import runs as services_runs
from spm.accounts.organisations.rights import Right
from spm.errors import SpmError


class Runs(AppPage):
    """The list of runs."""

    right = Right.ROLL_BACK
    template_name = "frontend/runs.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the app's part of each run."""
        context = super().get_context_data(**kwargs)
        app_runs = runs.app_runs(context["app"], services_runs.site().now())
        return {**context, "runs": app_runs, "running": [run for run in app_runs if run.is_running]}


class RunsTable(Runs):
    """The part of the page that refreshes itself."""

    template_name = "frontend/parts/runs.html"


class Rollback(AppPage):
    """Rolls a run back in this app; POST only."""

    right = Right.ROLL_BACK
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Roll the run back and return to the list."""
        app, by = self.app(), self.actor()
        try:
            done = services_runs.roll_back(services_runs.site(), number, by.person, apps=[app.pk], origin=by.origin)
            count = sum(back.hour_shards for back in done)
            messages.success(request, f"Run {number} is rolled back: {count} hours in {len(done)} days.")
        except SpmError as error:
            messages.warning(request, str(error))
        return redirect("frontend:runs", app_id)
