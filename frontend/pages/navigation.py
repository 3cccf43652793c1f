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
from spm.accounts.access import apps_of, has_right
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right

register = template.Library()


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation or of the tabs."""

    text: str
    href: str
    current: bool


@register.inclusion_tag("frontend/parts/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    """Draw the bar of the app in the context, else of the person's first app; without a request, only the brand."""
    request = context.get("request")
    if request is None or not hasattr(request, "user"):
        return {}
    apps = list(apps_of(request.user))
    app = context.get("app")
    shown = app if isinstance(app, App) else next(iter(apps), None)
    links = navigation_links(shown, request.path) if shown else []
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "user": request.user,
        "apps": apps,
        "app": shown,
        "links": links,
    }


@register.inclusion_tag("frontend/parts/tabs.html", takes_context=True)
def tabs(context: Context) -> dict[str, Any]:
    """Draw the tabs of the section that the page belongs to."""
    return {"tabs": tabs_of(context["app"], context["request"])}


def navigation_links(app: App, request_path: str) -> list[Link]:
    """List the main navigation of an app; the page with the longest address that the path begins with is current."""
    pages = [
        each
        for each in registry.PAGES
        if (each.title or each.section) and (app.organisation.internal or not each.internal)
    ]
    matching = [page for page in pages if request_path.startswith(registry.href(page, app))]
    current = max(matching, key=lambda page: len(registry.href(page, app))).navigation_name if matching else ""
    return [Link(page.title, registry.href(page, app), page.name == current) for page in pages if page.title]


@dataclass(frozen=True, slots=True)
class Tabs:
    """The tabs of a section."""

    title: str
    links: Sequence[Link]


def tabs_of(app: App, request: HttpRequest) -> Tabs:
    """List the tabs of the section that the request's page belongs to, as far as the person may see them."""
    match = request.resolver_match
    current = next(
        (each for each in registry.PAGES if match is not None and _answers(each, match.url_name, match.route)), None
    )
    if current is None:
        return Tabs("", ())
    title = next(each.title for each in registry.PAGES if each.name == current.navigation_name)
    pages = [each for each in registry.PAGES if each.tab and each.navigation_name == current.navigation_name]
    links = [
        Link(page.tab, registry.href(page, app), page is current)
        for page in pages
        if page.view is not None and (page.view.right is Right.SEE_APP or has_right(request.user, app, page.view.right))
    ]
    return Tabs(title, links)


def _answers(page: registry.Page, name: str | None, route: str) -> bool:
    return page.name == name or any(route.endswith(f"/{alias}") for alias in page.aliases)
