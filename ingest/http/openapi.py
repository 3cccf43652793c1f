"""Describes the addresses of ingest in the OpenAPI schema: what each takes, answers and refuses, with a curl to try.

They stand outside of the REST framework, so their description is a table here, by view of the protocols' registry.
Enter by ``describe``, a hook of the schema generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from ingest.http.endpoints.base import Endpoint, Probe
from ingest.http.urls import ENDPOINTS, PUSHGATEWAY
from ingest.protocols.registry import PROTOCOLS, ViewName

_GROUP = "/metrics/job/{job}"
_TOO_LONG = "The address is too long."
_REFUSED = {
    "400": "Some or all of it was rejected, and the other part was accepted: log it, do not send it again.",
    "401": "There is no valid token with the scope ingest.",
    "405": "The address does not take this method.",
    "413": "The body is too large as sent, unpacked, or in samples.",
    "414": _TOO_LONG,
    "415": "The encoding or the content type is not supported here.",
    "429": "The app sends faster than it may; Retry-After says when to send the same body again.",
    "503": "A part of the system cannot take data now; Retry-After says when to send the same body again.",
}
_NEVER_429 = frozenset({ViewName.REMOTE_WRITE, ViewName.OPENTSDB})  # whose senders take a 429 as final
_REPORT = {
    "type": "object",
    "properties": {
        "accepted": {"type": "integer"},
        "rejected": {"type": "integer"},
        "errors": {"type": "array", "items": {"type": "object"}},
        "message_id": {"type": "string"},
    },
}
_PARAMETERS = {
    "precision": "The unit of times: ns, us, ms, s, m or h; nanoseconds by default.",
    "extra_label": "A label for every series, as name=value; may be repeated.",
    "summary": "With any value, the answer has the counts.",
    "details": "With any value, the answer has the rejected points, too.",
    "verbose": "With true, the answer is a 200 with the version.",
    "q": "SHOW DATABASES or CREATE DATABASE.",
}
_NOW_S = "'$(date +%s)'"  # within the quotes of an example


@dataclass(frozen=True, slots=True)
class _Push:
    """What an address takes. ``body``: content types; ``data``: an example, "" where it is binary; its %NOW% stands for
    the time in seconds.
    """

    summary: str
    body: tuple[str, ...]
    status: str
    data: str = ""
    parameters: tuple[str, ...] = ()
    answers_json: bool = False


_JSON, _TEXT, _PROTOBUF = "application/json", "text/plain", "application/x-protobuf"
_PUSHES: Mapping[ViewName, _Push] = {
    ViewName.JSON: _Push(
        "Samples as JSON",
        (_JSON,),
        "202",
        '{"samples": [{"metric": "room_temperature", "tags": {"floor": "2"}, "value": 21.5}]}',
        answers_json=True,
    ),
    ViewName.INFLUX: _Push("Influx line protocol", (_TEXT,), "204", "room,floor=2 temperature=21.5", ("precision",)),
    ViewName.COMMON: _Push(
        "Values as collectd's write_http sends them, as JSON",
        (_JSON,),
        "200",
        '[{"values": [21.5], "dstypes": ["gauge"], "dsnames": ["value"], "interval": 10, "host": "room",'
        ' "plugin": "sensors", "type": "temperature", "time": %NOW%}]',
    ),
    ViewName.REMOTE_WRITE: _Push("Prometheus' remote write, 1.0 and 2.0, in snappy", (_PROTOBUF,), "204"),
    ViewName.PROMETHEUS_TEXT: _Push(
        "Prometheus' text format, or OpenMetrics",
        (_TEXT, "application/openmetrics-text"),
        "204",
        'room_temperature{floor="2"} 21.5',
        ("extra_label",),
    ),
    ViewName.OPENTSDB: _Push(
        "Points as OpenTSDB takes them",
        (_JSON,),
        "204",
        '{"metric": "room.temperature", "timestamp": %NOW%, "value": 21.5, "tags": {"floor": "2"}}',
        ("summary", "details"),
    ),
    ViewName.OTLP: _Push(
        "OpenTelemetry's metrics over HTTP",
        (_PROTOBUF, _JSON),
        "200",
        '{"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "room.temperature", "gauge":'
        ' {"dataPoints": [{"timeUnixNano": "%NOW%000000000", "asDouble": 21.5}]}}]}]}]}',
        answers_json=True,
    ),
}
_PROBES = {
    "ping": "What Influx clients ask before they write",
    "health": "What Influx clients ask before they write",
    "ready": "What Influx clients ask before they write",
    "query": "The two statements that Influx clients send before they write",
}
_PROBE_PARAMETERS = {"ping": ("verbose",), "query": ("q",)}


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the addresses of ingest to the schema."""
    views = {route: protocol.view for protocol in PROTOCOLS for route in protocol.paths.values()}
    for route, endpoint in ENDPOINTS.items():
        result["paths"].setdefault(f"/{route}", {}).update(_operations(f"/{route}", endpoint, views.get(route)))
    result["paths"][_GROUP] = _operations(_GROUP, PUSHGATEWAY, ViewName.PROMETHEUS_TEXT)
    result["paths"] = dict(sorted(result["paths"].items()))
    return result


