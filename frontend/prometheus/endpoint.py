"""The door of Prometheus' API: who calls and what is asked, a turn among the organisation's queries, errors in words.

Turns are shared by all web processes of a machine. A view gets a `Call` and returns the body (or a whole answer, where
it is no JSON). What may go wrong is translated in one place (`_FAILURES`) into Prometheus' form: 400 bad_data, 401,
404, 422 execution, 429, 499, 503. Large bodies are compressed for whoever takes gzip. Enter by `light` and `heavy`.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from frontend.client_presence import watch_of
from frontend.prometheus.access import Caller, NotSignedIn, caller_of
from frontend.prometheus.parameters import Asked, asked_of
from frontend.queries import storage_of, turns
from spm.clock import SystemClock
from spm.errors import (
    BadQuery,
    IntegrityError,
    LimitExceeded,
    QueryCancelled,
    QueryFailed,
    QueryRefused,
    QueryTimeout,
    QueryTooLarge,
    StoreUnavailable,
)
from spm.fast_dataclass import dataclass
from spm.limits import EXPORT_TIMEOUT_S, REMOTE_READ_TIMEOUT_S, RETRY_AFTER_S, STREAM_TURN_BYTES, STREAM_TURN_S
from spm.query.formats import prometheus
from spm.query.reader import AppStorage
from spm.query.request.budget import Budget, QueryLimits, Watch
from spm.query.request.lookback import LOOKBACK_MS
from spm.query.request.provenance import Basis

View = Callable[..., "bytes | HttpResponseBase"]
CLIENT_GONE = 499  # as nginx and Prometheus write it into their logs: nobody reads the answer
_FAILURES: dict[type[Exception], tuple[int, str]] = {
    BadQuery: (400, "bad_data"),
    NotSignedIn: (401, "unauthorized"),
    Http404: (404, "not_found"),
    QueryFailed: (422, "execution"),
    QueryTooLarge: (422, "execution"),
    LimitExceeded: (422, "execution"),
    QueryRefused: (429, "too_many_requests"),
    QueryCancelled: (CLIENT_GONE, "canceled"),
    QueryTimeout: (503, "timeout"),
    StoreUnavailable: (503, "unavailable"),
    IntegrityError: (500, "internal"),
}
FAILURES = tuple(_FAILURES)
_METHODS = ("GET", "POST")
_COME_AGAIN = (429, 503)
VARY = "Accept-Encoding, Authorization, Cookie"
_GZIP_FROM = 1_400  # bytes: what fits one packet is sent as it is
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Call:
    """One call: whose, what is asked, and whether anybody still waits for it."""

    caller: Caller
    asked: Asked
    watch: Watch
    budget: Budget
    accepts: str = ""  # the kinds of answers, as its header says

    @property
    def now_ms(self) -> int:
        """The time."""
        return _clock.now_ms()

    @property
    def asof_ms(self) -> int | None:
        """The time of an as-of question."""
        return self.asked.asof_ms(self.now_ms)

    def storage(self) -> AppStorage:
        """The caller's data: as it is, or as accepted by the time that `asof` names."""
        return storage_of(self.caller.app_id, self.asof_ms)

    def turn(self, *, patient: bool = False) -> AbstractContextManager[None]:
        """A turn among the queries of the caller's organisation; the time that a query has passes while it waits."""
        return turns.take(self.caller.organisation_id, self.budget.tick, patient=patient)

    def place(self) -> AbstractContextManager[None]:
        """A place among the organisation's answers that are made while they are sent."""
        return turns.stream(self.caller.organisation_id, self.budget.tick)


Run = Callable[[Call, dict[str, str]], "bytes | HttpResponseBase"]


def light(view: View) -> Callable[..., HttpResponseBase]:
    """A view by GET or form that reads no samples."""
    return _door(view, lambda call, path: view(call, **path))


def heavy(view: View) -> Callable[..., HttpResponseBase]:
    """A view that reads samples: only so many of them at a time for one organisation."""

    def in_turn(call: Call, path: dict[str, str]) -> "bytes | HttpResponseBase":
        with call.turn():
            return view(call, **path)

    return _door(view, in_turn)


Streamed = Callable[[Call, HttpRequest, ExitStack], HttpResponseBase]


def protobuf(view: Streamed) -> Callable[..., HttpResponseBase]:
    """The same for a view whose body is no form, and which reads it itself; its answer may be a stream."""
    return _held(view, ["POST"], timeout_s=REMOTE_READ_TIMEOUT_S, form=False)


def streamed(view: Streamed) -> Callable[..., HttpResponseBase]:
    """The same for an answer that is made while it is sent: what ``held`` holds, its place first, ends with it."""
    return _held(view, ["GET", "POST"], timeout_s=EXPORT_TIMEOUT_S, form=True)


@csrf_exempt
def unknown(request: HttpRequest) -> HttpResponseBase:
    """Whatever else is asked for under the address of a data source."""
    return failed(Http404("there is no such address here; docs/grafana.md lists those that there are"))


