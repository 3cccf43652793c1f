"""Writes the answers of OTLP/HTTP in the encoding of the request: protobuf or JSON.

``encode_answer`` returns the body of a 200, an ExportMetricsServiceResponse, which is empty unless there is a message
for the sender. ``encode_error`` returns the body of an error, a google.rpc.Status.
"""

import json
from collections.abc import Sequence

from ingest.protocols.common.protobuf import encode_bytes, encode_integer
from spm.wire import Rejection

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_REASONS = 3  # in a message


def is_json(content_type: str) -> bool:
    """Whether a request of this Content-Type is in OTLP's JSON."""
    return content_type.partition(";")[0].strip().lower() == JSON


def message_of(rejections: Sequence[Rejection]) -> str:
    """Returns the first reasons as one line for the sender."""
    return "; ".join(
        f"data point {one.line}: {one.reason}" if one.line else one.reason for one in rejections[:_REASONS]
    )


def encode_answer(rejected: int, message: str, content_type: str) -> bytes:
    """Returns the body of a 200: how many data points were rejected, and why, or another message for the sender."""
    if is_json(content_type):
        partial_success: dict[str, str] = {"rejectedDataPoints": str(rejected)} if rejected else {}
        if message:
            partial_success["errorMessage"] = message
        return json.dumps({"partialSuccess": partial_success} if partial_success else {}, ensure_ascii=False).encode()
    inner = (encode_integer(1, rejected) if rejected else b"") + (encode_bytes(2, message.encode()) if message else b"")
    return encode_bytes(1, inner) if inner else b""


def encode_error(code: int, message: str, content_type: str) -> bytes:
    """Returns the body of an error. ``code`` is gRPC's: 3 the request is bad, 8 a limit is exceeded, 14 try again."""
    if is_json(content_type):
        return json.dumps({"code": code, "message": message}).encode()
    return encode_integer(1, code) + encode_bytes(2, message.encode())
