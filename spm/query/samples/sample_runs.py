"""Samples where they lie: decoded pages and merged tails, cut into the stretches that a query looks at, without a copy.

A *line* is a run of times, shared by all series that were sampled together; a *strip* is one series' values along a
line. The strips of a series follow each other in time. Kernels read them through their addresses, so that a query over
millions of samples moves only values, and looks at the times of a line once for all its series. ``held`` keeps what the
addresses point into. Enter by ``Weaver`` (who reads) and ``Strips`` (who evaluates).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm import limits
from spm.arrays import BOOL, F64, I32, I64
from spm.fast_dataclass import dataclass
from spm.query.request.batches import SeriesBatch
from spm.query.request.provenance import Basis
from spm.query.samples.pointers import address_of, floats_at, integers_at
from spm.store.encoding import kernels

RUN_BYTES = 28  # an address and a line for the strip, an address and a length for the line


@dataclass(frozen=True, slots=True)
class Strips:
    """Strips of S series along L lines; those of series i are `starts[i]:starts[i + 1]` of E."""

    labels: Sequence[dict[str, str]]  # with `__name__`
    counts: I64  # [S] samples of each series
    starts: I64  # [S + 1]
    values: I64  # [E], address of the value that goes with the line's first time
    line: I32  # [E]
    times: I64  # [L], address of a line's first time
    lengths: I64  # [L]
    held: tuple[object, ...] = ()
    basis: Basis = field(default_factory=Basis)

    @property
    def samples(self) -> int:
        """All of them."""
        return int(self.counts.sum())

    @classmethod
    def of(cls, batch: SeriesBatch) -> Strips:
        """A batch as strips: a line for each series."""
        ts, values = np.require(batch.ts, np.int64, "C"), np.require(batch.values, np.float64, "C")
        first, counts = batch.offsets[:-1], np.diff(batch.offsets)
        every = np.arange(len(counts) + 1, dtype=np.int64)
        return cls(
            batch.labels,
            counts,
            every,
            address_of(values) + 8 * first,
            every[:-1].astype(np.int32),
            address_of(ts) + 8 * first,
            counts,
            (ts, values),
            batch.basis,
        )

    @classmethod
    def where(cls, present: BOOL, labels: Sequence[dict[str, str]], times: I64, values: F64) -> Strips:
        """What S series have at T times they share, [S, T], where it is present: a strip for every run of it."""
        ts, cells = np.require(times, np.int64, "C"), np.require(values, np.float64, "C")
        counts, starts, first, line, begin, lengths = _runs(np.require(present, np.bool_, "C"))
        held, lines = address_of(cells) + 8 * first, address_of(ts) + 8 * begin
        return cls(labels, counts, starts, held, line, lines, lengths, (ts, cells))

    def batch(self) -> SeriesBatch:
        """The samples side by side, for whoever needs them so."""
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts)))
        ts, values = np.empty(int(offsets[-1]), np.int64), np.empty(int(offsets[-1]))
        _gather(self.starts, self.values, self.line, self.times, self.lengths, ts, values)
        return SeriesBatch(self.labels, offsets, ts, values, self.basis)


def runs(present: BOOL) -> int:
    """How many runs of elements the rows have at most; each is `RUN_BYTES` of a `Strips.where`."""
    return len(present) + int(np.count_nonzero(present[:, 1:] > present[:, :-1]))


@njit(cache=True, nogil=True)
def _runs(present: BOOL) -> Any:
    """(elements of each row, where its strips begin, cell and line of each strip, where each line begins, its length).

    A row with the same runs as the one before has the same lines. One without elements has a strip of length 0.
    """
    rows, steps = present.shape
    counts, starts, alike = np.zeros(rows, np.int64), np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_)
    lines = 0
    for row in range(rows):
        own, found = present[row], 0
        for step in range(steps):
            counts[row] += own[step]
            found += own[step] and (step == 0 or not own[step - 1])
        found = max(found, 1)
        starts[row + 1] = starts[row] + found
        alike[row] = row > 0 and found == starts[row] - starts[row - 1] and np.all(own == present[row - 1])
        lines += 0 if alike[row] else found
    first, line = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int32)
    begin, lengths = np.empty(lines, np.int64), np.empty(lines, np.int64)
    fresh, strip = 0, 0
    for row in range(rows):
        step = 0
        while strip < starts[row + 1]:
            while counts[row] and not present[row, step]:
                step += 1
            end = step
            while end < steps and present[row, end]:
                end += 1
            first[strip] = row * steps + step
            if alike[row]:
                line[strip] = line[strip - (starts[row] - starts[row - 1])]
            else:
                line[strip], begin[fresh], lengths[fresh] = fresh, step, end - step
                fresh += 1
            strip, step = strip + 1, end
    return counts, starts, first, line, begin, lengths


@njit(cache=True, nogil=True)
def _gather(starts: I64, values: I64, line: I32, times: I64, lengths: I64, out_ts: I64, out: F64) -> None:
    at = 0
    for entry in range(starts[-1]):
        count = lengths[line[entry]]
        out_ts[at : at + count] = integers_at(times[line[entry]], count)
        out[at : at + count] = floats_at(values[entry], count)
        at += count


@dataclass(slots=True)
class Weaver:
    """Strips of chosen series, gathered part by part in the order of time; only what lies between two times.

    An *entry* is a strip before its place is known: its row, in which of its part's columns its values lie, where they
    begin there, and along which of its part's lines.
    """

    start_ms: int
    end_ms: int
    samples: int = 0
    _entries: list[I64] = field(default_factory=list)  # of each part, [N, 4]
    _parts: list[tuple[int, int, int]] = field(default_factory=list)  # strips, number of the first column and line
    _columns: list[int] = field(default_factory=list)  # their addresses
    _times: list[I64] = field(default_factory=list)
    _lengths: list[I64] = field(default_factory=list)
    _lines: int = 0
    _held: list[object] = field(default_factory=list)
    _base: int = 0
    _last: Lines | None = None
    _idle: int = 0  # bytes kept alive that nobody asked for: the rest of their pages

    def add(self, entries: I64, values: Sequence[F64], lines: Lines, count: int, addresses: Sequence[int] = ()) -> None:
        """Strips with values in these columns, along these lines.

        Entries and ``count`` are of what was not cut. ``addresses`` are those of the columns, if known.
        """
        if lines.cut:
            entries, count = _cut(entries, lines.lengths, lines.skipped)
        if not count:
            return
        idle = 8 * (sum(map(len, values)) - count)
        if self._idle + idle > limits.STRIPS_IDLE_BYTES_MAX:
            values, entries = _copied(values, entries, lines.lengths)
            addresses, idle = (), 0
        self._idle += idle
        self.samples += count
        self._parts.append((len(entries), len(self._columns), self._line_of(lines)))
        self._entries.append(entries)
        self._columns += addresses or map(address_of, values)
        self._held += values

    def _line_of(self, lines: Lines) -> int:
        """The number of the first of some lines; those of the part before are the same where they are one object."""
        if not self._held or self._last is not lines:
            self._base, self._last = self._lines, lines
            self._times.append(lines.addresses)
            self._lengths.append(lines.lengths)
            self._lines += len(lines.lengths)
            self._held.append(lines)
        return self._base

    def woven(self, series: int, labels: Callable[[I64], Sequence[dict[str, str]]], basis: Basis) -> Strips:
        """The strips of the rows that have samples, in the order of rows; ``labels`` gives those of some rows."""
        if not self._parts:
            none = np.empty(0, np.int64)
            return Strips(labels(none), none, np.zeros(1, np.int64), none, none.astype(np.int32), none, none, (), basis)
        parts, columns = np.array(self._parts, np.int64), np.array(self._columns, np.int64)
        entries, times, lengths = _one(self._entries), _one(self._times), _one(self._lengths)
        held, counts, starts, values, line = _placed(entries, parts, columns, lengths, series)
        return Strips(labels(held), counts, starts, values, line, times, lengths, tuple(self._held), basis)


def _one(parts: Sequence[I64]) -> I64:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def entries_of(rows: I64, owner: I64, first: I64, line: I64) -> I64:
    """Entries from their columns."""
    return np.stack((rows, owner, first, line), axis=1)


@njit(cache=True, nogil=True)
def _cut(entries: I64, lengths: I64, skipped: I64) -> Any:
    """(entries of lines of which anything is left, how many samples that is)."""
    left, found, count = np.empty_like(entries), 0, 0
    for row, owner, first, line in entries:
        if lengths[line] > 0:
            left[found] = row, owner, first + skipped[line], line
            found, count = found + 1, count + lengths[line]
    return left[:found], count


@njit(cache=True, nogil=True)
def _placed(entries: I64, parts: I64, columns: I64, lengths: I64, series: int) -> Any:
    """(rows that have entries, samples of each, where its strips begin, address and line of each strip)."""
    strips, samples = np.zeros(series, np.int64), np.zeros(series, np.int64)
    end = 0
    for size, _, first_line in parts:
        for entry in range(end, end + size):
            strips[entries[entry, 0]] += 1
            samples[entries[entry, 0]] += lengths[entries[entry, 3] + first_line]
        end += size
    held = np.flatnonzero(strips)
    starts, at = np.zeros(len(held) + 1, np.int64), np.empty(series, np.int64)
    for number, row in enumerate(held):
        at[row] = starts[number]
        starts[number + 1] = starts[number] + strips[row]
    values, lines, end = np.empty(end, np.int64), np.empty(end, np.int32), 0
    for size, first_column, first_line in parts:
        for row, owner, first, line in entries[end : end + size]:
            values[at[row]], lines[at[row]] = columns[owner + first_column] + 8 * first, line + first_line
            at[row] += 1
        end += size
    return held, samples[held], starts, values, lines


def _copied(values: Sequence[F64], entries: I64, lengths: I64) -> tuple[list[F64], I64]:
    """(one column with nothing else in it, the entries there)."""
    rows, owner, first, line = entries.T
    wanted = lengths[line]
    before, column = np.cumsum(wanted) - wanted, np.empty(int(wanted.sum()))
    for number, whole in enumerate(values):
        mine = np.flatnonzero(owner == number)
        taken, count = wanted[mine].astype(np.int32), int(wanted[mine].sum())
        place = kernels.take_segments(before[mine], taken, count)
        column[place] = whole[kernels.take_segments(first[mine], taken, count)]
    return [column], entries_of(rows, np.zeros_like(rows), before, line)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines in one array of times, each from ``skipped`` samples after its beginning."""

    ts: I64
    first: I64  # [L] where each begins in ``ts``, ``skipped`` included
    lengths: I64  # [L]
    skipped: I64  # [L]
    addresses: I64  # [L] of the first time of each
    cut: bool = False  # whether any may be shorter than what was stored

    @classmethod
    def of(cls, ts: I64, counts: npt.NDArray[np.integer]) -> Lines:
        """Lines that lie one after the other."""
        times, lengths = np.require(ts, np.int64, "C"), counts.astype(np.int64)
        first = np.cumsum(lengths) - lengths
        return cls(times, first, lengths, np.zeros(len(lengths), np.int64), address_of(times) + 8 * first)

    def within(self, start_ms: int, end_ms: int) -> Lines:
        """Only what lies in start_ms < ts ≤ end_ms."""
        skipped, lengths = np.empty_like(self.lengths), np.empty_like(self.lengths)
        _clip(self.ts, self.first, self.lengths, start_ms, end_ms, skipped, lengths)
        return Lines(self.ts, self.first + skipped, lengths, skipped, self.addresses + 8 * skipped, cut=True)


@njit(cache=True, nogil=True)
def _clip(ts: I64, first: I64, lengths: I64, start_ms: int, end_ms: int, skipped: I64, kept: I64) -> None:
    for line in range(len(first)):
        own = ts[first[line] : first[line] + lengths[line]]
        skipped[line] = np.searchsorted(own, start_ms, side="right")
        kept[line] = np.searchsorted(own, end_ms, side="right") - skipped[line]


@njit(cache=True, nogil=True)
def ascending(ts: I64, counts: I32) -> bool:
    """Whether every line's times only grow: then no time of it has two versions."""
    at = 0
    for line in range(len(counts)):
        for i in range(at + 1, at + counts[line]):
            if ts[i] <= ts[i - 1]:
                return False
        at += counts[line]
    return True
