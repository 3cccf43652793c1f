"""The page of retention: how long data of an app is kept, what a change would delete, and the deletion of the app."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.forms import RetentionForm
from frontend.pages.base import AppPage
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm.accounts.organisations.rights import Right
from spm.accounts.services import Retention as Days
from spm.accounts.services import delete_app, set_retention
from spm.errors import Refused, SpmError


class Retention(AppPage):
    """The days of the three resolutions. POST previews what would be deleted or, with ``act``, saves the setting."""

    right = Right.SET_RETENTION
    template_name = "frontend/retention.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the app's present days to the form."""
        app = self.app()
        initial = {"raw_days": app.raw_days, "hour_days": app.hour_days, "day_days": app.day_days}
        return super().get_context_data(**{"form": RetentionForm(initial=initial), **kwargs})

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Preview, or save the setting."""
        app, form = self.app(), RetentionForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        days = Days(**form.cleaned_data)
        try:
            if "act" not in request.POST:
                days.check()
                preview = services_maintenance.preview_expiry(services_runs.site(), app.pk, days)
                return self.render_to_response(self.get_context_data(form=form, preview=preview))
            set_retention(self.person, app, days)
        except SpmError as error:
            return self.render_to_response(self.get_context_data(form=form, refusal=str(error)), status=409)
        messages.success(request, "The retention is changed. Older data is deleted within a day.")
        return redirect("frontend:retention", app_id)


class Delete(AppPage):
    """Deletes an app after its name was typed; POST only."""

    right = Right.DELETE_APP
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Delete the app and go to the person's other apps."""
        app = self.app()
        if request.POST.get("confirm", "").strip() != app.name:
            messages.warning(request, f"Nothing was deleted: type the app's name, “{app.name}”.")
            return redirect("frontend:retention", app_id)
        try:
            delete_app(self.person, app)
            messages.success(request, f"“{app.name}” is deleted. Its stored data is removed within the hour.")
        except Refused as error:
            messages.warning(request, str(error))
        return redirect("frontend:home")
