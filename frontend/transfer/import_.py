"""`POST /api/v1/import`: a file of samples, taken as messages like those of any sender.

The body is read, unpacked and parsed piece by piece, and each message is durable before the next is made. A message's
id is a hash of what it says, so that a file that is sent again (after an error in its middle, for one) counts once.
Enter by `take`.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from frontend.transfer.readers import FORMS
from frontend.transfer.unpacking import pieces_of
from ingest.accept.identity import Sender, source_of
from ingest.accept.process_acceptor import process_acceptor
from spm.accounts import tokens
from spm.clock import random_bytes
from spm.errors import BadMessage, Explained, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.limits import REJECTIONS_MAX, RETRY_AFTER_S
from spm.wire import Parsed

_ID_BYTES = 16
_CHARS_SHOWN = 600
_MEND = "Mend the lines named under errors (the first of them) and send them again; all others are stored."
_KINDS = {
    "application/x-ndjson": "jsonl",
    "application/json": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/openmetrics-text": "openmetrics",
    "text/plain": "prometheus",
}


@csrf_exempt
@require_POST
def import_file(request: HttpRequest) -> HttpResponse:
    """What became of the file: samples accepted, lines refused and why."""
    told: dict[str, Any] = {"accepted": 0, "rejected": 0, "messages": 0, "errors": []}
    secret = tokens.from_request(request)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        answer = {"error": "no valid token", "wanted": "Authorization: Bearer TOKEN, with the scope ingest"}
        return JsonResponse(answer, status=401, headers={"WWW-Authenticate": 'Bearer realm="spm"'})
    try:
        source = source_of(request.headers.get("X-SPM-Source") or "import", principal.token_id)
        sender = Sender(principal.app_id, source)
        door = process_acceptor()
        with door.reserve_body():
            for parsed in _messages(request, door.clock.now_ms()):
                taken = door.accept(parsed, sender=sender, message_id=_message_id(parsed, principal.token_id))
                _count(told, taken)
    except LimitExceeded as error:
        return _error_response(told, error, 413)
    except BadMessage as error:
        return _error_response(told, error, 400)
    except (QueueUnavailable, StoreUnavailable, OperationalError) as error:
        return _error_response(told, error, 503)
    if told["rejected"]:
        told["remedy"] = _MEND
    return JsonResponse(told, status=200 if told["accepted"] or not told["rejected"] else 400)


def _messages(request: HttpRequest, now_ms: int) -> Iterator[Parsed]:
    kind = (request.content_type or "").lower()
    form = request.GET.get("format") or _KINDS.get(kind, "jsonl")
    if form not in FORMS:
        raise BadMessage("an unknown format", got=form[:40], wanted=", ".join(FORMS), remedy="Name it: ?format=")
    return FORMS[form](pieces_of(request), now_ms)


def _count(told: dict[str, Any], parsed: Parsed) -> None:
    told["accepted"] += len(parsed.ts)
    told["rejected"] += parsed.rejected
    told["messages"] += bool(len(parsed.ts))
    room = REJECTIONS_MAX - len(told["errors"])
    told["errors"] += [{"line": r.line, "reason": r.reason, "example": r.example} for r in parsed.rejections[:room]]


def _message_id(parsed: Parsed, token_id: int) -> bytes:
    """The message's id: of all that it says, or random if a time was ours."""
    if parsed.timeless:
        return random_bytes(_ID_BYTES)
    digest = hashlib.blake2b(f"{token_id}\nimport\n".encode(), digest_size=_ID_BYTES, usedforsecurity=False)
    digest.update(parsed.series.forms())
    for column in (parsed.series_index, parsed.ts, parsed.values):
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def _error_response(told: dict[str, Any], error: Exception, status: int) -> HttpResponse:
    what = error.what if isinstance(error, Explained) else "cannot take data now"
    remedy = error.remedy if isinstance(error, Explained) else ""
    again = "Send the whole file again: what was accepted counts once." if status == 503 or not remedy else ""
    answer = {**told, "error": what, "got": str(error)[:_CHARS_SHOWN], "remedy": f"{remedy} {again}".strip()}
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    return JsonResponse(answer, status=status, headers=headers)
