"""The labels of OTLP's series: attributes of resources, scopes and points, with the names that Prometheus gives them.

- ``job`` is service.name, or service.namespace/service.name if there is a namespace; ``instance`` is
  service.instance.id, else k8s.pod.name, else host.name.
- Only the resource's ``target_info`` has its other attributes. If a resource has neither job nor instance, all its
  series have the attributes; otherwise the series of many hosts would be one.
- A scope with a name gives ``otel_scope_name``, ``otel_scope_version``, ``otel_scope_schema_url`` and its attributes.
- Attributes of a point are labels. Where two names become one, their values are joined by ``;`` in the order of names.

Labels are read from the bytes of the request, once per new series. Enter by ``resource_labels`` and ``scope_labels``.
"""

import base64
import json
import math
import struct
from dataclasses import dataclass

from ingest.protocols.common.protobuf import read_byte_fields, read_fields
from ingest.protocols.common.protobuf_kernels import BYTES
from ingest.protocols.otlp.names import label_name
from spm.limits import ATTRIBUTE_DEPTH_MAX, ATTRIBUTES_MAX

WHAT = "a request of OTLP metrics (ExportMetricsServiceRequest)"
_INSTANCES = ("service.instance.id", "k8s.pod.name", "host.name")
_IDENTIFYING = frozenset(("service.name", "service.namespace", "service.instance.id"))
_STRING, _BOOL, _INT, _DOUBLE, _ARRAY, _MAP, _BYTES = range(1, 8)

POINT_ATTRIBUTES = {5: 7, 7: 7, 9: 9, 10: 1, 11: 7}  # kind of metric → field number of a point's attributes

Attributes = dict[str, str]


@dataclass(frozen=True, slots=True)
class ResourceLabels:
    """The labels from a resource: those of all its series, and those of its ``target_info``, if it has one."""

    labels: dict[str, str]
    target: dict[str, str] | None


def resource_labels(resource: bytes) -> ResourceLabels:
    """Returns the labels from a resource's attributes."""
    attributes = read_attributes(resource, 1)
    names = {}
    if attributes.get("service.name"):
        space = attributes.get("service.namespace")
        names["job"] = f"{space}/{attributes['service.name']}" if space else attributes["service.name"]
    instance = next((attributes[name] for name in _INSTANCES if attributes.get(name)), "")
    if instance:
        names["instance"] = instance
    if not names:
        return ResourceLabels(attribute_labels(attributes), None)
    own = attribute_labels({name: value for name, value in attributes.items() if name not in _IDENTIFYING})
    return ResourceLabels(names, {**own, **names} if own else None)


def scope_labels(raw: bytes, schema: bytes) -> dict[str, str]:
    """Returns the labels of a scope; none if it has no name."""
    scope = read_byte_fields(raw, WHAT)
    if not scope.get(1):
        return {}
    own = {f"otel_scope_{name}": value for name, value in read_attributes(raw, 3).items()}
    named = {"name": scope[1], "version": scope.get(2, b""), "schema_url": schema}
    return {**attribute_labels(own), **{f"otel_scope_{name}": _text(value) for name, value in named.items() if value}}


def attribute_labels(attributes: Attributes) -> dict[str, str]:
    """Returns attributes as labels, without those that have no value or no usable name."""
    labels: dict[str, str] = {}
    for name in sorted(attributes):
        label = label_name(name)
        if label and label != "__name__" and attributes[name]:
            labels[label] = f"{labels[label]};{attributes[name]}" if label in labels else attributes[name]
    return labels


def read_attributes(raw: bytes, number: int) -> Attributes:
    """Returns the attributes of a message, its fields of this number, as texts, up to a limit."""
    texts: Attributes = {}
    for one, wire_type, value in read_fields(raw, WHAT):
        if one == number and wire_type == BYTES and isinstance(value, bytes):
            name, text = _read_pair(value, 0)
            texts[name] = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, separators=(",", ":"))
            if len(texts) > ATTRIBUTES_MAX:
                break
    return texts


def _read_pair(raw: bytes, depth: int) -> tuple[str, object]:
    pair = read_byte_fields(raw, WHAT)
    return _text(pair.get(1, b"")), _read_value(pair.get(2, b""), depth)


def _read_value(raw: bytes, depth: int) -> object:
    """Returns a value: texts unchanged, numbers and booleans as Prometheus writes them, lists and maps for JSON."""
    result: object = ""
    for number, _, value in read_fields(raw, WHAT):
        if isinstance(value, int):
            signed = value - (1 << 64) if value >> 63 else value
            result = ("true" if value else "false") if number == _BOOL else str(signed) if number == _INT else result
        elif number == _STRING:
            result = _text(value)
        elif number == _DOUBLE and len(value) == 8:
            result = format_number(struct.unpack("<d", value)[0])
        elif number == _BYTES:
            result = base64.b64encode(value).decode()
        elif number in (_ARRAY, _MAP):
            inner = [part for one, _, part in read_fields(value, WHAT) if one == 1 and isinstance(part, bytes)]
            inner = inner[:ATTRIBUTES_MAX] if depth < ATTRIBUTE_DEPTH_MAX else []
            result = (
                [_read_value(part, depth + 1) for part in inner]
                if number == _ARRAY
                else dict(_read_pair(part, depth + 1) for part in inner)
            )
    return result


def format_number(value: float) -> str:
    """Returns a float64 with as few digits as needed and no exponent, as ``le`` and ``quantile`` are written."""
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
