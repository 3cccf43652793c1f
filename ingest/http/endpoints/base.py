"""What an address of ingest does with a request, apart from who drives it: the event loop or Django's test client.

A ``PushEndpoint`` reads how a body is to be parsed from the head (``plan``) and writes the answer once its samples are
durable (``respond``). A ``Probe`` answers without samples. Drivers do the rest: token, rate, body, parser, acceptance,
errors. Enter by ``PushEndpoint`` and ``Probe``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.http.answers import ErrorFormat, error_as_json
from ingest.http.exchange import PushAnswer, PushRequest
from spm.wire import Parsed


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body with what a parser needs beside it."""

    raw: bytes
    now_ms: int
    over_quota: bool  # its app has more series than its quota: its names must not fill the common cache


@dataclass(frozen=True, slots=True)
class Plan:
    """How the body of one request is read.

    ``protocol`` names it in notes, ``unit`` is the unit of its times, ``source`` holds where no header or parameter
    names one.
    """

    protocol: str
    parse: Callable[[Body], Parsed]
    unit: str = "ms"
    source: str = ""
    precision: str | None = None  # of line protocol; bodies with one are parsed together


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """The accepted part of a body, all that its parser read, and the message's id."""

    parsed: Parsed
    read: Parsed
    message_id: bytes


@dataclass(frozen=True, slots=True)
class PushEndpoint:
    """An address that takes samples; ``too_fast``: its status for a rate that is exceeded."""

    name: str
    plan: Callable[[PushRequest], "Plan | PushAnswer"]
    respond: Callable[[PushRequest, AcceptedMessage], PushAnswer]
    methods: Sequence[str] = ("POST",)
    error_format: ErrorFormat = error_as_json
    too_fast: int = 429


@dataclass(frozen=True, slots=True)
class Probe:
    """An address that clients ask before they write; ``answer`` gets the request and its form's fields."""

    name: str
    answer: Callable[[PushRequest, dict[str, list[str]]], PushAnswer]
    methods: Sequence[str] = ("GET", "HEAD")
    needs_token: bool = False


Endpoint = PushEndpoint | Probe
