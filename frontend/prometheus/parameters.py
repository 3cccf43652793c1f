"""What a call of Prometheus' API asks, read from its address and form.

Lists (`match[]`) are joined from both; of a single value the form's wins. Missing and malformed ones are `BadQuery`,
in the words Prometheus uses.
"""

from dataclasses import dataclass

from django.http import HttpRequest

from spm.clock import Clock
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, QUERY_TIMEOUT_S
from spm.query.prometheus import duration_ms, instant_ms
from spm.query.promql.parse import parse_selector
from spm.query.select import Matcher


@dataclass(frozen=True, slots=True)
class Span:
    """Which series' names are asked for."""

    matcher_sets: list[tuple[Matcher, ...]]
    start_ms: int
    end_ms: int
    limit: int  # 0: all


def text(request: HttpRequest, name: str) -> str | None:
    """A value as it came."""
    return request.POST.get(name) or request.GET.get(name) or None


def required(request: HttpRequest, name: str) -> str:
    """A value that must be there."""
    found = text(request, name)
    if found is None:
        raise BadQuery(f'invalid parameter "{name}": it is missing or empty')
    return found


def whole_number(request: HttpRequest, name: str) -> int | None:
    """A number ≥ 0."""
    found = text(request, name)
    if found is None:
        return None
    if not (found.isascii() and found.isdigit() and len(found) <= 18):
        raise BadQuery(f'invalid parameter "{name}": "{found}" is not a whole number')
    return int(found)


def instant(request: HttpRequest, name: str, default_ms: int) -> int:
    """A time in ms."""
    found = text(request, name)
    return default_ms if found is None else instant_ms(found)


def timeout_s(request: HttpRequest) -> float:
    """How long the query may run: what is asked for, up to the limit."""
    found = text(request, "timeout")
    return QUERY_TIMEOUT_S if found is None else min(QUERY_TIMEOUT_S, duration_ms(found) / 1000)


def span(request: HttpRequest, clock: Clock) -> Span:
    """Selectors, times and limit of a call for names; without times, all of them."""
    texts = request.GET.getlist("match[]") + request.POST.getlist("match[]")
    start, end = instant(request, "start", 0), instant(request, "end", clock.now_ms() + FUTURE_MS)
    if end < start:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    return Span([parse_selector(text) for text in texts], start, end, whole_number(request, "limit") or 0)
