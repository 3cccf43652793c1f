"""Heartbeats of jobs: each with an address of its own to call, and what was last heard of it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from frontend.forms import HeartbeatForm
from frontend.pages.base import AppPage, clock
from frontend.presenters.panels import quoted
from ingest.http import pings
from ingest.models import Heartbeat
from spm.accounts.models import Role
from spm.errors import Refused


class Heartbeats(AppPage):
    """The list; POST makes one."""

    template_name = "frontend/heartbeats.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With their addresses, which only people who may edit are shown: whoever has one can speak for the job."""
        context = super().get_context_data(**{"form": HeartbeatForm(), **kwargs})
        base = self.request.build_absolute_uri("/").rstrip("/")
        found = [(each, quoted(each.name)) for each in Heartbeat.objects.filter(app=context["app"])]
        return {**context, "base": base, "heartbeats": found}

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """A new one, for people who may edit the app."""
        self.role = Role.EDITOR
        app, form = self.app(), HeartbeatForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        try:
            pings.make(app, form.cleaned_data["name"], actor=self.person, now_ms=clock.now_ms())
        except Refused as error:
            form.add_error("name", str(error))
            return self.render_to_response(self.get_context_data(form=form), status=409)
        return redirect("frontend:heartbeats", app_id)


class Drop(AppPage):
    """Deletes one; POST only."""

    role = Role.EDITOR
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, number: int) -> HttpResponse:
        """Back to the list, with a word."""
        found = get_object_or_404(Heartbeat.objects.select_related("app__organisation"), app=self.app(), pk=number)
        pings.drop(found, actor=self.person)
        messages.success(request, f"The heartbeat “{found.name}” is deleted: its address answers nobody any more.")
        return redirect("frontend:heartbeats", app_id)
