"""Reads OpenTSDB's JSON, a point or a list of them, as ``POST /api/put`` takes it.

    [{"metric": "sys.cpu.user", "timestamp": 1700000000, "value": 1.5, "tags": {"host": "a"}}, …]

A time of up to ten digits is in seconds, a longer one in ms. A value may be a number as text. A point is the item of
our own JSON under other names, so the body is rewritten and read by ``samples``. If a tag is called like a field, or a
point lacks one, each point is rewritten for itself. A bad point rejects only itself. Enter by ``parse``.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ingest.protocols.common.series_cache import limit_error
from ingest.protocols.influx.exact import excerpt
from ingest.protocols.json import samples
from spm.errors import BadMessage
from spm.limits import JSON_COMMAS_MAX, REJECTIONS_MAX
from spm.wire import Parsed, Rejection

NO_POINTS = "a push without points"
_WANTED = '[{"metric", "timestamp", "value", "tags"}, …]'
_FIELDS = (b'"metric"', b'"timestamp"', b'"value"')
_TIME = re.compile(rb'"timestamp"\s*:\s*"?([0-9]+)"?(?=\s*[,}])')
_SECONDS = re.compile(rb'("time":[0-9]{1,10})(?=\s*[,}])')
_VALUE_TEXT = re.compile(rb'("value"\s*:\s*)"([+-]?[0-9][0-9.eE+-]*)"')
_SECOND_MAX = 9_999_999_999


class _Point(msgspec.Struct):
    """One point."""

    metric: str
    timestamp: int | str
    value: float | str
    tags: dict[str, str] = {}


_ANY, _LIST = msgspec.json.Decoder(msgspec.Raw), msgspec.json.Decoder(list[msgspec.Raw])
_POINT = msgspec.json.Decoder(_Point)


def parse(body: bytes, *, now_ms: int, over_quota: bool = False) -> Parsed:
    """Returns all samples of a body; its errors and arguments are those of ``samples.parse``."""
    if body.count(b",") > JSON_COMMAS_MAX:
        raise limit_error("commas in one body", JSON_COMMAS_MAX)
    try:
        _ANY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not OpenTSDB's JSON", got=str(error)[:200], wanted=_WANTED) from error
    text = body.strip()
    if text[:1] not in (b"{", b"["):
        raise BadMessage("not OpenTSDB's JSON", got=excerpt(body), wanted=_WANTED)
    text = text if text[:1] == b"[" else b"[" + text + b"]"
    if not text[1:-1].strip():
        raise BadMessage(NO_POINTS, got="an empty list", wanted=_WANTED)
    rewritten, times = _TIME.subn(rb'"time":\1', text)
    if {text.count(field) for field in _FIELDS} != {times} or b"\\u" in text:
        return _parse_each(_LIST.decode(text), now_ms, over_quota)
    text = _SECONDS.sub(rb"\g<1>000", rewritten)
    text = _VALUE_TEXT.sub(rb"\1\2", text)
    return samples.parse(b'{"samples":%b}' % text, now_ms=now_ms, over_quota=over_quota)


def _parse_each(items: Sequence[msgspec.Raw], now_ms: int, over_quota: bool) -> Parsed:
    """Rewrite the points one by one; those that are none are rejected, and the numbers of the others stay."""
    points, numbers, rejections = [], [], []
    for number, item in enumerate(items, 1):
        try:
            points.append(_as_sample(_POINT.decode(item)))
            numbers.append(number)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            rejections.append(Rejection(number, str(error)[:200], excerpt(bytes(item))))
    parsed = samples.parse(msgspec.json.encode({"samples": points or [{}]}), now_ms=now_ms, over_quota=over_quota)
    if not points:
        return replace(parsed, rejections=tuple(rejections[:REJECTIONS_MAX]), rejected=len(rejections), places=None)
    places = parsed.places
    assert places is not None, "BUG: a body of JSON without places"
    renumbered = [replace(one, line=numbers[one.line - 1]) for one in parsed.rejections]
    return replace(
        parsed,
        rejections=tuple(sorted([*rejections, *renumbered], key=lambda one: one.line)[:REJECTIONS_MAX]),
        rejected=len(rejections) + parsed.rejected,
        places=lambda rows: [numbers[line - 1] for line in places(rows)],
    )


def _as_sample(point: _Point) -> dict[str, object]:
    time, value = int(point.timestamp), float(point.value)
    time_ms = time * 1_000 if abs(time) <= _SECOND_MAX else time
    return {"metric": point.metric, "tags": point.tags, "value": value, "time": time_ms}
