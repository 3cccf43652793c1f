"""The home page of an app, its hosts, one host with its charts, completeness of sources, the system's own charts."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views import View

from frontend.dashboards.models import Dashboard
from frontend.dashboards.ready import offers
from frontend.pages.base import AppPage, clock
from frontend.presenters import attention, panels
from frontend.presenters.hosts.filters import read_filter
from frontend.presenters.hosts.head import head_of, nearest_names
from frontend.presenters.hosts.metrics import group_metrics, metric_list, metrics_of, panels_of
from frontend.presenters.hosts.table import MAP_MAX, ROWS, SORTS, HostChoice, fleet_of, hosts_of
from frontend.queries import query_session
from ingest.accounting import completeness
from rollups.services import runs as services_runs
from spm.accounts.access import app_of_person
from spm.accounts.models import Source
from spm.accounts.sources import SYSTEM_SOURCE
from spm.errors import SpmError

COMPLETENESS_HOURS, COMPLETENESS_SHOWN = 24, 20
TOP_SHOWN = 8  # lines of a chart of the home page
_COLUMNS = (  # by which the table is sorted → heading → its class
    ("name", "Host", ""),
    ("problem", "State", ""),
    ("alerts", "Alerts", "number"),
    ("seen", "Last seen", ""),
    ("cpu", "CPU, 30 min", "line-head"),
    ("memory", "Memory, 30 min", "line-head"),
    ("disk", "Disk", "number"),
    ("load", "Load", "number"),
)


class Home(LoginRequiredMixin, View):
    """Leads to the person's first app."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the overview of the app."""
        return redirect("frontend:overview", app_of_person(request.user, None).pk)


class Overview(AppPage):
    """Is anything wrong? What needs a person, the busiest hosts as charts, and the groups of hosts."""

    template_name = "frontend/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add what needs a person, the groups of hosts, and the expressions of the charts."""
        context = super().get_context_data(**kwargs)
        app, by = context["app"], self.request.GET.get("by", "")
        hosts = fleet_of(
            app,
            query_session(app, self.request),
            context["now_ms"],
            by=by,
            firing=attention.firing_by_host(app),
        )
        return {
            **context,
            "hosts": hosts,
            "attention": attention.attention_of(app, context["now_ms"]),
            "by": by if by in hosts.labels else next(iter(hosts.labels), ""),
            "ready": [] if Dashboard.objects.filter(app=app).exists() else offers.offered(app.pk, context["now_ms"]),
            "top_panels": panels.top_panels(),
            "top_shown": TOP_SHOWN,
            "top_note": f", top {TOP_SHOWN} of {hosts.total:,}" if hosts.total > TOP_SHOWN else "",
        }


class HomePart(Overview):
    """The part of the home page that refreshes itself."""

    template_name = "frontend/parts/home.html"


class Hosts(AppPage):
    """The table of hosts, or their map: those that a filter admits, in groups, problems first."""

    template_name = "frontend/hosts/hosts.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the hosts that the address asks for."""
        context = super().get_context_data(**kwargs)
        app, given = context["app"], self.request.GET
        is_map = given.get("view") == "map"
        chosen = HostChoice(
            filter=read_filter(given.get("q", "")),
            sort=sort if (sort := given.get("sort", "")) in SORTS else SORTS[0],
            by=given.get("by", ""),
            after=given.get("after", ""),
            most=MAP_MAX if is_map else ROWS,
        )
        hosts = hosts_of(
            app,
            query_session(app, self.request),
            context["now_ms"],
            chosen=chosen,
            firing=attention.firing_by_host(app),
        )
        state = {"q": chosen.filter.text, "by": chosen.by, "view": "map" if is_map else "", "sort": chosen.sort}
        address_state = {name: value for name, value in state.items() if value and value != SORTS[0]}
        return {
            **context,
            "hosts": hosts,
            "chosen": chosen,
            "is_map": is_map,
            "query": urlencode({**address_state, **({"after": chosen.after} if chosen.after else {})}),
            "first_query": urlencode(address_state),
            "next_query": urlencode({**address_state, "after": hosts.after}) if hosts.after else "",
            "columns": [
                (title, urlencode({**address_state, "sort": name}), name == chosen.sort, css)
                for name, title, css in _COLUMNS
            ],
            "views": [
                (title, urlencode({**address_state, "view": view}), (view == "map") is is_map)
                for title, view in (("Table", ""), ("Map", "map"))
            ],
        }


class HostsPart(Hosts):
    """The part of the page of hosts that refreshes itself."""

    template_name = "frontend/parts/hosts.html"


class System(AppPage):
    """The product's own app: the metrics of its processes. 404 for any other app."""

    template_name = "frontend/hosts/host.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the charts of the system."""
        context = super().get_context_data(host="All processes", panels=panels.system_panels(), **kwargs)
        if not context["app"].organisation.internal:
            raise Http404("Only the product's own app has this page.")
        return context


class Completeness(AppPage):
    """The expected and received messages of the last day: a part of the overview that may take a second."""

    template_name = "frontend/parts/charts/completeness.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the sources that lack most first; if the store is unavailable, only this part is missing."""
        context = super().get_context_data(**kwargs)
        try:
            rows = completeness.source_completeness(
                services_runs.site().store, context["app"].pk, context["now_ms"], COMPLETENESS_HOURS
            )
        except SpmError as error:
            return {**context, "problem": f"The numbers cannot be read now: {error}"}
        silent_about = Source.objects.filter(app=context["app"]).exclude(period_ms__gt=0).exclude(name=SYSTEM_SOURCE)
        return {
            **context,
            "rows": rows[:COMPLETENESS_SHOWN],
            "more": max(0, len(rows) - COMPLETENESS_SHOWN),
            "silent_about": silent_about.count(),
        }


class Host(AppPage):
    """One host: its state, and its charts."""

    template_name = "frontend/hosts/host.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the host; 404 with the nearest names for one that the app never heard of."""
        app, host, now_ms = self.app(), self.kwargs["host"], clock.now_ms()
        try:
            head = head_of(app, host, now_ms, firing=attention.firing_by_host(app).get(host, 0))
        except SpmError:
            return self.render_to_response(self.get_context_data(head=None, **kwargs))  # the charts say what is wrong
        if head is None:
            nearest = nearest_names(app, host, now_ms)
            context = self.get_context_data(unknown=host, nearest=nearest, **kwargs)
            return self.response_class(request, "frontend/hosts/unknown_host.html", context, status=404)
        age_ms = head.age_ms(now_ms)
        until_ms = head.last_ms if head.state == "gone" and head.last_ms else 0
        return self.render_to_response(self.get_context_data(head=head, age_ms=age_ms, until_ms=until_ms, **kwargs))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the tab of the address: the host's own charts, those of a service, or the names of all metrics."""
        context, host, given = super().get_context_data(**kwargs), self.kwargs["host"], self.request.GET
        tab = given.get("tab", "")
        try:
            known = metrics_of(context["app"], host, context["now_ms"])
        except SpmError:
            known = group_metrics([])  # the charts say what is wrong
        titles = [("Overview", ""), *((group.title, group.word) for group in known.tabs), ("All metrics", "all")]
        context["host_tabs"] = [(title, urlencode({"tab": word}), word == tab) for title, word in titles]
        if tab == "all":
            return {**context, **metric_list(known, host, given.get("q", ""))}
        service = next((group for group in known.tabs if group.word == tab), None)
        return {**context, "panels": panels_of(service, host) if service else panels.host_panels(host)}
