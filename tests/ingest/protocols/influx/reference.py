"""A plain parser of line protocol, byte by byte, as reference for the fast one.

It shares only reasons and limits with the product: no regular expression, no cache, no compiled loop.
"""

import struct
from dataclasses import dataclass, field
from fractions import Fraction

from ingest.protocols.common import naming, times
from ingest.protocols.influx import exact
from spm.limits import (
    FUTURE_MS,
    LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    LINE_BYTES_MAX,
    METRIC_BYTES_MAX,
    REJECTION_EXAMPLE_CHARS_MAX,
    STRING_BYTES_MAX,
)

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@dataclass
class Reference:
    """What a body holds: (canonical form, ms, the value's bits), and (line, reason, example) of each rejection."""

    samples: list[tuple[bytes, int, int]] = field(default_factory=list)
    rejected: list[tuple[int, str, str]] = field(default_factory=list)
    texts: list[tuple[int, str, str]] = field(default_factory=list)  # beside samples of their lines
    timeless: int = 0


class Rejected(Exception):
    """The reason for rejecting a line."""


def read(body: bytes, now_ms: int, precision: str = "ns") -> Reference:
    """Returns everything that the body holds."""
    result = Reference()
    if not body.endswith(b"\n"):
        body += b"\n"
    at, number = 0, 1
    while at < len(body):
        after = _line(body, at, number, now_ms, NANOSECONDS[precision], result)
        number += body[at:after].count(b"\n")
        at = after
    return result


def _line(body: bytes, start: int, number: int, now_ms: int, unit: int, result: Reference) -> int:
    end = _end(body, start)
    at = start
    while at < end and body[at] in (32, 9):
        at += 1
    if at == end or body[at] == ord("#"):
        return body.index(b"\n", end) + 1
    if end - at > LINE_BYTES_MAX:
        result.rejected.append((number, exact.LINE_TOO_LONG, _example(body[at:end])))
        return body.index(b"\n", end) + 1
    head_end = at
    while head_end < end and not (body[head_end] == 32 and body[head_end - 1] != 92):
        head_end += 1
    fields, stop, fault = _fields(body, head_end, end)
    end = _end(body, stop)
    text = body[at:end]
    try:
        measurement, tags = _head(body[at:head_end])
        if fault:
            raise Rejected(fault)
        ms = _time(body[stop:end].strip(b" "), unit, now_ms)
    except Rejected as rejected:
        result.rejected.append((number, str(rejected), _example(text)))
    else:
        sample_count, rejected_count = len(result.samples), len(result.rejected)
        for name, value, raw in fields:
            _sample(measurement, tags, name, value, raw, ms, now_ms, number, result)
        if len(result.samples) > sample_count:
            result.texts += [one for one in result.rejected[rejected_count:] if one[1] == exact.STRING_FIELD]
            result.rejected[rejected_count:] = [
                one for one in result.rejected[rejected_count:] if one[1] != exact.STRING_FIELD
            ]
    return body.index(b"\n", end) + 1


def _end(body: bytes, at: int) -> int:
    end = body.index(b"\n", at)
    return end - 1 if end > at and body[end - 1] == 13 else end


def _example(raw: bytes) -> str:
    return raw[: 4 * REJECTION_EXAMPLE_CHARS_MAX].decode("utf-8", "replace")[:REJECTION_EXAMPLE_CHARS_MAX]


def _split(raw: bytes, sign: int) -> list[bytes]:
    parts, last = [b""], 0
    for byte in raw:
        if byte == sign and last != 92:
            parts.append(b"")
        else:
            parts[-1] += bytes([byte])
        last = byte
    return parts


def _unescape(raw: bytes, signs: bytes) -> bytes:
    # one sign after the other, as InfluxDB does: what one replacement leaves may be the start of the next
    for sign in signs:
        raw = raw.replace(bytes([92, sign]), bytes([sign]))
    return raw


