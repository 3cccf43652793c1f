"""Writes answers in the form of Prometheus' HTTP API, and reads the times and durations that its clients send.

Values are strings, the shortest that read back to the same float, written as Go does in JSON: no exponent between 1e-6
and 1e21, and "NaN", "+Inf", "-Inf". Times are seconds. Never deals with HTTP or a framework. Enter by `query_body`,
`success` and `failure`.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from spm.arrays import I64
from spm.errors import BadQuery
from spm.limits import TIME_MAX_MS
from spm.query.formats import float_text
from spm.query.promql.engine import Result
from spm.query.request.batches import SeriesBatch
from spm.query.request.budget import Budget
from spm.query.series.label_table import json_of, label_order, take_labels

# Numbers and times as Go reads them: Python's own parsers also accept other digits, blanks and week dates.
_SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_DURATION_PART = re.compile(r"(\d+)(ms|s|m|h|d|w|y)")
_DURATION = re.compile(r"(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?", re.ASCII)
_UNIT_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_UNITS = tuple(reversed(_UNIT_MS.items()))
_INSTANTS = "expected seconds or RFC 3339, as in 1700000000.5 or 2023-11-14T22:13:20Z"
_DURATIONS = "expected seconds or units, as in 90 or 1h30m"
_TEXT_SHOWN = 80  # characters of an invalid text in an error
_ESCAPED = re.compile(r"__|_([0-9A-Fa-f]{1,6})_")
TRUNCATED = "results truncated due to limit"
_POINTS_AT_ONCE = 200_000  # points in one buffer: some 10 MB
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def query_body(
    result: Result, *, limit: int = 0, stats: Budget | None = None, explain: Mapping[str, Any] | None = None
) -> bytes:
    """Write the body for a query's result, its notes as `infos`, with at most `limit` series (0: all)."""
    shown, is_cut = _samples(result.samples, limit) if result.samples is not None else _values(result, limit)
    data: dict[str, object] = {"resultType": result.kind, "result": shown}
    if stats is not None:
        data["stats"] = _stats(stats)
    more = [TRUNCATED] if is_cut else []
    return success(data, warnings=[*more, *result.warnings], infos=result.notes, explain=explain)


def points_of(result: Result) -> int:
    """Count the points of a result."""
    return len(result.samples.ts) if result.samples is not None else int(np.count_nonzero(result.present))


def success(
    data: object,
    *,
    warnings: Sequence[str] = (),
    infos: Sequence[str] = (),
    explain: Mapping[str, Any] | None = None,
) -> bytes:
    """Write the body of a successful call."""
    body: dict[str, object] = {"status": "success", "data": data}
    if warnings:
        body["warnings"] = list(warnings)
    if infos:
        body["infos"] = list(infos)
    if explain is not None:
        body["explain"] = explain
    return orjson.dumps(body)


def failure(kind: str, message: str) -> bytes:
    """Write the body of a failed call; `kind` is one of Prometheus' error types."""
    return orjson.dumps({"status": "error", "errorType": kind, "error": message})


def number(value: float) -> str:
    """Write a float as Go does in JSON."""
    text = repr(float(value))
    if text.endswith(".0"):
        return text[:-2]
    if text in _SPECIAL:
        return _SPECIAL[text]
    if "e" in text and 1e-6 <= abs(value) < 1e21:
        return format(Decimal(text), "f")
    return text


def numbers(values: npt.NDArray[np.float64]) -> pa.Array:
    """Write a column of floats as Go does in JSON."""
    return float_text.text_column(values)


def instant_ms(text: str) -> int:
    """Parse a time, seconds as a float or RFC 3339, to ms; raises `BadQuery`."""
    seconds = _float(text)
    if seconds is None:
        try:
            moment = datetime.datetime.fromisoformat(text if _RFC3339.fullmatch(text) else "")
        except ValueError as error:
            raise _no_instant(text, _INSTANTS) from error
        if moment.tzinfo is None:
            raise _no_instant(text, f"it has no time zone; {_INSTANTS}")
        seconds = moment.timestamp()
    if not abs(seconds) * 1000 <= TIME_MAX_MS:
        raise _no_instant(text, "out of range, which ends with the year 9999")
    return round(seconds * 1000)


def duration_ms(text: str) -> int:
    """Parse a duration, seconds as a float or units as in `1h30m`, to ms; raises `BadQuery`."""
    seconds = _float(text)
    if seconds is None and not (text and _DURATION.fullmatch(text)):
        raise BadQuery(f'cannot parse "{_cut(text)}" to a valid duration: {_DURATIONS}')
    # The numbers may have any length: as floats they are exact unless they are too large anyway.
    total = seconds * 1000 if seconds is not None else _sum_ms(text)
    if not abs(total) <= TIME_MAX_MS:
        raise BadQuery(f'cannot parse "{_cut(text)}" to a valid duration. It overflows: some 8,000 years are the most')
    return round(total)


def _sum_ms(text: str) -> float:
    return sum(float(count) * _UNIT_MS[unit] for count, unit in _DURATION_PART.findall(text))


def _no_instant(text: str, why: str) -> BadQuery:
    return BadQuery(f'cannot parse "{_cut(text)}" to a valid timestamp: {why}')


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}..."


