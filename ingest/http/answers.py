"""How ingest answers over HTTP: errors as answers with a status, reports of messages. The texts are the errors' own.

``error_answer`` turns each of our errors into an answer with its status: 400 cannot be read, 401 no token, 405 a wrong
method, 413 too large, 415 an unknown content type or encoding, 429 over the rate, 503 not now. The last two say when to
come back. A protocol with error answers of its own has its ``ErrorFormat``.
"""

import math
from collections.abc import Callable, Sequence

from ingest.accept.rate_allowance import TooFast
from ingest.http.body import UnknownEncoding
from ingest.http.exchange import PushAnswer, PushRequest, json_answer
from spm.errors import BadMessage, Explained, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.limits import RETRY_AFTER_S
from spm.web.error_status import BODY_STATUSES, DATABASE_AWAY, RETRYABLE, status_of, text_of
from spm.wire import Parsed

ErrorFormat = Callable[[PushRequest, int, Explained], PushAnswer]  # makes a protocol's own form of an error
_REALM = 'Bearer realm="spm"'


class Unauthorised(Explained):
    """The request shows no token that may do this."""

    def __init__(self) -> None:
        super().__init__(
            "no valid token",
            wanted="Authorization: Bearer TOKEN, with the scope ingest",
            remedy="Make a token for your app and send it with each request.",
        )


class UnsupportedContentType(Explained):
    """A content type that this address does not take."""


class WrongMethod(Explained):
    """A method that this address does not take."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__("the address does not take this method", got=method, wanted=self.allowed)


class Busy(Explained):
    """A part of the system cannot take data now."""


ANSWERED = (  # the errors that become answers; any other is a bug
    *(Unauthorised, UnknownEncoding, UnsupportedContentType, WrongMethod, LimitExceeded, BadMessage),
    *(QueueUnavailable, StoreUnavailable, *DATABASE_AWAY),
)
_STATUSES = {
    **BODY_STATUSES,
    Unauthorised: 401,
    WrongMethod: 405,
    UnknownEncoding: 415,
    UnsupportedContentType: 415,
    TooFast: 429,
}


def error_as_json(_request: PushRequest, status: int, error: Explained) -> PushAnswer:
    """Return an error as {"error", "got", "wanted", "remedy"}."""
    got, wanted = (None if part is None else str(part) for part in (error.got, error.wanted))
    return json_answer({"error": error.what, "got": got, "wanted": wanted, "remedy": error.remedy}, status)


def error_answer(
    request: PushRequest, error: Exception, error_format: ErrorFormat = error_as_json, too_fast: int = 429
) -> PushAnswer:
    """Return the answer to one of ``ANSWERED``. ``too_fast``: the status over the rate, where senders take 429 as
    final.
    """
    if not isinstance(error, Explained):
        remedy = "Send the same body again after Retry-After seconds."
        error = Busy("cannot take data now", got=text_of(error)[:200], remedy=remedy)
    status = status_of(error, _STATUSES)
    status = too_fast if status == 429 else status
    answer = error_format(request, status, error)
    if isinstance(error, WrongMethod):
        answer.headers["Allow"] = error.allowed
    if status == 401:
        answer.headers["WWW-Authenticate"] = _REALM
    if status in RETRYABLE:
        wait_s = error.wait_s if isinstance(error, TooFast) else RETRY_AFTER_S
        answer.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return answer


def report(parsed: Parsed, message_id: bytes) -> dict[str, object]:
    """Return what the sender should know of a message."""
    errors = [{"line": r.line, "reason": r.reason, "example": r.example} for r in parsed.rejections]
    fields: dict[str, object] = {
        "accepted": len(parsed.ts),
        "rejected": parsed.rejected,
        "errors": errors,
        "message_id": message_id.hex(),
    }
    if parsed.rejected or not len(parsed.ts):
        fields["error"] = headline(parsed)
    return fields


def headline(parsed: Parsed, item: str = "line") -> str:
    """Return the first reason in one sentence; ``item``: what the protocol counts, where 0 is the whole body."""
    if not parsed.rejected:
        return "unable to parse: the body holds no sample"
    first = next(iter(parsed.rejections), None)
    kind = "partial write" if len(parsed.ts) else "unable to parse"
    if first is None:
        return f"{kind}: {parsed.rejected} rejected"
    place = f"{item} {first.line}: " if first.line else ""
    return f"{kind}: {parsed.rejected} rejected; the first is {place}{first.reason}"
