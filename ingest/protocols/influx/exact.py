"""One line of line protocol, read exactly: escapes, quoted strings, every spelling of a number, every reason to refuse.

Enter by ``read_line``. It is the whole grammar; the compiled kernel knows only its plain part. The rules:

- A delimiter is escaped if a backslash stands right before it. ``\\,`` ``\\=`` ``\\ `` lose their backslash in tags and
  field names, ``\\,`` and ``\\ `` in measurements; any other backslash stays.
- Values: floats, integers with ``i`` or ``u`` (nearest float64 beyond 2^53), booleans (1 and 0). Strings, NaN, infinity
  and integers beyond 64 bits are well formed but no sample: such a field is left out, the line's others are kept.
- Anything malformed refuses its line. A string may run over line ends if it is closed within STRING_BYTES_MAX and
  followed by a delimiter; else the line ends where it seems to, so that one bad quote cannot swallow the next lines.
"""

import math
import re
from dataclasses import dataclass, field

from ingest.protocols.common import naming, times
from ingest.protocols.common.line_reader import Rules
from ingest.protocols.common.series_cache import Tags, metric_of
from ingest.protocols.common.times import TIME_EARLY as TIME_EARLY
from ingest.protocols.common.times import TIME_LATE as TIME_LATE
from spm.limits import LINE_BYTES_MAX, METRIC_BYTES_MAX, REJECTION_EXAMPLE_CHARS_MAX, STRING_BYTES_MAX

_SPACE, _QUOTE, _COMMENT, _RETURN = b' "#\r'

LINE_TOO_LONG = f"the line is longer than {LINE_BYTES_MAX} bytes"
NO_FIELDS = "no field follows the tags"
NO_FIELD_NAME = "a field has no name"
NO_EQUALS = "a field has no ="
NO_VALUE = "a field has no value"
NOT_A_VALUE = "a field's value is not a number, boolean or string"
OPEN_STRING = "a string is not closed"
AFTER_STRING = "a string is followed by something other than a comma, a space or the line's end"
TAG_EQUALS = "a tag's value holds an = without backslash"
NOT_A_TIME = "the time is not a whole number"
STRING_FIELD = "a text is not a number: only this field is left out"
NOT_FINITE = "NaN and infinities have no place in line protocol: only this field is left out"
TOO_LARGE = "the number does not fit: only this field is left out"

_HEAD_END = re.compile(rb"(?<!\\) ")
_SPLIT_TAGS = re.compile(rb"(?<!\\),")
_SPLIT_TAG = re.compile(rb"(?<!\\)=")
# Only single characters are repeated possessively: with groups, Python 3.11 before 3.11.5 finds too little.
_FIELD_NAME = re.compile(rb"([^=, ]*+(?:(?<=\\)[=, ][^=, ]*+)*)(?<!\\)=")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)
_AFTER_STRING = re.compile(rb"[, \n]|\r\n")
_PLAIN = re.compile(rb"[^, ]*+")
_INTEGER = re.compile(rb"([+-]?[0-9]+)i|([0-9]+)u")
_FLOAT = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TIME = re.compile(rb"[+-]?[0-9]+")
_BOOLEANS = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), 1.0),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), 0.0),
}
_DIGITS_MAX = 20  # of an integer or a time that can fit, zeros in front apart: int() of a hostile length is slow


@dataclass(frozen=True, slots=True)
class Line:
    """What one line gave. A refused line has one fault and no samples; blank lines and comments have neither."""

    after: int  # where the next line starts
    newlines: int
    head: bytes = b""
    measurement: bytes = b""
    tags: Tags = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    time_ms: int | None = None
    faults: list[tuple[str, str]] = field(default_factory=list)  # (reason, example)


@dataclass(frozen=True, slots=True)
class _Field:
    name: bytes
    value: bytes
    raw: bytes


class _Fault(Exception):
    """A reason to refuse the line being read."""


def read_line(body: bytes, start: int, rules: Rules) -> Line:
    """The line that starts at ``start``; ``body`` ends with a newline.

    1. skip blanks and comments; 2. find the fields, and with them where the line ends, as strings may hold line ends;
    3. refuse for the first of: the head, the fields, the time; 4. leave out fields that are no samples.
    """
    end = _text_end(body, start)
    first = _first_byte(body, start, end)
    if first == end or body[first] == _COMMENT:
        return Line(body.index(b"\n", end) + 1, 1)
    if end - first > LINE_BYTES_MAX:
        return Line(body.index(b"\n", end) + 1, 1, faults=[(LINE_TOO_LONG, example(body[first:end]))])
    found = _HEAD_END.search(body, first, end)
    head_end = found.start() if found else end
    fields, stop, fault = _read_fields(body, _skip_spaces(body, head_end, end), end)
    end = _text_end(body, stop)
    after = body.index(b"\n", end) + 1
    newlines = body.count(b"\n", start, after)
    try:
        measurement, tags = _read_head(body[first:head_end])
        if fault is not None:
            raise fault
        time_ms = _read_time(body[stop:end].strip(b" "), rules)
    except _Fault as bad:
        return Line(after, newlines, faults=[(str(bad), example(body[first:end]))])
    line = Line(after, newlines, body[first:head_end], measurement, tags, time_ms=time_ms)
    _keep_samples(line, fields)
    return line


def example(raw: bytes) -> str:
    """How something refused began, as text for people."""
    return raw[: 4 * REJECTION_EXAMPLE_CHARS_MAX].decode("utf-8", "replace")[:REJECTION_EXAMPLE_CHARS_MAX]


def _text_end(body: bytes, start: int) -> int:
    """Where the line's text ends: at the newline, or at the carriage return right before it."""
    end = body.index(b"\n", start)
    return end - 1 if end > start and body[end - 1] == _RETURN else end