def _utf8(raw: bytes) -> bool:
    return raw.decode("utf-8", "ignore").encode() == raw


def _head(raw: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    parts = _split(raw, ord(","))
    measurement = _unescape(parts[0], b", ")
    if not measurement:
        raise Rejected(naming.NO_METRIC)
    if len(measurement) > METRIC_BYTES_MAX:
        raise Rejected(naming.METRIC_TOO_LONG)
    if not _utf8(measurement):
        raise Rejected(naming.NOT_UTF8)
    pairs = []
    for part in parts[1:]:
        sides = _split(part, ord("="))
        if len(sides) > 2:
            raise Rejected(exact.TAG_EQUALS)
        pairs.append((_unescape(sides[0], b",= "), _unescape(sides[1], b",= ") if len(sides) == 2 else b""))
    for name, value in pairs:
        _tag(name, value)
    if len(dict(pairs)) < len(pairs):
        raise Rejected(naming.LABEL_REPEATED)
    if len(pairs) > LABELS_MAX:
        raise Rejected(naming.TOO_MANY_LABELS)
    return measurement, dict(pairs)


def _tag(name: bytes, value: bytes) -> None:
    if not name:
        raise Rejected(naming.NO_LABEL_NAME)
    if not value:
        raise Rejected(naming.NO_LABEL_VALUE)
    if len(name) > LABEL_NAME_BYTES_MAX:
        raise Rejected(naming.LABEL_NAME_TOO_LONG)
    if len(value) > LABEL_VALUE_BYTES_MAX:
        raise Rejected(naming.LABEL_VALUE_TOO_LONG)
    if name == b"__name__":
        raise Rejected(naming.LABEL_RESERVED)
    if not (_utf8(name) and _utf8(value)):
        raise Rejected(naming.NOT_UTF8)


def _fields(body: bytes, at: int, end: int) -> tuple[list[tuple[bytes, bytes, bytes]], int, str]:
    fields: list[tuple[bytes, bytes, bytes]] = []
    while at < end and body[at] == 32:
        at += 1
    if at == end:
        return fields, at, exact.NO_FIELDS
    fields_at = at
    while True:
        start = at
        while at < end and not (body[at] in b"=, " and body[at - 1] != 92):
            at += 1
        if at == end or body[at] != ord("="):
            return fields, start, exact.NO_EQUALS
        name = _unescape(body[start:at], b",= ")
        if not name:
            return fields, start, exact.NO_FIELD_NAME
        if not _utf8(name):
            return fields, start, naming.NOT_UTF8
        at += 1
        value_start = at
        if body[at] == ord('"'):
            at, fault = _string_end(body, at, end)
        else:
            while at < end and body[at] not in b", ":
                at += 1
            fault = _plain_fault(body[value_start:at])
        if fault:
            return fields, start, fault
        fields.append((name, body[value_start:at], body[start:at]))
        if at > end:
            end = _end(body, at)
            if end - fields_at > LINE_BYTES_MAX:
                return fields, start, exact.LINE_TOO_LONG
        if at == end or body[at] == 32:
            return fields, at, ""
        at += 1


def _string_end(body: bytes, start: int, end: int) -> tuple[int, str]:
    limit = min(len(body), max(end, start + STRING_BYTES_MAX))
    at = start + 1
    while at < limit and body[at] != ord('"'):
        at += 2 if body[at] == 92 else 1
    if at >= limit:
        return 0, exact.OPEN_STRING
    at += 1
    if body[at] in b", \n" or body[at : at + 2] == b"\r\n":
        return at, ""
    return 0, exact.AFTER_STRING if at <= end else exact.OPEN_STRING


def _all_digits(raw: bytes) -> bool:
    return bool(raw) and all(48 <= byte <= 57 for byte in raw)


def _unsigned(raw: bytes) -> bytes:
    return raw[1:] if raw[:1] in (b"+", b"-") else raw


def _decimal(raw: bytes) -> tuple[bytes, bytes, bytes] | None:
    """(whole, fraction, exponent) of a float's text."""
    mantissa, exponent = _unsigned(raw), b"0"
    for sign in b"eE":
        if sign in mantissa:
            mantissa, exponent = mantissa.split(bytes([sign]), 1)
            break
    integer_part, point, fraction = mantissa.partition(b".")
    if (
        not _all_digits(_unsigned(exponent))
        or not _all_digits(integer_part + fraction)
        or (point and not integer_part + fraction)
    ):
        return None
    return integer_part, fraction, exponent


def _plain_fault(raw: bytes) -> str:
    if not raw:
        return exact.NO_VALUE
    if raw in (b"t", b"T", b"true", b"True", b"TRUE", b"f", b"F", b"false", b"False", b"FALSE"):
        return ""
    if raw.endswith(b"i") and _all_digits(_unsigned(raw[:-1])):
        return ""
    if raw.endswith(b"u") and _all_digits(raw[:-1]):
        return ""
    if _unsigned(raw).lower() in (b"nan", b"inf", b"infinity") or _decimal(raw):
        return ""
    return exact.NOT_A_VALUE


def _time(raw: bytes, unit: int, now_ms: int) -> int | None:
    if not raw:
        return None
    if not _all_digits(_unsigned(raw)):
        raise Rejected(exact.NOT_A_TIME)
    ms = int(raw) * unit // 10**6
    if ms < 1:
        raise Rejected(exact.TIME_BEFORE_1970)
    if ms > now_ms + FUTURE_MS:
        raise Rejected(times.too_far_ahead(ms, now_ms, {1: "ns", 1_000: "us", 10**6: "ms", 10**9: "s"}.get(unit, "")))
    return ms


def _sample(
    measurement: bytes,
    tags: dict[bytes, bytes],
    name: bytes,
    value: bytes,
    raw: bytes,
    ms: int | None,
    now_ms: int,
    number: int,
    result: Reference,
) -> None:
    metric = measurement if name == b"value" else measurement + b"_" + name
    float64 = _float64(value)
    reason = float64 if isinstance(float64, str) else naming.METRIC_TOO_LONG if len(metric) > METRIC_BYTES_MAX else ""
    if reason or isinstance(float64, str):
        result.rejected.append((number, reason, _example(raw)))
        return
    parts = [metric]
    for label in sorted(tags):
        parts += [label, tags[label]]
    form = b"".join(struct.pack(">H", len(part)) + part for part in parts)
    bits = struct.unpack("<q", struct.pack("<d", float64))[0]
    result.samples.append((form, now_ms if ms is None else ms, bits))
    result.timeless += ms is None


def _float64(raw: bytes) -> float | str:
    """Returns the nearest float64, computed with exact fractions instead of Python's own parser."""
    if raw.startswith(b'"'):
        return exact.STRING_FIELD
    if raw[:1] in b"tT":
        return 1.0
    if raw[:1] in b"fF":
        return 0.0
    if _unsigned(raw).lower() in (b"nan", b"inf", b"infinity"):
        return exact.NOT_FINITE
    if raw.endswith((b"i", b"u")):
        integer = int(raw[:-1])
        low, high = (-(2**63), 2**63) if raw.endswith(b"i") else (0, 2**64)
        return float(integer) if low <= integer < high else exact.TOO_LARGE
    parts = _decimal(raw)
    assert parts is not None
    whole_text, fraction, exponent = parts
    if abs(int(exponent)) > 400:
        number = float(raw)
    else:
        fraction_value = Fraction(int(whole_text + fraction)) * Fraction(10) ** (int(exponent) - len(fraction))
        try:
            number = fraction_value.numerator / fraction_value.denominator
        except OverflowError:
            return exact.TOO_LARGE
        number = -number if raw.startswith(b"-") else number
    return number if number - number == 0 else exact.TOO_LARGE
