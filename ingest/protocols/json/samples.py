"""The JSON forms of a push: a list of samples, or columns per series; both may stand in one body.

    {"samples": [{"metric": "m", "tags": {"host": "a"}, "value": 1.5, "time": 1700000000000}, …]}
    {"series":  [{"metric": "m", "tags": {"host": "a"}, "times": [1700000000000, …], "values": [1.5, …]}, …]}

Times are ms since 1970; a sample without one (or null) gets the server's. Values are numbers, or the strings "NaN",
"+Inf" (or "Inf") and "-Inf". One bad sample refuses itself; its "line" in the answer is its place, from 1, in its list.
In columns a bad time refuses its sample, lists of unequal length their series. A compiled kernel reads what is plain
and known; ``msgspec`` reads the rest and first of all says whether the body is JSON. Enter by ``parse``.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
from ingest.protocols.common import times as moments
from ingest.protocols.common.line_kernels import COUNT, END, LINE, POSITION, TIMELESS
from ingest.protocols.common.line_reader import Reading, Rules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import Generation, SeriesCache, too_much
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import example
from ingest.protocols.json.kernels import (
    SAMPLES,
    ends_with,
    list_start,
    next_item,
    read_columns,
    read_samples,
    value_end,
)
from spm.arrays import I64
from spm.errors import BadMessage
from spm.limits import FUTURE_MS, JSON_COMMAS_MAX, MESSAGE_LINES_MAX, MESSAGE_SAMPLES_MAX
from spm.wire import Parsed

UNKNOWN_TEXT = 'a value is a text other than "NaN", "+Inf", "Inf" or "-Inf"'
UNEQUAL = "times and values differ in length"
_WANTED = (
    '{"samples": [{"metric", "tags", "value", "time"}, …]} or {"series": [{"metric", "tags", "times", "values"}, …]}'
)
_FARTHEST_MS = 1 << 62
_SPECIAL = {"NaN": math.nan, "+Inf": math.inf, "Inf": math.inf, "-Inf": -math.inf}
_ODD_MAX = 200  # from then on all items of a body are read without the kernel, which only gets in the way
_HELD_MAX = 4_096
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()

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


class _Spelt(msgspec.Struct, gc=False):
    """How an item writes its series."""

    metric: msgspec.Raw
    tags: msgspec.Raw = msgspec.Raw(b"")


class _Object(msgspec.Struct):
    """Any object: only whether the body is one."""


class _Loose(msgspec.Struct):
    """The outer form, its items not yet looked at."""

    samples: list[msgspec.Raw] = []
    series: list[msgspec.Raw] = []


_OBJECT = msgspec.json.Decoder(_Object)
_OUTER = msgspec.json.Decoder(_Loose)
_SAMPLE = msgspec.json.Decoder(Sample)
_SERIES = msgspec.json.Decoder(Series)
_SPELT = msgspec.json.Decoder(_Spelt)


class _Refused(Exception):
    """Why one item cannot be taken."""


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a body. ``BadMessage``: it is not this form; ``LimitExceeded``: it holds more than one
    may.

    ``over_quota``: the app has more series than its quota allows; its names must not fill the common cache. A body
    that is
    one list, as nearly all are, goes through the kernel; any other body is read once more, without the kernel.
    """
    commas = body.count(b",")
    if commas > JSON_COMMAS_MAX:
        raise too_much("commas in one body", JSON_COMMAS_MAX)
    _decoded(_OBJECT.decode, body)
    rules = Rules(now_ms=now_ms, times=1, per=1, latest_ms=now_ms + FUTURE_MS)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    room = min(commas, MESSAGE_SAMPLES_MAX) + 1
    reading = _Reading(body + b"\n", rules, generation, room)
    if not reading.take_one_list():
        outer = _decoded(_OUTER.decode, body)
        if not outer.samples and not outer.series:
            raise BadMessage("a push without samples", got="neither samples nor series", wanted=_WANTED)
        reading = _Reading(body, rules, generation, room)
        reading.take_lists(outer.samples, outer.series)
    return reading.parsed()


