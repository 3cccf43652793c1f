"""`POST /api/v1/import`: takes a file of samples as messages, like those of any sender.

The body is read, decompressed and parsed piece by piece, and each message is durable before the next one is built. A
message's id is a hash of its content, so that a file that is sent again, for example after an error in its middle,
counts once. One import of an organisation runs at a time on a machine; a few wait for it, others get 429. Each message
obeys the app's rate: the import waits for it, and with it its sender, as long as one request may take. A whole file is
answered as VictoriaMetrics does, with 204, which vmctl wants; a client that accepts JSON gets the report instead, and
one whose file has faults gets it always. Enter by `import_file`.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import numpy as np
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from frontend.transfer import limits
from frontend.transfer.readers import FORMS
from frontend.transfer.unpacking import pieces_of
from ingest.accept.acceptor import Acceptor
from ingest.accept.identity import Sender, source_of
from ingest.accept.process_acceptor import process_acceptor
from ingest.accept.rate_allowance import TooFast
from ingest.protocols.grouping_labels import add_labels, read_extra_labels
from spm.accounts import tokens
from spm.clock import random_bytes
from spm.errors import BadMessage, Explained, LimitExceeded, QueryRefused, QueueUnavailable, StoreUnavailable
from spm.limits import REJECTIONS_MAX, RETRY_AFTER_S
from spm.query.request.admission import MachineSlots, QueryAdmission
from spm.web.error_status import BODY_STATUSES, DATABASE_AWAY, status_of, text_of
from spm.wire import Parsed

_ID_BYTES = 16
_JSON = "application/json"
_CHARS_SHOWN = 600

_admission = QueryAdmission(
    limits.IMPORTS_PARALLEL_MAX,
    limits.IMPORTS_WAITING_MAX,
    limits.IMPORT_WAIT_S,
    MachineSlots(settings.SPM_DATA / "import_slots", limits.IMPORTS_PARALLEL_MAX),
)


class ImportsRunning(LimitExceeded):
    """Other imports of the organisation are under way."""

    def __init__(self) -> None:
        super().__init__(
            "another import of your organisation is under way",
            wanted=f"at most {limits.IMPORTS_PARALLEL_MAX} at a time on a machine, and {limits.IMPORTS_WAITING_MAX}"
            f" more that wait for up to {limits.IMPORT_WAIT_S:g} s",
            remedy="Send the same file again after Retry-After seconds, or one file after the other. The bounds are"
            " IMPORTS_PARALLEL_MAX, IMPORTS_WAITING_MAX and IMPORT_WAIT_S in frontend/transfer/limits.py.",
        )


_STATUSES = {**BODY_STATUSES, TooFast: 429, ImportsRunning: 429}
_CORRECT_LINES = (
    "Correct the lines listed under errors (only the first ones are listed) and send them again; all others are stored."
)
_KINDS = {
    "application/x-ndjson": "jsonl",
    _JSON: "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/openmetrics-text": "openmetrics",
    "text/plain": "prometheus",
}


@csrf_exempt
@require_POST
def import_file(request: HttpRequest) -> HttpResponse:
    """Import the file, and report which lines were rejected and why."""
    report: dict[str, Any] = {"accepted": 0, "rejected": 0, "messages": 0, "errors": []}
    secret = tokens.from_request(request)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        answer = {"error": "no valid token", "wanted": "Authorization: Bearer TOKEN, with the scope ingest"}
        return JsonResponse(answer, status=401, headers={"WWW-Authenticate": 'Bearer realm="spm"'})
    try:
        source = source_of(request.headers.get("X-SPM-Source") or "import", principal.token_id)
        sender = Sender(principal.app_id, source)
        acceptor = process_acceptor()
        with _one_at_a_time(principal.organisation_id), acceptor.reserve_body():
            deadline_s = acceptor.clock.monotonic() + limits.IMPORT_TIMEOUT_S
            acceptor.check_rate(principal.app_id)
            for parsed in _messages(request, acceptor.clock.now_ms()):
                _wait_for_rate(acceptor, principal.app_id, deadline_s)
                accepted = acceptor.accept(parsed, sender=sender, message_id=_message_id(parsed, principal.token_id))
                _count(report, accepted)
    except (LimitExceeded, BadMessage, QueueUnavailable, StoreUnavailable, *DATABASE_AWAY) as error:
        return _error_response(report, error, status_of(error, _STATUSES))
    if report["rejected"]:
        report["remedy"] = _CORRECT_LINES
        return JsonResponse(report, status=400)
    if _JSON in request.headers.get("Accept", "").lower():
        return JsonResponse(report)
    counts = {f"X-SPM-{name.capitalize()}": str(report[name]) for name in ("accepted", "messages")}
    return HttpResponse(status=204, headers=counts)


@contextmanager
def _one_at_a_time(organisation: int) -> Iterator[None]:
    try:
        with _admission.admit(organisation):
            yield
    except QueryRefused as error:
        raise ImportsRunning from error


def _messages(request: HttpRequest, now_ms: int) -> Iterator[Parsed]:
    kind = (request.content_type or "").lower()
    form = request.GET.get("format") or _KINDS.get(kind, "jsonl")
    if form not in FORMS:
        raise BadMessage(
            "an unknown format", got=form[:40], wanted=", ".join(FORMS), remedy="Set the parameter ?format="
        )
    labels = read_extra_labels(request.GET.getlist("extra_label"))
    messages = FORMS[form](pieces_of(request), now_ms)
    return (add_labels(each, labels) for each in messages) if labels else messages


def _wait_for_rate(acceptor: Acceptor, app: int, deadline_s: float) -> None:
    """Wait until the app may send; raise ``TooFast`` if that is after the request's time."""
    while True:
        try:
            acceptor.check_rate(app)
        except TooFast as error:
            if acceptor.clock.monotonic() + error.wait_s > deadline_s:
                raise
            acceptor.clock.sleep(error.wait_s)
        else:
            return


def _count(report: dict[str, Any], parsed: Parsed) -> None:
    report["accepted"] += len(parsed.ts)
    report["rejected"] += parsed.rejected
    report["messages"] += bool(len(parsed.ts))
    room = REJECTIONS_MAX - len(report["errors"])
    report["errors"] += [{"line": r.line, "reason": r.reason, "example": r.example} for r in parsed.rejections[:room]]


def _message_id(parsed: Parsed, token_id: int) -> bytes:
    """Return the id of the message: a hash of its content, or random if the server supplied a time."""
    if parsed.timeless:
        return random_bytes(_ID_BYTES)
    digest = hashlib.blake2b(f"{token_id}\nimport\n".encode(), digest_size=_ID_BYTES, usedforsecurity=False)
    digest.update(parsed.series.forms())
    for column in (parsed.series_index, parsed.ts, parsed.values):
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def _error_response(report: dict[str, Any], error: Exception, status: int) -> HttpResponse:
    text = error.what if isinstance(error, Explained) else "cannot take data now"
    remedy = error.remedy if isinstance(error, Explained) else ""
    repeat = "Send the whole file again: what was accepted counts once." if status == 503 or not remedy else ""
    answer = {**report, "error": text, "got": text_of(error)[:_CHARS_SHOWN], "remedy": f"{remedy} {repeat}".strip()}
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    if isinstance(error, (TooFast, ImportsRunning)):
        headers = {"Retry-After": str(ceil(error.wait_s if isinstance(error, TooFast) else RETRY_AFTER_S))}
    return JsonResponse(answer, status=status, headers=headers)
