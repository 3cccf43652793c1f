"""Samples to steps: the newest sample before each step, and functions of the samples in a window, over all series.

`sweep` brings the samples of one series together from where they lie, moves two pointers along its times (once for all
series that share them), and asks `overtime` for the value of each window; it pauses now and then to look at the clock.
`instants` is the same for an instant selector. Windows are left-open, (t - range, t]. Functions of windows never see
stale markers: these are taken out first; an instant selector ends a series at them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I32, I64
from spm.fast_dataclass import dataclass
from spm.query.promql.kernels.over_time import FUNCTIONS, RATE, SMOOTH, value
from spm.query.request.batches import SeriesBatch, Tick, nothing
from spm.query.request.threads import hands, shared
from spm.query.samples.pointers import integers_at, unsigned_at
from spm.query.samples.sample_runs import Strips

STALE_BITS = np.uint64(0x7FF0000000000002)
KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})
_NEWEST, _STAMP = -1, -2  # beside the codes of functions
_SHARED_FROM = 1_000_000  # samples and values: below a millisecond of work another hand costs more than it does
VISITS_AT_ONCE = 20_000_000  # samples visited between two looks at the clock: some tens of ms, sorting ten times that


@dataclass(frozen=True, slots=True)
class Steps:
    """Evaluation times: `count` of them from `first_ms`, `step_ms` apart (offset already taken off)."""

    first_ms: int
    step_ms: int
    count: int

    @property
    def last_ms(self) -> int:
        """The latest of them."""
        return self.first_ms + (self.count - 1) * self.step_ms

    @property
    def times(self) -> I64:
        """All of them."""
        return self.first_ms + np.arange(self.count, dtype=np.int64) * self.step_ms


def sweep(
    function: str, found: Strips, steps: Steps, range_ms: int, *parameters: F64, tick: Tick = nothing
) -> tuple[F64, BOOL]:
    """The function's value per series and step, and where it has one. A parameter has one number per step."""
    return _swept(FUNCTIONS[function], found, steps, range_ms, parameters, tick)


def instants(found: Strips, steps: Steps, lookback_ms: int, *, tick: Tick = nothing) -> tuple[F64, BOOL]:
    """The newest sample per series and step, unless it is too old or a stale marker."""
    return _swept(_NEWEST, found, steps, lookback_ms, (), tick)


def stamps(found: Strips, steps: Steps, lookback_ms: int, *, tick: Tick = nothing) -> tuple[F64, BOOL]:
    """The time of the newest sample, in seconds."""
    return _swept(_STAMP, found, steps, lookback_ms, (), tick)


def _swept(
    code: int, found: Strips, steps: Steps, range_ms: int, parameters: Sequence[F64], tick: Tick
) -> tuple[F64, BOOL]:
    """Series that share their lines are taken one after the other, large sweeps by several hands."""
    shape = (len(found.counts), steps.count)
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    numbers = [np.ascontiguousarray(p, np.float64) for p in (*parameters, *[np.zeros(steps.count)] * 2)[:2]]
    order = np.argsort(found.line[found.starts[:-1]], kind="stable")
    many = hands() if found.samples + values.size >= _SHARED_FROM else 1
    parts = np.array_split(order, many) if many > 1 else [order]
    cursors = [(part, np.zeros(2, np.int64)) for part in parts]
    longest = int(found.counts.max(initial=0))

    def go_on(part: I64, cursor: I64) -> bool:
        done: bool = _sweep(
            code,
            found.starts,
            found.values,
            found.line,
            found.times,
            found.lengths,
            part,
            longest,
            steps.first_ms,
            steps.step_ms,
            range_ms,
            numbers[0],
            numbers[1],
            values,
            present,
            cursor,
            VISITS_AT_ONCE,
        )
        return done

    while cursors:
        done = shared([partial(go_on, *each) for each in cursors])
        cursors = [each for each, over in zip(cursors, done, strict=True) if not over]
        if cursors:
            tick()
    return values, present


def paused(step: Callable[[I64], bool], tick: Tick) -> None:
    """Call a kernel that stops after so much work until it is done, with a look at the clock in between."""
    cursor = np.zeros(2, np.int64)
    while not step(cursor):
        tick()


def times(column: I64) -> I64:
    """Contiguous and writeable, so that kernels are compiled for one kind of array only."""
    return np.require(column, np.int64, ("C", "W"))


def numbers(column: F64) -> F64:
    """Likewise for floats, every bit kept."""
    return np.require(column, np.float64, ("C", "W"))


