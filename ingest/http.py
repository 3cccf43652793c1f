"""The front door over HTTP: JSON and Influx line protocol in, an answer only when the samples are durable.

    POST /api/v1/metrics              JSON  → 202 {"accepted", "rejected", "errors", "message_id"}
    POST /write, /api/v2/write        lines → 204, as Influx clients want exactly that
    GET|HEAD /ping → 204, /query      what Influx clients ask before they write

Some lines refused: the others are kept, and JSON says so in its 202; line protocol answers 400 "partial write", which
Influx clients take as final and log. Nothing taken: 400. Errors are {"error", "got", "wanted", "remedy"}; a 503 says
when to come back. The views read the request, call ``push``, and word the answer; they decide nothing else.
"""

from collections.abc import Callable
from functools import wraps

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from ingest.arrivals import way_of
from ingest.body import Stream, UnknownEncoding, read_body
from ingest.protocols import json_samples, line_protocol
from ingest.push import Sender, front_door, message_id_of, period_of, source_of
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.errors import BadMessage, Explained, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.limits import RETRY_AFTER_S
from spm.wire import Parsed

Parse = Callable[[bytes, int], Parsed]
View = Callable[[HttpRequest], HttpResponse]
_REALM = 'Bearer realm="spm"'
_DATABASES = {"name": "databases", "columns": ["name"], "values": [["metrics"]]}


class _Unauthorised(Exception):
    """The request shows no token that may do this."""


def _answering(view: View) -> View:
    """A view of this room: no CSRF token (programs have none), and every error worded."""

    @csrf_exempt
    @wraps(view)
    def answered(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except _Unauthorised:
            return _unauthorised()
        except UnknownEncoding as error:
            return _explained(error, 415)
        except LimitExceeded as error:
            return _explained(error, 413)
        except BadMessage as error:
            return _explained(error, 400)
        except (QueueUnavailable, StoreUnavailable, OperationalError) as error:
            return _busy(error)

    return answered


@_answering
@require_POST
def metrics(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/metrics``: samples as JSON."""
    parsed, message_id = _push(request, lambda body, now_ms: json_samples.parse(body, now_ms=now_ms), "json")
    return JsonResponse(_report(parsed, message_id), status=202 if len(parsed.ts) else 400)


@_answering
@require_POST
def write(request: HttpRequest) -> HttpResponse:
    """``POST /write`` and ``/api/v2/write``: Influx line protocol."""
    precision = request.GET.get("precision", "")
    parsed, message_id = _push(
        request, lambda body, now_ms: line_protocol.parse(body, now_ms=now_ms, precision=precision), "influx"
    )
    if len(parsed.ts) and not parsed.rejected:
        return HttpResponse(status=204, headers={"X-Message-Id": message_id.hex()})
    report = _report(parsed, message_id)
    return JsonResponse({**report, "code": "invalid", "message": report["error"]}, status=400)


@csrf_exempt
@require_http_methods(["GET", "HEAD"])
def ping(request: HttpRequest) -> HttpResponse:
    """``/ping``: there is somebody here."""
    return HttpResponse(status=204, headers={"X-Influxdb-Version": "1.8-spm"})


@_answering
@require_http_methods(["GET", "POST"])
def query(request: HttpRequest) -> HttpResponse:
    """``/query``: the two statements Influx clients send before they write; the database is always there."""
    _principal(request)
    statement = (request.GET.get("q") or request.POST.get("q") or "").strip().upper()
    if statement.startswith("CREATE DATABASE"):
        return JsonResponse({"results": [{"statement_id": 0}]})
    if statement.startswith("SHOW DATABASES"):
        return JsonResponse({"results": [{"statement_id": 0, "series": [_DATABASES]}]})
    raise BadMessage(
        "this statement is not answered here", got=statement[:80], wanted="SHOW DATABASES or CREATE DATABASE",
        remedy="Queries go to /prometheus/api/v1/query.",
    )  # fmt: skip


def _push(request: HttpRequest, parse: Parse, protocol: str) -> tuple[Parsed, bytes]:
    """Read, parse and push the request's body; what was made of it, and its message id."""
    principal = _principal(request)
    source = source_of(request.headers.get("X-SPM-Source") or request.GET.get("source"), principal.token_id)
    door = front_door()
    with door.place():
        body = read_body(
            _stream(request), encoding=request.headers.get("Content-Encoding", ""), length=_length(request)
        )
        parsed = parse(body, door.clock.now_ms())
        given = request.headers.get("X-Message-Id")
        message_id = message_id_of(parsed, given=given, token_id=principal.token_id, path=request.path, body=body)
        way = way_of(protocol, request.headers.get("User-Agent", ""))
        period_ms = period_of(request.headers.get("X-SPM-Period"))
        door.push(parsed, sender=Sender(principal.app_id, source, way, period_ms), message_id=message_id)
    return parsed, message_id


def _principal(request: HttpRequest) -> Principal:
    secret = tokens.from_request(request, query_parameter=True)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        raise _Unauthorised
    return principal


def _length(request: HttpRequest) -> int | None:
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else None


def _stream(request: HttpRequest) -> Stream:
    """The body; without a length (chunked) the server's own stream, where it promises to end it."""
    if _length(request) is None and request.META.get("wsgi.input_terminated"):
        stream: Stream = request.META["wsgi.input"]
        return stream
    return request


def _report(parsed: Parsed, message_id: bytes) -> dict[str, object]:
    """What the sender should know."""
    errors = [{"line": r.line, "reason": r.reason, "example": r.example} for r in parsed.rejections]
    report: dict[str, object] = {
        "accepted": len(parsed.ts), "rejected": parsed.rejected, "errors": errors, "message_id": message_id.hex(),
    }  # fmt: skip
    if parsed.rejected or not len(parsed.ts):
        report["error"] = _headline(parsed)
    return report


def _headline(parsed: Parsed) -> str:
    if not parsed.rejected:
        return "unable to parse: the body holds no sample"
    first = parsed.rejections[0]
    kind = "partial write" if len(parsed.ts) else "unable to parse"
    return f"{kind}: {parsed.rejected} refused; the first is line {first.line}: {first.reason}"


def _explained(error: Explained, status: int) -> HttpResponse:
    got, wanted = (None if part is None else str(part) for part in (error.got, error.wanted))
    answer = {"error": error.what, "got": got, "wanted": wanted, "remedy": error.remedy}
    return JsonResponse(answer, status=status)


def _unauthorised() -> HttpResponse:
    answer = {
        "error": "no valid token", "got": None, "wanted": "Authorization: Bearer TOKEN, with the scope ingest",
        "remedy": "Make a token for your app and send it with each request.",
    }  # fmt: skip
    return JsonResponse(answer, status=401, headers={"WWW-Authenticate": _REALM})


def _busy(error: Exception) -> HttpResponse:
    answer = {
        "error": "cannot take data now", "got": str(error)[:200], "wanted": None,
        "remedy": "Send the same body again after Retry-After seconds.",
    }  # fmt: skip
    return JsonResponse(answer, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
