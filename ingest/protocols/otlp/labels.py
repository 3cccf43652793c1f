"""The labels of OTLP's series: what resources, scopes and points say about themselves, as Prometheus would name it.

- ``job`` is service.name, behind service.namespace and a stroke where there is one; ``instance`` is
  service.instance.id, else k8s.pod.name, else host.name.
- A resource's other attributes stand on its ``target_info`` alone. A resource with neither job nor instance has all of
  them on its series instead: else those of many hosts would be one.
- A scope with a name gives ``otel_scope_name``, ``otel_scope_version``, ``otel_scope_schema_url`` and its attributes.
- Attributes of a point are labels; where two names become one, their values are joined by ``;`` in the order of names.

Everything is read from the bytes as they were sent, once per series that is new. Enter by ``origin`` and ``scope``.
"""

import base64
import json
import math
import struct
from dataclasses import dataclass

from ingest.protocols.common.protobuf import fields, texts
from ingest.protocols.common.protobuf_kernels import BYTES
from ingest.protocols.otlp.names import label_name
from spm.limits import ATTRIBUTE_DEPTH_MAX, ATTRIBUTES_MAX

WHAT = "a request of OTLP metrics (ExportMetricsServiceRequest)"
_INSTANCES = ("service.instance.id", "k8s.pod.name", "host.name")
_IDENTIFYING = frozenset(("service.name", "service.namespace", "service.instance.id"))
_STRING, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES = range(1, 8)

POINT_ATTRIBUTES = {5: 7, 7: 7, 9: 9, 10: 1, 11: 7}  # by kind of metric: the field that a point's attributes are

Attributes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where metrics come from: labels of all their series, and those of the resource's own, if it has one."""

    labels: dict[str, str]
    target: dict[str, str] | None


def origin(resource: bytes) -> Origin:
    """What a resource's attributes mean."""
    sent = attributes(resource, 1)
    names = {}
    if sent.get("service.name"):
        space = sent.get("service.namespace")
        names["job"] = f"{space}/{sent['service.name']}" if space else sent["service.name"]
    instance = next((sent[name] for name in _INSTANCES if sent.get(name)), "")
    if instance:
        names["instance"] = instance
    if not names:
        return Origin(labels(sent), None)
    told = labels({name: value for name, value in sent.items() if name not in _IDENTIFYING})
    return Origin(names, {**told, **names} if told else None)


def scope(raw: bytes, schema: bytes) -> dict[str, str]:
    """The labels of a scope; none if it has no name."""
    told = texts(raw, WHAT)
    if not told.get(1):
        return {}
    own = {f"otel_scope_{name}": value for name, value in attributes(raw, 3).items()}
    named = {"name": told[1], "version": told.get(2, b""), "schema_url": schema}
    return {**labels(own), **{f"otel_scope_{name}": _text(value) for name, value in named.items() if value}}


def labels(sent: Attributes) -> dict[str, str]:
    """Attributes as labels. One that leaves no name, or has no value, is left out."""
    found: dict[str, str] = {}
    for name in sorted(sent):
        label = label_name(name)
        if label and label != "__name__" and sent[name]:
            found[label] = f"{found[label]};{sent[name]}" if label in found else sent[name]
    return found


def attributes(raw: bytes, number: int) -> Attributes:
    """The attributes of a message, which are its fields of this number, up to a limit, as texts."""
    found: Attributes = {}
    for one, form, value in fields(raw, WHAT):
        if one == number and form == BYTES and isinstance(value, bytes):
            name, text = _pair(value, 0)
            found[name] = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, separators=(",", ":"))
            if len(found) > ATTRIBUTES_MAX:
                break
    return found


def _pair(raw: bytes, depth: int) -> tuple[str, object]:
    told = texts(raw, WHAT)
    return _text(told.get(1, b"")), _value(told.get(2, b""), depth)


def _value(raw: bytes, depth: int) -> object:
    """A value: a text as it is, a number or truth as Prometheus writes it, or what JSON can write."""
    found: object = ""
    for number, _, value in fields(raw, WHAT):
        if isinstance(value, int):
            signed = value - (1 << 64) if value >> 63 else value
            found = ("true" if value else "false") if number == _BOOL else str(signed) if number == _INT else found
        elif number == _STRING:
            found = _text(value)
        elif number == _DOUBLE and len(value) == 8:
            found = plain_number(struct.unpack("<d", value)[0])
        elif number == _BYTES:
            found = base64.b64encode(value).decode()
        elif number in (_ARRAY, _MAP):
            inner = [part for one, _, part in fields(value, WHAT) if one == 1 and isinstance(part, bytes)]
            inner = inner[:ATTRIBUTES_MAX] if depth < ATTRIBUTE_DEPTH_MAX else []
            found = (
                [_value(part, depth + 1) for part in inner]
                if number == _ARRAY
                else dict(_pair(part, depth + 1) for part in inner)
            )
    return found


def plain_number(value: float) -> str:
    """A float64 with as few digits as name it, without an exponent: how ``le`` and ``quantile`` are written."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    digits = repr(value)
    if "e" in digits:
        mantissa, _, power = digits.partition("e")
        sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        before, _, after = mantissa.partition(".")
        point = len(before) + int(power)
        figures = before + after
        digits = figures.ljust(point, "0") if point > 0 else "0." + "0" * -point + figures
        if 0 < point < len(figures):
            digits = f"{figures[:point]}.{figures[point:]}"
        return sign + digits
    return digits.removesuffix(".0")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
