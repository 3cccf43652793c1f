"""Describes the endpoints that are no REST framework views in the OpenAPI schema: Prometheus' API, transfer, events.

They stand outside of the framework, so their description is a table here; a test compares it with the URLs.
Enter by `describe`, a hook of the schema generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FORM = "application/x-www-form-urlencoded"
_LISTS = frozenset({"match[]", "extra_label", "rule_name[]", "rule_group[]", "file[]"})
_SPAN = ("start", "end", "match[]", "limit", "explain", "asof", "app")
_DESCRIPTIONS = {
    "query": "An expression in PromQL.",
    "time": "The time of evaluation; now by default. Seconds or RFC 3339.",
    "start": "The first time. Seconds or RFC 3339.",
    "end": "The last time, inclusive.",
    "step": "The width of a step: seconds, or a duration such as 5m.",
    "timeout": "The time limit of the query, at most that of the server; of events, the seconds to wait for one.",
    "limit": "The largest number of series or names in the answer; a warning says if it was cut.",
    "lookback_delta": "How far back an instant selector looks; five minutes by default.",
    "stats": "With any value, the answer contains the resources that the query used.",
    "explain": "With 1, the answer contains its provenance: resolution, generations, completeness, corrections. "
    "An answer that is not JSON is replaced by it.",
    "asof": "Answer with the data as accepted by this time.",
    "app": "The app, for a session; a token determines its app.",
    "match[]": "A selector; may be repeated.",
    "name": "The label's name; escaped if it is not an identifier (U__a_2e_b).",
    "metric": "The metric; all metrics by default.",
    "type": "alert or record.",
    "rule_name[]": "Only rules of this name.",
    "rule_group[]": "Only rules of this group.",
    "file[]": "Only rules of this file.",
    "exclude_alerts": "With true, rules are listed without their alerts.",
    "group_limit": "The largest number of groups in the answer; groupNextToken of the answer says that there are more.",
    "group_next_token": "groupNextToken of the answer before; the next groups follow.",
    "stream_position": "A position of the lasting stream, oldest or newest: the events after it.",
    "kind": "Of the lasting stream: the kinds of events, separated by commas; all.",
    "after": "The id of the last event that was received; without it the answer comes at once, with an id.",
    "extra_label": "A label for every series, as name=value; may be repeated.",
    "format": "jsonl, csv, parquet, prometheus or openmetrics; jsonl by default.",
}


_TOO_LONG = "The address is too long."
_FAILURES = {
    "400": "A parameter or the body is malformed.",
    "401": "Nobody is logged in, or the token is not valid.",
    "403": "The role or the scope does not suffice.",
    "404": "There is no such app.",
    "413": "The body is too large.",
    "414": _TOO_LONG,
    "422": "The query cannot be answered.",
    "429": "Too many requests at once.",
    "503": "The store is away, or the time is over.",
}


@dataclass(frozen=True, slots=True)
class _Endpoint:
    summary: str
    parameters: Sequence[str] = ("app",)
    required: Sequence[str] = ()
    methods: Sequence[str] = ("get", "post")
    response: str | tuple[str, ...] = "application/json"
    body: str = _FORM
    without_body: str = ""  # when the answer is a 204


_QUERY = ("timeout", "limit", "lookback_delta", "stats", "explain", "asof", "app")
_STATUS = {
    "buildinfo": "The version whose semantics the API follows",
    "runtimeinfo": "Start time, damaged rows, retention",
    "flags": "Limits of queries",
    "config": "A configuration file without entries",
    "tsdb": "Numbers of series, by metric and label",
}
_ENDPOINTS: Mapping[str, _Endpoint] = {
    "/prometheus/api/v1/query": _Endpoint("An expression at one time", ("query", "time", *_QUERY), ("query",)),
    "/prometheus/api/v1/query_range": _Endpoint(
        "An expression at steps from start to end",
        ("query", "start", "end", "step", *_QUERY),
        ("query", "start", "end", "step"),
    ),
    "/prometheus/api/v1/query_exemplars": _Endpoint(
        "Exemplars of the series of an expression", ("query", "start", "end", "asof", "app"), ("query",)
    ),
    "/prometheus/api/v1/series": _Endpoint("Labels of matching series", _SPAN, ("match[]",)),
    "/prometheus/api/v1/labels": _Endpoint("Label names", _SPAN),
    "/prometheus/api/v1/label/{name}/values": _Endpoint("Values of a label", ("name", *_SPAN), ("name",)),
    "/prometheus/api/v1/format_query": _Endpoint("An expression, formatted", ("query", "app"), ("query",)),
    "/prometheus/api/v1/parse_query": _Endpoint("An expression as a tree", ("query", "app"), ("query",)),
    "/prometheus/api/v1/metadata": _Endpoint("Kind and unit of metrics, by their names", ("metric", "limit", "app")),
    "/prometheus/api/v1/rules": _Endpoint(
        "Alerting and recording rules",
        (
            "type",
            "rule_name[]",
            "rule_group[]",
            "file[]",
            "match[]",
            "exclude_alerts",
            "group_limit",
            "group_next_token",
            "app",
        ),
    ),
    "/prometheus/api/v1/alerts": _Endpoint("Pending and firing alerts"),
    "/prometheus/api/v1/targets": _Endpoint("Scrape targets: always empty"),
    "/prometheus/api/v1/targets/metadata": _Endpoint("Metadata of scrape targets: always empty"),
    "/prometheus/api/v1/alertmanagers": _Endpoint("Alertmanagers: always empty"),
    "/prometheus/api/v1/notifications": _Endpoint("Notifications: always empty"),
    "/prometheus/api/v1/features": _Endpoint("What this server can do, by Prometheus' names"),
    **{
        f"/prometheus/api/v1/status/{name}": _Endpoint(summary, ("limit", "app") if name == "tsdb" else ("app",))
        for name, summary in _STATUS.items()
    },
    "/prometheus/api/v1/read": _Endpoint(
        "Remote read: snappy protobuf, or a stream of chunks",
        ("explain", "asof", "app"),
        methods=("post",),
        response="application/x-protobuf",
        body="application/x-protobuf",
    ),
    "/prometheus/federate": _Endpoint(
        "The newest samples, as text", ("match[]", "explain", "asof", "app"), ("match[]",), response="text/plain"
    ),
    "/api/v1/export": _Endpoint(
        "Export the samples of selectors and a range",
        ("match[]", "start", "end", "format", "explain", "asof", "app"),
        ("match[]",),
        response=(
            "application/x-ndjson",
            "text/csv",
            "application/vnd.apache.parquet",
            "text/plain",
            "application/openmetrics-text",
        ),
    ),
    "/api/v1/events": _Endpoint(
        "What is new in an app: an answer when there is something, or a stream of server-sent events",
        ("after", "timeout", "stream_position", "kind", "app"),
        methods=("get",),
    ),
    "/api/v1/import": _Endpoint(
        "Import a file of samples, in a format of the export",
        ("format", "extra_label"),
        methods=("post",),
        body="application/octet-stream",
        without_body="Everything was accepted; with Accept: application/json the answer is a report",
    ),
}


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add the endpoints of the table to the schema."""
    for path, endpoint in _ENDPOINTS.items():
        result["paths"].setdefault(path, {}).update(
            {method: _operation(path, endpoint, method) for method in endpoint.methods}
        )
    result["paths"] = dict(sorted(result["paths"].items()))
    return result


