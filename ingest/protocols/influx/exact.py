"""The exact reader of line protocol: escapes, quoted strings, every spelling of a number, all reasons for a rejection.

Enter by ``read_line``; ``plain_parts`` is for lines that a kernel has split. ``read_line`` implements the complete
grammar; the compiled kernel implements only the plain part, by the same rules. Which spellings of a number there are,
this module decides, for Prometheus' text, too; a property test holds ``number_kernels`` to it.

- A delimiter is escaped by a backslash directly before it. ``\\,`` ``\\=`` ``\\ `` lose their backslash in tags and
  field names, ``\\,`` and ``\\ `` in measurements; any other backslash stays.
- Values are floats, integers with ``i`` or ``u`` (nearest float64 beyond 2^53) and booleans (1 and 0). Strings, NaN,
  infinity and integers beyond 64 bits are well formed but no samples: such a field is left out, the others stay.
- A malformed part rejects its line. A string may contain line ends if it is closed within STRING_BYTES_MAX and
  followed by a delimiter. Otherwise the line ends at its first line end, so that one bad quote does not swallow the
  lines after it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.protocols.common import naming, times
from ingest.protocols.common.line_reader import TimeRules
from ingest.protocols.common.series_cache import LabelPairs, join_metric
from ingest.protocols.common.times import TIME_BEFORE_1970 as TIME_BEFORE_1970
from ingest.protocols.common.times import TIME_TOO_FAR_AHEAD as TIME_TOO_FAR_AHEAD
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
NOT_FINITE = "line protocol allows no NaN and no infinities: only this field is left out"
TOO_LARGE = "the number does not fit: only this field is left out"

_HEAD_END = re.compile(rb"(?<!\\) ")
_SPLIT_TAGS = re.compile(rb"(?<!\\),")
_SPLIT_TAG = re.compile(rb"(?<!\\)=")
# Only single characters are repeated possessively: with groups, Python 3.11 before 3.11.5 finds too little.
_FIELD_NAME = re.compile(rb"([^=, ]*+(?:(?<=\\)[=, ][^=, ]*+)*)(?<!\\)=")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)
_AFTER_STRING = re.compile(rb"[, \n]|\r\n")
_PLAIN = re.compile(rb"[^, ]*+")
_TIME = re.compile(rb"[+-]?[0-9]+")
DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INFINITE_OR_NAN = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
INTEGER = re.compile(rb"([+-]?[0-9]+)i|([0-9]+)u")
BOOLEANS = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), 1.0),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), 0.0),
}
_DIGITS_MAX = 20  # of an integer or a time that can fit, without leading zeros: int() of a hostile length is slow


@dataclass(frozen=True, slots=True)
class Line:
    """The samples and faults of one line. A rejected line has one fault and no samples; a blank line has neither."""

    after: int  # where the next line starts
    newlines: int
    head: bytes = b""
    measurement: bytes = b""
    tags: LabelPairs = field(default_factory=list)
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
    """The reason for rejecting the current line."""


def read_line(body: bytes, start: int, rules: TimeRules) -> Line:
    """Returns the line that starts at ``start``; ``body`` ends with a newline.

    1. Skip blanks and comments. 2. Find the fields, and with them the end of the line: strings may contain line ends.
    3. Reject the line for the first fault of the head, the fields, the time. 4. Leave out fields that are no samples.
    """
    end = _text_end(body, start)
    first = _first_byte(body, start, end)
    if first == end or body[first] == _COMMENT:
        return Line(body.index(b"\n", end) + 1, 1)
    if end - first > LINE_BYTES_MAX:
        return Line(body.index(b"\n", end) + 1, 1, faults=[(LINE_TOO_LONG, excerpt(body[first:end]))])
    match = _HEAD_END.search(body, first, end)
    head_end = match.start() if match else end
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
        return Line(after, newlines, faults=[(str(bad), excerpt(body[first:end]))])
    line = Line(after, newlines, body[first:head_end], measurement, tags, time_ms=time_ms)
    _add_samples(line, fields)
    return line


def plain_parts(head: bytes, names: Sequence[bytes]) -> tuple[bytes, LabelPairs] | None:
    """Returns measurement and tags of a line that is valid with these field names; ``None`` if ``read_line`` must tell.

    The names are written without a backslash.
    """
    try:
        measurement, tags = _read_head(head)
    except _Fault:
        return None
    longest = len(measurement) + 1 + max(map(len, names))
    return (measurement, tags) if longest <= METRIC_BYTES_MAX and naming.is_utf8(b",".join(names)) else None


def excerpt(raw: bytes) -> str:
    """Returns the beginning of a rejected text, for people."""
    return raw[: 4 * REJECTION_EXAMPLE_CHARS_MAX].decode("utf-8", "replace")[:REJECTION_EXAMPLE_CHARS_MAX]


def _text_end(body: bytes, start: int) -> int:
    """Returns where the line's text ends: at the newline, or at the carriage return directly before it."""
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


