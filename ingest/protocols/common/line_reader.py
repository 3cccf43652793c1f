"""Reads one body of lines: a compiled kernel reads plain lines of known series, an exact reader reads all others.

``LineReader`` holds the columns that both write to, and runs them alternately. A protocol defines how its kernel is
called (``_read_plain``) and how its exact reader reads one line (``_read_exactly``). Enter by ``run``, then ``result``.
``places`` returns the lines of some samples. It reads the body again, so that the first reading need not store them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.protocols.common.line_kernels import COUNT, END, FULL, LINE, POSITION, STOPPED, TIMELESS
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs, limit_error
from ingest.protocols.common.series_kernels import KnownSeries
from spm.arrays import F64, I32, I64
from spm.limits import (
    LINE_BYTES_MAX,
    MESSAGE_LINES_MAX,
    MESSAGE_SAMPLES_MAX,
    MESSAGE_SERIES_BYTES_MAX,
    REJECTIONS_MAX,
)
from spm.wire import Parsed, Rejection


@dataclass(frozen=True, slots=True)
class TimeRules:
    """How times are read: ms = raw × times // per, from 1 to ``latest_ms``; a line without a time gets ``now_ms``."""

    now_ms: int
    times: int
    per: int
    latest_ms: int

    def for_kernel(self) -> tuple[int, ...]:
        """The rules as kernels take them (``line_kernels``)."""
        raw_max = ((self.latest_ms + 1) * self.per - 1) // self.times
        return self.now_ms, self.times, self.per, raw_max, MESSAGE_LINES_MAX, LINE_BYTES_MAX

    @property
    def unit(self) -> str:
        """The name of the unit; empty for minutes and hours, which nobody mistakes for another unit."""
        return {(1, 1_000_000): "ns", (1, 1_000): "us", (1, 1): "ms", (1_000, 1): "s"}.get((self.times, self.per), "")


class LineReader:
    """The state of the kernel, the columns of samples, and the rejections."""

    def __init__(self, body: bytes, rules: TimeRules, generation: CacheGeneration, capacity: int = 0) -> None:
        self._body, self._rules, self._generation = body, rules, generation
        self._bytes = np.frombuffer(body, np.uint8)
        self._kernel_rules: I64 = np.array(rules.for_kernel(), np.int64)
        self._state: I64 = self._initial_state()
        self._allocate(capacity or len(body) // 16 + 64)
        self._rejections: list[Rejection] = []
        self._rejected = 0
        self._budget = MESSAGE_SERIES_BYTES_MAX

    def run(self) -> None:
        """Read the whole body: run the kernel and, at each line that it cannot read, the exact reader."""
        known = self._generation.view()
        while (status := self._read_plain(known)) != END:
            self._check_count()
            # Where the columns have more free space than a line can fill, FULL means that the line is too long.
            if status == FULL and self._series.size - self._state[COUNT] < LINE_BYTES_MAX // 4:
                self._grow(2 * self._series.size)
            elif status == STOPPED and self._enter_new():
                known = self._generation.view()
            else:
                self._read_exactly()
                known = self._generation.view()
        self._check_count()

    def resume(self, state: I64, series: I32, ts: I64, values: F64) -> None:
        """Begin where a kernel has stopped, with the samples that it has read."""
        count = len(series)
        if count > self._series.size:
            self._allocate(2 * count)
        self._series[:count], self._ts[:count], self._values[:count] = series, ts, values
        self._state[:] = state

    def result(self) -> Parsed:
        """Returns the samples and rejections of the body."""
        count = int(self._state[COUNT])
        series = self._series[:count]
        return Parsed(
            series=self._generation.message_table(series),
            series_index=series,
            ts=self._ts[:count],
            values=self._values[:count],
            timeless=int(self._state[TIMELESS]),
            rejections=tuple(self._rejections),
            rejected=self._rejected,
            places=self.places,
        )

    def places(self, rows: Sequence[int]) -> list[int]:
        """Returns the lines of these samples, which are in ascending order. Call ``result`` before.

        The kernel stops where its columns are full: before the line of the next requested sample, or before lines in
        front of it that have no samples. The exact reader then reads line by line until that sample is there.
        """
        self._rewind()
        known = self._generation.view()
        lines, line = [], 0
        for row in rows:
            while self._state[COUNT] <= row:
                self._allocate(row)
                assert self._read_plain(known) != END, "BUG: a second reading of a body finds less than the first"
                line = int(self._state[LINE])
                self._read_exactly()
                known = self._generation.view()
            lines.append(line)
        return lines

    def _initial_state(self) -> I64:
        return np.array([0, 1, 0, 0], np.int64)

    def _rewind(self) -> None:
        """Start again at the first line. The columns of the first reading belong to its ``Parsed``."""
        self._state, self._budget, self._rejected = self._initial_state(), MESSAGE_SERIES_BYTES_MAX, 0

    def _read_plain(self, known: KnownSeries) -> int:
        """Call the kernel; returns its status."""
        raise AssertionError("BUG: a protocol has its own kernel")

    def _enter_new(self) -> bool:
        """Enter series of the next lines that are new to the cache; returns whether there were any."""
        return False

    def _read_exactly(self) -> None:
        """Read the line at the position of the state, and move the state behind it."""
        raise AssertionError("BUG: a protocol has its own exact reader")

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._state[LINE] > MESSAGE_LINES_MAX and self._state[POSITION] < len(self._body):
            raise limit_error("lines in one body", MESSAGE_LINES_MAX)

    def _reject(self, line: int, reason: str, example: str, count: int = 1) -> None:
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(line, reason, example))

    def _add_line(
        self,
        head: bytes,
        *,
        measurement: bytes,
        labels: LabelPairs,
        names: list[bytes],
        values: list[float] | F64,
        time_ms: int | None,
    ) -> None:
        """Add the samples of one line. Their series may be new to the cache."""
        numbers, self._budget = self._generation.resolve_fields(
            head, measurement=measurement, labels=labels, names=names, budget=self._budget
        )
        self._write(numbers, self._rules.now_ms if time_ms is None else time_ms, values)
        if time_ms is None:
            self._state[TIMELESS] += len(numbers)

    def _write(self, numbers: list[int] | int, ts: I64 | list[int] | int, values: list[float] | F64) -> None:
        """Append samples. A single series or a single time counts for all values."""
        start = int(self._state[COUNT])
        end = start + len(values)
        if end > self._series.size:
            self._grow(2 * end)
        self._series[start:end] = numbers
        self._values[start:end] = values
        self._ts[start:end] = ts
        self._state[COUNT] = end

    def _allocate(self, capacity: int) -> None:
        self._series: I32 = np.empty(capacity, np.int32)
        self._ts: I64 = np.empty(capacity, np.int64)
        self._values: F64 = np.empty(capacity, np.float64)

    def _grow(self, capacity: int) -> None:
        count = int(self._state[COUNT])
        for name in ("_series", "_ts", "_values"):
            old = getattr(self, name)
            larger = np.empty(capacity, old.dtype)
            larger[:count] = old[:count]
            setattr(self, name, larger)
