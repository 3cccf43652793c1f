"""Template tags and filters of the pages: sparklines, ages, numbers. They never read the store."""

from collections.abc import Sequence
from datetime import datetime
from math import isnan
from typing import Any

from django import template
from django.utils.html import format_html

from frontend.presenters.charts import QUICK_RANGES
from frontend.presenters.hosts.filters import quote_value
from frontend.presenters.sparkline import Sparkline, draw_sparkline
from spm.clock import moment
from spm.limits import TIME_MAX_MS

register = template.Library()
_STATE_WORDS = {"gone": "down"}


@register.inclusion_tag("frontend/parts/charts/sparkline.html")
def sparkline(values: Sequence[float | None]) -> dict[str, Sparkline]:
    """Draw values as a small line with gaps, over their own range."""
    return {"line": draw_sparkline(values)}


@register.simple_tag
def quick_ranges() -> Sequence[str]:
    """List the ranges that the bar of charts offers at once."""
    return QUICK_RANGES


@register.filter
def state_word(state: str) -> str:
    """Write the state of a host or a source as people say it."""
    return _STATE_WORDS.get(state, state)


@register.filter
def filter_value(value: str) -> str:
    """Write a value of a label as the filter of hosts reads it."""
    return quote_value(value)


@register.filter
def percent(value: float | None) -> str:
    """Write ``12.3 %``, or a dash for None."""
    return "–" if value is None else f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


@register.filter
def age(ms: int) -> str:
    """Write an age: ``just now``, ``42 s ago``, ``7 min ago``, ``3 h ago``, ``12 d ago``."""
    seconds = ms // 1000
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s or (seconds >= unit_s and unit_s > 60):
            return f"{seconds // unit_s} {unit} ago"
    return "just now" if seconds < 15 else f"{seconds} s ago"


@register.filter
def span(seconds: float | None) -> str:
    """Write a duration: ``0.4 s``, ``42 s``, ``7 min``, ``3.1 h``; a dash for None."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


@register.filter
def size(count: int | None) -> str:
    """Write a size: ``12 B``, ``3.4 kB``, ``5.6 MB``; a dash for None."""
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


@register.filter
def figure(number: float) -> str:
    """Write a number with four digits: ``1,234``, ``0.01234``, ``1.2e+09``; a dash for NaN."""
    return "–" if isnan(number) else f"{number:,.0f}" if 1_000 <= abs(number) < 1e7 else f"{number:.4g}"


@register.filter
def thousands(number: float | None) -> str:
    """Write a number: ``1,234,567``; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


@register.filter
def count(number: int) -> str:
    """Write a number with a dash for 0, for tables where most cells are 0."""
    return thousands(number) if number else "–"


@register.filter
def signed(number: int) -> str:
    """Write a number with its sign: ``+1,234`` or ``−5``."""
    return f"{'−' if number < 0 else '+'}{abs(number):,}"


@register.filter
def share(part: int, total: int) -> str:
    """Write ``99.98 %``: never 100 % while something is missing, never 0 % while there is something."""
    if not total or part in (0, total):
        return "" if not total else "100 %" if part else "0 %"
    return f"{min(max(100 * part / total, 0.01), 99.99):.2f} %"


@register.filter
def duration(ms: int) -> str:
    """Write milliseconds as a duration: ``42 s``, ``7 min``, ``3.1 h``."""
    return span(ms / 1000)


@register.filter
def setting_text(value: Any) -> str:
    """Write a setting's value: ``a=b,c=d``, ``x, y``, ``30``."""
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in by_name(value))
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@register.filter
def by_name(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """Sort the entries of a JSON object by name: PostgreSQL and SQLite return them in different orders."""
    return sorted(settings.items())


@register.filter
def ago(then_ms: int, now_ms: int) -> str:
    """Write how long ago a time in milliseconds was."""
    return age(max(now_ms - then_ms, 0))


@register.filter
def offset(ms: int) -> str:
    """Write a clock offset: ``42 s ahead`` or ``7 min behind``."""
    return f"{span(abs(ms) / 1000)} {'ahead' if ms > 0 else 'behind'}"


@register.filter
def hour(ms: int) -> str:
    """Write an hour in UTC: ``2026-11-21 13:00``, for where no element may stand; the script rewrites titles alone."""
    return instant(ms)[:16]


@register.filter
def instant(ms: int | None) -> str:
    """Write a time in UTC: ``2026-11-21 13:05:00``; empty for None and for the limits of time."""
    if ms is None or not 0 < ms < TIME_MAX_MS:
        return ""
    return moment(ms).strftime("%Y-%m-%d %H:%M:%S")


@register.filter
def local_time(at: datetime | int | None) -> str:
    """Write a time in UTC, which a page's script rewrites in the person's zone; empty where ``instant`` is empty."""
    return _rewritten(at, slice(None), "full")


@register.filter
def local_minute(at: datetime | int | None) -> str:
    """Write a time without seconds, as ``local_time``; the script also leaves out the year."""
    return _rewritten(at, slice(16), "short")


@register.filter
def local_clock(at: datetime | int | None) -> str:
    """Write the clock of a recent time, as ``local_time``."""
    return _rewritten(at, slice(11, None), "seconds")


def _rewritten(at: datetime | int | None, shown: slice, form: str) -> str:
    ms = round(at.timestamp() * 1000) if isinstance(at, datetime) else at
    text = instant(ms)
    if not text:
        return ""
    iso = text.replace(" ", "T")
    return format_html('<time datetime="{}Z" data-ms="{}" data-form="{}">{} UTC</time>', iso, ms, form, text[shown])


@register.filter
def since(moment: datetime, now_ms: int) -> str:
    """Write how long ago a moment was."""
    return age(max(now_ms - int(moment.timestamp() * 1000), 0))
