"""What every page shows beside its own content: the bar with the apps and the way to the other pages.

Also small shapes that templates draw: ages, numbers, sparklines. Nothing here asks the store.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse

from frontend.shapes import Sparkline, spark
from spm.accounts.access import apps_of
from spm.accounts.models import App

register = template.Library()


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of the bar."""

    text: str
    href: str
    current: bool


@register.inclusion_tag("frontend/parts/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    """The bar of the app in the context, else of the person's first app; without a request, only the brand."""
    request = context.get("request")
    if request is None or not hasattr(request, "user"):
        return {}
    apps = list(apps_of(request.user))
    app = context.get("app")
    shown = app if isinstance(app, App) else next(iter(apps), None)
    links = links_of(shown, request.path) if shown else []
    return {"request": request, "csrf_token": context.get("csrf_token"), "user": request.user, "apps": apps,
            "app": shown, "links": links}  # fmt: skip


def links_of(app: App, path: str) -> list[Link]:
    """The pages of an app; the one whose address the path begins with is the current one, the longest first."""
    places = [
        ("Overview", reverse("frontend:overview", args=[app.pk])),
        ("Charts", reverse("frontend:chart", args=[app.pk])),
        ("Alerts", "/alerts/"),
        ("Mail", "/alerts/mail"),
        ("Send data", reverse("frontend:send", args=[app.pk])),
    ]
    current = max((href for _, href in places if path.startswith(href)), key=len, default="")
    return [Link(text, href, href == current) for text, href in places]


@register.inclusion_tag("frontend/parts/sparkline.html")
def sparkline(values: list[float | None], top: float = 100.0) -> dict[str, Sparkline]:
    """A small line of values between 0 and ``top``; gaps stay gaps."""
    return {"line": spark(values, top)}


@register.filter
def percent(value: float | None) -> str:
    """``12.3 %``, or a dash."""
    return "–" if value is None else f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


@register.filter
def age(ms: int) -> str:
    """``now``, ``42 s``, ``7 min``, ``3 h``, ``12 d``."""
    seconds = ms // 1000
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s or (seconds >= unit_s and unit_s > 60):
            return f"{seconds // unit_s} {unit} ago"
    return "just now" if seconds < 15 else f"{seconds} s ago"


@register.filter
def since(moment: datetime, now_ms: int) -> str:
    """How long ago a moment was."""
    return age(max(now_ms - int(moment.timestamp() * 1000), 0))
