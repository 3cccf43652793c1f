"""The table of pages: which view answers which address, and where a page stands in the navigation.

A new page is one module with its view and one line here. ``frontend.urls`` makes the URLs of the table, and the
template tags of ``navigation`` draw it. Enter by ``PAGES``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, register_converter, reverse
from django.urls.converters import StringConverter
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from frontend.pages import (
    agents,
    charts,
    corrections,
    delivery,
    heartbeats,
    overview,
    retention,
    runs,
    send,
)
from frontend.pages.base import AppPage
from frontend.pages.dashboards import documents as dashboards
from frontend.pages.dashboards import ready, variables
from spm.accounts.models import App


class HostConverter(StringConverter):
    """The name of a host, as the label has it: with slashes and line ends, too."""

    regex = r"(?s:.+)"


register_converter(HostConverter, "host")


@dataclass(frozen=True, slots=True)
class Page:
    """A page under ``apps/<app_id>/``; without a view, a page of another Django app that is only listed.

    A page with a ``title`` stands in the main navigation, one with ``is_act`` as a button beside it. A page with a
    ``tab`` stands in the tabs of its section: the page named ``section``, or the page itself. ``former`` are its old
    addresses, which lead here for good.
    """

    name: str
    path: str = ""
    view: type[AppPage] | None = None
    title: str = ""
    tab: str = ""
    section: str = ""
    former: Sequence[str] = ()
    internal: bool = False  # only for the product's own app
    is_act: bool = False
    on_phones: bool = False  # in the bar at the bottom of a phone; the others stand behind "More"

    @property
    def navigation_name(self) -> str:
        """The name of the page whose navigation entry is current on this page."""
        return self.section or self.name


PAGES: tuple[Page, ...] = (
    Page("overview", "", overview.Overview, title="Home", on_phones=True),
    Page("chart", "explore", charts.Explore, title="Explore", former=("chart",), on_phones=True),
    Page("changes", "explore/changes", charts.ChangesPart),
    Page("dashboards", "dashboards", dashboards.Dashboards, title="Dashboards", on_phones=True),
    Page("dashboard_import", "dashboards/import", dashboards.Import),
    Page("dashboard_ready", "dashboards/ready/<slug:key>", ready.Ready),
    Page("dashboard", "dashboards/<slug:uid>", dashboards.View),
    Page("dashboard_edit", "dashboards/<slug:uid>/edit", dashboards.Edit),
    Page("dashboard_panel", "dashboards/<slug:uid>/panels/<int:number>", dashboards.Panel),
    Page("dashboard_settings", "dashboards/<slug:uid>/settings", dashboards.Settings),
    Page("dashboard_star", "dashboards/<slug:uid>/star", dashboards.Marking),
    Page("dashboard_variables", "dashboards/<slug:uid>/variables", variables.Variables),
    Page("dashboard_download", "dashboards/<slug:uid>/json", dashboards.Download),
    Page("home_part", "home", overview.HomePart),
    Page("hosts", "hosts", overview.Hosts, title="Hosts"),
    Page("hosts_part", "hosts-part", overview.HostsPart),
    Page("host", "hosts/<host:host>", overview.Host),
    Page("completeness", "completeness", overview.Completeness),
    Page("system", "system", overview.System, title="System", internal=True),
    Page("alerts:active", tab="Active", section="alerts:rules"),
    Page("alerts:rules", title="Alerts", tab="Rules", on_phones=True),
    Page("alerts:files", tab="Rule files", section="alerts:rules"),
    Page("alerts:incidents", tab="Incidents", section="alerts:rules"),
    Page("alerts:events", tab="Events", section="alerts:rules"),
    Page("heartbeats", "heartbeats", heartbeats.Heartbeats, "", "Heartbeats", "alerts:rules", ("send/heartbeats",)),
    Page("heartbeat_drop", "heartbeats/<int:number>/delete", heartbeats.Drop),
    Page("alerts:silences", tab="Silences", section="alerts:rules"),
    Page("alerts:windows", tab="Maintenance windows", section="alerts:rules"),
    Page("alerts:notifications", tab="Notifications", section="alerts:rules"),
    Page("alerts:policies", tab="Policies", section="alerts:rules"),
    Page("alerts:noise", tab="Noise", section="alerts:rules"),
    Page("agents", "data/sources", agents.Agents, "Data", "Sources", former=("agents",)),
    Page("agents_table", "data/sources/table", agents.AgentsTable),
    Page("agents_push", "data/sources/settings", agents.Push),
    Page("delivery", "data/ingestion", delivery.Delivery, "", "Ingestion", "agents", ("delivery",)),
    Page("delivery_hours", "data/ingestion/hours", delivery.DeliveryHours, former=("delivery/hours",)),
    Page("delivery_download", "data/ingestion/download", delivery.Download, former=("delivery/download",)),
    Page(
        "rejected",
        "data/rejected",
        delivery.RejectedLines,
        tab="Rejected",
        section="agents",
        former=("delivery/rejected", "delivery/refused"),
    ),
    Page(
        "dead_letters",
        "data/dead-letters",
        delivery.DeadLetters,
        tab="Dead letters",
        section="agents",
        former=("delivery/dead-letters", "delivery/letters"),
    ),
    Page("corrections", "data/corrections", corrections.Corrections, "", "Corrections", "agents", ("corrections",)),
    Page("undo", "data/corrections/<int:number>/undo", corrections.Undo),
    Page("purge", "data/corrections/<int:number>/purge", corrections.Purge, former=("corrections/<int:number>/purge",)),
    Page("runs", "data/rollups", runs.Runs, "", "Roll-ups", "agents", ("runs",)),
    Page("runs_table", "data/rollups/table", runs.RunsTable),
    Page("rollback", "data/rollups/<int:number>/rollback", runs.Rollback),
    Page("retention", "data/retention", retention.Retention, "", "Retention", "agents", ("retention",)),
    Page("delete", "data/retention/delete", retention.Delete),
    Page("send", "add-data", send.Send, title="Add data", former=("send",), is_act=True),
    Page("arrivals", "add-data/arrivals", send.Arrivals),
    Page("revoke", "tokens/<int:token_id>/revoke", send.Revoke),
)


def url_patterns(pages: Sequence[Page]) -> list[URLPattern]:
    """Make the URL patterns of the pages that have a view, and of their former addresses."""
    return [
        pattern
        for page in pages
        if page.view is not None
        for pattern in (
            path(f"apps/<int:app_id>/{page.path}", page.view.as_view(), name=page.name),
            *(path(f"apps/<int:app_id>/{old}", _leads_to(page)) for old in page.former),
        )
    ]


def _leads_to(page: Page) -> Callable[..., HttpResponseBase]:
    return require_safe(RedirectView.as_view(pattern_name=f"frontend:{page.name}", permanent=True, query_string=True))


def path_of(page: Page, app: App) -> str:
    """Return the path of a page of the app."""
    return reverse(f"frontend:{page.name}", args=[app.pk]) if page.view else reverse(page.name)


def href(page: Page, app: App) -> str:
    """Return the address of a page of the app; pages of an organisation are told the app."""
    return path_of(page, app) if page.view else f"{path_of(page, app)}?app={app.pk}"


def current_page(app: App, request_path: str) -> Page | None:
    """Return the page of the navigation or of the tabs whose address the path begins with; of several the longest."""
    matching = [page for page in PAGES if (page.title or page.tab) and request_path.startswith(path_of(page, app))]
    return max(matching, key=lambda page: len(path_of(page, app)), default=None)
