"""One body of lines on its way: a compiled kernel for what is plain and known, an exact reader for the rest.

``Reading`` holds the columns that both write to and lets them take turns. A protocol says how its kernel is called
(``_read_plain``) and what its exact reader makes of one line (``_read_exactly``). Enter by ``run``, then ``parsed``;
``places`` finds the lines of some samples by a second reading, so that the first need not write them down.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.protocols.common.line_kernels import COUNT, END, FULL, LINE, POSITION, TIMELESS
from ingest.protocols.common.series_cache import Generation, Tags, too_much, within_budget
from ingest.protocols.common.series_kernels import KnownSeries, localise
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
class Rules:
    """How times are read: ms = raw × times // per, kept between 1 and ``latest_ms``; ``now_ms`` where there is none."""

    now_ms: int
    times: int
    per: int
    latest_ms: int

    @property
    def unit(self) -> str:
        """The unit's name, where it is one that people mistake for another."""
        return {(1, 1_000_000): "ns", (1, 1_000): "us", (1, 1): "ms", (1_000, 1): "s"}.get((self.times, self.per), "")


class Reading:
    """The kernel's state and columns, and what was refused."""

    def __init__(self, body: bytes, rules: Rules, generation: Generation, room: int = 0) -> None:
        self._body, self._rules, self._generation = body, rules, generation
        self._bytes = np.frombuffer(body, np.uint8)
        raw_max = ((rules.latest_ms + 1) * rules.per - 1) // rules.times
        limits = (raw_max, MESSAGE_LINES_MAX, LINE_BYTES_MAX)
        self._numbers: I64 = np.array([rules.now_ms, rules.times, rules.per, *limits], np.int64)
        self._state: I64 = self._beginning()
        self._make_room(room or len(body) // 16 + 64)
        self._rejections: list[Rejection] = []
        self._rejected = 0
        self._budget = MESSAGE_SERIES_BYTES_MAX

    def run(self) -> None:
        """Kernel and exact reader take turns until the body ends."""
        known = self._generation.view()
        while (status := self._read_plain(known)) != END:
            self._check_count()
            # With more free room than a line can fill, FULL means a line that is too long.
            if status == FULL and self._series.size - self._state[COUNT] < LINE_BYTES_MAX // 4:
                self._grow(2 * self._series.size)
            else:
                self._read_exactly()
                known = self._generation.view()
        self._check_count()

    def parsed(self) -> Parsed:
        """What the body gave."""
        count = int(self._state[COUNT])
        series = self._series[:count]
        table = self._generation.table(self._localise(series))
        within_budget(MESSAGE_SERIES_BYTES_MAX - int((table.ends - table.starts).sum()))
        return Parsed(
            series=table,
            series_index=series,
            ts=self._ts[:count],
            values=self._values[:count],
            timeless=int(self._state[TIMELESS]),
            rejections=tuple(self._rejections),
            rejected=self._rejected,
            places=self.places,
        )

    def places(self, rows: Sequence[int]) -> list[int]:
        """The lines of these samples, which come in rising order; ``parsed`` has been asked before.

        The kernel stops where its columns have no more room: before the line of the next sample asked for, or before
        lines in front of it that give none. The exact reader then takes line by line until it has that sample.
        """
        self._rewind()
        known = self._generation.view()
        found, line = [], 0
        for row in rows:
            while self._state[COUNT] <= row:
                self._make_room(row)
                assert self._read_plain(known) != END, "BUG: a second reading of a body finds less than the first"
                line = int(self._state[LINE])
                self._read_exactly()
                known = self._generation.view()
            found.append(line)
        return found

    def _beginning(self) -> I64:
        """The state before anything is read."""
        return np.array([0, 1, 0, 0], np.int64)

    def _rewind(self) -> None:
        """Begin again; what was told and given already is another's."""
        self._state, self._budget, self._rejected = self._beginning(), MESSAGE_SERIES_BYTES_MAX, 0

    def _read_plain(self, known: KnownSeries) -> int:
        """Call the kernel; its status."""
        raise AssertionError("BUG: a protocol has its own kernel")

    def _read_exactly(self) -> None:
        """Take the one line at the state's position, and move the state behind it."""
        raise AssertionError("BUG: a protocol has its own exact reader")

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise too_much("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._state[LINE] > MESSAGE_LINES_MAX and self._state[POSITION] < len(self._body):
            raise too_much("lines in one body", MESSAGE_LINES_MAX)

    def _reject(self, line: int, reason: str, example: str, count: int = 1) -> None:
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(line, reason, example))

    def _keep(
        self,
        head: bytes,
        *,
        measurement: bytes,
        tags: Tags,
        names: list[bytes],
        values: list[float],
        time_ms: int | None,
    ) -> None:
        """One line's samples, of series that the cache may not know yet."""
        numbers, self._budget = self._generation.series(
            head, measurement=measurement, tags=tags, names=names, budget=self._budget
        )
        self._write(numbers, self._rules.now_ms if time_ms is None else time_ms, values)
        if time_ms is None:
            self._state[TIMELESS] += len(numbers)

    def _write(self, numbers: list[int] | int, ts: I64 | list[int] | int, values: list[float] | F64) -> None:
        """Behind what is there: samples of these series (or all of one) and times (or all of one)."""
        start = int(self._state[COUNT])
        end = start + len(values)
        if end > self._series.size:
            self._grow(2 * end)
        self._series[start:end] = numbers
        self._values[start:end] = values
        self._ts[start:end] = ts
        self._state[COUNT] = end

    def _make_room(self, room: int) -> None:
        """New columns."""
        self._series: I32 = np.empty(room, np.int32)
        self._ts: I64 = np.empty(room, np.int64)
        self._values: F64 = np.empty(room, np.float64)

    def _grow(self, room: int) -> None:
        count = int(self._state[COUNT])
        for name in ("_series", "_ts", "_values"):
            old = getattr(self, name)
            larger = np.empty(room, old.dtype)
            larger[:count] = old[:count]
            setattr(self, name, larger)

    def _localise(self, series: I32) -> I32:
        """Replace the cache's numbers by places in the message's own table; the numbers in that order."""
        marks = self._generation.borrow_marks()
        found: I32 = np.empty(min(len(series), marks.size), np.int32)
        count = int(localise(series, marks, found))
        self._generation.return_marks(marks)
        return found[:count]
