"""The common part of all endpoints of Prometheus' API: caller, parameters, query admission and errors.

All web processes of a machine share one admission of queries. A view gets a `Call` and returns the body, or a whole
response if it is not JSON. Errors become Prometheus' error responses in one place (`error_parts`): 400 bad_data, 401,
404, 422 execution, 429, 499, 503. Large bodies are compressed for clients that accept gzip. Enter by `json_endpoint`
and `query_endpoint`, for streams by `streaming_endpoint` and `protobuf_endpoint`.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import Any, TypeVar

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from frontend.prometheus.access import Caller, NotSignedIn, caller_of
from frontend.prometheus.parameters import Parameters, parameters_of
from frontend.queries import admission, admitted, cancellation_of, note_organisation, storage_of
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
from spm.limits import EXPORT_TIMEOUT_S, REMOTE_READ_TIMEOUT_S, RETRY_AFTER_S, STREAM_SLICE_BYTES, STREAM_SLICE_S
from spm.query.formats import prometheus
from spm.query.reader import AppStorage
from spm.query.request.budget import Budget, Cancellation, QueryLimits, never_cancelled
from spm.query.request.limits import LIGHT_CELLS_MAX, LIGHT_SAMPLES_MAX, LIGHT_SERIES_MAX, LIGHT_TIMEOUT_S
from spm.query.request.lookback import LOOKBACK_MS
from spm.query.request.provenance import Provenance
from spm.web.error_status import DATABASE_AWAY, RETRYABLE, status_of, text_of

Part = TypeVar("Part")
View = Callable[..., "bytes | HttpResponseBase"]
_ERROR_TYPES: dict[type[Exception], str] = {  # the names that Prometheus gives them
    BadQuery: "bad_data",
    NotSignedIn: "unauthorized",
    Http404: "not_found",
    QueryFailed: "execution",
    QueryTooLarge: "execution",
    LimitExceeded: "execution",
    QueryRefused: "too_many_requests",
    QueryCancelled: "canceled",
    QueryTimeout: "timeout",
    StoreUnavailable: "unavailable",
    **dict.fromkeys(DATABASE_AWAY, "unavailable"),
    IntegrityError: "internal",
}
_STATUSES = {NotSignedIn: 401, Http404: 404, IntegrityError: 500}
HANDLED_ERRORS = tuple(_ERROR_TYPES)
_METHODS = ("GET", "POST")
VARY = "Accept-Encoding, Authorization, Cookie"
_GZIP_FROM = 1_400  # bytes: a body that fits one packet is not compressed
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API: its caller, parameters and budget."""

    caller: Caller
    parameters: Parameters
    cancellation: Cancellation
    budget: Budget
    accepts: str = ""  # the header Accept
    waits: bool = True  # false for a light query on the event loop

    @property
    def now_ms(self) -> int:
        """The current time."""
        return _clock.now_ms()

    @property
    def asof_ms(self) -> int | None:
        """The time of an as-of query; ``None`` for any other query."""
        return self.parameters.asof_ms(self.now_ms)

    def storage(self) -> AppStorage:
        """Open the caller's data: as it is now, or as accepted by the time of `asof`."""
        storage = storage_of(self.caller.app_id, self.asof_ms)
        return storage if self.waits else storage.in_memory()

    def admit(self, *, patient: bool = False) -> AbstractContextManager[None]:
        """Wait for admission among the queries of the caller's organisation; waiting counts towards the deadline."""
        return admitted(self.caller.organisation_id, self.budget.check_deadline, patient=patient, waits=self.waits)

    def admit_stream(self) -> AbstractContextManager[None]:
        """Wait until the organisation has few enough streamed responses, and count one more while the context lasts."""
        return admission.admit_stream(self.caller.organisation_id, self.budget.check_deadline)


Handler = Callable[[Call, dict[str, str]], "bytes | HttpResponseBase"]


def json_endpoint(view: View) -> Callable[..., HttpResponseBase]:
    """Wrap a view, by GET or POST with a form, that reads no samples."""
    return _json_view(view, lambda call, path: view(call, **path))


def query_endpoint(view: View) -> Callable[..., HttpResponseBase]:
    """Wrap a view that reads samples: it runs only after query admission."""

    def admitted(call: Call, path: dict[str, str]) -> "bytes | HttpResponseBase":
        with call.admit():
            return view(call, **path)

    return _json_view(view, admitted)


