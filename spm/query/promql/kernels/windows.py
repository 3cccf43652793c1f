"""Evaluates windows at steps: the newest sample before each step, and functions of the samples in a window.

`sweep` copies the samples of one series together, moves two pointers along its times (once for all series that share
them), and calls `over_time.value` for each window; it stops after a bounded amount of work to check the deadline.
`instants` and `stamps` do so for instant selectors. Windows are left-open, (t - range, t]. A range function gets the
samples without stale markers; for an instant selector they end a series.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I32, I64
from spm.fast_dataclass import dataclass
from spm.query.promql.kernels.over_time import FUNCTIONS, MAD, QUANTILE, RATE, SMOOTH, value
from spm.query.request.batches import DeadlineCheck, SeriesBatch, no_deadline
from spm.query.request.threads import run_parallel, thread_count
from spm.query.samples.pointers import integers_at, unsigned_at
from spm.query.samples.sample_runs import SampleRuns

STALE_BITS = np.uint64(0x7FF0000000000002)
KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})
_NEWEST, _STAMP = -1, -2  # codes beside those of the range functions
_ASIDE_FROM = 50_000  # visits: fewer take as long as to wake a thread of low priority, and delay nobody
_SHARED_FROM = 1_000_000  # samples and values: below a millisecond of work a second thread costs more than it saves
VISITS_AT_ONCE = 2_000_000  # samples between two checks of the deadline: some ms, so that a long query gives way soon
_VISITS_OF_SORTING = 20  # what one sample costs that is sorted, beside one that is added up


@dataclass(frozen=True, slots=True)
class Steps:
    """Evaluation times: `count` of them from `first_ms`, `step_ms` apart (the offset is already subtracted)."""

    first_ms: int
    step_ms: int
    count: int

    @property
    def last_ms(self) -> int:
        """The last time."""
        return self.first_ms + (self.count - 1) * self.step_ms

    @property
    def times(self) -> I64:
        """All times."""
        return _times_of_steps(self.first_ms, self.step_ms, self.count)


@njit(cache=True, nogil=True)
def _times_of_steps(first_ms: int, step_ms: int, count: int) -> I64:
    times = np.empty(count, np.int64)
    for step in range(count):
        times[step] = first_ms + step * step_ms
    return times


def sweep(
    function: str,
    runs: SampleRuns,
    steps: Steps,
    range_ms: int,
    *parameters: F64,
    check_deadline: DeadlineCheck = no_deadline,
) -> tuple[F64, BOOL]:
    """Evaluate a function per series and step; return values and presence. A parameter has one number per step."""
    return _sweep_all(FUNCTIONS[function], runs, steps, range_ms, parameters, check_deadline)


def instants(
    runs: SampleRuns, steps: Steps, lookback_ms: int, *, check_deadline: DeadlineCheck = no_deadline
) -> tuple[F64, BOOL]:
    """Return the newest sample per series and step, unless it is too old or a stale marker."""
    return _sweep_all(_NEWEST, runs, steps, lookback_ms, (), check_deadline)


def stamps(
    runs: SampleRuns, steps: Steps, lookback_ms: int, *, check_deadline: DeadlineCheck = no_deadline
) -> tuple[F64, BOOL]:
    """Return the time of the newest sample per series and step, in seconds."""
    return _sweep_all(_STAMP, runs, steps, lookback_ms, (), check_deadline)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is evaluated of each series."""

    code: int
    steps: Steps
    range_ms: int
    first: F64  # parameters, with a number for each step
    second: F64

    def empty_answer(self, series: int) -> tuple[F64, BOOL]:
        """Values and presence of so many series, for a kernel to fill."""
        shape = (series, self.steps.count)
        return np.empty(shape, np.float64), np.zeros(shape, np.bool_)