def _first_byte(body: bytes, start: int, end: int) -> int:
    while start < end and body[start] in b" \t":
        start += 1
    return start


def _skip_spaces(body: bytes, start: int, end: int) -> int:
    while start < end and body[start] == _SPACE:
        start += 1
    return start


def _read_head(raw: bytes) -> tuple[bytes, Tags]:
    first, *pieces = _SPLIT_TAGS.split(raw)
    measurement = first.replace(b"\\,", b",").replace(b"\\ ", b" ")
    if fault := naming.metric_fault(measurement):
        raise _Fault(fault)
    tags = [_read_tag(piece) for piece in pieces]
    if fault := naming.tags_fault(tags):
        raise _Fault(fault)
    return measurement, tags


def _read_tag(raw: bytes) -> tuple[bytes, bytes]:
    parts = _SPLIT_TAG.split(raw)
    if len(parts) > 2:
        raise _Fault(TAG_EQUALS)
    return _unescape(parts[0]), _unescape(parts[1]) if len(parts) == 2 else b""


def _unescape(raw: bytes) -> bytes:
    if b"\\" not in raw:
        return raw
    return raw.replace(b"\\,", b",").replace(b"\\=", b"=").replace(b"\\ ", b" ")


def _read_fields(body: bytes, start: int, end: int) -> tuple[list[_Field], int, _Fault | None]:
    """The fields from ``start`` on and where they stop; with a fault, stop is inside the line that ends the bad one."""
    fields: list[_Field] = []
    at = start
    try:
        if start == end:
            raise _Fault(NO_FIELDS)
        while True:
            one, stop = _read_field(body, at, end)
            fields.append(one)
            if stop > end:  # a string ran over line ends (looking for the end each time would cost length squared)
                end = _text_end(body, stop)
                if end - start > LINE_BYTES_MAX:
                    raise _Fault(LINE_TOO_LONG)
            if stop == end or body[stop] == _SPACE:
                return fields, stop, None
            at = stop + 1
    except _Fault as fault:
        return fields, at, fault


def _read_field(body: bytes, start: int, end: int) -> tuple[_Field, int]:
    found = _FIELD_NAME.match(body, start, end)
    if found is None:
        raise _Fault(NO_EQUALS)
    name = _unescape(found[1])
    if not name:
        raise _Fault(NO_FIELD_NAME)
    if not naming.is_utf8(name):
        raise _Fault(naming.NOT_UTF8)
    stop = _value_end(body, found.end(), end)
    return _Field(name, body[found.end() : stop], body[start:stop]), stop


def _value_end(body: bytes, start: int, end: int) -> int:
    """Where the well-formed value at ``start`` ends: for a string perhaps on a later line."""
    if body[start] != _QUOTE:
        plain = _PLAIN.match(body, start, end)
        assert plain is not None, "BUG: an empty match is a match"
        _check_plain(plain[0])
        return plain.end()
    found = _STRING.match(body, start, max(end, start + STRING_BYTES_MAX))
    if found is None:
        raise _Fault(OPEN_STRING)
    if _AFTER_STRING.match(body, found.end()) is None:
        raise _Fault(AFTER_STRING if found.end() <= end else OPEN_STRING)
    return found.end()


def _check_plain(value: bytes) -> None:
    if not value:
        raise _Fault(NO_VALUE)
    forms = (_FLOAT, _INTEGER, _NOT_FINITE)
    if value not in _BOOLEANS and not any(form.fullmatch(value) for form in forms):
        raise _Fault(NOT_A_VALUE)


def _read_time(raw: bytes, rules: Rules) -> int | None:
    if not raw:
        return None
    if not _TIME.fullmatch(raw):
        raise _Fault(NOT_A_TIME)
    number = _whole(raw)
    if number is None:
        raise _Fault(TIME_EARLY if raw.startswith(b"-") else TIME_LATE)
    ms = number * rules.times // rules.per
    if ms < 1:
        raise _Fault(TIME_EARLY)
    if ms > rules.latest_ms:
        raise _Fault(times.late(ms, rules.now_ms, rules.unit))
    return ms


def _whole(raw: bytes) -> int | None:
    """The integer, or ``None`` if it is far too long for 64 bits."""
    if len(raw.lstrip(b"+-").lstrip(b"0")) > _DIGITS_MAX:
        return None
    sign = -1 if raw.startswith(b"-") else 1
    return sign * int(raw.lstrip(b"+-").lstrip(b"0") or b"0")


def _keep_samples(line: Line, fields: list[_Field]) -> None:
    """Put the fields that are samples into the line, and a fault for each that is none."""
    for one in fields:
        value = _number(one.value)
        if isinstance(value, float) and len(metric_of(line.measurement, one.name)) > METRIC_BYTES_MAX:
            value = naming.METRIC_TOO_LONG
        if isinstance(value, str):
            line.faults.append((value, example(one.raw)))
        else:
            line.names.append(one.name)
            line.values.append(value)


def _number(raw: bytes) -> float | str:
    """The float64 nearest to a well-formed value, or why there is none."""
    if raw in _BOOLEANS:
        return _BOOLEANS[raw]
    if raw.startswith(b'"'):
        return STRING_FIELD
    if _NOT_FINITE.fullmatch(raw):
        return NOT_FINITE
    if raw.endswith((b"i", b"u")):
        whole = _whole(raw[:-1])
        low, high = (-(1 << 63), (1 << 63) - 1) if raw.endswith(b"i") else (0, (1 << 64) - 1)
        return float(whole) if whole is not None and low <= whole <= high else TOO_LARGE
    number = float(raw)
    return number if math.isfinite(number) else TOO_LARGE
