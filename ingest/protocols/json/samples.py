"""Reads the two JSON forms of a push: a list of samples, and columns per series. One body may have both.

    {"samples": [{"metric": "m", "tags": {"host": "a"}, "value": 1.5, "time": 1700000000000}, …]}
    {"series":  [{"metric": "m", "tags": {"host": "a"}, "times": [1700000000000, …], "values": [1.5, …]}, …]}

Times are ms since 1970; a sample without a time (or with null) gets the server's. Values are numbers, or the strings
"NaN", "+Inf" (or "Inf") and "-Inf". A bad sample rejects only itself; its "line" in the answer is its number in its
list, from 1. So does one with an unknown member: `timestamp` for `time` would get the server's time. In columns, a bad
time rejects its sample; lists of unequal length reject their series. A compiled kernel reads plain items of known
series; ``msgspec`` reads all others, and first checks that the body is JSON. The key of labels is ``tags``. Enter by
``parse``.
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
from ingest.protocols.common.line_reader import LineReader, TimeRules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import CacheGeneration, SeriesCache, limit_error
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import excerpt
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
_EXACT_MAX = 200  # with more such items the body is read without the kernel, which would only cost time
_PENDING_MAX = 4_096
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()

T = TypeVar("T")


class Sample(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One value of one series."""

    metric: str
    value: float | str
    tags: dict[str, str] = {}
    time: int | None = None


