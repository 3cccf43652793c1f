"""How the watchman's pages write durations, times, numbers and series."""

from collections.abc import Mapping

from django import template

from alerts import durations
from alerts.notify import text

register = template.Library()


@register.filter
def spell(ms: int) -> str:
    """``5m``."""
    return durations.spell(ms)


@register.filter
def moment(ms: int) -> str:
    """``2026-11-21 09:00:00 UTC``."""
    return text.time_text(ms)


@register.filter
def value(number: float | None) -> str:
    """Six digits, or a dash."""
    return "–" if number is None else f"{number:.6g}"


@register.filter
def series(labels: Mapping[str, str]) -> str:
    """``cpu host=a``."""
    return text.series(labels) or "all together"
