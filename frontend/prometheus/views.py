"""Prometheus' HTTP API for Grafana, scripts and our own pages: plain views past every framework, for speed.

Each view reads its parameters, asks the query room once, and renders. What may go wrong is translated in one place
(`_FAILURES`) into Prometheus' form: 400 bad_data, 401, 404, 422 execution, 503 timeout or unavailable.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from frontend.prometheus import parameters
from frontend.prometheus.access import NotSignedIn, app_of
from spm import query
from spm.clock import SystemClock
from spm.errors import (
    BadQuery,
    IntegrityError,
    LimitExceeded,
    QueryFailed,
    QueryTimeout,
    QueryTooLarge,
    StoreUnavailable,
)
from spm.query import asof, prometheus
from spm.query.promql.engine import Engine, QueryLimits
from spm.query.select import Storage
from spm.query.storage import AppStorage

API_VERSION = "3.0.0"  # whose semantics are kept; Grafana chooses by it which calls to make
_FAILURES: dict[type[Exception], tuple[int, str]] = {
    BadQuery: (400, "bad_data"),
    NotSignedIn: (401, "unauthorized"),
    Http404: (404, "not_found"),
    QueryFailed: (422, "execution"),
    QueryTooLarge: (422, "execution"),
    LimitExceeded: (422, "execution"),
    QueryTimeout: (503, "timeout"),
    StoreUnavailable: (503, "unavailable"),
    IntegrityError: (500, "internal"),
}
_clock = SystemClock()


def _call(view: Callable[..., bytes]) -> Callable[..., HttpResponse]:
    """A view by GET or form: finds out whose storage it reads, and puts errors in Prometheus' form."""

    @csrf_exempt
    @require_http_methods(["GET", "POST"])
    @wraps(view)
    def answered(request: HttpRequest, **path: str) -> HttpResponse:
        try:
            return _json(view(query.storage_for(app_of(request)), request, **path))
        except tuple(_FAILURES) as error:
            status, kind = next(shape for found, shape in _FAILURES.items() if isinstance(error, found))
            return _json(prometheus.failure(kind, str(error)), status)

    return answered


@_call
def instant_query(storage: AppStorage, request: HttpRequest) -> bytes:
    """`query`: an expression at one time; with `asof` as accepted by then."""
    at_ms = parameters.instant(request, "time", _clock.now_ms())
    return prometheus.answer(_engine(storage, request).instant(parameters.required(request, "query"), at_ms))


@_call
def range_query(storage: AppStorage, request: HttpRequest) -> bytes:
    """`query_range`: an expression at steps from start to end; with `asof` as accepted by then."""
    start_ms = prometheus.instant_ms(parameters.required(request, "start"))
    end_ms = prometheus.instant_ms(parameters.required(request, "end"))
    step_ms = prometheus.duration_ms(parameters.required(request, "step"))
    expr = parameters.required(request, "query")
    return prometheus.answer(_engine(storage, request).range(expr, start_ms, end_ms, step_ms))


@_call
def series(storage: Storage, request: HttpRequest) -> bytes:
    """`series`: label sets of the series that match."""
    asked = parameters.span(request, _clock)
    return _limited(storage.series(asked.matcher_sets, asked.start_ms, asked.end_ms), asked.limit)


@_call
def labels(storage: Storage, request: HttpRequest) -> bytes:
    """`labels`: names of labels."""
    asked = parameters.span(request, _clock)
    return _limited(storage.label_names(asked.matcher_sets, asked.start_ms, asked.end_ms), asked.limit)


@_call
def label_values(storage: Storage, request: HttpRequest, name: str) -> bytes:
    """`label/NAME/values`: values of one label."""
    asked = parameters.span(request, _clock)
    found = storage.label_values(prometheus.label_name(name), asked.matcher_sets, asked.start_ms, asked.end_ms)
    return _limited(found, asked.limit)


@_call
def metadata(storage: Storage, request: HttpRequest) -> bytes:
    """`metadata`: types and units of metrics, of which none are known."""
    return prometheus.success({})


@_call
def query_exemplars(storage: Storage, request: HttpRequest) -> bytes:
    """`query_exemplars`: there are none."""
    return prometheus.success([])


@_call
def buildinfo(storage: Storage, request: HttpRequest) -> bytes:
    """`status/buildinfo`: no `features` in it, or Grafana takes us for Mimir."""
    return prometheus.success({"version": API_VERSION, "revision": "", "branch": "", "goVersion": ""})


def _engine(storage: AppStorage, request: HttpRequest) -> Engine:
    asof_ms = asof.parsed(parameters.text(request, "asof"), _clock.now_ms())
    then = storage if asof_ms is None else storage.asof(asof_ms)
    return Engine(then, QueryLimits(timeout_s=parameters.timeout_s(request)))


def _limited(found: list[Any], limit: int) -> bytes:
    cut = found[:limit] if limit else found
    return prometheus.success(cut, warnings=["results truncated due to limit"] if len(cut) < len(found) else [])


def _json(body: bytes, status: int = 200) -> HttpResponse:
    response = HttpResponse(body, status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response