def without_stale(batch: SeriesBatch) -> SeriesBatch:
    """The same samples without stale markers."""
    real = batch.values.view(np.uint64) != STALE_BITS
    if real.all():
        return batch
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(real, dtype=np.int64)))
    return SeriesBatch(batch.labels, before[batch.offsets], batch.ts[real], batch.values[real])


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(
    code: int,
    starts: I64,
    values: I64,
    line: I32,
    times: I64,
    lengths: I64,
    part: I64,
    longest: int,
    first_ms: int,
    step_ms: int,
    range_ms: int,
    first: F64,
    second: F64,
    out: F64,
    present: BOOL,
    cursor: I64,
    visits: int,
) -> bool:
    """Goes on at the cursor (place in the part, step); True when it is done, False when it has visited so many samples.

    1. The values of a series are brought together, and its times, unless the series before has the same lines.
    2. Stale markers are left out, but for the newest sample: there they end a series.
    3. Two pointers find the window of each step.
    """
    ts, held = np.empty(longest, np.int64), np.empty(longest, np.float64)
    low, high = np.empty(out.shape[1], np.int64), np.empty(out.shape[1], np.int64)
    needed = 2 if RATE <= code <= SMOOTH else 1
    before = -1
    for place in range(cursor[0], len(part)):
        series = part[place]
        count, stale = _values_of(series, starts, values, line, lengths, held)
        if before < 0 or not _same_lines(series, before, starts, line):
            _times_of(series, starts, line, times, lengths, ts)
            before = -1
        if stale and code >= 0:
            count = _without_stale(ts, held, count)
            before = -1
        if before < 0:
            _bounds(ts, count, first_ms, step_ms, range_ms, low, high)
        before = -1 if stale and code >= 0 else series
        for step in range(cursor[1], out.shape[1]):
            here, end = low[step], high[step]
            if code < 0:
                if end > here and not _is_stale(held, end - 1):
                    out[series, step] = ts[end - 1] / 1000 if code == _STAMP else held[end - 1]
                    present[series, step] = True
                end = here  # one look, however many samples there are
            elif end - here >= needed:
                t = first_ms + step * step_ms
                out[series, step] = value(code, ts[here:end], held[here:end], t, range_ms, first[step], second[step])
                present[series, step] = True
            visits -= end - here + 1
            if visits < 0:
                cursor[0], cursor[1] = place, step + 1
                return False
        cursor[1] = 0
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _values_of(series: int, starts: I64, values: I64, line: I32, lengths: I64, out: F64) -> Any:
    """How many values there are, and whether any is a stale marker.

    Both arrays are counted from zero: of an index that might be negative a compiler makes one step per value.
    """
    at, found, bits = 0, 0, out.view(np.uint64)
    for strip in range(starts[series], starts[series + 1]):
        count = lengths[line[strip]]
        own, place = unsigned_at(values[strip], count), bits[at : at + count]
        for i in range(count):
            place[i] = own[i]
            found += own[i] == STALE_BITS
        at += count
    return at, found > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _times_of(series: int, starts: I64, line: I32, times: I64, lengths: I64, out: I64) -> None:
    at = 0
    for strip in range(starts[series], starts[series + 1]):
        count = lengths[line[strip]]
        out[at : at + count] = integers_at(times[line[strip]], count)
        at += count


@njit(cache=True, nogil=True, error_model="numpy")
def _same_lines(series: int, other: int, starts: I64, line: I32) -> bool:
    first, second = starts[series], starts[other]
    if starts[series + 1] - first != starts[other + 1] - second:
        return False
    for i in range(starts[series + 1] - first):  # noqa: SIM110  # no generators in a kernel
        if line[first + i] != line[second + i]:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _without_stale(ts: I64, values: F64, count: int) -> int:
    bits = values.view(np.uint64)
    kept = 0
    for i in range(count):
        if bits[i] != STALE_BITS:
            ts[kept], bits[kept] = ts[i], bits[i]
            kept += 1
    return kept


@njit(cache=True, nogil=True, error_model="numpy")
def _is_stale(values: F64, at: int) -> bool:
    return values.view(np.uint64)[at] == STALE_BITS  # type: ignore[no-any-return]


@njit(cache=True, nogil=True, error_model="numpy")
def _bounds(ts: I64, count: int, first_ms: int, step_ms: int, range_ms: int, low: I64, high: I64) -> None:
    """The samples low[step]:high[step] of each window (t - range, t]."""
    begin = end = 0
    for step in range(len(low)):
        t = first_ms + step * step_ms
        while end < count and ts[end] <= t:
            end += 1
        while begin < end and ts[begin] <= t - range_ms:
            begin += 1
        low[step], high[step] = begin, end