def _operations(path: str, endpoint: Endpoint, view: ViewName | None) -> dict[str, Any]:
    """Return the operations of an address by method; a HEAD is that of its GET."""
    if isinstance(endpoint, Probe):
        return {m.lower(): _probe(endpoint, m) for m in endpoint.methods if m != "HEAD"}
    assert view is not None, "BUG: a push endpoint that no protocol has"
    methods = [method for method in endpoint.methods if method != "DELETE"]  # which keeps nothing and deletes nothing
    return {method.lower(): _push(path, endpoint.name, view, method) for method in methods}


def _push(path: str, name: str, view: ViewName, method: str) -> dict[str, Any]:
    push = _PUSHES[view]
    status = "200" if path == _GROUP else push.status
    parameters = [_parameter(each) for each in push.parameters if path != _GROUP]
    if path == _GROUP:
        parameters.append({"name": "job", "in": "path", "required": True, "schema": {"type": "string"}})
    answer: dict[str, Any] = {"description": "What the answer does not reject is on disk."}
    if push.answers_json:
        answer["content"] = {_JSON: {"schema": _REPORT if view is ViewName.JSON else {"type": "object"}}}
    codes = {code: text for code, text in _REFUSED.items() if code != "429" or view not in _NEVER_429}
    operation: dict[str, Any] = {
        **_head(name, method, push.summary, parameters),
        "requestBody": {
            "required": True,
            "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in push.body},
        },
        "responses": {status: answer, **{code: _failure(text) for code, text in codes.items()}},
    }
    if view is ViewName.OPENTSDB:
        operation["responses"]["200"] = {"description": "The counts, where ?summary or ?details asks for them."}
    if push.data:
        operation["x-codeSamples"] = [{"lang": "Shell", "source": _curl(path, push, method)}]
    return operation


def _curl(path: str, push: _Push, method: str) -> str:
    """Return a command for a shell in which TOKEN is set."""
    kind, verb = _JSON if _JSON in push.body else _TEXT, "" if method == "POST" else f" -X {method}"
    data, address = push.data.replace("%NOW%", _NOW_S), f"{settings.SPM_BASE_URL}{path.replace('{job}', 'demo')}"
    head = f'curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: {kind}"{verb}'
    return f"{head} --data-binary '{data}' {address}"


def _probe(probe: Probe, method: str) -> dict[str, Any]:
    parameters = [_parameter(each) for each in _PROBE_PARAMETERS.get(probe.name, ())]
    codes = {"200", "204"} if probe.name == "ping" else {"200"}
    refused = {"400", "405", "414", "503"} | ({"401"} if probe.needs_token else set())
    refused |= {"413", "415"} if method == "POST" else set()
    operation: dict[str, Any] = {
        **_head(probe.name, method, _PROBES[probe.name], parameters),
        "responses": {
            **{code: {"description": "What the client wants to hear."} for code in sorted(codes)},
            **{code: _failure(_REFUSED[code]) for code in sorted(refused)},
        },
    }
    if not probe.needs_token:
        operation["security"] = [{}]
    if method == "POST":
        form = {"type": "object", "properties": {each["name"]: each["schema"] for each in parameters}}
        operation["requestBody"] = {"content": {"application/x-www-form-urlencoded": {"schema": form}}}
    return operation


def _head(name: str, method: str, summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "operationId": f"ingest_{name.replace('-', '_')}_{method.lower()}",
        "summary": summary,
        "tags": ["ingest"],
        "parameters": parameters,
        "security": [{"token": []}],
    }


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": _PARAMETERS[name], "schema": {"type": "string"}}


def _failure(text: str) -> dict[str, Any]:
    kind = _TEXT if text == _TOO_LONG else _JSON
    return {"description": text, "content": {kind: {"schema": {"type": "string" if kind == _TEXT else "object"}}}}
