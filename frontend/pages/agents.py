"""Our agents on the hosts of an app: who is up, what waits, what was dropped; and the settings pushed to them."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from frontend.forms import AgentSettingsForm
from frontend.pages.base import AppPage, clock
from ingest.agent.version import VERSION
from ingest.models import AgentSettings
from ingest.senders import agents
from spm import limits
from spm.accounts.models import Role
from spm.errors import SpmError


class Agents(AppPage):
    """All of them, those in trouble first."""

    template_name = "frontend/agents.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With their states, and the entries of settings."""
        context = super().get_context_data(version=VERSION, **{"form": AgentSettingsForm(), **kwargs})
        found = agents.standings(context["app"], context["now_ms"])
        counts = {state: sum(one.state == state for one in found) for state in ("up", "late", "gone")}
        return {
            **context,
            "agents": found[: limits.AGENTS_SHOWN],
            "more": max(0, len(found) - limits.AGENTS_SHOWN),
            "counts": counts,
            "waiting": sum(one.agent.spooled for one in found),
            "dropped": sum(one.agent.dropped_samples for one in found),
            "pushed": AgentSettings.objects.filter(app=context["app"]),
        }


class AgentsTable(Agents):
    """The changing part of the page, for its refresh."""

    template_name = "frontend/parts/agents.html"


class Push(Agents):
    """Pushes settings; POST only."""

    role = Role.ADMIN
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Back to the page, with a word; what is wrong is said above the form, which stays as it was filled in."""
        app, form, by = self.app(), AgentSettingsForm(request.POST), self.actor()
        if not form.is_valid():
            wrong = "; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in form.errors.items())
            return self._again(form, f"Nothing was changed. {wrong}")
        match, settings = form.cleaned_data["match"], form.settings
        try:
            agents.push(app, match, settings, actor=by.person, by=by.name, now_ms=clock.now_ms())
        except SpmError as error:
            return self._again(form, f"Nothing was changed: {error}")
        taken = f"Agents that match “{match}” take it over with their next heartbeat."
        messages.success(request, taken if settings else f"Nothing is pushed to “{match}” any more.")
        return redirect("frontend:agents", app_id)

    def _again(self, form: AgentSettingsForm, said: str) -> HttpResponse:
        messages.warning(self.request, said)
        return self.render_to_response(self.get_context_data(form=form), status=400)