def _read_head(raw: bytes) -> tuple[bytes, LabelPairs]:
    first, *pieces = _SPLIT_TAGS.split(raw)
    measurement = first.replace(b"\\,", b",").replace(b"\\ ", b" ")
    if fault := naming.metric_fault(measurement):
        raise _Fault(fault)
    tags = [_read_tag(piece) for piece in pieces]
    if fault := naming.labels_fault(tags):
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
    """Returns the fields from ``start`` on, where they end, and a fault; then the end is inside the last line read."""
    fields: list[_Field] = []
    at = start
    try:
        if start == end:
            raise _Fault(NO_FIELDS)
        while True:
            one, stop = _read_field(body, at, end)
            fields.append(one)
            if stop > end:  # a string contained line ends (searching the end for each field would be quadratic)
                end = _text_end(body, stop)
                if end - start > LINE_BYTES_MAX:
                    raise _Fault(LINE_TOO_LONG)
            if stop == end or body[stop] == _SPACE:
                return fields, stop, None
            at = stop + 1
    except _Fault as fault:
        return fields, at, fault


def _read_field(body: bytes, start: int, end: int) -> tuple[_Field, int]:
    match = _FIELD_NAME.match(body, start, end)
    if match is None:
        raise _Fault(NO_EQUALS)
    name = _unescape(match[1])
    if not name:
        raise _Fault(NO_FIELD_NAME)
    if not naming.is_utf8(name):
        raise _Fault(naming.NOT_UTF8)
    stop = _value_end(body, match.end(), end)
    return _Field(name, body[match.end() : stop], body[start:stop]), stop


def _value_end(body: bytes, start: int, end: int) -> int:
    """Returns where the well-formed value at ``start`` ends; a string may end on a later line."""
    if body[start] != _QUOTE:
        plain = _PLAIN.match(body, start, end)
        assert plain is not None, "BUG: an empty match is a match"
        _check_plain(plain[0])
        return plain.end()
    match = _STRING.match(body, start, max(end, start + STRING_BYTES_MAX))
    if match is None:
        raise _Fault(OPEN_STRING)
    if _AFTER_STRING.match(body, match.end()) is None:
        raise _Fault(AFTER_STRING if match.end() <= end else OPEN_STRING)
    return match.end()


def _check_plain(value: bytes) -> None:
    if not value:
        raise _Fault(NO_VALUE)
    forms = (DECIMAL, INTEGER, INFINITE_OR_NAN)
    if value not in BOOLEANS and not any(form.fullmatch(value) for form in forms):
        raise _Fault(NOT_A_VALUE)


def _read_time(raw: bytes, rules: TimeRules) -> int | None:
    if not raw:
        return None
    if not _TIME.fullmatch(raw):
        raise _Fault(NOT_A_TIME)
    number = _integer(raw)
    if number is None:
        raise _Fault(TIME_BEFORE_1970 if raw.startswith(b"-") else TIME_TOO_FAR_AHEAD)
    ms = number * rules.times // rules.per
    if ms < 1:
        raise _Fault(TIME_BEFORE_1970)
    if ms > rules.latest_ms:
        raise _Fault(times.too_far_ahead(ms, rules.now_ms, rules.unit))
    return ms


def _integer(raw: bytes) -> int | None:
    """Returns the integer, or ``None`` if it has far too many digits for 64 bits."""
    if len(raw.lstrip(b"+-").lstrip(b"0")) > _DIGITS_MAX:
        return None
    sign = -1 if raw.startswith(b"-") else 1
    return sign * int(raw.lstrip(b"+-").lstrip(b"0") or b"0")


def _add_samples(line: Line, fields: list[_Field]) -> None:
    """Add the fields that are samples to the line, and a fault for each other field."""
    for one in fields:
        value = _sample_value(one.value)
        if isinstance(value, float) and len(join_metric(line.measurement, one.name)) > METRIC_BYTES_MAX:
            value = naming.METRIC_TOO_LONG
        if isinstance(value, str):
            line.faults.append((value, excerpt(one.raw)))
        else:
            line.names.append(one.name)
            line.values.append(value)


def _sample_value(raw: bytes) -> float | str:
    """Returns the float64 nearest to a well-formed value, or why there is none."""
    if raw in BOOLEANS:
        return BOOLEANS[raw]
    if raw.startswith(b'"'):
        return STRING_FIELD
    if INFINITE_OR_NAN.fullmatch(raw):
        return NOT_FINITE
    if raw.endswith((b"i", b"u")):
        integer = _integer(raw[:-1])
        low, high = (-(1 << 63), (1 << 63) - 1) if raw.endswith(b"i") else (0, (1 << 64) - 1)
        return float(integer) if integer is not None and low <= integer <= high else TOO_LARGE
    number = float(raw)
    return number if math.isfinite(number) else TOO_LARGE
