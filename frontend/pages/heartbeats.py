"""The page of job heartbeats: each job has an address of its own to call, and a last result."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from frontend.forms import HeartbeatForm
from frontend.pages.base import AppPage, clock
from frontend.presenters.panels import quote
from ingest.http import pings
from ingest.models import Heartbeat
from spm.accounts.organisations.rights import Right
from spm.errors import Refused


class Heartbeats(AppPage):
    """The list of jobs; POST adds one."""

    template_name = "frontend/heartbeats.html"
    shows_secrets = True  # the keys in the addresses

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the jobs. Only editors see the addresses, since anybody who has one can report for the job."""
        context = super().get_context_data(**{"form": HeartbeatForm(), **kwargs})
        base = self.request.build_absolute_uri("/").rstrip("/")
        heartbeats = [(each, quote(each.name)) for each in Heartbeat.objects.filter(app=context["app"])]
        return {**context, "base": base, "heartbeats": heartbeats}

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Add a job; for editors."""
        self.right = Right.MANAGE_HEARTBEATS
        app, form = self.app(), HeartbeatForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        try:
            pings.create_heartbeat(app, form.cleaned_data["name"], actor=self.person, now_ms=clock.now_ms())
        except Refused as error:
            form.add_error("name", str(error))
            return self.render_to_response(self.get_context_data(form=form), status=409)
        return redirect("frontend:heartbeats", app_id)


class Drop(AppPage):
    """Deletes a job; POST only."""

    right = Right.MANAGE_HEARTBEATS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Delete the job and return to the list."""
        heartbeat = get_object_or_404(Heartbeat.objects.select_related("app__organisation"), app=self.app(), pk=number)
        pings.delete_heartbeat(heartbeat, actor=self.person)
        messages.success(request, f"The heartbeat “{heartbeat.name}” is deleted. Its address no longer works.")
        return redirect("frontend:heartbeats", app_id)
