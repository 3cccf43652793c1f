"""Samples as runs per series, read from decoded pages and merged tails without a copy.

A *timeline* is a run of times, shared by all series that were sampled together; a *sample run* is one series' values
along a timeline. The runs of a series follow each other in time. Kernels read values and times through addresses: a
query over millions of samples moves only values, and reads a timeline once for all its series. ``buffers`` keeps the
memory alive that the addresses point into. Beyond ``UNPACKED_SAMPLES`` values stay packed, and have a place in
``packed`` instead of an address until ``SampleRuns.unpacked`` gives them one. Enter by ``SampleRunsBuilder`` (to read)
and ``SampleRuns`` (to evaluate).
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
from spm.errors import QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.query.request.batches import SeriesBatch
from spm.query.request.budget import SAMPLE_BYTES
from spm.query.request.provenance import Provenance
from spm.query.samples.packed_columns import PackedColumn, PackedColumns, PackedPart
from spm.query.samples.pointers import address_of, floats_at, integers_at
from spm.store.encoding.chunk_page import ChunkPage

UNPACKED_SAMPLES = 2_000_000  # of a query that are unpacked at once when they are read: 16 MB
GROUP_SAMPLES = 500_000  # of packed ones that are unpacked together: 4 MB stay near the processor
_PACKED = -(1 << 62)  # added to 8 x the place of a packed value, where an unpacked one has its address
_SPARSE = 3  # so many times as many unwanted values of a part as wanted ones are worth a copy of these
RUN_BYTES = 28  # an address and a timeline number for the run, an address and a length for the timeline


@dataclass(frozen=True, slots=True)
class SampleRuns:
    """E runs of S series along L timelines; those of series i are `starts[i]:starts[i + 1]`."""

    labels: Sequence[dict[str, str]]  # with `__name__`
    counts: I64  # [S] samples of each series
    starts: I64  # [S + 1]
    values: I64  # [E], address of the value at the timeline's first time; of packed ones `_PACKED` + 8 x its place
    timeline: I32  # [E]
    times: I64  # [L], address of the timeline's first time
    lengths: I64  # [L]
    buffers: tuple[object, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    packed: PackedColumns | None = None

    @property
    def samples(self) -> int:
        """The number of all samples."""
        return int(_total(self.counts))

    @property
    def packed_samples(self) -> int:
        """How many of them are packed."""
        return self.packed.samples if self.packed else 0

    @property
    def nbytes(self) -> int:
        """The memory that the samples take."""
        return (self.samples - self.packed_samples) * SAMPLE_BYTES + (self.packed.nbytes if self.packed else 0)

    def groups(self) -> list[I64]:
        """The numbers of all series in groups that are unpacked together: one where no values are packed."""
        if self.packed is None:
            return [np.arange(len(self.counts))]
        rows: I64 = np.argsort(self.packed.ranks)
        before = np.cumsum(self.counts[rows]) - self.counts[rows]
        borders = np.flatnonzero(np.diff(before // GROUP_SAMPLES)) + 1
        return np.split(rows, borders.tolist())

    def unpacked(self, rows: I64) -> SampleRuns:
        """The runs of one of the groups, without labels, all values unpacked; raise ``CorruptBlock``."""
        if self.packed is None:
            return self
        ranks = self.packed.ranks[rows]
        places, begins, column = self.packed.take(int(ranks[0]), int(ranks[-1]) + 1)
        starts, values, timeline = _unpack(
            rows, self.starts, self.values, self.timeline, places, begins, address_of(column)
        )
        buffers = (*self.buffers, column)
        return SampleRuns((), self.counts[rows], starts, values, timeline, self.times, self.lengths, buffers)

    @classmethod
    def of(cls, batch: SeriesBatch) -> SampleRuns:
        """Make runs of a batch: one run and one timeline for each series."""
        ts, values = np.require(batch.ts, np.int64, "C"), np.require(batch.values, np.float64, "C")
        first, counts = batch.offsets[:-1], np.diff(batch.offsets)
        numbers = np.arange(len(counts) + 1, dtype=np.int64)
        return cls(
            batch.labels,
            counts,
            numbers,
            address_of(values) + 8 * first,
            numbers[:-1].astype(np.int32),
            address_of(ts) + 8 * first,
            counts,
            (ts, values),
            batch.provenance,
        )

    @classmethod
    def where(cls, present: BOOL, labels: Sequence[dict[str, str]], times: I64, values: F64) -> SampleRuns:
        """Make runs of values [S, T] of S series at T common times, where present: one for each part without a gap."""
        ts, cells = np.require(times, np.int64, "C"), np.require(values, np.float64, "C")
        counts, starts, first, timeline, begin, lengths = _find_runs(np.require(present, np.bool_, "C"))
        addresses, timelines = address_of(cells) + 8 * first, address_of(ts) + 8 * begin
        return cls(labels, counts, starts, addresses, timeline, timelines, lengths, (ts, cells))

    def batch(self) -> SeriesBatch:
        """Copy the samples into contiguous arrays; raise ``QueryTooLarge`` for packed ones that would take too much."""
        size = self.samples * SAMPLE_BYTES
        if self.packed and size > limits.QUERY_BYTES_MAX:
            raise QueryTooLarge(
                f"the query copies samples of {size // 1_000_000} MB; one query gets at most "
                f"{limits.QUERY_BYTES_MAX // 1_000_000} MB: ask for less time or fewer series"
            )
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts)))
        ts, values = np.empty(int(offsets[-1]), np.int64), np.empty(int(offsets[-1]))
        for rows in self.groups():
            own = self.unpacked(rows)
            _copy_samples(offsets[rows], own.starts, own.values, own.timeline, own.times, own.lengths, ts, values)
        return SeriesBatch(self.labels, offsets, ts, values, self.provenance)


@njit(cache=True, nogil=True)
def _total(counts: I64) -> int:
    total = 0
    for count in counts:
        total += count
    return total


def run_count(present: BOOL) -> int:
    """At most how many runs `SampleRuns.where` makes of these elements; each takes `RUN_BYTES`."""
    return len(present) + int(np.count_nonzero(present[:, 1:] > present[:, :-1]))


@njit(cache=True, nogil=True)
def _find_runs(present: BOOL) -> Any:
    """(elements of each row, its first run; cell and timeline of each run; begin and length of each timeline).

    A row with the same runs as the row before has the same timelines. A row without elements has a run of length 0.
    """
    rows, steps = present.shape
    counts, starts, equal = np.zeros(rows, np.int64), np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_)
    timelines = 0
    for row in range(rows):
        own, runs = present[row], 0
        for step in range(steps):
            counts[row] += own[step]
            runs += own[step] and (step == 0 or not own[step - 1])
        runs = max(runs, 1)
        starts[row + 1] = starts[row] + runs
        equal[row] = row > 0 and runs == starts[row] - starts[row - 1] and np.all(own == present[row - 1])
        timelines += 0 if equal[row] else runs
    first, timeline = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int32)
    begin, lengths = np.empty(timelines, np.int64), np.empty(timelines, np.int64)
    fresh, run = 0, 0
    for row in range(rows):
        step = 0
        while run < starts[row + 1]:
            while counts[row] and not present[row, step]:
                step += 1
            end = step
            while end < steps and present[row, end]:
                end += 1
            first[run] = row * steps + step
            if equal[row]:
                timeline[run] = timeline[run - (starts[row] - starts[row - 1])]
            else:
                timeline[run], begin[fresh], lengths[fresh] = fresh, step, end - step
                fresh += 1
            run, step = run + 1, end
    return counts, starts, first, timeline, begin, lengths


@njit(cache=True, nogil=True)
def _copy_samples(
    places: I64, starts: I64, values: I64, timeline: I32, times: I64, lengths: I64, out_ts: I64, out: F64
) -> None:
    """Copy the samples of each series to its place."""
    for series, at in enumerate(places):
        for run in range(starts[series], starts[series + 1]):
            count = lengths[timeline[run]]
            out_ts[at : at + count] = integers_at(times[timeline[run]], count)
            out[at : at + count] = floats_at(values[run], count)
            at += count


@njit(cache=True, nogil=True)
def _unpack(
    rows: I64, starts: I64, values: I64, timeline: I32, places: I64, begins: I64, address: int
) -> tuple[I64, I64, I32]:
    """(first run of each of these series, and the end; address and timeline of each of their runs).

    ``places`` of packed values, ascending, are unpacked at ``begins`` behind the address.
    """
    first, size = np.zeros(len(rows) + 1, np.int64), 0
    for number, row in enumerate(rows):
        size += starts[row + 1] - starts[row]
        first[number + 1] = size
    addresses, timelines, at = np.empty(size, np.int64), np.empty(size, np.int32), 0
    for row in rows:
        for run in range(starts[row], starts[row + 1]):
            own = values[run]
            if own < 0:
                place = (own - _PACKED) // 8
                stretch = np.searchsorted(places, place, side="right") - 1
                own = address + 8 * (begins[stretch] + place - places[stretch])
            addresses[at], timelines[at] = own, timeline[run]
            at += 1
    return first, addresses, timelines


@dataclass(slots=True)
class SampleRunsBuilder:
    """Builds the runs of selected series part by part in the order of time; cuts them to start_ms < ts ≤ end_ms.

    An *entry* is a run of a part: its series, which of the part's columns its values are in, the place of the first of
    them there, and which of the part's timelines it follows.
    """

    start_ms: int
    end_ms: int
    samples: int = 0
    packed_bytes: int = 0  # of pages whose values stay packed
    _entries: list[I64] = field(default_factory=list)  # of each part, [N, 4]
    _parts: list[tuple[int, int, int]] = field(default_factory=list)  # entries, number of the first column and timeline
    _columns: list[int] = field(default_factory=list)  # their addresses
    _times: list[I64] = field(default_factory=list)
    _lengths: list[I64] = field(default_factory=list)
    _timeline_count: int = 0
    _buffers: list[object] = field(default_factory=list)
    _first_timeline: int = 0  # of the last timelines
    _last_timelines: Timelines | None = None
    _idle_bytes: int = 0  # unselected values, which stay in memory as parts of the same columns
    _packed: list[PackedColumn] = field(default_factory=list)
    _packed_places: int = 0  # places of their values
    _packed_samples: int = 0  # those of them that are not cut off

    @property
    def nbytes(self) -> int:
        """The memory that the samples take which were added."""
        return (self.samples - self._packed_samples) * SAMPLE_BYTES + self.packed_bytes

    def add(
        self, entries: I64, values: Sequence[F64], timelines: Timelines, count: int, addresses: Sequence[int] = ()
    ) -> None:
        """Add runs with values in these columns, along these timelines.

        Entries and ``count`` (samples) refer to the uncut timelines. ``addresses`` are those of the columns, if known.
        """
        if timelines.cut:
            entries, count = _cut(entries, timelines.lengths, timelines.skipped)
        if not count:
            return
        addresses = addresses or [address_of(column) for column in values]
        idle_bytes = 8 * (sum(map(len, values)) - count)
        is_sparse = idle_bytes > max(limits.SAMPLE_RUNS_PART_IDLE_BYTES, _SPARSE * 8 * count)
        if is_sparse or self._idle_bytes + idle_bytes > limits.SAMPLE_RUNS_IDLE_BYTES_MAX:
            column, entries = _copied(np.array(addresses, np.int64), entries, timelines.lengths)
            values, addresses, idle_bytes = [column], [address_of(column)], 0
        self._idle_bytes += idle_bytes
        self._add_entries(entries, timelines, count)
        self._columns += addresses
        self._buffers += values

    def add_packed(
        self, entries: I64, pages: Sequence[ChunkPage], parts: tuple[PackedPart, ...], timelines: Timelines, count: int
    ) -> None:
        """Add runs whose values stay packed, in one column that consists of these parts of pages."""
        column = PackedColumn(pages, parts, self._packed_places)
        self._packed_places += count
        if timelines.cut:
            entries, count = _cut(entries, timelines.lengths, timelines.skipped)
        if not count:
            return
        self._add_entries(entries, timelines, count)
        self._columns.append(_PACKED + 8 * column.begin)
        self._packed.append(column)
        self._packed_samples += count
        self.packed_bytes += column.nbytes

    def _add_entries(self, entries: I64, timelines: Timelines, count: int) -> None:
        self.samples += count
        self._parts.append((len(entries), len(self._columns), self._add_timelines(timelines)))
        self._entries.append(entries)

    def _add_timelines(self, timelines: Timelines) -> int:
        """Add timelines, unless they are the object that the last part had; returns the number of the first."""
        if not self._buffers or self._last_timelines is not timelines:
            self._first_timeline, self._last_timelines = self._timeline_count, timelines
            self._times.append(timelines.addresses)
            self._lengths.append(timelines.lengths)
            self._timeline_count += len(timelines.lengths)
            self._buffers.append(timelines)
        return self._first_timeline

    def build(
        self, ranks: I64, labels: Callable[[I64], Sequence[dict[str, str]]], provenance: Provenance
    ) -> SampleRuns:
        """The runs of those series that have samples, in order; ``labels`` gives labels by number.

        ``ranks`` gives the rank of each series in the order in which pages hold them.
        """
        if not self._parts:
            none = np.empty(0, np.int64)
            no_timeline = none.astype(np.int32)
            return SampleRuns(labels(none), none, np.zeros(1, np.int64), none, no_timeline, none, none, (), provenance)
        parts, columns = np.array(self._parts, np.int64), np.array(self._columns, np.int64)
        entries, times, lengths = _concatenated(self._entries), _concatenated(self._times), _concatenated(self._lengths)
        rows, counts, starts, values, timeline = _place(entries, parts, columns, lengths, len(ranks))
        buffers, packed = tuple(self._buffers), None
        if self._packed:
            packed = PackedColumns(self._packed, ranks[rows], self._packed_samples, self.packed_bytes)
        return SampleRuns(labels(rows), counts, starts, values, timeline, times, lengths, buffers, provenance, packed)


def _concatenated(parts: Sequence[I64]) -> I64:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@njit(cache=True, nogil=True)
def _cut(entries: I64, lengths: I64, skipped: I64) -> Any:
    """(entries along timelines that still have times, how many samples these have)."""
    out, size, count = np.empty_like(entries), 0, 0
    for row, column, first, timeline in entries:
        if lengths[timeline] > 0:
            out[size] = row, column, first + skipped[timeline], timeline
            size, count = size + 1, count + lengths[timeline]
    return out[:size], count


@njit(cache=True, nogil=True)
def _place(entries: I64, parts: I64, columns: I64, lengths: I64, series: int) -> Any:
    """(rows that have entries, samples and first run of each; address and timeline of each run)."""
    runs, samples = np.zeros(series, np.int64), np.zeros(series, np.int64)
    end = 0
    for size, _, first_timeline in parts:
        for entry in range(end, end + size):
            runs[entries[entry, 0]] += 1
            samples[entries[entry, 0]] += lengths[entries[entry, 3] + first_timeline]
        end += size
    rows = np.flatnonzero(runs)
    starts, at = np.zeros(len(rows) + 1, np.int64), np.empty(series, np.int64)
    for number, row in enumerate(rows):
        at[row] = starts[number]
        starts[number + 1] = starts[number] + runs[row]
    values, timelines, end = np.empty(end, np.int64), np.empty(end, np.int32), 0
    for size, first_column, first_timeline in parts:
        for row, column, first, timeline in entries[end : end + size]:
            values[at[row]], timelines[at[row]] = columns[column + first_column] + 8 * first, timeline + first_timeline
            at[row] += 1
        end += size
    return rows, samples[rows], starts, values, timelines


@njit(cache=True, nogil=True)
def _copied(addresses: I64, entries: I64, lengths: I64) -> Any:
    """(one new column with the values of these entries alone, the entries that refer to it)."""
    copied, total = entries.copy(), 0
    for timeline in entries[:, 3]:
        total += lengths[timeline]
    column, at = np.empty(total), 0
    for entry in range(len(entries)):
        count = lengths[entries[entry, 3]]
        column[at : at + count] = floats_at(addresses[entries[entry, 1]] + 8 * entries[entry, 2], count)
        copied[entry, 1], copied[entry, 2] = 0, at
        at += count
    return column, copied


@dataclass(frozen=True, slots=True)
class Timelines:
    """Timelines in one array of times, each from ``skipped`` times after its stored beginning."""

    ts: I64
    first: I64  # [L] where each begins in ``ts``, ``skipped`` included
    lengths: I64  # [L]
    skipped: I64  # [L]
    addresses: I64  # [L] of the first time of each
    cut: bool = False  # whether any may be shorter than stored

    @classmethod
    def of(cls, ts: I64, counts: npt.NDArray[np.integer]) -> Timelines:
        """Timelines with ``counts`` times each, which follow each other in ``ts``."""
        times = np.ascontiguousarray(ts, np.int64)
        return cls(times, *_laid_out(counts, address_of(times)))

    def within(self, start_ms: int, end_ms: int) -> Timelines:
        """Only the times in start_ms < ts ≤ end_ms."""
        clipped = _clip(self.ts, self.first, self.lengths, self.addresses, start_ms, end_ms)
        return Timelines(self.ts, *clipped, cut=True)


@njit(cache=True, nogil=True)
def _laid_out(counts: npt.NDArray[np.integer], address: int) -> tuple[I64, I64, I64, I64]:
    """(first, lengths, skipped, addresses) of timelines that follow each other from an address on."""
    size, at = len(counts), 0
    first, lengths, addresses = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    for timeline, count in enumerate(counts):
        first[timeline], lengths[timeline], addresses[timeline] = at, count, address + 8 * at
        at += count
    return first, lengths, np.zeros(size, np.int64), addresses


@njit(cache=True, nogil=True)
def _clip(ts: I64, first: I64, lengths: I64, addresses: I64, start_ms: int, end_ms: int) -> tuple[I64, I64, I64, I64]:
    """(first, lengths, skipped, addresses) of timelines without the times outside of a range."""
    later, clipped, skipped = np.empty_like(first), np.empty_like(first), np.empty_like(first)
    moved = np.empty_like(first)
    for timeline in range(len(first)):
        own = ts[first[timeline] : first[timeline] + lengths[timeline]]
        before = np.searchsorted(own, start_ms, side="right")
        clipped[timeline] = np.searchsorted(own, end_ms, side="right") - before
        skipped[timeline], later[timeline] = before, first[timeline] + before
        moved[timeline] = addresses[timeline] + 8 * before
    return later, clipped, skipped, moved


@njit(cache=True, nogil=True)
def is_ascending(ts: I64, counts: I32) -> bool:
    """Whether the times of each timeline strictly ascend: then no time of it has two versions."""
    at = 0
    for timeline in range(len(counts)):
        for i in range(at + 1, at + counts[timeline]):
            if ts[i] <= ts[i - 1]:
                return False
        at += counts[timeline]
    return True


def warm() -> None:
    """Compile the kernels of packed values: a rehearsal has too few samples for them."""
    none = np.empty(0, np.int64)
    _copied(none, none.reshape(0, 4), none)
    _unpack(none, np.zeros(1, np.int64), none, np.empty(0, np.int32), none, none, 0)
