"""What a call of Prometheus' API asks, read from its address and form.

Lists (`match[]`) are joined from both; of a single value the form's wins. Missing and malformed ones are `BadQuery`,
in the words Prometheus uses. Forms are read here, under a bound of their own, and not by the framework. Enter by
`asked_of`.
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from frontend.prometheus.bodies import whole
from spm.clock import Clock
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, NAMES_SHOWN_MAX, QUERY_TIMEOUT_S
from spm.query.formats import asof
from spm.query.formats.prometheus import duration_ms, instant_ms
from spm.query.promql.planning.planner import parse_selector
from spm.query.request.batches import Matcher

T = TypeVar("T")
FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data"
_FIELDS_MAX = 1_000
_NEGATIVE = re.compile(r"-[0-9]{1,18}")
_TRUE = frozenset({"1", "t", "true", "all"})


@dataclass(frozen=True, slots=True)
class Span:
    """Which series' names are asked for."""

    matcher_sets: list[tuple[Matcher, ...]]
    start_ms: int
    end_ms: int
    limit: int  # 0: all that may be


class Asked:
    """The values of one call."""

    def __init__(self, form: dict[str, list[str]], address: dict[str, list[str]]) -> None:
        self._form, self._address = form, address

    def every(self, name: str) -> list[str]:
        """All values of a list."""
        return self._address.get(name, []) + self._form.get(name, [])

    def text(self, name: str) -> str | None:
        """A value as it came."""
        for values in (self._form.get(name, ()), self._address.get(name, ())):
            for value in values:
                if value:
                    return value
        return None

    def required(self, name: str) -> str:
        """A value that must be there."""
        found = self.text(name)
        if found is None:
            raise BadQuery(f'invalid parameter "{name}": it is missing or empty')
        return found

    def flag(self, name: str) -> bool:
        """Whether something is switched on."""
        return (self.text(name) or "").lower() in _TRUE

    def whole_number(self, name: str) -> int | None:
        """A number ≥ 0."""
        found = self.text(name)
        if found is None:
            return None
        if not (found.isascii() and found.isdigit() and len(found) <= 18):
            raise BadQuery(f'invalid parameter "{name}": "{found[:40]}" is not a whole number')
        return int(found)

    def instant(self, name: str, default_ms: int) -> int:
        """A time in ms."""
        found = self.text(name)
        return default_ms if found is None else _named(name, instant_ms, found)

    def required_instant(self, name: str) -> int:
        """A time that must be there."""
        return _named(name, instant_ms, self.required(name))

    def step_ms(self) -> int:
        """The width of a step."""
        return _named("step", duration_ms, self.required("step"))

    def timeout_s(self) -> float:
        """How long the query may run: what is asked for, up to the limit."""
        wanted_ms = self._positive_ms("timeout")
        return QUERY_TIMEOUT_S if wanted_ms is None else min(QUERY_TIMEOUT_S, wanted_ms / 1000)

    def lookback_ms(self) -> int | None:
        """How far back an instant selector looks, if it is not to be as usual."""
        return self._positive_ms("lookback_delta")

    def _positive_ms(self, name: str) -> int | None:
        """A duration of 1 ms or more."""
        found = self.text(name)
        if found is None:
            return None
        wanted = _named(name, duration_ms, found)
        if wanted <= 0:
            raise BadQuery(f'invalid parameter "{name}": it must be positive, 1ms or more, not {found[:40]}')
        return wanted

    def asof_ms(self, now_ms: int) -> int | None:
        """The time of an as-of question."""
        return asof.parsed(self.text("asof"), now_ms)

    def selectors(self) -> list[tuple[Matcher, ...]]:
        """The selectors of `match[]`."""
        return [_named("match[]", parse_selector, text) for text in self.every("match[]")]

    def span(self, clock: Clock) -> Span:
        """Selectors, times and limit of a call for names; without times, all of them."""
        start, end = self.instant("start", 0), self.instant("end", clock.now_ms() + FUTURE_MS)
        if end < start:
            raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
        return Span(self.selectors(), start, end, self.limit())

    def limit(self, *, signed: bool = False) -> int:
        """How many names or series may be in the answer at most; ``signed``: with a number below 0, all that may be."""
        if signed and _NEGATIVE.fullmatch(self.text("limit") or ""):
            return NAMES_SHOWN_MAX
        return min(self.whole_number("limit") or NAMES_SHOWN_MAX, NAMES_SHOWN_MAX)


def asked_of(request: HttpRequest, *, form: bool = True) -> Asked:
    """The values of a call; without ``form`` from the address alone."""
    address = fields(request.META.get("QUERY_STRING", "").encode("latin-1", "replace"))
    if form and request.content_type == PARTS:
        return Asked(_parts(request), address)
    return Asked(fields(_form(request)) if form and request.method == "POST" else {}, address)


def _form(request: HttpRequest) -> bytes:
    if (request.content_type or FORM) != FORM:
        raise BadQuery(f"a form is wanted as {FORM}, not {str(request.content_type)[:80]}")
    return whole(request)


def _parts(request: HttpRequest) -> dict[str, list[str]]:
    """The values of a form in parts; files among them are passed over."""
    body = whole(request)
    told = {**request.META, "CONTENT_LENGTH": str(len(body))}
    try:
        parser = MultiPartParser(told, io.BytesIO(body), request.upload_handlers, request.encoding or "utf-8")
        found, _ = parser.parse()
    except (MultiPartParserError, SuspiciousOperation) as error:
        raise BadQuery(f"the form cannot be read: {error}") from error
    return {name: [str(each) for each in values] for name, values in found.lists()}


def fields(raw: bytes) -> dict[str, list[str]]:
    """The values of an address or form, by their names."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except UnicodeDecodeError as error:
        raise BadQuery("parameters are not UTF-8") from error
    except ValueError as error:
        raise BadQuery(f"more than {_FIELDS_MAX} parameters") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _named(name: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "{name}": {error}', error.position) from error
