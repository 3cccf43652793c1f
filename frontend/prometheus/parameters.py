"""Reads the parameters of a call of Prometheus' API from its URL and form.

A list (`match[]`) takes the values of both; of a single value the form's wins. A missing or malformed value is a
`BadQuery`, in Prometheus' wording. Forms are read here, under a limit of their own, and not by Django. Enter by
`parameters_of`.
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote_plus

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from frontend.prometheus.bodies import read_body
from frontend.queries import asof_of
from spm.clock import Clock
from spm.errors import BadQuery
from spm.limits import FUTURE_MS, NAMES_SHOWN_MAX, QUERY_TIMEOUT_S
from spm.query.formats.prometheus import duration_ms, instant_ms
from spm.query.promql.planning.planner import parse_selector
from spm.query.request.batches import Matcher

T = TypeVar("T")
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_FIELDS_MAX = 1_000
_CACHED_CHARS = 1_024
_NEGATIVE = re.compile(r"-[0-9]{1,18}")
_TRUE = frozenset({"1", "t", "true", "all"})


@dataclass(frozen=True, slots=True)
class NamesQuery:
    """A query for names: of which series, in which time, and how many."""

    matcher_sets: list[tuple[Matcher, ...]]
    start_ms: int
    end_ms: int
    limit: int


class Parameters:
    """The parameters of one call."""

    def __init__(self, form: dict[str, list[str]], url: dict[str, list[str]]) -> None:
        self._form, self._url = form, url

    def every(self, name: str) -> list[str]:
        """Return all values of a list."""
        return self._url.get(name, []) + self._form.get(name, [])

    def text(self, name: str) -> str | None:
        """Return a value as it was sent, `None` if it is missing or empty."""
        for values in (self._form.get(name, ()), self._url.get(name, ())):
            for value in values:
                if value:
                    return value
        return None

    def required(self, name: str) -> str:
        """Return a required value."""
        text = self.text(name)
        if text is None:
            raise BadQuery(f'invalid parameter "{name}": it is missing or empty')
        return text

    def flag(self, name: str) -> bool:
        """Whether a parameter is true."""
        return (self.text(name) or "").lower() in _TRUE

    def whole_number(self, name: str) -> int | None:
        """Return a whole number from 0 on, `None` if it is missing."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise BadQuery(f'invalid parameter "{name}": "{text[:40]}" is not a whole number')
        return int(text)

    def instant(self, name: str, default_ms: int) -> int:
        """Return a time in ms."""
        text = self.text(name)
        return default_ms if text is None else _parse_parameter(name, instant_ms, text)

    def required_instant(self, name: str) -> int:
        """Return a required time in ms."""
        return _parse_parameter(name, instant_ms, self.required(name))

    def step_ms(self) -> int:
        """Return the required width of a step in ms."""
        return _parse_parameter("step", duration_ms, self.required("step"))

    def timeout_s(self) -> float:
        """Return the time limit of the query: the requested one, at most the limit of the server."""
        timeout_ms = self._positive_ms("timeout")
        return QUERY_TIMEOUT_S if timeout_ms is None else min(QUERY_TIMEOUT_S, timeout_ms / 1000)

    def lookback_ms(self) -> int | None:
        """Return how far back an instant selector looks, `None` for the default."""
        return self._positive_ms("lookback_delta")

    def _positive_ms(self, name: str) -> int | None:
        """Return a duration of 1 ms or more, `None` if it is missing."""
        text = self.text(name)
        if text is None:
            return None
        duration = _parse_parameter(name, duration_ms, text)
        if duration <= 0:
            raise BadQuery(f'invalid parameter "{name}": it must be positive, 1ms or more, not {text[:40]}')
        return duration

    def asof_ms(self, now_ms: int) -> int | None:
        """Return the time of an as-of query, `None` if it is not one."""
        return asof_of(self.text("asof"), now_ms)

    def selectors(self) -> list[tuple[Matcher, ...]]:
        """Return the selectors of `match[]`."""
        return [_parse_parameter("match[]", parse_selector, text) for text in self.every("match[]")]

    def names_query(self, clock: Clock) -> NamesQuery:
        """Return selectors, times and limit of a query for names; by default, all times."""
        start, end = self.instant("start", 0), self.instant("end", clock.now_ms() + FUTURE_MS)
        if end < start:
            raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
        return NamesQuery(self.selectors(), start, end, self.limit())

    def limit(self, *, signed: bool = False) -> int:
        """Return the largest number of names or series in the answer; ``signed``: a negative one means the server's."""
        if signed and _NEGATIVE.fullmatch(self.text("limit") or ""):
            return NAMES_SHOWN_MAX
        return min(self.whole_number("limit") or NAMES_SHOWN_MAX, NAMES_SHOWN_MAX)


def parameters_of(request: HttpRequest, *, form: bool = True) -> Parameters:
    """Return the parameters of a call; without ``form`` from the URL alone."""
    url = fields(request.META.get("QUERY_STRING", "").encode("latin-1", "replace"))
    if form and request.content_type == MULTIPART:
        return Parameters(_multipart_fields(request), url)
    return Parameters(fields(_form_body(request)) if form and request.method == "POST" else {}, url)


def _form_body(request: HttpRequest) -> bytes:
    body = read_body(request)
    if body and (request.content_type or FORM) != FORM:  # vmalert sends no body, as application/json
        raise BadQuery(f"a form must have the content type {FORM}, not {str(request.content_type)[:80]}")
    return body


def _multipart_fields(request: HttpRequest) -> dict[str, list[str]]:
    """Return the fields of a multipart form; files in it are ignored."""
    body = read_body(request)
    meta = {**request.META, "CONTENT_LENGTH": str(len(body))}
    try:
        parser = MultiPartParser(meta, io.BytesIO(body), request.upload_handlers, request.encoding or "utf-8")
        form, _ = parser.parse()
    except (MultiPartParserError, SuspiciousOperation) as error:
        raise BadQuery(f"the form cannot be read: {error}") from error
    return {name: [str(each) for each in values] for name, values in form.lists()}


def fields(raw: bytes) -> dict[str, list[str]]:
    """Parse a query string or a form to values by name; raises `BadQuery`."""
    values: dict[str, list[str]] = {}
    if not raw:
        return values
    try:
        text = raw.decode()
        if text.count("&") >= _FIELDS_MAX:
            raise BadQuery(f"more than {_FIELDS_MAX} parameters")
        for pair in text.split("&"):
            if pair:
                name, _, value = pair.partition("=")
                values.setdefault(_unquoted(name), []).append(_unquoted(value))
    except UnicodeDecodeError as error:
        raise BadQuery("parameters are not UTF-8") from error
    return values


def _unquoted(text: str) -> str:
    """Read the signs of a form in a name or value."""
    if "%" not in text:
        return text.replace("+", " ")
    return _unquoted_short(text) if len(text) <= _CACHED_CHARS else unquote_plus(text, errors="strict")


@lru_cache(maxsize=512)
def _unquoted_short(text: str) -> str:
    """Read a text that a dashboard repeats with each refresh."""
    return unquote_plus(text, errors="strict")


def _parse_parameter(name: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "{name}": {error}', error.position) from error