class Series(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Samples of one series in columns."""

    metric: str
    times: list[int]
    values: list[float | str]
    tags: dict[str, str] = {}


class _SeriesText(msgspec.Struct, gc=False):
    """The text by which an item names its series."""

    metric: msgspec.Raw
    tags: msgspec.Raw = msgspec.Raw(b"")


class _Object(msgspec.Struct):
    """Any object; it checks only that the body is one."""


class _RawLists(msgspec.Struct):
    """The outer object with items that are not decoded."""

    samples: list[msgspec.Raw] = []
    series: list[msgspec.Raw] = []


_OBJECT = msgspec.json.Decoder(_Object)
_OUTER = msgspec.json.Decoder(_RawLists)
_SAMPLE = msgspec.json.Decoder(Sample)
_SERIES = msgspec.json.Decoder(Series)
_SERIES_TEXT = msgspec.json.Decoder(_SeriesText)


class _ItemFault(Exception):
    """The reason for rejecting one item."""


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a body.

    ``BadMessage``: the body is not of this form; ``LimitExceeded``: it holds more than one message may. ``over_quota``:
    the app has more series than its quota allows, so its names must not fill the common cache. Nearly all bodies are
    one list, which the kernel reads; any other body is read again without the kernel.
    """
    commas = body.count(b",")
    if commas > JSON_COMMAS_MAX:
        raise limit_error("commas in one body", JSON_COMMAS_MAX)
    _decode(_OBJECT.decode, body)
    rules = TimeRules(now_ms=now_ms, times=1, per=1, latest_ms=now_ms + FUTURE_MS)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    capacity = min(commas, MESSAGE_SAMPLES_MAX) + 1
    reader = _JsonReader(body + b"\n", rules, generation, capacity)
    if not reader.read_single_list():
        outer = _decode(_OUTER.decode, body)
        if not outer.samples and not outer.series:
            raise BadMessage("a push without samples", got="neither samples nor series", wanted=_WANTED)
        reader = _JsonReader(body, rules, generation, capacity)
        reader.read_lists(outer.samples, outer.series)
    return reader.result()


class _JsonReader(LineReader):
    """Reads one body."""

    def __init__(self, body: bytes, rules: TimeRules, generation: CacheGeneration, capacity: int) -> None:
        super().__init__(body, rules, generation, capacity)
        self._lists: tuple[tuple[bool, Sequence[msgspec.Raw]], ...] = ()  # set if the body is read without the kernel
        self._reads_samples = True  # false: columns
        self._series_numbers: dict[tuple[bytes, bytes], int] = {}  # by head and name, as written
        self._exact_count = 0  # items of known series that the kernel could not read
        self._rejected_items = 0
        self._pending: tuple[list[int], list[int], list[float]] = ([], [], [])  # samples not yet in the columns

    def read_single_list(self) -> bool:
        """Read a body that holds one list only; returns false for any other body, whose samples then do not count."""
        if not self._kind:
            return False
        self._reads_samples = self._kind == SAMPLES
        self.run()
        ended = self._exact_count <= _EXACT_MAX and bool(ends_with(self._bytes, self._state[POSITION]))
        return ended and int(self._state[LINE]) > 1

    def read_lists(self, samples: Sequence[msgspec.Raw], series: Sequence[msgspec.Raw]) -> None:
        """Read both lists item by item."""
        self._lists = ((True, samples), (False, series))
        for reads_samples, items in self._lists:
            self._reads_samples = reads_samples
            for position, item in enumerate(items, 1):
                self._read_item(position, bytes(item))
                if position % _PENDING_MAX == 0 or not reads_samples:
                    self._flush()
            self._flush()

    def places(self, rows: Sequence[int]) -> list[int]:
        """Returns the numbers of these samples' items, each in its own list."""
        if not self._lists:
            return super().places(rows)
        self._rewind()
        places: list[int] = []
        for reads_samples, items in self._lists:
            self._reads_samples = reads_samples
            for place, item in enumerate(items, 1):
                if len(places) == len(rows):
                    return places
                self._read_item(place, bytes(item))
                self._flush()
                while len(places) < len(rows) and rows[len(places)] < self._state[COUNT]:
                    places.append(place)
        return places

    def _initial_state(self) -> I64:
        self._kind, start = list_start(self._bytes)
        return np.array([start, 1, 0, 0], np.int64)

    def _rewind(self) -> None:
        super()._rewind()
        self._rejected_items = 0

    def run(self) -> None:
        """Read the list with kernel and exact reader until it ends, or until the kernel has failed too often."""
        known = self._generation.view()
        while self._read_plain(known) != END and self._exact_count <= _EXACT_MAX:
            self._check_count()
            self._read_exactly()
            known = self._generation.view()
        self._check_count()

    def _read_plain(self, known: KnownSeries) -> int:
        kernel = read_samples if self._reads_samples else read_columns
        return int(kernel(self._bytes, self._kernel_rules, known, self._state, self._series, self._ts, self._values))

    def _read_exactly(self) -> None:
        start = int(self._state[POSITION])
        end = int(value_end(self._bytes, start))
        self._read_item(int(self._state[LINE]), self._body[start:end])
        self._flush()
        self._state[POSITION] = next_item(self._bytes, end)
        self._state[LINE] += 1

    def _flush(self) -> None:
        series, ts, values = self._pending
        if values:
            self._write(series, ts, values)
            self._pending = ([], [], [])
        self._check_count()

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._rejected_items > MESSAGE_LINES_MAX:
            raise limit_error("rejected items in one body", MESSAGE_LINES_MAX)

    def _read_item(self, place: int, item: bytes) -> None:
        known = len(self._series_numbers)
        try:
            if self._reads_samples:
                self._read_sample(item)
            else:
                self._read_series(place, item)
        except _ItemFault as fault:
            self._rejected_items += 1
            self._reject(place, str(fault), excerpt(item))
        self._exact_count += len(self._series_numbers) == known

    def _read_sample(self, item: bytes) -> None:
        one = _decode_item(_SAMPLE.decode, item)
        value, time_ms = _number(one.value), self._check_time(one.time)
        number = self._number_of(one.metric, one.tags, item)
        series, ts, values = self._pending
        series.append(number)
        ts.append(time_ms)
        values.append(value)
        if one.time is None:
            self._state[TIMELESS] += 1

    def _read_series(self, place: int, item: bytes) -> None:
        one = _decode_item(_SERIES.decode, item)
        if len(one.times) != len(one.values):
            raise _ItemFault(UNEQUAL)
        values, ts = _numbers(one.values), _times(one.times)
        early, far_ahead = ts < 1, ts > self._rules.latest_ms
        for wrong, describe in ((early, moments.before_1970), (far_ahead, moments.too_far_ahead)):
            if wrong.any():
                reason = describe(int(ts[wrong.argmax()]), self._rules.now_ms)
                count = int(wrong.sum())
                self._reject(place, f"{count} of {len(ts)} samples: {reason}", excerpt(item), count)
        good = ~(early | far_ahead)
        if good.any():
            self._write(self._number_of(one.metric, one.tags, item), ts[good], values[good])

    def _check_time(self, time_ms: int | None) -> int:
        if time_ms is None:
            return self._rules.now_ms
        if not 1 <= time_ms <= self._rules.latest_ms:
            describe = moments.before_1970 if time_ms < 1 else moments.too_far_ahead
            raise _ItemFault(describe(time_ms, self._rules.now_ms))
        return time_ms

    def _number_of(self, metric: str, tags: dict[str, str], item: bytes) -> int:
        """Returns the series number; checks and adds each spelling once per body."""
        text = _SERIES_TEXT.decode(item)
        name = bytes(text.metric)
        head = bytes(text.tags) or name
        number = self._series_numbers.get((head, name))
        if number is None:
            number, self._budget = self._generation.resolve_field(
                head, name, metric=metric.encode(), labels=_label_pairs(metric, tags), budget=self._budget
            )
            self._series_numbers[head, name] = number
        return number


def _decode(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("not the JSON form of a push", got=str(error)[:200], wanted=_WANTED) from error


def _decode_item(decode: Callable[[bytes], T], item: bytes) -> T:
    try:
        return decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        wanted = f"; wanted {_WANTED}" if "unknown field" in str(error) else ""
        raise _ItemFault(str(error)[:200] + wanted) from error


def _label_pairs(metric: str, tags: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Returns the labels as bytes, after a check of all names."""
    try:
        pairs = [(name.encode(), value.encode()) for name, value in tags.items()]
        fault = naming.metric_fault(metric.encode()) or naming.labels_fault(pairs)
    except UnicodeEncodeError:
        fault = naming.NOT_UTF8
    if fault:
        raise _ItemFault(fault)
    return pairs


def _number(value: float | str) -> float:
    if isinstance(value, str):
        if value not in _SPECIAL:
            raise _ItemFault(UNKNOWN_TEXT)
        return _SPECIAL[value]
    return value


def _numbers(values: list[float | str]) -> NDArray[np.float64]:
    """Returns a column of values. Only a column with texts is converted value by value."""
    if str in set(map(type, values)):
        return np.array([_number(value) for value in values], np.float64)
    return np.array(values, np.float64)


def _times(times: list[int]) -> I64:
    """Returns a column of times. A time beyond 64 bits becomes another bad time that fits."""
    try:
        return np.array(times, np.int64)
    except OverflowError:
        return np.array([max(-1, min(time, _FARTHEST_MS)) for time in times], np.int64)
