"""The page of the agents on the hosts of an app: their states and backlogs, and the settings pushed to them."""

from collections.abc import Collection
from datetime import datetime
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
from spm.accounts import sources
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.errors import SpmError

SENDERS_READ, SENDERS_SHOWN = 1_000, 50
_STATES = ("gone", "late", "up")


class Agents(AppPage):
    """All agents, those in trouble first."""

    template_name = "frontend/agents.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the agents, their counts by state, and the pushed settings."""
        context = super().get_context_data(version=VERSION, **{"form": AgentSettingsForm(), **kwargs})
        healths = agents.list_health(context["app"], context["now_ms"])
        counts = {state: sum(one.state == state for one in healths) for state in ("up", "late", "gone")}
        return {
            **context,
            "agents": healths[: limits.AGENTS_SHOWN],
            "more": max(0, len(healths) - limits.AGENTS_SHOWN),
            "counts": counts,
            "waiting": sum(one.agent.spooled for one in healths),
            "dropped": sum(one.agent.dropped_samples for one in healths),
            **_other_senders(context["app"], context["now_ms"], {one.agent.name for one in healths}),
            "pushed": AgentSettings.objects.filter(app=context["app"]),
        }


def _other_senders(app: App, now_ms: int, agent_names: Collection[str]) -> dict[str, Any]:
    """List sources that are no agents, those in trouble first, each part with the latest data first."""
    others = app.sources.exclude(name__in=agent_names).order_by("-last_seen")
    rows = [(each, sources.state(_ms(each.last_seen), now_ms, each.period_ms)) for each in others[:SENDERS_READ]]
    worst = sorted(rows, key=lambda row: _STATES.index(row[1]))
    return {"senders": worst[:SENDERS_SHOWN], "more_senders": max(0, others.count() - SENDERS_SHOWN)}


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


class AgentsTable(Agents):
    """The part of the page that refreshes itself."""

    template_name = "frontend/parts/agents.html"


class Push(Agents):
    """Pushes settings; POST only."""

    right = Right.PUSH_AGENT_SETTINGS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Push the settings and return to the page; an error is shown above the form, which keeps its input."""
        app, form, by = self.app(), AgentSettingsForm(request.POST), self.actor()
        if not form.is_valid():
            problems = "; ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items())
            return self._show_again(form, f"Nothing was changed. {problems}")
        match, settings = form.cleaned_data["match"], form.settings
        try:
            agents.push_settings(app, match, settings, actor=by.person, by=by.name, now_ms=clock.now_ms())
        except SpmError as error:
            return self._show_again(form, f"Nothing was changed: {error}")
        text = f"Agents that match “{match}” apply the settings after their next heartbeat."
        messages.success(request, text if settings else f"No settings are pushed to “{match}” any more.")
        return redirect("frontend:agents", app_id)

    def _show_again(self, form: AgentSettingsForm, warning: str) -> HttpResponse:
        messages.warning(self.request, warning)
        return self.render_to_response(self.get_context_data(form=form), status=400)
