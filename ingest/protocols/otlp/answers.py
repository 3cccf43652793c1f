"""What OTLP/HTTP answers: in the form of the request, protobuf or JSON.

``answer_of`` is the body of a 200, an ExportMetricsServiceResponse: empty unless something is to be told; ``status``
that of an error, a google.rpc.Status.
"""

import json

from ingest.protocols.common.protobuf import delimited, number


def is_json(content_type: str) -> bool:
    """Whether a request of this Content-Type is in OTLP's JSON."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


def answer_of(rejected: int, message: str, content_type: str) -> bytes:
    """What became of a request: how many data points were refused, and why, or something else worth knowing."""
    if is_json(content_type):
        told: dict[str, str] = {"rejectedDataPoints": str(rejected)} if rejected else {}
        if message:
            told["errorMessage"] = message
        return json.dumps({"partialSuccess": told} if told else {}, ensure_ascii=False).encode()
    inner = (number(1, rejected) if rejected else b"") + (delimited(2, message.encode()) if message else b"")
    return delimited(1, inner) if inner else b""


def status(code: int, message: str, content_type: str) -> bytes:
    """Why a request was not taken; ``code`` is one of gRPC's (3: the request is wrong, 8: too much, 14: come again)."""
    if is_json(content_type):
        return json.dumps({"code": code, "message": message}).encode()
    return number(1, code) + delimited(2, message.encode())
