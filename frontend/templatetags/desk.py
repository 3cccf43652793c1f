"""What every page shows beside its own content: the bar with the apps and the way to the other pages.

Also small shapes that templates draw: ages, numbers, sparklines. Nothing here asks the store.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse

from frontend.presenters.sparkline import Sparkline, spark
from spm.accounts.access import apps_of
from spm.accounts.models import App
from spm.clock import moment
from spm.limits import TIME_MAX_MS

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
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "user": request.user,
        "apps": apps,
        "app": shown,
        "links": links,
    }


def links_of(app: App, path: str) -> list[Link]:
    """The pages of an app; the one whose address the path begins with is the current one, the longest first."""
    own = [("System", reverse("frontend:system", args=[app.pk]))] if app.organisation.internal else []
    places = [
        ("Overview", reverse("frontend:overview", args=[app.pk])),
        *own,
        ("Charts", reverse("frontend:chart", args=[app.pk])),
        ("Alerts", "/alerts/"),
        ("Messages", "/alerts/mail"),
        ("Delivery", reverse("frontend:delivery", args=[app.pk])),
        ("Corrections", reverse("frontend:corrections", args=[app.pk])),
        ("Send data", reverse("frontend:send", args=[app.pk])),
    ]
    place = path
    for under in ("runs", "retention"):  # tabs of one page
        place = place.replace(f"/apps/{app.pk}/{under}", f"/apps/{app.pk}/corrections", 1)
    place = place.replace(f"/apps/{app.pk}/agents", f"/apps/{app.pk}/send", 1)
    current = max((href for _, href in places if place.startswith(href)), key=len, default="")
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
def span(seconds: float | None) -> str:
    """``0.4 s``, ``42 s``, ``7 min``, ``3.1 h``; a dash for None."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


@register.filter
def size(count: int | None) -> str:
    """``12 B``, ``3.4 kB``, ``5.6 MB``; a dash for None."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


@register.filter
def thousands(number: float | None) -> str:
    """``1,234,567``; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


@register.filter
def count(number: int) -> str:
    """The same in tables where most are zero: a dash for that, too."""
    return thousands(number) if number else "–"


@register.filter
def signed(number: int) -> str:
    """``+1,234`` or ``−5``."""
    return f"{'−' if number < 0 else '+'}{abs(number):,}"


@register.filter
def share(part: int, whole: int) -> str:
    """``99.98 %``: never 100 when something is missing, nor 0 when there is something."""
    if not whole or part in (0, whole):
        return "" if not whole else "100 %" if part else "0 %"
    return f"{min(max(100 * part / whole, 0.01), 99.99):.2f} %"


@register.filter
def lasting(ms: int) -> str:
    """``42 s``, ``7 min``, ``3.1 h``."""
    return span(ms / 1000)


@register.filter
def plainly(value: Any) -> str:
    """A setting's value as one would write it: ``a=b,c=d``, ``x, y``, ``30``."""
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in by_name(value))
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@register.filter
def by_name(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """The entries of an object by name: PostgreSQL keeps an order of its own, SQLite the sender's."""
    return sorted(settings.items())


@register.filter
def ago(then_ms: int, now_ms: int) -> str:
    """How long ago a time in milliseconds was."""
    return age(max(now_ms - then_ms, 0))


@register.filter
def offset(ms: int) -> str:
    """``42 s ahead`` or ``7 min behind``."""
    return f"{span(abs(ms) / 1000)} {'ahead' if ms > 0 else 'behind'}"


@register.filter
def hour(ms: int) -> str:
    """``2026-11-21 13:00``, in UTC."""
    return instant(ms)[:16]


@register.filter
def instant(ms: int | None) -> str:
    """``2026-11-21 13:05:00``, in UTC; empty for None and for the ends of time."""
    if ms is None or not 0 < ms < TIME_MAX_MS:
        return ""
    return moment(ms).strftime("%Y-%m-%d %H:%M:%S")


@register.filter
def since(moment: datetime, now_ms: int) -> str:
    """How long ago a moment was."""
    return age(max(now_ms - int(moment.timestamp() * 1000), 0))
