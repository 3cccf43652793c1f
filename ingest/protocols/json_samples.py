"""The JSON forms of a push: a list of samples, or columns per series; both may stand in one body.

    {"samples": [{"metric": "m", "tags": {"host": "a"}, "value": 1.5, "time": 1700000000000}, …]}
    {"series":  [{"metric": "m", "tags": {"host": "a"}, "times": [1700000000000, …], "values": [1.5, …]}, …]}

Times are ms since 1970; a sample without one (or null) gets the server's. Values are numbers, or the strings "NaN",
"+Inf" (or "Inf") and "-Inf". One bad sample refuses itself; its "line" in the answer is its place, from 1, in its list.
In columns a bad time refuses its sample, lists of unequal length their series. Enter by ``parse``.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingest.protocols import naming
from ingest.protocols import times as moments
from ingest.protocols.line_exact import example
from spm.errors import BadMessage, LimitExceeded
from spm.limits import (
    FUTURE_MS,
    JSON_COMMAS_MAX,
    MESSAGE_SAMPLES_MAX,
    MESSAGE_SERIES_BYTES_MAX,
    REJECTIONS_MAX,
)
from spm.wire import F64, I32, I64, Parsed, Rejection, SeriesTable, canonical

UNKNOWN_TEXT = 'a value is a text other than "NaN", "+Inf", "Inf" or "-Inf"'
UNEQUAL = "times and values differ in length"
_WANTED = (
    '{"samples": [{"metric", "tags", "value", "time"}, …]} or {"series": [{"metric", "tags", "times", "values"}, …]}'
)
_FARTHEST_MS = 1 << 62
_SPECIAL = {"NaN": math.nan, "+Inf": math.inf, "Inf": math.inf, "-Inf": -math.inf}

T = TypeVar("T")


class Sample(msgspec.Struct, gc=False):
    """One value of one series."""

    metric: str
    value: float | str
    tags: dict[str, str] = {}
    time: int | None = None


class Series(msgspec.Struct, gc=False):
    """A stretch of one series in columns."""

    metric: str
    times: list[int]
    values: list[float | str]
    tags: dict[str, str] = {}


class _Loose(msgspec.Struct):
    """The outer form, its items not yet looked at."""

    samples: list[msgspec.Raw] = []
    series: list[msgspec.Raw] = []


_OUTER = msgspec.json.Decoder(_Loose)
_SAMPLE = msgspec.json.Decoder(Sample)
_SERIES = msgspec.json.Decoder(Series)


class _Refused(Exception):
    """Why one item cannot be taken."""


def parse(body: bytes, *, now_ms: int) -> Parsed:
    """All samples of a body. ``BadMessage``: not this form at all; ``LimitExceeded``: a body too rich."""
    _within(body.count(b","), JSON_COMMAS_MAX, "commas")
    try:
        outer = _OUTER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not the JSON form of a push", got=str(error)[:200], wanted=_WANTED) from error
    if not outer.samples and not outer.series:
        raise BadMessage("a push without samples", got="neither samples nor series", wanted=_WANTED)
    reading = _Reading(now_ms)
    reading.samples(outer.samples)
    reading.series(outer.series)
    return reading.parsed()


class _Reading:
    """One body on its way: distinct series, columns in pieces, refusals."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms, self._latest_ms = now_ms, now_ms + FUTURE_MS
        self._numbers: dict[bytes, int] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._form_bytes = 0
        self._count = self._timeless = self._rejected = 0
        self._pieces: list[tuple[I32, I64, F64]] = []
        self._rejections: list[Rejection] = []

    def samples(self, items: Sequence[msgspec.Raw]) -> None:
        """Take the list form."""
        _within(len(items), MESSAGE_SAMPLES_MAX, "samples")
        series: list[int] = []
        ts: list[int] = []
        values: list[float] = []
        for place, item in enumerate(items, 1):
            try:
                sample = _decode(_SAMPLE.decode, item)
                value, time_ms = _number(sample.value), self._time(sample.time)
                series.append(self._number_of(sample.metric, sample.tags))
            except _Refused as refused:
                self._reject(place, str(refused), item, 1)
                continue
            ts.append(time_ms)
            values.append(value)
            self._timeless += sample.time is None
        self._keep(np.array(series, np.int32), np.array(ts, np.int64), np.array(values, np.float64))

    def series(self, items: Sequence[msgspec.Raw]) -> None:
        """Take the columnar form."""
        for place, item in enumerate(items, 1):
            try:
                one = _decode(_SERIES.decode, item)
                if len(one.times) != len(one.values):
                    raise _Refused(UNEQUAL)
                self._columns(place, item, one)
            except _Refused as refused:
                self._reject(place, str(refused), item, 1)

    def parsed(self) -> Parsed:
        """What the body gave."""
        series, ts, values = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        return Parsed(
            series=SeriesTable.from_canonical(list(self._numbers)), series_index=series, ts=ts, values=values,
            timeless=self._timeless, rejections=tuple(self._rejections), rejected=self._rejected,
        )  # fmt: skip

    def _columns(self, place: int, item: msgspec.Raw, one: Series) -> None:
        values = _numbers(one.values)
        ts = _times(one.times)
        early, late = ts < 1, ts > self._latest_ms
        for wrong, reason in ((early, moments.early), (late, moments.late)):
            if wrong.any():
                words = reason(int(ts[wrong.argmax()]), self._now_ms)
                self._reject(place, f"{int(wrong.sum())} of {len(ts)} samples: {words}", item, int(wrong.sum()))
        good = ~(early | late)
        if good.any():
            number = self._number_of(one.metric, one.tags)
            self._keep(np.full(int(good.sum()), number, np.int32), ts[good], values[good])

    def _keep(self, series: I32, ts: I64, values: F64) -> None:
        self._count += len(ts)
        _within(self._count, MESSAGE_SAMPLES_MAX, "samples")
        self._pieces.append((series, ts, values))

    def _time(self, time_ms: int | None) -> int:
        if time_ms is None:
            return self._now_ms
        if not 1 <= time_ms <= self._latest_ms:
            raise _Refused((moments.early if time_ms < 1 else moments.late)(time_ms, self._now_ms))
        return time_ms

    def _number_of(self, metric: str, tags: dict[str, str]) -> int:
        """The series' place in the message's table; names are checked and joined once per spelling."""
        spelling = (metric, *tags.items())
        if spelling not in self._seen:
            self._seen[spelling] = self._place_of(_form(metric, tags))
        return self._seen[spelling]

    def _place_of(self, form: bytes) -> int:
        if form not in self._numbers:
            self._form_bytes += len(form)
            _within(self._form_bytes, MESSAGE_SERIES_BYTES_MAX, "bytes of series names and tags")
        return self._numbers.setdefault(form, len(self._numbers))

    def _reject(self, place: int, reason: str, item: msgspec.Raw, count: int) -> None:
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(place, reason, example(bytes(item))))


