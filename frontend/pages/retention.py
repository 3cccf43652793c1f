"""How long an app's data is kept, with what a change would let go; and the end of the app with all its data."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.forms import RetentionForm
from frontend.pages.base import AppPage
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm.accounts.models import Role
from spm.accounts.services import Retention as Days
from spm.accounts.services import delete_app, set_retention
from spm.errors import Refused, SpmError


class Retention(AppPage):
    """The three tiers. POST shows what would go, or (with ``act``) keeps the setting."""

    role = Role.OWNER
    template_name = "frontend/retention.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the app's own days in the form."""
        app = self.app()
        initial = {"raw_days": app.raw_days, "hour_days": app.hour_days, "day_days": app.day_days}
        return super().get_context_data(**{"form": RetentionForm(initial=initial), **kwargs})

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Look first, then act."""
        app, form = self.app(), RetentionForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        days = Days(**form.cleaned_data)
        try:
            if "act" not in request.POST:
                days.check()
                going = services_maintenance.would_expire(services_runs.site(), app.pk, days)
                return self.render_to_response(self.get_context_data(form=form, going=going))
            set_retention(self.person, app, days)
        except SpmError as error:
            return self.render_to_response(self.get_context_data(form=form, refusal=str(error)), status=409)
        messages.success(request, "The retention is changed. What is older goes within a day.")
        return redirect("frontend:retention", app_id)


class Delete(AppPage):
    """The end of an app, for who types its name; POST only."""

    role = Role.OWNER
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """To the person's other apps."""
        app = self.app()
        if request.POST.get("confirm", "").strip() != app.name:
            messages.warning(request, f"Nothing is deleted: type the app's name, “{app.name}”.")
            return redirect("frontend:retention", app_id)
        try:
            delete_app(self.person, app)
            messages.success(request, f"“{app.name}” is deleted. Its bytes go within the hour.")
        except Refused as error:
            messages.warning(request, str(error))
        return redirect("frontend:home")
