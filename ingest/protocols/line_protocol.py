"""Influx line protocol: the bytes of a body become a ``Parsed``.

Enter by ``parse``. A field's metric is measurement_field, and the measurement alone for a field named ``value``; so two
spellings that join to the same text are the same metric. Tags become labels in any order. Times are whole numbers in
the given precision, kept as ms, rounded down; a line without one gets the server's time. One bad line refuses itself.
The compiled kernel reads what is plain and known; ``line_exact`` reads the rest and holds the whole grammar.
"""

import numpy as np

from ingest.protocols.line_exact import Line, Rules, read_line
from ingest.protocols.line_kernels import (
    COUNT,
    END,
    F64,
    FULL,
    I32,
    I64,
    LINE,
    POSITION,
    TIMELESS,
    Known,
    localise,
    read_lines,
)
from ingest.protocols.series_cache import Generation, SeriesCache, too_much, within_budget
from spm.errors import BadMessage
from spm.limits import (
    FUTURE_MS,
    LINE_BYTES_MAX,
    MESSAGE_LINES_MAX,
    MESSAGE_SAMPLES_MAX,
    MESSAGE_SERIES_BYTES_MAX,
    REJECTIONS_MAX,
)
from spm.wire import Parsed, Rejection

_PRECISIONS = {  # name → (times, per): ms = raw × times // per
    **dict.fromkeys(("", "n", "ns"), (1, 1_000_000)),
    **dict.fromkeys(("u", "us", "µ", "µs"), (1, 1_000)),
    "ms": (1, 1), "s": (1_000, 1), "m": (60_000, 1), "h": (3_600_000, 1),
}  # fmt: skip
_CACHE = SeriesCache()


def parse(body: bytes, *, now_ms: int, precision: str = "ns", cache: SeriesCache = _CACHE) -> Parsed:
    """All samples of a body, in its order. ``BadMessage``: unknown precision; ``LimitExceeded``: a body too rich."""
    if precision not in _PRECISIONS:
        raise BadMessage(
            "unknown precision", got=precision[:20], wanted="one of ns, us, ms, s, m, h", remedy="Leave it out for ns."
        )
    times, per = _PRECISIONS[precision]
    rules = Rules(now_ms=now_ms, times=times, per=per, latest_ms=now_ms + FUTURE_MS)
    reading = _Reading(body if body.endswith(b"\n") else body + b"\n", rules, cache.generation())
    reading.run()
    return reading.parsed()


class _Reading:
    """One body on its way: the kernel's state and columns, and what was refused."""

    def __init__(self, body: bytes, rules: Rules, generation: Generation) -> None:
        self._body, self._rules, self._generation = body, rules, generation
        self._bytes = np.frombuffer(body, np.uint8)
        raw_max = ((rules.latest_ms + 1) * rules.per - 1) // rules.times
        limits = (raw_max, MESSAGE_LINES_MAX, LINE_BYTES_MAX)
        self._numbers: I64 = np.array([rules.now_ms, rules.times, rules.per, *limits], np.int64)
        self._state: I64 = np.array([0, 1, 0, 0], np.int64)
        room = len(body) // 16 + 64
        self._series: I32 = np.empty(room, np.int32)
        self._ts: I64 = np.empty(room, np.int64)
        self._values: F64 = np.empty(room, np.float64)
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
            series=table, series_index=series, ts=self._ts[:count], values=self._values[:count],
            timeless=int(self._state[TIMELESS]), rejections=tuple(self._rejections), rejected=self._rejected,
        )  # fmt: skip

    def _read_plain(self, known: Known) -> int:
        return int(read_lines(self._bytes, self._numbers, known, self._state, self._series, self._ts, self._values))

    def _check_count(self) -> None:
        if self._state[COUNT] > MESSAGE_SAMPLES_MAX:
            raise too_much("samples in one body", MESSAGE_SAMPLES_MAX)
        if self._state[LINE] > MESSAGE_LINES_MAX and self._state[POSITION] < len(self._body):
            raise too_much("lines in one body", MESSAGE_LINES_MAX)

    def _read_exactly(self) -> None:
        line = read_line(self._body, int(self._state[POSITION]), self._rules)
        for reason, example in line.faults:
            self._reject(int(self._state[LINE]), reason, example)
        if line.names:
            self._keep(line)
        self._state[POSITION] = line.after
        self._state[LINE] += line.newlines

    def _reject(self, line: int, reason: str, example: str) -> None:
        self._rejected += 1
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(line, reason, example))

    def _keep(self, line: Line) -> None:
        numbers, self._budget = self._generation.series(
            line.head, measurement=line.measurement, tags=line.tags, names=line.names, budget=self._budget
        )
        start = int(self._state[COUNT])
        end = start + len(numbers)
        if end > self._series.size:
            self._grow(2 * end)
        self._series[start:end] = numbers
        self._values[start:end] = line.values
        self._ts[start:end] = self._rules.now_ms if line.time_ms is None else line.time_ms
        self._state[COUNT] = end
        if line.time_ms is None:
            self._state[TIMELESS] += len(numbers)

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
