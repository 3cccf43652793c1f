"""Converts OTLP's JSON to protobuf, so that one reader reads, checks and rejects both forms of a request.

The JSON is proto3's as OTLP uses it: names in lowerCamelCase (or as in the .proto file), 64-bit numbers as numbers or
texts, enumerations as numbers or names, "NaN", "Infinity" and "-Infinity", bytes in base64. Unknown names are ignored.
Enter by ``to_protobuf``. The tables describe the fields of each message; ``_message`` encodes a message by its table.
"""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ingest.protocols.common.protobuf import encode_bytes, encode_double, encode_fixed64, encode_integer
from spm.errors import BadMessage, LimitExceeded
from spm.limits import JSON_COMMAS_MAX, JSON_DEPTH_MAX, MESSAGE_SAMPLES_MAX

_WHAT = "not the JSON of an OTLP metrics request"
_TEMPORALITIES = {
    f"AGGREGATION_TEMPORALITY_{word}": place for place, word in enumerate(("UNSPECIFIED", "DELTA", "CUMULATIVE"))
}

Write = Callable[[int, Any, int], bytes]
Table = Mapping[str, tuple[int, Write]]


def to_protobuf(body: bytes) -> bytes:
    """Returns the request as protobuf.

    ``BadMessage``: it is no such request; ``LimitExceeded``: it holds more than one message may. All of the body is
    decoded to objects, also ignored names; so their number is bounded before.
    """
    if body.count(b",") > JSON_COMMAS_MAX:
        raise LimitExceeded("too many commas in one body", wanted=f"at most {JSON_COMMAS_MAX}")
    if body.count(b"[") + body.count(b"{") > MESSAGE_SAMPLES_MAX:
        raise LimitExceeded("too many lists and objects in one body", wanted=f"at most {MESSAGE_SAMPLES_MAX}")
    try:
        request = msgspec.json.decode(body)
        return _message(_REQUEST, request, 0)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadMessage(_WHAT, got=str(error)[:200], wanted='{"resourceMetrics": […]}') from error
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error, binascii.Error) as error:
        raise BadMessage(f"{_WHAT}: a value is of the wrong kind", got=str(error)[:200]) from error


def _message(table: Table, fields: Any, depth: int) -> bytes:
    """Encode a message by its table. ``depth`` counts values in values, the only messages that nest without bound."""
    if not isinstance(fields, dict):
        raise ValueError(f"{str(fields)[:40]!r} where a message should be")
    parts = []
    for name, value in fields.items():
        known = table.get(name) or table.get(_camel(name))
        if known is not None and value is not None:
            field, write = known
            parts.append(write(field, value, depth))
    return b"".join(parts)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _one(table: Callable[[], Table]) -> Write:
    return lambda field, value, depth: encode_bytes(field, _message(table(), value, depth + 1))


def _each(write: Write) -> Write:
    return lambda field, values, depth: b"".join(write(field, one, depth) for one in _list(values))


def _list(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError(f"{str(values)[:40]!r} where a list should be")
    return values


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError(f"{str(value)[:40]!r} where an integer should be")
    if isinstance(value, str) and len(value) > 24:
        raise ValueError("an integer with too many digits")
    integer = int(value)
    if (isinstance(value, float) and integer != value) or not -(1 << 63) <= integer < 1 << 64:
        raise ValueError(f"{str(value)[:40]!r} where an integer of 64 bits should be")
    return integer


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise ValueError(f"{str(value)[:40]!r} where a number should be")
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(str(value)) or float(value)


def _text(field: int, value: Any, depth: int) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} where a text should be")
    return encode_bytes(field, value.encode())


def _bytes(field: int, value: Any, depth: int) -> bytes:
    return encode_bytes(
        field, base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if "-" in value else None)
    )


def _boolean(field: int, value: Any, depth: int) -> bytes:
    return encode_integer(field, bool(value))


def _varint(field: int, value: Any, depth: int) -> bytes:
    return encode_integer(field, _integer(value))


def _zigzag(field: int, value: Any, depth: int) -> bytes:
    integer = _integer(value)
    return encode_integer(field, integer << 1 ^ integer >> 63)


def _fixed(field: int, value: Any, depth: int) -> bytes:
    return encode_fixed64(field, _integer(value))


def _double(field: int, value: Any, depth: int) -> bytes:
    return encode_double(field, _float(value))


def _temporality(field: int, value: Any, depth: int) -> bytes:
    return encode_integer(field, _TEMPORALITIES[value] if value in _TEMPORALITIES else _integer(value))


def _value(field: int, value: Any, depth: int) -> bytes:
    if depth > JSON_DEPTH_MAX:
        raise ValueError("values nested too deeply")
    return encode_bytes(field, _message(_ANY_VALUE, value, depth + 1))