StreamingView = Callable[[Call, HttpRequest, ExitStack], HttpResponseBase]


def protobuf_endpoint(view: StreamingView) -> Callable[..., HttpResponseBase]:
    """Wrap a view, by POST only, that reads a body which is not a form; its response may be a stream."""
    return _streaming_view(view, ["POST"], timeout_s=REMOTE_READ_TIMEOUT_S, form=False)


def streaming_endpoint(view: StreamingView) -> Callable[..., HttpResponseBase]:
    """Wrap a view whose response is a stream.

    The view gets an ``ExitStack`` of resources, the admission of its stream among them: they are released at its end.
    """
    return _streaming_view(view, ["GET", "POST"], timeout_s=EXPORT_TIMEOUT_S, form=True)


@csrf_exempt
def unknown_address(request: HttpRequest) -> HttpResponseBase:
    """Answer 404 for every other address below the address of the data source."""
    return error_response(Http404("there is no such address here; docs/reference/query-api.md lists those that exist"))


def _streaming_view(
    view: StreamingView, methods: list[str], *, timeout_s: float, form: bool
) -> Callable[..., HttpResponseBase]:
    @csrf_exempt
    @wraps(view)
    def respond(request: HttpRequest) -> HttpResponseBase:
        if request.method not in methods:
            return _method_not_allowed(methods)
        try:
            call = _call(request, parameters_of(request, form=form), timeout_s=timeout_s)
            with ExitStack() as resources:
                resources.enter_context(call.admit_stream())
                with call.admit():
                    return view(call, request, resources)
        except HANDLED_ERRORS as error:
            return error_response(error)

    return respond


def streaming_response(
    call: Call, chunks: Iterator[bytes], resources: ExitStack, content_type: str
) -> StreamingHttpResponse:
    """Return a streamed response; its first chunk is computed before it begins, so that an error can set the status."""
    response = StreamingHttpResponse(_StreamedBody(call, chunks, resources), content_type=content_type)
    response["Cache-Control"] = "no-store"
    return response


class _StreamedBody:
    """The chunks of a response: computed while admitted, sent without a slot; releases its resources at the end."""

    def __init__(self, call: Call, chunks: Iterator[bytes], resources: ExitStack) -> None:
        self._call, self._chunks = call, chunks
        self._first = next(chunks, b"")
        self._resources = resources.pop_all()

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        while chunks := self._next_chunks():
            yield from chunks

    def _next_chunks(self) -> list[bytes]:
        """Compute the chunks of one time slice; returns none at the end."""
        chunks, size, until = list[bytes](), 0, _clock.monotonic() + STREAM_SLICE_S
        with self._call.admit(patient=True):
            for chunk in self._chunks:
                chunks.append(chunk)
                size += len(chunk)
                if size >= STREAM_SLICE_BYTES or _clock.monotonic() >= until:
                    break
        return chunks

    def close(self) -> None:
        """Release the resources; the web server calls it in every case, also for a response that was not read."""
        self._resources.close()


def end_on_damage(parts: Iterator[Part], storage: AppStorage) -> Iterator[Part]:
    """Yield the parts of a stream; raise ``StoreUnavailable`` at its end if new damaged rows were found in them.

    Its head cannot name them any more. The next request finds them in quarantine, and its head does.
    """
    known = storage.damaged_count()
    yield from parts
    if storage.damaged_count() > known:
        raise StoreUnavailable("damaged rows were found and left out: ask again, and X-SPM-Warnings names them")


def add_annotation_headers(response: HttpResponseBase, provenance: Provenance, storage: AppStorage) -> HttpResponseBase:
    """Add infos and warnings as headers to a response whose format has no place for them."""
    warnings = [*provenance.warnings(), *storage.damage()]
    for name, annotations in (("X-SPM-Infos", provenance.infos()), ("X-SPM-Warnings", warnings)):
        if annotations:
            response[name] = "; ".join(annotations).replace("…", "...")
    return response


