"""Corrections: what was taken out of answers and why, what came late, and the form that takes out and puts back."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.forms import RetractionForm
from frontend.pages.base import AppPage
from frontend.presenters import corrections
from rollups.models import Correction
from rollups.services import (
    maintenance as services_maintenance,
)
from rollups.services import (
    retractions as services_retractions,
)
from rollups.services import (
    runs as services_runs,
)
from spm.accounts.models import Role
from spm.errors import BadQuery, Refused, SpmError

CORRECTIONS_SHOWN = 50
RETRACTIONS_SHOWN = 100
SOURCES_OFFERED = 500


class Corrections(AppPage):
    """The lists and the form. POST counts what would go, or (with ``act``) takes it out."""

    template_name = "frontend/corrections.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With retractions, corrected hours and sources; a store that is away costs the list, not the page."""
        context = super().get_context_data(**{"form": RetractionForm(initial=self.request.GET.dict()), **kwargs})
        app = context["app"]
        context["corrections"] = Correction.objects.filter(app=app)[:CORRECTIONS_SHOWN]
        context["sources"] = app.sources.values_list("name", flat=True)[:SOURCES_OFFERED]
        try:
            context["retractions"] = services_retractions.listed(services_runs.site(), app)[:RETRACTIONS_SHOWN]
        except SpmError as error:
            context["problem"] = f"Retractions cannot be read now: {error}"
        return context

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Count for editors; take out for admins. What cannot be is said beside the form, which keeps its words."""
        acts = "act" in request.POST
        self.role = Role.ADMIN if acts else Role.EDITOR
        app, form = self.app(), RetractionForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        try:
            draft = corrections.read(form.cleaned_data, self.actor().name)
            if not acts:
                return self.render_to_response(self.get_context_data(form=form, look=corrections.look(app, draft)))
            done, look = corrections.take_out(app, draft, self.actor())
        except (BadQuery, Refused) as error:
            return self.render_to_response(self.get_context_data(form=form, refusal=str(error)), status=409)
        messages.success(request, f"Retraction {done.retraction.number} takes out {look.words()}.")
        return redirect("frontend:corrections", app_id)


class Undo(AppPage):
    """Ends a retraction; POST only."""

    role = Role.ADMIN
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Back to the page, with a word."""
        try:
            services_retractions.undo(services_runs.site(), self.app(), number, self.actor())
            messages.success(request, f"Retraction {number} is undone: what it hid counts again.")
        except SpmError as error:
            messages.warning(request, str(error))
        return redirect("frontend:corrections", app_id)


class Purge(AppPage):
    """Deletes for good what a retraction hides: says what, and waits for the words typed."""

    role = Role.OWNER
    template_name = "frontend/purge.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the retraction and what would go; 404 for one that is not in force."""
        context = super().get_context_data(**kwargs)
        number, site = self.kwargs["number"], services_runs.site()
        found = services_retractions.one(site, context["app"], number)
        if found is None or found.state == "undone":
            raise Http404("There is no such retraction in force.")
        context |= {"each": found, "words": services_retractions.confirmation(number)}
        try:
            services_maintenance.check_small(context["app"], number)
            return {**context, "going": services_maintenance.would_purge(site, context["app"], number)}
        except Refused as error:
            return {**context, "refusal": str(error)}

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Back to the list, with a word; or here again, when the words are others or something is left."""
        app = self.app()
        if request.POST.get("confirm", "").strip() != services_retractions.confirmation(number):
            refusal = f"Nothing was deleted: type “{services_retractions.confirmation(number)}”."
            return self.render_to_response(self.get_context_data(refusal=refusal), status=400)
        try:
            services_maintenance.check_small(app, number)
            done = services_maintenance.purge_retraction(services_runs.site(), app, number, self.actor())
            left = f" Some is left: {done.troubles[0]}. Purge again." if done.troubles else ""
            messages.success(request, f"{done.versions:,} samples of retraction {number} are deleted for good.{left}")
        except SpmError as error:
            return self.render_to_response(self.get_context_data(refusal=str(error)), status=409)
        return redirect("frontend:corrections", app_id)
