"""The query interfaces for samples and names over HTTP: each sends one query in its own form."""

import json
import struct
from collections.abc import Callable
from typing import Any

import cramjam
from django.test import Client

from spm.query.formats.remote_read import RemoteReadQuery
from spm.query.request.batches import Matcher
from tests.frontend.prometheus.test_federation import number, request_of, series_of
from tests.spm.query.formats.remote_read_stream import read_stream

PROMETHEUS = "/prometheus/api/v1/"
SendQuery = Callable[..., Any]  # client, headers, metric, first and last ms, and more parameters


def _get(address: str, question: Callable[[str, int, int], dict[str, Any]]) -> SendQuery:
    def ask(client: Client, headers: dict[str, str], metric: str, first_ms: int, last_ms: int, **more: str) -> Any:
        return client.get(address, {**question(metric, first_ms, last_ms), **more}, headers=headers)

    return ask


def _times(first_ms: int, last_ms: int) -> dict[str, str]:
    return {"start": str(first_ms / 1000), "end": str(last_ms / 1000)}


def _named(metric: str, first_ms: int, last_ms: int) -> dict[str, Any]:
    return {"match[]": metric, **_times(first_ms, last_ms)}


def _read(accept: bytes) -> SendQuery:
    def ask(client: Client, headers: dict[str, str], metric: str, first_ms: int, last_ms: int, **more: str) -> Any:
        request = request_of(RemoteReadQuery((Matcher("__name__", "=", metric),), first_ms, last_ms), accept=accept)
        address = PROMETHEUS + "read?" + "&".join(f"{name}={value}" for name, value in more.items())
        body = bytes(cramjam.snappy.compress_raw(request))
        return client.post(address, body, content_type="application/x-protobuf", headers=headers)

    return ask


SAMPLES: dict[str, SendQuery] = {
    "query": _get(PROMETHEUS + "query", lambda m, a, b: {"query": f"{m}[1h]", "time": str(b / 1000)}),
    "query_range": _get(
        PROMETHEUS + "query_range", lambda m, a, b: {"query": f"last_over_time({m}[1h])", **_times(b, b), "step": "60"}
    ),
    "read": _read(b""),
    "read, streamed": _read(number(2, 1)),
    "export": _get("/api/v1/export", _named),
    "charts": _get(
        "/api/v1/charts", lambda m, a, b: {"expr": f"last_over_time({m}[1h])", "start": a, "end": b, "step": 60_000}
    ),
    "percentiles": _get(
        "/api/v1/percentiles", lambda m, a, b: {"match": m, "q": "0.5", "start": a, "end": b, "step": 60_000}
    ),
}
NAMES: dict[str, SendQuery] = {
    "series": _get(PROMETHEUS + "series", _named),
    "labels": _get(PROMETHEUS + "labels", _named),
    "label values": _get(PROMETHEUS + "label/__name__/values", _named),
}


def body_of(response: Any) -> bytes:
    """Return the whole body, also of a stream."""
    return b"".join(response) if response.streaming else bytes(response.content)


def values_of_response(interface: str, response: Any) -> set[float]:
    """Return the values in an answer."""
    assert response.status_code == 200, body_of(response)
    body = body_of(response)
    if interface == "read":
        raw = [bits for one in series_of(bytes(cramjam.snappy.decompress_raw(body)))[0] for _, bits in one[1]]
        return {_float(bits) for bits in raw}
    if interface == "read, streamed":
        return {_float(bits) for _, _, points in read_stream(body) for _, bits in points}
    if interface == "export":
        return {value for line in body.splitlines() for value in json.loads(line)["values"]}
    answer = json.loads(body)
    if interface in ("charts", "percentiles"):
        return {value for one in answer["series"] for value in one["values"] if value is not None}
    return {float(value) for one in answer["data"]["result"] for _, value in one["values"]}


def names_of_response(response: Any) -> list[Any]:
    """Return the names in an answer."""
    assert response.status_code == 200, response.content
    names: list[Any] = json.loads(response.content)["data"]
    return names


def _float(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value