def duration(ms: int) -> str:
    """Write a duration in units, as Prometheus does; years and weeks only if they are whole."""
    if ms == 0:
        return "0s"
    remaining, text = abs(ms), "-" if ms < 0 else ""
    for unit, size in _UNITS:
        if remaining >= size and (unit not in "yw" or remaining % size == 0):
            text, remaining = f"{text}{remaining // size}{unit}", remaining % size
    return text


def rfc3339(ms: int) -> str:
    """Write a time; year 1 stands for never, as in Go."""
    return "0001-01-01T00:00:00Z" if ms <= 0 else f"{np.datetime64(ms, 'ms')}Z"


def exponent(value: float) -> str:
    """Write a float as Go's %e does, with the necessary digits, for the values of alerts."""
    if not math.isfinite(value):
        return number(value)
    digits, _, power = f"{Decimal(repr(value)):e}".partition("e")
    integer, _, fraction = digits.partition(".")
    fraction = fraction.rstrip("0")
    return f"{integer}{'.' if fraction else ''}{fraction}e{power[0]}{power[1:]:0>2}"


def label_name(text: str) -> str:
    """Unescape a label name in a URL path, where `a.b` may be written as `U__a_2e_b`."""
    if not text.startswith("U__"):
        return text
    return _ESCAPED.sub(lambda match: "_" if match[1] is None else _character(match[1], text), text[3:])


def _character(code: str, text: str) -> str:
    try:
        return chr(int(code, 16))
    except ValueError as error:
        raise BadQuery(f"not an escaped label name: {text}") from error


def _stats(budget: Budget) -> dict[str, object]:
    """Return what a query has used, under Prometheus' names where they fit; bytes are an extension."""
    usage, elapsed = budget.usage, round(budget.elapsed_s, 9)
    return {
        "timings": {"evalTotalTime": elapsed, "execTotalTime": elapsed},
        "samples": {"totalQueryableSamples": usage.samples, "peakSamples": max(usage.samples, usage.cells)},
        "seriesRead": usage.series,
        "peakBytes": usage.bytes_peak,
    }


def _values(result: Result, limit: int) -> tuple[object, bool]:
    """Return the values of at most `limit` series (0: all), and whether there are more."""
    if result.kind == "string":
        return [_seconds(int(result.times[0])), result.text], False
    if result.kind == "scalar":
        return [_seconds(int(result.times[0])), number(result.values[0, 0])], False
    is_cut = 0 < limit < len(result.labels)
    if is_cut:
        result = dataclasses.replace(
            result, labels=result.labels[:limit], values=result.values[:limit], present=result.present[:limit]
        )
    return _values_json(result, single=result.kind == "vector"), is_cut


def _samples(batch: SeriesBatch, limit: int) -> tuple[orjson.Fragment, bool]:
    """Return the samples of at most `limit` series (0: all), sorted by labels, and whether there are more."""
    with_samples = np.flatnonzero(np.diff(batch.offsets))
    rows = with_samples[label_order(take_labels(batch.labels, with_samples))]
    return _samples_json(batch, rows[: limit or None]), 0 < limit < len(rows)


def _values_json(result: Result, *, single: bool) -> orjson.Fragment:
    """Write series in blocks, labels and points by column: there may be millions of them."""
    times, (names, borders) = _times_text(result.times), json_of(result.labels)
    at_once = max(_POINTS_AT_ONCE // max(len(result.times), 1), 1)
    blocks: list[memoryview] = []
    for row in range(0, len(result.labels), at_once):
        part = slice(row, row + at_once)
        own = borders[row : row + at_once + 1]
        values, present = result.values[part], result.present[part]
        blocks.append(float_text.matrix_json(times, values, present, names, own, single=single))
    return _json_list(blocks)


def _times_text(times: npt.NDArray[np.int64]) -> float_text.Texts:
    """Write times in seconds."""
    return float_text.format_floats(times / 1000)


def _json_list(blocks: Sequence[memoryview]) -> orjson.Fragment:
    parts = [part for each in blocks for part in (b",", each)]  # joined once: there may be hundreds of megabytes
    return orjson.Fragment(b"".join((b"[", *parts[1:], b"]")))


def _samples_json(batch: SeriesBatch, rows: I64) -> orjson.Fragment:
    """Write the samples of series in blocks, so that buffers stay small."""
    firsts, counts = batch.offsets[rows], np.diff(batch.offsets)[rows]
    names, borders = json_of(take_labels(batch.labels, rows))
    moments, steps = np.unique(batch.ts, return_inverse=True)
    times, ends = _times_text(moments), np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    blocks: list[memoryview] = []
    row = 0
    while row < len(counts):
        last = max(int(np.searchsorted(ends, ends[row] + _POINTS_AT_ONCE, side="right")) - 1, row + 1)
        own = borders[row : last + 1]
        at = np.arange(ends[row], ends[last]) + np.repeat(firsts[row:last] - ends[row:last], counts[row:last])
        blocks.append(float_text.samples_json(times, steps[at], batch.values[at], counts[row:last], names, own))
        row = last
    return _json_list(blocks)


def _seconds(ms: int) -> float:
    """Convert ms to seconds; whole seconds stay ints, so that they are written without a fraction."""
    return ms / 1000 if ms % 1000 else ms // 1000


def _float(text: str) -> float | None:
    return float(text) if _SECONDS.fullmatch(text) else None