_ANY_VALUE: Table = {
    "stringValue": (1, _text),
    "boolValue": (2, _boolean),
    "intValue": (3, _varint),
    "doubleValue": (4, _double),
    "arrayValue": (5, _one(lambda: _ARRAY)),
    "kvlistValue": (6, _one(lambda: _MAP)),
    "bytesValue": (7, _bytes),
}
_KEY_VALUE: Table = {"key": (1, _text), "value": (2, _value)}
_ATTRIBUTES = _each(_one(lambda: _KEY_VALUE))
_ARRAY: Table = {"values": (1, _each(_value))}
_MAP: Table = {"values": (1, _ATTRIBUTES)}


def _hex(field: int, value: Any, depth: int) -> bytes:
    return encode_bytes(field, bytes.fromhex(value))


def _exemplars(field: int, values: Any, depth: int) -> bytes:
    """Encode exemplars; one that cannot be read becomes an empty one, which is reported and costs nothing else."""
    return b"".join(_exemplar(field, one, depth) for one in (values if isinstance(values, list) else [None]))


def _exemplar(field: int, value: Any, depth: int) -> bytes:
    try:
        return encode_bytes(field, _message(_EXEMPLAR, value, depth + 1))
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error, binascii.Error):
        return encode_bytes(field, b"")


_EXEMPLAR: Table = {
    "timeUnixNano": (2, _fixed),
    "asDouble": (3, _double),
    "spanId": (4, _hex),
    "traceId": (5, _hex),
    "asInt": (6, _fixed),
    "filteredAttributes": (7, _ATTRIBUTES),
}
_NUMBER: Table = {
    "timeUnixNano": (3, _fixed),
    "asDouble": (4, _double),
    "exemplars": (5, _exemplars),
    "asInt": (6, _fixed),
    "attributes": (7, _ATTRIBUTES),
    "flags": (8, _varint),
}
_CLASSIC: Table = {
    "timeUnixNano": (3, _fixed),
    "count": (4, _fixed),
    "sum": (5, _double),
    "bucketCounts": (6, _each(_fixed)),
    "explicitBounds": (7, _each(_double)),
    "exemplars": (8, _exemplars),
    "attributes": (9, _ATTRIBUTES),
    "flags": (10, _varint),
    "min": (11, _double),
    "max": (12, _double),
}
_BUCKETS: Table = {"offset": (1, _zigzag), "bucketCounts": (2, _each(_varint))}
_EXPONENTIAL: Table = {
    "attributes": (1, _ATTRIBUTES),
    "timeUnixNano": (3, _fixed),
    "count": (4, _fixed),
    "sum": (5, _double),
    "scale": (6, _zigzag),
    "zeroCount": (7, _fixed),
    "positive": (8, _one(lambda: _BUCKETS)),
    "negative": (9, _one(lambda: _BUCKETS)),
    "flags": (10, _varint),
    "exemplars": (11, _exemplars),
    "min": (12, _double),
    "max": (13, _double),
    "zeroThreshold": (14, _double),
}
_QUANTILE: Table = {"quantile": (1, _double), "value": (2, _double)}
_SUMMARY: Table = {
    "timeUnixNano": (3, _fixed),
    "count": (4, _fixed),
    "sum": (5, _double),
    "quantileValues": (6, _each(_one(lambda: _QUANTILE))),
    "attributes": (7, _ATTRIBUTES),
    "flags": (8, _varint),
}


def _data(points: Table) -> Write:
    table: Table = {
        "dataPoints": (1, _each(_one(lambda: points))),
        "aggregationTemporality": (2, _temporality),
        "isMonotonic": (3, _boolean),
    }
    return _one(lambda: table)


_METRIC: Table = {
    "name": (1, _text),
    "description": (2, _text),
    "unit": (3, _text),
    "gauge": (5, _data(_NUMBER)),
    "sum": (7, _data(_NUMBER)),
    "histogram": (9, _data(_CLASSIC)),
    "exponentialHistogram": (10, _data(_EXPONENTIAL)),
    "summary": (11, _data(_SUMMARY)),
}
_SCOPE: Table = {"name": (1, _text), "version": (2, _text), "attributes": (3, _ATTRIBUTES)}
_SCOPE_METRICS: Table = {
    "scope": (1, _one(lambda: _SCOPE)),
    "metrics": (2, _each(_one(lambda: _METRIC))),
    "schemaUrl": (3, _text),
}
_RESOURCE: Table = {"attributes": (1, _ATTRIBUTES)}
_RESOURCE_METRICS: Table = {
    "resource": (1, _one(lambda: _RESOURCE)),
    "scopeMetrics": (2, _each(_one(lambda: _SCOPE_METRICS))),
    "schemaUrl": (3, _text),
}
_REQUEST: Table = {"resourceMetrics": (1, _each(_one(lambda: _RESOURCE_METRICS)))}