@dataclass(frozen=True, slots=True)
class _SeriesSweep:
    """The evaluation of some series of unpacked runs."""

    question: _Question
    runs: SampleRuns
    part: I64  # numbers of the series
    longest: int  # samples of a series
    answer: tuple[F64, BOOL]
    cursor: I64 = field(default_factory=lambda: np.zeros(2, np.int64))

    def go_on(self) -> bool:
        """Evaluate for a bounded time; return whether all is done."""
        question, runs = self.question, self.runs
        done: bool = _sweep(
            question.code,
            runs.starts,
            runs.values,
            runs.timeline,
            runs.times,
            runs.lengths,
            self.part,
            self.longest,
            question.steps.first_ms,
            question.steps.step_ms,
            question.range_ms,
            question.first,
            question.second,
            *self.answer,
            self.cursor,
            VISITS_AT_ONCE,
        )
        return done


def _by_timeline(runs: SampleRuns) -> I64:
    """The numbers of all series, those with common timelines one after the other."""
    return runs.timeline[runs.starts[:-1]].argsort(kind="stable")


def _sweep_all(
    code: int, runs: SampleRuns, steps: Steps, range_ms: int, parameters: Sequence[F64], check_deadline: DeadlineCheck
) -> tuple[F64, BOOL]:
    """Evaluate all series: large batches in several threads, packed ones one group after the other."""
    numbers = [np.ascontiguousarray(p, np.float64) for p in parameters] + [np.zeros(steps.count)] * 2
    question = _Question(code, steps, range_ms, *numbers[:2])
    answer = question.empty_answer(len(runs.counts))
    threads = thread_count() if runs.samples + answer[0].size >= _SHARED_FROM else 1
    visits = runs.samples * max(1, range_ms // max(1, steps.step_ms)) + answer[0].size  # an upper bound
    if runs.packed is None:
        order, longest = _by_timeline(runs), int(runs.counts.max(initial=0))
        parts = np.array_split(order, threads) if threads > 1 else [order]
        _run([_SeriesSweep(question, runs, part, longest, answer) for part in parts], visits, check_deadline)
        return answer
    groups = runs.groups()
    for at in range(0, len(groups), threads):
        # Unpacking holds the interpreter's lock, so it is for this thread alone: others may have a low priority.
        sweeps = [_unpacked_sweep(question, runs.unpacked(rows)) for rows in groups[at : at + threads]]
        _run(sweeps, visits, check_deadline)
        for rows, sweep_ in zip(groups[at : at + threads], sweeps, strict=True):
            for whole, part in zip(answer, sweep_.answer, strict=True):
                whole[rows] = part
        check_deadline()
    return answer


def _unpacked_sweep(question: _Question, own: SampleRuns) -> _SeriesSweep:
    """The evaluation of a group of series, with an answer of its own."""
    answer = question.empty_answer(len(own.counts))
    return _SeriesSweep(question, own, _by_timeline(own), int(own.counts.max(initial=0)), answer)


def _run(sweeps: list[_SeriesSweep], visits: int, check_deadline: DeadlineCheck) -> None:
    """Run sweeps until all are done, beside each other unless they make few visits in all."""
    while sweeps:
        steps = [each.go_on for each in sweeps]
        done = run_parallel(steps) if visits >= _ASIDE_FROM else [step() for step in steps]
        sweeps = [each for each, over in zip(sweeps, done, strict=True) if not over]
        if sweeps:
            check_deadline()


def run_in_slices(step: Callable[[I64], bool], check_deadline: DeadlineCheck) -> None:
    """Call a kernel, which stops after a bounded amount of work, until it is done; check the deadline in between."""
    cursor = np.zeros(2, np.int64)
    while not run_parallel([partial(step, cursor)])[0]:
        check_deadline()


def times(column: I64) -> I64:
    """Make a column contiguous and writeable, so that kernels are compiled for one kind of array only."""
    return np.require(column, np.int64, ("C", "W"))


def numbers(column: F64) -> F64:
    """Make a column of floats contiguous and writeable; every bit stays."""
    return np.require(column, np.float64, ("C", "W"))


def without_stale(batch: SeriesBatch) -> SeriesBatch:
    """Remove the stale markers from a batch."""
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
    timeline: I32,
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
    """Continue at the cursor (place in the part, step); return whether it is done, or False after `visits` samples.

    1. Copy the values of a series together, and its times, unless the series before has the same timelines.
    2. Remove stale markers, except for an instant selector: there they end a series.
    3. Find the window of each step by two pointers.
    """
    ts, numbers = np.empty(longest, np.int64), np.empty(longest, np.float64)
    low, high = np.empty(out.shape[1], np.int64), np.empty(out.shape[1], np.int64)
    needed = 2 if RATE <= code <= SMOOTH else 1
    weight = _VISITS_OF_SORTING if code in (QUANTILE, MAD) else 1
    before = -1
    for place in range(cursor[0], len(part)):
        series = part[place]
        count, stale = _values_of(series, starts, values, timeline, lengths, numbers)
        if before < 0 or not _share_timelines(series, before, starts, timeline):
            _times_of(series, starts, timeline, times, lengths, ts)
            before = -1
        if stale and code >= 0:
            count = _without_stale(ts, numbers, count)
            before = -1
        if before < 0:
            _bounds(ts, count, first_ms, step_ms, range_ms, low, high)
        before = -1 if stale and code >= 0 else series
        for step in range(cursor[1], out.shape[1]):
            here, end = low[step], high[step]
            if code < 0:
                if end > here and not _is_stale(numbers, end - 1):
                    out[series, step] = ts[end - 1] / 1000 if code == _STAMP else numbers[end - 1]
                    present[series, step] = True
                end = here  # one visit, whatever the number of samples
            elif end - here >= needed:
                t = first_ms + step * step_ms
                out[series, step] = value(code, ts[here:end], numbers[here:end], t, range_ms, first[step], second[step])
                present[series, step] = True
            visits -= weight * (end - here) + 1
            if visits < 0:
                cursor[0], cursor[1] = place, step + 1
                return False
        cursor[1] = 0
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _values_of(series: int, starts: I64, values: I64, timeline: I32, lengths: I64, out: F64) -> Any:
    """Copy the values of a series; return their number, and whether any is a stale marker.

    Both arrays are indexed from zero: a compiler does not vectorise an index that might be negative.
    """
    at, stale, bits = 0, 0, out.view(np.uint64)
    for run in range(starts[series], starts[series + 1]):
        count = lengths[timeline[run]]
        own, place = unsigned_at(values[run], count), bits[at : at + count]
        for i in range(count):
            place[i] = own[i]
            stale += own[i] == STALE_BITS
        at += count
    return at, stale > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _times_of(series: int, starts: I64, timeline: I32, times: I64, lengths: I64, out: I64) -> None:
    at = 0
    for run in range(starts[series], starts[series + 1]):
        count = lengths[timeline[run]]
        out[at : at + count] = integers_at(times[timeline[run]], count)
        at += count


@njit(cache=True, nogil=True, error_model="numpy")
def _share_timelines(series: int, other: int, starts: I64, timeline: I32) -> bool:
    first, second = starts[series], starts[other]
    if starts[series + 1] - first != starts[other + 1] - second:
        return False
    for i in range(starts[series + 1] - first):  # noqa: SIM110  # no generators in a kernel
        if timeline[first + i] != timeline[second + i]:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _without_stale(ts: I64, values: F64, count: int) -> int:
    bits = values.view(np.uint64)
    remaining = 0
    for i in range(count):
        if bits[i] != STALE_BITS:
            ts[remaining], bits[remaining] = ts[i], bits[i]
            remaining += 1
    return remaining


@njit(cache=True, nogil=True, error_model="numpy")
def _is_stale(values: F64, at: int) -> bool:
    return values.view(np.uint64)[at] == STALE_BITS  # type: ignore[no-any-return]


@njit(cache=True, nogil=True, error_model="numpy")
def _bounds(ts: I64, count: int, first_ms: int, step_ms: int, range_ms: int, low: I64, high: I64) -> None:
    """Find the samples low[step]:high[step] of each window (t - range, t]."""
    begin = end = 0
    for step in range(len(low)):
        t = first_ms + step * step_ms
        while end < count and ts[end] <= t:
            end += 1
        while begin < end and ts[begin] <= t - range_ms:
            begin += 1
        low[step], high[step] = begin, end