def _json_view(view: View, handler: Handler) -> Callable[..., HttpResponseBase]:
    @csrf_exempt
    @wraps(view)
    def respond(request: HttpRequest, **path: str) -> HttpResponseBase:
        if request.method not in _METHODS:
            return _method_not_allowed(_METHODS)
        try:
            body = handler(_call(request, parameters_of(request)), path)
        except HANDLED_ERRORS as error:
            return error_response(error)
        return compress(request, body if isinstance(body, HttpResponseBase) else json_response(body))

    respond.handler = handler  # type: ignore[attr-defined]
    return respond


def _method_not_allowed(methods: Sequence[str]) -> HttpResponse:
    allowed = ", ".join(methods)
    response = json_response(prometheus.failure("bad_data", f"this address takes {allowed} only"), 405)
    response["Allow"] = allowed
    return response


def handler_of(view: Callable[..., object]) -> Handler:
    """Return the handler that a ``json_endpoint`` or ``query_endpoint`` calls, for the fast path."""
    handler: Handler = view.handler  # type: ignore[attr-defined]
    return handler


def _call(request: HttpRequest, parameters: Parameters, *, timeout_s: float | None = None) -> Call:
    return call_of(caller_of(request, parameters), parameters, request.META, timeout_s=timeout_s)


def call_of(
    caller: Caller, parameters: Parameters, environ: Mapping[str, Any], *, timeout_s: float | None = None
) -> Call:
    """Make a call, with the budget that its parameters ask for."""
    note_organisation(environ, caller.organisation_id)
    cancellation = cancellation_of(environ)
    limits = QueryLimits(
        timeout_s=timeout_s or parameters.timeout_s(), lookback_ms=parameters.lookback_ms() or LOOKBACK_MS
    )
    return Call(
        caller,
        parameters,
        cancellation,
        Budget(limits, _clock, cancellation, started_s=environ.get("spm.begun_s")),
        str(environ.get("HTTP_ACCEPT", "")),
    )


def light_call_of(caller: Caller, parameters: Parameters, accepts: str) -> Call:
    """Make a call that never waits, with the budget of a light query. Whatever it raises, another call may answer."""
    limits = QueryLimits(
        series=LIGHT_SERIES_MAX,
        samples=LIGHT_SAMPLES_MAX,
        cells=LIGHT_CELLS_MAX,
        shown=LIGHT_CELLS_MAX,
        timeout_s=min(LIGHT_TIMEOUT_S, parameters.timeout_s()),
        lookback_ms=parameters.lookback_ms() or LOOKBACK_MS,
    )
    budget = Budget(limits, _clock)
    return Call(caller, parameters, never_cancelled, budget, accepts, waits=False)


def error_parts(error: Exception) -> tuple[int, bytes, dict[str, str]]:
    """Return the status, body and headers of the response to a failed call."""
    status = status_of(error, _STATUSES)
    kind = next(name for type_, name in _ERROR_TYPES.items() if isinstance(error, type_))
    headers = {}
    if status in RETRYABLE:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="spm"'
    return status, prometheus.failure(kind, text_of(error)), headers


def error_response(error: Exception) -> HttpResponse:
    """Return the response to a failed call."""
    status, body, headers = error_parts(error)
    response = json_response(body, status)
    for name, value in headers.items():
        response[name] = value
    return response


def json_response(body: bytes, status: int = 200) -> HttpResponse:
    """Return a JSON response that must not be cached."""
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response


def compress(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Compress the body of a response if it is large and the client accepts gzip."""
    if isinstance(response, StreamingHttpResponse) or response.has_header("Content-Encoding"):
        return response
    assert isinstance(response, HttpResponse), "BUG: a response of an unknown type"
    response["Vary"] = VARY
    if is_worth_gzip(response.content, request.META):
        response.content = gzip_body(response.content)
        response["Content-Encoding"] = "gzip"
    return response


def gzip_body(body: bytes) -> bytes:
    """Compress a body with gzip."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def is_worth_gzip(body: bytes, environ: Mapping[str, Any]) -> bool:
    """Whether a body is large and the client accepts gzip."""
    return is_large(body) and accepts_gzip(environ)


def is_large(body: bytes) -> bool:
    """Whether compressing a body saves a packet."""
    return len(body) >= _GZIP_FROM


def accepts_gzip(environ: Mapping[str, Any]) -> bool:
    """Whether the client accepts gzip."""
    for part in str(environ.get("HTTP_ACCEPT_ENCODING", "")).lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
