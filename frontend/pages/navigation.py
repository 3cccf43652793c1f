"""Template tags that draw the navigation bar and the tabs of a page from the table of pages.

The settings name this library. It is not a package of template tags, since Django loads those in every process, also in
those that have no pages. Enter by ``navigation`` and ``tabs``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import template
from django.http import HttpRequest
from django.template import Context

from frontend.pages import registry
from frontend.pages.base import clock
from frontend.presenters import attention
from spm.accounts.access import apps_of, has_right
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right

register = template.Library()
THEMES = ("system", "light", "dark")


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation or of the tabs; ``count``: what waits for a person there."""

    text: str
    href: str
    current: bool
    on_phones: bool = False
    count: int = 0


@register.simple_tag(takes_context=True)
def theme(context: Context) -> str:
    """Return the theme that this browser has chosen; the system's, unless it names another one."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme", "") if isinstance(request, HttpRequest) else ""
    return chosen if chosen in THEMES else THEMES[0]


@register.inclusion_tag("frontend/parts/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    """Draw the bar of the app in the context, else of the person's first app; without a request, only the brand."""
    request = context.get("request")
    if request is None or not hasattr(request, "user"):
        return {}
    apps = list(apps_of(request.user))
    app = context.get("app")
    shown = app if isinstance(app, App) else next(iter(apps), None)
    current = registry.current_page(shown, request.path) if shown else None
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "user": request.user,
        "apps": apps,
        "app": shown,
        "themes": THEMES,
        "theme": theme(context),
        "links": navigation_links(shown, current, is_act=False) if shown else [],
        "acts": navigation_links(shown, current, is_act=True) if shown else [],
    }


@register.inclusion_tag("frontend/parts/tabs.html", takes_context=True)
def tabs(context: Context) -> dict[str, Any]:
    """Draw the tabs of the section that the page belongs to; nothing for a page of no app, or of a section without."""
    app, request = context.get("app"), context.get("request")
    return {"tabs": tabs_of(app, request) if isinstance(app, App) and request is not None else Tabs("", ())}


def navigation_links(app: App, current: registry.Page | None, *, is_act: bool) -> list[Link]:
    """List the main navigation of an app, or the acts beside it."""
    pages = [each for each in registry.PAGES if each.title and (app.organisation.internal or not each.internal)]
    here = current.navigation_name if current else ""
    return [
        Link(page.title, registry.href(page, app), page.name == here, page.on_phones, _count(page, app))
        for page in pages
        if page.is_act is is_act
    ]


def _count(page: registry.Page, app: App) -> int:
    return attention.unacknowledged(app, clock.now_ms()) if page.name == "alerts:rules" else 0


@dataclass(frozen=True, slots=True)
class Tabs:
    """The tabs of a section."""

    title: str
    links: Sequence[Link]


def tabs_of(app: App, request: HttpRequest) -> Tabs:
    """List the tabs of the section that the request's page belongs to, as far as the person may see them."""
    current = registry.current_page(app, request.path)
    section = current.navigation_name if current else ""
    title = next((each.title for each in registry.PAGES if each.name == section), "")
    pages = [each for each in registry.PAGES if each.tab and each.navigation_name == section]
    links = [
        Link(page.tab, registry.href(page, app), page is current)
        for page in pages
        if page.view is None or page.view.right is Right.SEE_APP or has_right(request.user, app, page.view.right)
    ]
    return Tabs(title, links)
