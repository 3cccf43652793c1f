"""How the front door answers: every error worded, every report alike. Views import it; it decides nothing about data.

``answering`` makes a view of this room: no CSRF token (programs have none), and each error of ours an answer with its
status: 400 what cannot be taken, 401 no token, 405 a wrong method, 413 too large, 415 an unknown form, 429 too fast,
503 not now. The last two say when to come back. A protocol that words its errors in its own form gives its ``Word``.
"""

import math
from collections.abc import Callable
from functools import wraps

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from ingest.accept.admission import TooFast
from ingest.http.body import UnknownEncoding
from spm.errors import BadMessage, Explained, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.limits import RETRY_AFTER_S
from spm.wire import Parsed

View = Callable[..., HttpResponse]
Word = Callable[[HttpRequest, int, Explained], HttpResponse]  # a protocol's own form of an error
_REALM = 'Bearer realm="spm"'


class Unauthorised(Explained):
    """The request shows no token that may do this."""

    def __init__(self) -> None:
        super().__init__(
            "no valid token",
            wanted="Authorization: Bearer TOKEN, with the scope ingest",
            remedy="Make a token for your app and send it with each request.",
        )


class UnknownForm(Explained):
    """A content type this address does not take."""


class Busy(Explained):
    """A part of the system cannot take data now."""


_STATUS: tuple[tuple[type[Explained], int], ...] = (
    (Unauthorised, 401),
    (UnknownEncoding, 415),
    (UnknownForm, 415),
    (TooFast, 429),
    (LimitExceeded, 413),
    (BadMessage, 400),
    (Busy, 503),
)


def as_json(request: HttpRequest, status: int, error: Explained) -> HttpResponse:
    """An error as {"error", "got", "wanted", "remedy"}."""
    got, wanted = (None if part is None else str(part) for part in (error.got, error.wanted))
    return JsonResponse({"error": error.what, "got": got, "wanted": wanted, "remedy": error.remedy}, status=status)


def answering(view: View, word: Word = as_json, too_fast: int = 429) -> View:
    """See the module. ``too_fast``: the status for a rate that is exceeded, where senders take 429 as final."""

    @csrf_exempt
    @wraps(view)
    def answered(request: HttpRequest, **named: str) -> HttpResponse:
        try:
            answer = view(request, **named)
        except (Unauthorised, UnknownEncoding, UnknownForm, LimitExceeded, BadMessage) as error:
            return _worded(word, request, error, too_fast)
        except (QueueUnavailable, StoreUnavailable, OperationalError) as error:
            busy = Busy(
                "cannot take data now",
                got=str(error)[:200],
                remedy="Send the same body again after Retry-After seconds.",
            )
            return _worded(word, request, busy, too_fast)
        return _not_so(word, request, answer) if isinstance(answer, HttpResponseNotAllowed) else answer

    return answered


def _not_so(word: Word, request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """A method that the address does not take, in words."""
    allowed = refused.headers["Allow"]
    answer = word(request, 405, Explained("the address does not take this method", got=request.method, wanted=allowed))
    answer.headers["Allow"] = allowed
    return answer


def _worded(word: Word, request: HttpRequest, error: Explained, too_fast: int) -> HttpResponse:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    status = too_fast if status == 429 else status
    answer = word(request, status, error)
    if status == 401:
        answer.headers["WWW-Authenticate"] = _REALM
    if status in (429, 503):
        wait_s = error.wait_s if isinstance(error, TooFast) else RETRY_AFTER_S
        answer.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return answer


def report(parsed: Parsed, message_id: bytes) -> dict[str, object]:
    """What the sender should know of a message."""
    errors = [{"line": r.line, "reason": r.reason, "example": r.example} for r in parsed.rejections]
    told: dict[str, object] = {
        "accepted": len(parsed.ts),
        "rejected": parsed.rejected,
        "errors": errors,
        "message_id": message_id.hex(),
    }
    if parsed.rejected or not len(parsed.ts):
        told["error"] = headline(parsed)
    return told


def headline(parsed: Parsed, item: str = "line") -> str:
    """The first reason, in one sentence; ``item``: what the protocol counts, of which 0 is the body as a whole."""
    if not parsed.rejected:
        return "unable to parse: the body holds no sample"
    first = next(iter(parsed.rejections), None)
    kind = "partial write" if len(parsed.ts) else "unable to parse"
    if first is None:
        return f"{kind}: {parsed.rejected} refused"
    place = f"{item} {first.line}: " if first.line else ""
    return f"{kind}: {parsed.rejected} refused; the first is {place}{first.reason}"