def _operation(path: str, endpoint: _Endpoint, method: str) -> dict[str, Any]:
    has_form = method == "post" and endpoint.body == _FORM
    fields = [name for name in endpoint.parameters if name != "name"] if has_form else []
    operation: dict[str, Any] = {
        "operationId": f"{path.strip('/').translate(_PLAIN)}_{method}",
        "summary": endpoint.summary,
        "tags": [_tag(path)],
        "security": [{"token": []}] if path == "/api/v1/import" else [{"token": []}, {"cookieAuth": []}],
        "parameters": [_parameter(name, endpoint) for name in endpoint.parameters if name not in fields],
        "responses": {
            "200": {"description": "", "content": {each: {"schema": _schema(each)} for each in _types(endpoint)}},
            **{code: _failure(text) for code, text in _FAILURES.items() if code != "413" or method == "post"},
        },
    }
    if endpoint.without_body:
        operation["responses"]["204"] = {"description": endpoint.without_body}
    if method == "post":
        body = _form(fields, endpoint) if has_form else {"type": "string", "format": "binary"}
        operation["requestBody"] = {"content": {endpoint.body: {"schema": body}}}
    return operation


def _types(endpoint: _Endpoint) -> Sequence[str]:
    return (endpoint.response,) if isinstance(endpoint.response, str) else endpoint.response


def _tag(path: str) -> str:
    if path == "/api/v1/events":
        return "events"
    return "transfer" if path.startswith("/api") else "prometheus"


_PLAIN = str.maketrans({"/": "_", "{": "", "}": ""})


def _parameter(name: str, endpoint: _Endpoint) -> dict[str, Any]:
    location = "path" if name == "name" else "query"
    parameter = {"name": name, "in": location, "description": _DESCRIPTIONS[name], "schema": _value(name)}
    return parameter | ({"required": True} if name in endpoint.required else {})


def _form(fields: Sequence[str], endpoint: _Endpoint) -> dict[str, Any]:
    properties = {name: {**_value(name), "description": _DESCRIPTIONS[name]} for name in fields}
    required = [name for name in fields if name in endpoint.required]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _value(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}} if name in _LISTS else {"type": "string"}


def _failure(text: str) -> dict[str, Any]:
    """Describe a failure: JSON with `error`, of Prometheus' API also with `status` and `errorType`."""
    content = "text/plain" if text == _TOO_LONG else "application/json"
    return {"description": text, "content": {content: {"schema": _schema(content)}}}


def _schema(content_type: str) -> dict[str, Any]:
    return {"type": "object"} if content_type == "application/json" else {"type": "string", "format": "binary"}