class _Reading(Reading):
    """One body on its way."""

    def __init__(self, body: bytes, rules: Rules, generation: Generation, room: int) -> None:
        super().__init__(body, rules, generation, room)
        self._lists: tuple[tuple[bool, Sequence[msgspec.Raw]], ...] = ()  # of a body that is read without the kernel
        self._listed = True  # samples, not columns
        self._seen: dict[tuple[bytes, bytes], int] = {}  # numbers by head and name, as written
        self._odd = self._bad = 0  # items that the kernel left, but not for a series new to it; those refused whole
        self._held: tuple[list[int], list[int], list[float]] = ([], [], [])  # samples on their way to the columns

    def take_one_list(self) -> bool:
        """Take a body that is nothing but one list; false if it is another, and nothing of it counts."""
        if not self._kind:
            return False
        self._listed = self._kind == SAMPLES
        self.run()
        ended = self._odd <= _ODD_MAX and bool(ends_with(self._bytes, self._state[POSITION]))
        return ended and int(self._state[LINE]) > 1

    def take_lists(self, samples: Sequence[msgspec.Raw], series: Sequence[msgspec.Raw]) -> None:
        """Take both lists, item by item."""
        self._lists = ((True, samples), (False, series))
        for listed, items in self._lists:
            self._listed = listed
            for place, item in enumerate(items, 1):
                self._take(place, bytes(item))
                if place % _HELD_MAX == 0 or not listed:
                    self._settle()
            self._settle()

    def places(self, rows: Sequence[int]) -> list[int]:
        """The places of these samples' items, each in its list."""
        if not self._lists:
            return super().places(rows)
        self._rewind()
        found: list[int] = []
        for listed, items in self._lists:
            self._listed = listed
            for place, item in enumerate(items, 1):
                if len(found) == len(rows):
                    return found
                self._take(place, bytes(item))
                self._settle()
                while len(found) < len(rows) and rows[len(found)] < self._state[COUNT]:
                    found.append(place)
        return found

    def _beginning(self) -> I64:
        self._kind, start = list_start(self._bytes)
        return np.array([start, 1, 0, 0], np.int64)

    def _rewind(self) -> None:
        super()._rewind()
        self._bad = 0

    def run(self) -> None:
        """Kernel and exact reader take turns until the list ends, or turns out to be odd."""
        known = self._generation.view()
        while self._read_plain(known) != END and self._odd <= _ODD_MAX:
            self._check_count()
            self._read_exactly()
            known = self._generation.view()
        self._check_count()

    def _read_plain(self, known: KnownSeries) -> int:
        kernel = read_samples if self._listed else read_columns
        return int(kernel(self._bytes, self._numbers, known, self._state, self._series, self._ts, self._values))

    def _read_exactly(self) -> None:
        start = int(self._state[POSITION])
        end = int(value_end(self._bytes, start))
        self._take(int(self._state[LINE]), self._body[start:end])
        self._settle()
        self._state[POSITION] = next_item(self._bytes, end)
        self._state[LINE] += 1

    def _settle(self) -> None:
        series, ts, values = self._held
        if values:
            self._write(series, ts, values)
            self._held = ([], [], [])
        self._check_count()

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise too_much("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._bad > MESSAGE_LINES_MAX:
            raise too_much("items in one body that cannot be taken", MESSAGE_LINES_MAX)

    def _take(self, place: int, item: bytes) -> None:
        known = len(self._seen)
        try:
            if self._listed:
                self._sample(item)
            else:
                self._columns(place, item)
        except _Refused as refused:
            self._bad += 1
            self._reject(place, str(refused), example(item))
        self._odd += len(self._seen) == known

    def _sample(self, item: bytes) -> None:
        one = _item(_SAMPLE.decode, item)
        value, time_ms = _number(one.value), self._time(one.time)
        number = self._number_of(one.metric, one.tags, item)
        series, ts, values = self._held
        series.append(number)
        ts.append(time_ms)
        values.append(value)
        if one.time is None:
            self._state[TIMELESS] += 1

    def _columns(self, place: int, item: bytes) -> None:
        one = _item(_SERIES.decode, item)
        if len(one.times) != len(one.values):
            raise _Refused(UNEQUAL)
        values, ts = _numbers(one.values), _times(one.times)
        early, late = ts < 1, ts > self._rules.latest_ms
        for wrong, reason in ((early, moments.early), (late, moments.late)):
            if wrong.any():
                words = reason(int(ts[wrong.argmax()]), self._rules.now_ms)
                count = int(wrong.sum())
                self._reject(place, f"{count} of {len(ts)} samples: {words}", example(item), count)
        good = ~(early | late)
        if good.any():
            self._write(self._number_of(one.metric, one.tags, item), ts[good], values[good])

    def _time(self, time_ms: int | None) -> int:
        if time_ms is None:
            return self._rules.now_ms
        if not 1 <= time_ms <= self._rules.latest_ms:
            raise _Refused((moments.early if time_ms < 1 else moments.late)(time_ms, self._rules.now_ms))
        return time_ms

    def _number_of(self, metric: str, tags: dict[str, str], item: bytes) -> int:
        """The series' number in the cache, entered as the item writes it; looked at once per spelling and body."""
        spelt = _SPELT.decode(item)
        name = bytes(spelt.metric)
        head = bytes(spelt.tags) or name
        number = self._seen.get((head, name))
        if number is None:
            number, self._budget = self._generation.enter(
                head, name, metric=metric.encode(), tags=_pairs(metric, tags), budget=self._budget
            )
            self._seen[head, name] = number
        return number


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not the JSON form of a push", got=str(error)[:200], wanted=_WANTED) from error


def _item(decode: Callable[[bytes], T], item: bytes) -> T:
    try:
        return decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(str(error)[:200]) from error


def _pairs(metric: str, tags: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """The tags as bytes, if the names keep the rules."""
    try:
        pairs = [(name.encode(), value.encode()) for name, value in tags.items()]
        fault = naming.metric_fault(metric.encode()) or naming.tags_fault(pairs)
    except UnicodeEncodeError:
        fault = naming.NOT_UTF8
    if fault:
        raise _Refused(fault)
    return pairs


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
