"""The table of pages: which view answers which address, and where a page stands in the navigation.

A new page is one module with its view and one line here. ``frontend.urls`` makes the URLs of the table, and the
template tags of ``navigation`` draw it. Enter by ``PAGES``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import URLPattern, path, reverse

from frontend.pages import agents, charts, corrections, delivery, heartbeats, overview, retention, runs, send
from frontend.pages.base import AppPage
from spm.accounts.models import App


@dataclass(frozen=True, slots=True)
class Page:
    """A page under ``apps/<app_id>/``; without a view, a page of another Django app that is only listed.

    A page with a ``title`` stands in the main navigation. A page with a ``tab`` stands in the tabs of its section: the
    page named ``section``, or the page itself. ``aliases`` are older addresses that still answer.
    """

    name: str
    path: str = ""
    view: type[AppPage] | None = None
    title: str = ""
    tab: str = ""
    section: str = ""
    aliases: Sequence[str] = ()
    internal: bool = False  # only for the product's own app

    @property
    def navigation_name(self) -> str:
        """The name of the page whose navigation entry is current on this page."""
        return self.section or self.name


PAGES: tuple[Page, ...] = (
    Page("overview", "", overview.Overview, title="Home"),
    Page("hosts", "hosts", overview.HostsTable),
    Page("host", "hosts/<path:host>", overview.Host),
    Page("completeness", "completeness", overview.Completeness),
    Page("system", "system", overview.System, title="System", internal=True),
    Page("chart", "chart", charts.Explore, title="Explore"),
    Page("alerts:rules", title="Alerts"),
    Page("alerts:notifications", title="Notifications"),
    Page("delivery", "delivery", delivery.Delivery, title="Ingestion", tab="Ingestion"),
    Page("delivery_hours", "delivery/hours", delivery.DeliveryHours),
    Page("delivery_download", "delivery/download", delivery.Download),
    Page(
        "rejected",
        "delivery/rejected",
        delivery.RejectedLines,
        tab="Rejected",
        section="delivery",
        aliases=("delivery/refused",),
    ),
    Page(
        "dead_letters",
        "delivery/dead-letters",
        delivery.DeadLetters,
        tab="Dead letters",
        section="delivery",
        aliases=("delivery/letters",),
    ),
    Page("corrections", "corrections", corrections.Corrections, title="Corrections", tab="Corrections"),
    Page("undo", "corrections/<int:number>/undo", corrections.Undo),
    Page("purge", "corrections/<int:number>/purge", corrections.Purge),
    Page("runs", "runs", runs.Runs, tab="Roll-ups", section="corrections"),
    Page("runs_table", "runs/table", runs.RunsTable),
    Page("rollback", "runs/<int:number>/rollback", runs.Rollback),
    Page("retention", "retention", retention.Retention, tab="Retention", section="corrections"),
    Page("delete", "retention/delete", retention.Delete),
    Page("send", "send", send.Send, title="Add data", tab="Add data"),
    Page("arrivals", "send/arrivals", send.Arrivals),
    Page("revoke", "tokens/<int:token_id>/revoke", send.Revoke),
    Page("agents", "agents", agents.Agents, tab="Agents", section="send"),
    Page("agents_table", "agents/table", agents.AgentsTable),
    Page("agents_push", "agents/settings", agents.Push),
    Page("heartbeats", "send/heartbeats", heartbeats.Heartbeats, tab="Heartbeats", section="send"),
    Page("heartbeat_drop", "send/heartbeats/<int:number>/delete", heartbeats.Drop),
)


def url_patterns(pages: Sequence[Page]) -> list[URLPattern]:
    """Make the URL patterns of the pages that have a view."""
    return [
        path(f"apps/<int:app_id>/{route}", page.view.as_view(), name=name)
        for page in pages
        if page.view is not None
        for route, name in ((page.path, page.name), *((alias, None) for alias in page.aliases))
    ]


def href(page: Page, app: App) -> str:
    """Return the address of a page of the app."""
    return reverse(f"frontend:{page.name}", args=[app.pk]) if page.view else reverse(page.name)
