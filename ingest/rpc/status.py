"""Errors of pushes as gRPC's statuses: a code, a text, and when to send the same message again.

Exporters drop a message after most codes. They send it again after UNAVAILABLE, and after RESOURCE_EXHAUSTED where the
details hold a ``google.rpc.RetryInfo``. Enter by ``status_of``.
"""

from dataclasses import dataclass

from ingest.http.exchange import PushAnswer
from ingest.protocols.common.protobuf import encode_bytes, encode_integer

DETAILS = "grpc-status-details-bin"
RETRY_INFO = "google.rpc.retryinfo-bin"  # where exporters of Python look for it
_TYPE = b"type.googleapis.com/google.rpc.RetryInfo"
_INVALID, _EXHAUSTED, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 3, 8, 13, 14, 16
_CODES = {400: _INVALID, 401: _UNAUTHENTICATED, 413: _INVALID, 415: _INVALID, 429: _EXHAUSTED, 503: _UNAVAILABLE}
"""A body that is too large (413) stays too large: gRPC's own code for it would have exporters send it again."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ends that is not accepted. ``metadata``: binary values by name."""

    code: int
    text: str
    metadata: tuple[tuple[str, bytes], ...]


def status_of(answer: PushAnswer) -> Status:
    """Return the status of an answer that is not 200, whose body is the error's text."""
    code, text = _CODES.get(answer.status, _INTERNAL), answer.body.decode()
    wait = answer.headers.get("Retry-After")
    if wait is None:
        return Status(code, text, ())
    retry = encode_bytes(1, encode_integer(1, int(wait)))  # retry_delay, a Duration in seconds
    any_retry = encode_bytes(1, _TYPE) + encode_bytes(2, retry)
    details = encode_integer(1, code) + encode_bytes(2, text.encode()) + encode_bytes(3, any_retry)
    return Status(code, text, ((DETAILS, details), (RETRY_INFO, retry)))
