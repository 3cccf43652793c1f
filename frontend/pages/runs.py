"""Runs, for owners: what each did to the app, how far a running one is, and the roll back of a finished one."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.pages.base import AppPage
from frontend.presenters import runs
from rollups.services import runs as services_runs
from spm.accounts.models import Role
from spm.errors import SpmError


class Runs(AppPage):
    """The list."""

    role = Role.OWNER
    template_name = "frontend/runs.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the app's part of each run."""
        context = super().get_context_data(**kwargs)
        parts = runs.parts_of(context["app"], services_runs.site().now())
        return {**context, "runs": parts, "working": [part for part in parts if part.running]}


class RunsTable(Runs):
    """The changing part, for its refresh."""

    template_name = "frontend/parts/runs.html"


class Rollback(AppPage):
    """Takes a run back in this app; POST only."""

    role = Role.OWNER
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Back to the list, with a word."""
        app, by = self.app(), self.actor()
        try:
            done = services_runs.take_back(services_runs.site(), number, by.person, apps=[app.pk], origin=by.origin)
            units = sum(back.units for back in done)
            messages.success(request, f"Run {number} is rolled back in {units} units of {len(done)} days.")
        except SpmError as error:
            messages.warning(request, str(error))
        return redirect("frontend:runs", app_id)