def _decode(decode: Callable[[msgspec.Raw], T], item: msgspec.Raw) -> T:
    try:
        return decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(str(error)[:200]) from error


def _form(metric: str, tags: dict[str, str]) -> bytes:
    """The canonical form, if the names keep the rules."""
    try:
        pairs = [(name.encode(), value.encode()) for name, value in tags.items()]
        fault = naming.metric_fault(metric.encode()) or naming.tags_fault(pairs)
    except UnicodeEncodeError:
        fault = naming.NOT_UTF8
    if fault:
        raise _Refused(fault)
    return canonical(metric, tags)


def _number(value: float | str) -> float:
    if isinstance(value, str):
        if value not in _SPECIAL:
            raise _Refused(UNKNOWN_TEXT)
        return _SPECIAL[value]
    return value


def _numbers(values: list[float | str]) -> NDArray[np.float64]:
    """A column of values; only one that holds texts is looked at value by value."""
    if str in set(map(type, values)):
        return np.array([_number(value) for value in values], np.float64)
    return np.array(values, np.float64)


def _times(times: list[int]) -> I64:
    """A column of times; those beyond 64 bits become times just as wrong that fit."""
    try:
        return np.array(times, np.int64)
    except OverflowError:
        return np.array([max(-1, min(time, _FARTHEST_MS)) for time in times], np.int64)


def _within(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise LimitExceeded(
            f"too many {what} in one body", got=count, wanted=f"at most {limit}", remedy="Send smaller bodies."
        )