def _held(view: Streamed, methods: list[str], *, timeout_s: float, form: bool) -> Callable[..., HttpResponseBase]:
    @csrf_exempt
    @wraps(view)
    def answered(request: HttpRequest) -> HttpResponseBase:
        if request.method not in methods:
            return _of_other_methods(methods)
        try:
            call = _call(request, asked_of(request, form=form), timeout_s=timeout_s)
            with ExitStack() as held:
                held.enter_context(call.place())
                with call.turn():
                    return view(call, request, held)
        except FAILURES as error:
            return failed(error)

    return answered


def stream(call: Call, pieces: Iterator[bytes], held: ExitStack, kind: str) -> StreamingHttpResponse:
    """An answer whose first piece is made before it begins: what is refused then is refused with its status."""
    response = StreamingHttpResponse(_Held(call, pieces, held), content_type=kind)
    response["Cache-Control"] = "no-store"
    return response


class _Held:
    """The pieces, made in a turn and sent without one; what is held ends with the answer, also an unread one."""

    def __init__(self, call: Call, pieces: Iterator[bytes], held: ExitStack) -> None:
        self._call, self._pieces = call, pieces
        self._first = next(pieces, b"")
        self._held = held.pop_all()

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        while made := self._made():
            yield from made

    def _made(self) -> list[bytes]:
        """The next pieces, as many as one turn makes; none at the end."""
        made, size, until = list[bytes](), 0, _clock.monotonic() + STREAM_TURN_S
        with self._call.turn(patient=True):
            for piece in self._pieces:
                made.append(piece)
                size += len(piece)
                if size >= STREAM_TURN_BYTES or _clock.monotonic() >= until:
                    break
        return made

    def close(self) -> None:
        """What the web server calls at the end, whatever the end is."""
        self._held.close()


def remarked(response: HttpResponseBase, basis: Basis) -> HttpResponseBase:
    """An answer that has no room for infos and warnings says them in headers."""
    for name, found in (("X-SPM-Infos", basis.infos()), ("X-SPM-Warnings", basis.warnings())):
        if found:
            response[name] = "; ".join(found).replace("…", "...")
    return response


def _door(view: View, run: Run) -> Callable[..., HttpResponseBase]:
    @csrf_exempt
    @wraps(view)
    def answered(request: HttpRequest, **path: str) -> HttpResponseBase:
        if request.method not in _METHODS:
            return _of_other_methods(_METHODS)
        try:
            found = run(_call(request, asked_of(request)), path)
        except FAILURES as error:
            return failed(error)
        return packed(request, found if isinstance(found, HttpResponseBase) else json_answer(found))

    answered.run = run  # type: ignore[attr-defined]
    return answered


def _of_other_methods(methods: Sequence[str]) -> HttpResponse:
    wanted = ", ".join(methods)
    response = json_answer(prometheus.failure("bad_data", f"this address takes {wanted} only"), 405)
    response["Allow"] = wanted
    return response


def run_of(view: Callable[..., object]) -> Run:
    """What a ``light`` or ``heavy`` view does, for whoever made the call and writes the answer himself."""
    run: Run = view.run  # type: ignore[attr-defined]
    return run


def _call(request: HttpRequest, asked: Asked, *, timeout_s: float | None = None) -> Call:
    return call_of(caller_of(request, asked), asked, request.META, timeout_s=timeout_s)


def call_of(caller: Caller, asked: Asked, environ: Mapping[str, Any], *, timeout_s: float | None = None) -> Call:
    """A call with what it may use."""
    watch = watch_of(environ)
    allowed = QueryLimits(timeout_s=timeout_s or asked.timeout_s(), lookback_ms=asked.lookback_ms() or LOOKBACK_MS)
    return Call(caller, asked, watch, Budget(allowed, _clock, watch), str(environ.get("HTTP_ACCEPT", "")))


def refusal(error: Exception) -> tuple[int, bytes, dict[str, str]]:
    """The status, body and headers of the answer to a call that went wrong."""
    status, kind = next(shape for found, shape in _FAILURES.items() if isinstance(error, found))
    headers = {}
    if status in _COME_AGAIN:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="spm"'
    return status, prometheus.failure(kind, str(error)), headers


def failed(error: Exception) -> HttpResponse:
    """The same as an answer."""
    status, body, headers = refusal(error)
    response = json_answer(body, status)
    for name, value in headers.items():
        response[name] = value
    return response


def json_answer(body: bytes, status: int = 200) -> HttpResponse:
    """JSON that nobody keeps."""
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response


def packed(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """The answer, compressed where it is large and the caller takes gzip."""
    if isinstance(response, StreamingHttpResponse) or response.has_header("Content-Encoding"):
        return response
    assert isinstance(response, HttpResponse), "BUG: an answer of a kind nobody makes"
    response["Vary"] = VARY
    if worth_gzip(response.content, request.META):
        response.content = gzipped(response.content)
        response["Content-Encoding"] = "gzip"
    return response


def gzipped(body: bytes) -> bytes:
    """A body, compressed."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def worth_gzip(body: bytes, environ: Mapping[str, Any]) -> bool:
    """Whether a body is large, and its reader takes gzip."""
    return len(body) >= _GZIP_FROM and takes_gzip(environ)


def takes_gzip(environ: Mapping[str, Any]) -> bool:
    """Whether the caller reads gzip."""
    for part in str(environ.get("HTTP_ACCEPT_ENCODING", "")).lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
