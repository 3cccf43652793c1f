"""What the API's description says of the addresses that are no REST operations: Prometheus' API, export and import.

They are plain views past every framework, so the description of them is a table here; a test holds it against the
addresses themselves. Enter by `describe`, a hook of the description's generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FORM = "application/x-www-form-urlencoded"
_LISTS = frozenset({"match[]", "rule_name[]", "rule_group[]", "file[]"})
_SPAN = ("start", "end", "match[]", "limit", "explain", "asof", "app")
_MEANINGS = {
    "query": "An expression in PromQL.",
    "time": "When to evaluate it; now unless given. Seconds or RFC 3339.",
    "start": "The first time. Seconds or RFC 3339.",
    "end": "The last time, itself included.",
    "step": "The width of a step: seconds, or a duration such as 5m.",
    "timeout": "How long the query may take at most; never longer than the limit of the server.",
    "limit": "How many series or names the answer has at most; a warning says where it was cut.",
    "lookback_delta": "How far back an instant selector looks; five minutes unless given.",
    "stats": "With any value the answer says what the query has used.",
    "explain": "With 1 the answer says what it rests on: resolution, generations, completeness, corrections. "
    "Where it is no JSON, this comes instead.",
    "asof": "Answer as accepted by this time.",
    "app": "The app, for a session; a token names its app itself.",
    "match[]": "A selector; may be given several times.",
    "name": "The label's name; one that is no identifier is escaped (U__a_2e_b).",
    "metric": "The metric that is asked about; all unless given.",
    "type": "alert or record.",
    "rule_name[]": "Only rules of this name.",
    "rule_group[]": "Only rules of this group.",
    "file[]": "Only rules of this file.",
    "exclude_alerts": "With true the rules come without their alerts.",
    "format": "jsonl, csv, parquet, prometheus or openmetrics; jsonl unless given.",
}


@dataclass(frozen=True, slots=True)
class _Address:
    summary: str
    asked: Sequence[str] = ("app",)
    needed: Sequence[str] = ()
    methods: Sequence[str] = ("get", "post")
    answer: str = "application/json"
    body: str = _FORM


_QUERY = ("timeout", "limit", "lookback_delta", "stats", "explain", "asof", "app")
_STATUS = {
    "buildinfo": "Version, whose semantics are kept",
    "runtimeinfo": "Times, damaged rows, retention",
    "flags": "The limits of queries",
    "config": "Nothing is configured by a file",
    "tsdb": "How many series there are, and of what",
}
_ADDRESSES: Mapping[str, _Address] = {
    "/prometheus/api/v1/query": _Address("An expression at one time", ("query", "time", *_QUERY), ("query",)),
    "/prometheus/api/v1/query_range": _Address(
        "An expression at steps from start to end",
        ("query", "start", "end", "step", *_QUERY),
        ("query", "start", "end", "step"),
    ),
    "/prometheus/api/v1/query_exemplars": _Address("There are none", ("query", "app"), ("query",)),
    "/prometheus/api/v1/series": _Address("Labels of series that match", _SPAN, ("match[]",)),
    "/prometheus/api/v1/labels": _Address("Names of labels", _SPAN),
    "/prometheus/api/v1/label/{name}/values": _Address("Values of a label", ("name", *_SPAN), ("name",)),
    "/prometheus/api/v1/format_query": _Address("An expression written out", ("query", "app"), ("query",)),
    "/prometheus/api/v1/parse_query": _Address("An expression as a tree", ("query", "app"), ("query",)),
    "/prometheus/api/v1/metadata": _Address("Kind and unit of metrics, by their names", ("metric", "limit", "app")),
    "/prometheus/api/v1/rules": _Address(
        "Alert rules", ("type", "rule_name[]", "rule_group[]", "file[]", "match[]", "exclude_alerts", "app")
    ),
    "/prometheus/api/v1/alerts": _Address("What is pending or firing"),
    "/prometheus/api/v1/targets": _Address("Nothing is scraped"),
    "/prometheus/api/v1/targets/metadata": _Address("Nothing is scraped"),
    "/prometheus/api/v1/alertmanagers": _Address("There are none"),
    "/prometheus/api/v1/notifications": _Address("There are none"),
    **{
        f"/prometheus/api/v1/status/{name}": _Address(summary, ("limit", "app") if name == "tsdb" else ("app",))
        for name, summary in _STATUS.items()
    },
    "/prometheus/api/v1/read": _Address(
        "Remote read: snappy protobuf, or a stream of chunks",
        ("explain", "asof", "app"),
        methods=("post",),
        answer="application/x-protobuf",
        body="application/x-protobuf",
    ),
    "/prometheus/federate": _Address(
        "The newest samples, as text", ("match[]", "explain", "asof", "app"), ("match[]",), answer="text/plain"
    ),
    "/api/v1/export": _Address(
        "Samples of selectors and a range",
        ("match[]", "start", "end", "format", "explain", "asof", "app"),
        ("match[]",),
        answer="application/octet-stream",
    ),
    "/api/v1/import": _Address(
        "A file of samples, of the forms that export gives",
        ("format",),
        methods=("post",),
        body="application/octet-stream",
    ),
}


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """The description with these addresses in it."""
    for path, address in _ADDRESSES.items():
        result["paths"][path] = {method: _operation(path, address, method) for method in address.methods}
    result["paths"] = dict(sorted(result["paths"].items()))
    return result


def _operation(path: str, address: _Address, method: str) -> dict[str, Any]:
    of_form = method == "post" and address.body == _FORM
    fields = [name for name in address.asked if name != "name"] if of_form else []
    found: dict[str, Any] = {
        "operationId": f"{path.strip('/').translate(_PLAIN)}_{method}",
        "summary": address.summary,
        "tags": ["transfer" if path.startswith("/api") else "prometheus"],
        "parameters": [_parameter(name, address) for name in address.asked if name not in fields],
        "responses": {"200": {"description": "", "content": {address.answer: {"schema": _schema(address.answer)}}}},
    }
    if method == "post":
        body = _form(fields, address) if of_form else {"type": "string", "format": "binary"}
        found["requestBody"] = {"content": {address.body: {"schema": body}}}
    return found


_PLAIN = str.maketrans({"/": "_", "{": "", "}": ""})


def _parameter(name: str, address: _Address) -> dict[str, Any]:
    place = "path" if name == "name" else "query"
    found = {"name": name, "in": place, "description": _MEANINGS[name], "schema": _value(name)}
    return found | ({"required": True} if name in address.needed else {})


def _form(fields: Sequence[str], address: _Address) -> dict[str, Any]:
    properties = {name: {**_value(name), "description": _MEANINGS[name]} for name in fields}
    needed = [name for name in fields if name in address.needed]
    return {"type": "object", "properties": properties} | ({"required": needed} if needed else {})


def _value(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}} if name in _LISTS else {"type": "string"}


def _schema(answer: str) -> dict[str, Any]:
    return {"type": "object"} if answer == "application/json" else {"type": "string", "format": "binary"}
