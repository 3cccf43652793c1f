"""The page of corrections: retractions, hours that were rebuilt, and the form that retracts and restores data."""

from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.forms import RetractionForm
from frontend.pages.base import AppPage, clock
from frontend.presenters import retractions as presenter
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
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.errors import BadQuery, Refused, SpmError

CORRECTIONS_SHOWN = 50
RETRACTIONS_SHOWN = 100
SOURCES_OFFERED = 500


class Corrections(AppPage):
    """The lists and the form. POST previews a retraction or, with ``act``, makes it.

    An address with a draft, as charts link to it, previews it at once.
    """

    template_name = "frontend/corrections.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add retractions, rebuilt hours and sources; if the store is unavailable, only the list is missing."""
        context = super().get_context_data(**{"form": RetractionForm(initial=self.request.GET.dict()), **kwargs})
        app = context["app"]
        context["corrections"] = Correction.objects.filter(app=app)[:CORRECTIONS_SHOWN]
        context["sources"] = app.sources.values_list("name", flat=True)[:SOURCES_OFFERED]
        try:
            context["retractions"] = services_retractions.list_retractions(services_runs.site(), app)[
                :RETRACTIONS_SHOWN
            ]
        except SpmError as error:
            context["problem"] = f"Retractions cannot be read now: {error}"
        return context

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the page, for editors with the preview of a draft in the address; one that is wrong is only shown."""
        context = self.get_context_data()
        form = RetractionForm(request.GET)
        if context["rights"]["preview_retraction"] and form.is_valid() and presenter.has_draft(form.cleaned_data):
            with suppress(SpmError):  # the form is there, and its button says what is wrong
                context |= self._preview(context["app"], form)
        return self.render_to_response(context)

    def _preview(self, app: App, form: RetractionForm) -> dict[str, Any]:
        preview = presenter.preview_draft(app, presenter.parse_draft(form.cleaned_data, self.actor().name))
        drawn = presenter.draw_draft(form.cleaned_data, preview, clock.now_ms())
        return {"form": form, "preview": preview, "drawn": drawn}

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Preview for editors, retract for admins; a refusal is shown beside the form, which keeps its input."""
        acts = "act" in request.POST
        self.right = Right.RETRACT if acts else Right.PREVIEW_RETRACTION
        app, form = self.app(), RetractionForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        try:
            if not acts:
                return self.render_to_response(self.get_context_data(**self._preview(app, form)))
            draft = presenter.parse_draft(form.cleaned_data, self.actor().name)
            result, preview = presenter.retract(app, draft, self.actor())
        except (BadQuery, Refused) as error:
            return self.render_to_response(self.get_context_data(form=form, refusal=str(error)), status=409)
        messages.success(request, f"Retraction {result.retraction.number} hides {preview.summary()}.")
        return redirect("frontend:corrections", app_id)


class Undo(AppPage):
    """Ends a retraction; POST only."""

    right = Right.UNDO_RETRACTION
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Undo the retraction and return to the page."""
        try:
            services_retractions.undo(services_runs.site(), self.app(), number, self.actor())
            messages.success(request, f"Retraction {number} is undone: its samples count again.")
        except SpmError as error:
            messages.warning(request, str(error))
        return redirect("frontend:corrections", app_id)


class Purge(AppPage):
    """Deletes for good the samples that a retraction hides: shows what, and asks for a phrase."""

    right = Right.PURGE
    template_name = "frontend/purge.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the retraction and what would be deleted; 404 if it is not in force."""
        context = super().get_context_data(**kwargs)
        number, site = self.kwargs["number"], services_runs.site()
        retraction = services_retractions.find_retraction(site, context["app"], number)
        if retraction is None or retraction.state == "undone":
            raise Http404("There is no such retraction in force.")
        context |= {"each": retraction, "phrase": services_retractions.confirmation_phrase(number)}
        try:
            services_maintenance.check_small(context["app"], number)
            return {**context, "preview": services_maintenance.preview_erasure(site, context["app"], number)}
        except Refused as error:
            return {**context, "refusal": str(error)}

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Delete and return to the list; show the page again if the phrase is wrong or the deletion fails."""
        app = self.app()
        if request.POST.get("confirm", "").strip() != services_retractions.confirmation_phrase(number):
            refusal = f"Nothing was deleted: type “{services_retractions.confirmation_phrase(number)}”."
            return self.render_to_response(self.get_context_data(refusal=refusal), status=400)
        try:
            services_maintenance.check_small(app, number)
            result = services_maintenance.erase_retracted(services_runs.site(), app, number, self.actor())
            rest = f" The deletion is incomplete: {result.errors[0]}. Purge again." if result.errors else ""
            messages.success(request, f"{result.versions:,} samples of retraction {number} are deleted for good.{rest}")
        except SpmError as error:
            return self.render_to_response(self.get_context_data(refusal=str(error)), status=409)
        return redirect("frontend:corrections", app_id)
