"""The hosts of an app, and one host with its charts."""

from typing import Any

from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views import View

from frontend.pages.base import AppPage
from frontend.presenters import panels
from frontend.presenters.hosts import hosts_of
from frontend.queries import asking
from ingest.accounting import completeness
from rollups.services import runs as services_runs
from spm.accounts.access import app_of_person
from spm.errors import SpmError

COMPLETENESS_HOURS, COMPLETENESS_SHOWN = 24, 20


class Home(LoginRequiredMixin, View):
    """Leads to the person's first app."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """To its overview."""
        return redirect("frontend:overview", app_of_person(request.user, None).pk)


class Overview(AppPage):
    """All hosts: who reports, how late, how busy; and the processors' chart."""

    template_name = "frontend/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the hosts and the chart's expression."""
        context = super().get_context_data(cpu=panels.cpu_by_host(), **kwargs)
        app = context["app"]
        return {**context, "hosts": hosts_of(app, asking(app, self.request), context["now_ms"])}


class System(AppPage):
    """The product's own app: what its processes count about themselves. 404 for any other app."""

    template_name = "frontend/host.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the charts of the system."""
        context = super().get_context_data(host="All processes", panels=panels.system_panels(), **kwargs)
        if not context["app"].organisation.internal:
            raise Http404("Only the product's own app has this page.")
        return context


class HostsTable(Overview):
    """The changing part of the overview, for its refresh."""

    template_name = "frontend/parts/hosts.html"


class Completeness(AppPage):
    """What should have come in the last day, and what did: a part of the overview that may take a second."""

    template_name = "frontend/parts/completeness.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The sources that lack most first; a store that is away costs this part only."""
        context = super().get_context_data(**kwargs)
        try:
            found = completeness.told(
                services_runs.site().store, context["app"].pk, context["now_ms"], COMPLETENESS_HOURS
            )
        except SpmError as error:
            return {**context, "problem": f"The account cannot be read now: {error}"}
        return {**context, "found": found[:COMPLETENESS_SHOWN], "more": max(0, len(found) - COMPLETENESS_SHOWN)}


class Host(AppPage):
    """One host."""

    template_name = "frontend/host.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the charts of this host."""
        return super().get_context_data(panels=panels.host_panels(self.kwargs["host"]), **kwargs)
