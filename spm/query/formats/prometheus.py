"""Answers in the form of Prometheus' HTTP API: results, failures, times and durations as its clients write them.

Values are strings, the shortest that read back to the same float, written as Go does it in JSON: no exponent between
1e-6 and 1e21, and "NaN", "+Inf", "-Inf". Times are seconds. Nothing here knows HTTP or any framework; enter by
`answer` and `failure`.
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
from spm.query.formats import float_text as digits
from spm.query.promql.engine import Result
from spm.query.promql.operators.label_groups import ordered
from spm.query.request.batches import SeriesBatch
from spm.query.request.budget import Budget
from spm.query.series.label_table import json_of, taken

# Numbers and times as Go reads them: Python's own readers take other digits, blanks and weeks as well.
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
_INSTANTS = "seconds or RFC 3339 are wanted, as in 1700000000.5 or 2023-11-14T22:13:20Z"
_DURATIONS = "seconds or units are wanted, as in 90 or 1h30m"
_TEXT_SHOWN = 80  # characters of what cannot be read
_ESCAPED = re.compile(r"__|_([0-9A-Fa-f]{1,6})_")
TRUNCATED = "results truncated due to limit"
_POINTS_AT_ONCE = 200_000  # written into one buffer: some 10 MB
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def answer(
    result: Result, *, limit: int = 0, stats: Budget | None = None, explain: Mapping[str, Any] | None = None
) -> bytes:
    """The body for a query's result, its notes as `infos`; with at most so many series (0: all)."""
    shown, is_cut = _samples(result.samples, limit) if result.samples is not None else _values(result, limit)
    data: dict[str, object] = {"resultType": result.kind, "result": shown}
    if stats is not None:
        data["stats"] = _stats(stats)
    more = [TRUNCATED] if is_cut else []
    return success(data, warnings=[*more, *result.warnings], infos=result.notes, explain=explain)


def points_of(result: Result) -> int:
    """How many points an answer has."""
    return len(result.samples.ts) if result.samples is not None else int(np.count_nonzero(result.present))


def success(
    data: object,
    *,
    warnings: Sequence[str] = (),
    infos: Sequence[str] = (),
    explain: Mapping[str, Any] | None = None,
) -> bytes:
    """The body of any call that went well."""
    body: dict[str, object] = {"status": "success", "data": data}
    if warnings:
        body["warnings"] = list(warnings)
    if infos:
        body["infos"] = list(infos)
    if explain is not None:
        body["explain"] = explain
    return orjson.dumps(body)


def failure(kind: str, message: str) -> bytes:
    """The body of a call that failed; `kind` is one of Prometheus' error types."""
    return orjson.dumps({"status": "error", "errorType": kind, "error": message})


def number(value: float) -> str:
    """A float as Go writes it in JSON."""
    text = repr(float(value))
    if text.endswith(".0"):
        return text[:-2]
    if text in _SPECIAL:
        return _SPECIAL[text]
    if "e" in text and 1e-6 <= abs(value) < 1e21:
        return format(Decimal(text), "f")
    return text


def numbers(values: npt.NDArray[np.float64]) -> pa.Array:
    """The same for a column."""
    return digits.texts(values)


def instant_ms(text: str) -> int:
    """Milliseconds of a time: seconds as a float, or RFC 3339."""
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
    """Milliseconds of a duration: seconds as a float, or units as in `1h30m`."""
    seconds = _float(text)
    if seconds is None and not (text and _DURATION.fullmatch(text)):
        raise BadQuery(f'cannot parse "{_cut(text)}" to a valid duration: {_DURATIONS}')
    # Numbers of any length: as floats they are exact wherever they are not too large.
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
    """A duration in units, as Prometheus writes it; of years and weeks only whole ones."""
    if ms == 0:
        return "0s"
    left, found = abs(ms), "-" if ms < 0 else ""
    for unit, size in _UNITS:
        if left >= size and (unit not in "yw" or left % size == 0):
            found, left = f"{found}{left // size}{unit}", left % size
    return found


def rfc3339(ms: int) -> str:
    """A time; year 1 stands for never, as in Go."""
    return "0001-01-01T00:00:00Z" if ms <= 0 else f"{np.datetime64(ms, 'ms')}Z"


def exponent(value: float) -> str:
    """A float as Go's %e writes it, with the digits it needs: the values of alerts."""
    if not math.isfinite(value):
        return number(value)
    digits, _, power = f"{Decimal(repr(value)):e}".partition("e")
    whole, _, rest = digits.partition(".")
    rest = rest.rstrip("0")
    return f"{whole}{'.' if rest else ''}{rest}e{power[0]}{power[1:]:0>2}"


def label_name(text: str) -> str:
    """A label's name as it stands in an address, where `a.b` may come escaped as `U__a_2e_b`."""
    if not text.startswith("U__"):
        return text
    return _ESCAPED.sub(lambda found: "_" if found[1] is None else _character(found[1], text), text[3:])


def _character(code: str, text: str) -> str:
    try:
        return chr(int(code, 16))
    except ValueError as error:
        raise BadQuery(f"not an escaped label name: {text}") from error


def _stats(used: Budget) -> dict[str, object]:
    """What a query has used, under Prometheus' names as far as they mean the same here; bytes are ours."""
    usage, elapsed = used.usage, round(used.elapsed_s, 9)
    return {
        "timings": {"evalTotalTime": elapsed, "execTotalTime": elapsed},
        "samples": {"totalQueryableSamples": usage.samples, "peakSamples": max(usage.samples, usage.cells)},
        "seriesRead": usage.series,
        "peakBytes": usage.bytes_peak,
    }


def _values(result: Result, limit: int) -> tuple[object, bool]:
    """What was computed, of so many series (0: all), and whether there are more."""
    if result.kind == "string":
        return [_seconds(int(result.times[0])), result.text], False
    if result.kind == "scalar":
        return [_seconds(int(result.times[0])), number(result.values[0, 0])], False
    is_cut = 0 < limit < len(result.labels)
    if is_cut:
        result = dataclasses.replace(
            result, labels=result.labels[:limit], values=result.values[:limit], present=result.present[:limit]
        )
    return _computed(result, single=result.kind == "vector"), is_cut


def _samples(batch: SeriesBatch, limit: int) -> tuple[orjson.Fragment, bool]:
    """The samples of so many series (0: all) of those that have any, by their labels; and whether there are more."""
    held = np.flatnonzero(np.diff(batch.offsets))
    rows = held[ordered(taken(batch.labels, held))]
    return _raw_series(batch, rows[: limit or None]), 0 < limit < len(rows)


def _computed(result: Result, *, single: bool) -> orjson.Fragment:
    """Series by series, labels and points by column: there may be millions of them."""
    times, (names, borders) = _written(result.times), json_of(result.labels)
    at_once = max(_POINTS_AT_ONCE // max(len(result.times), 1), 1)
    found: list[memoryview] = []
    for row in range(0, len(result.labels), at_once):
        part = slice(row, row + at_once)
        own = borders[row : row + at_once + 1]
        found.append(digits.matrix(times, result.values[part], result.present[part], names, own, single=single))
    return _listed(found)


def _written(times: npt.NDArray[np.int64]) -> digits.Texts:
    """Times in seconds."""
    return digits.written(times / 1000)


def _listed(found: Sequence[memoryview]) -> orjson.Fragment:
    parts = [part for each in found for part in (b",", each)]  # joined once: there may be hundreds of megabytes
    return orjson.Fragment(b"".join((b"[", *parts[1:], b"]")))


def _raw_series(batch: SeriesBatch, rows: I64) -> orjson.Fragment:
    """The same of samples, so many series at a time that buffers stay small."""
    firsts, counts = batch.offsets[rows], np.diff(batch.offsets)[rows]
    names, borders = json_of(taken(batch.labels, rows))
    moments, steps = np.unique(batch.ts, return_inverse=True)
    times, ends = _written(moments), np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    found: list[memoryview] = []
    row = 0
    while row < len(counts):
        last = max(int(np.searchsorted(ends, ends[row] + _POINTS_AT_ONCE, side="right")) - 1, row + 1)
        own = borders[row : last + 1]
        at = np.arange(ends[row], ends[last]) + np.repeat(firsts[row:last] - ends[row:last], counts[row:last])
        found.append(digits.rows(times, steps[at], batch.values[at], counts[row:last], names, own))
        row = last
    return _listed(found)


def _seconds(ms: int) -> float:
    """Whole seconds stay ints, so that they are written without a fraction."""
    return ms / 1000 if ms % 1000 else ms // 1000


def _float(text: str) -> float | None:
    return float(text) if _SECONDS.fullmatch(text) else None
