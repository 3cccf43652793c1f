"""Values that are opened in part: pages of a few series each, packed together and unpacked one by one.

A query for some of a metric's series would otherwise unpack all of them: 360,000 values of an hour for the 2,880 of
eight hosts. All pages of a column have one scale and one set of pcodec's tables, so that small pages cost little room;
each has a checksum, so that damage sets aside the series of its page alone. A page ends with the series by which it has
``PAGE_VALUES`` values; a series of more than ``SERIES_VALUES_MAX`` is cut inside. Enter by ``pack``, ``PagedValues``.
"""

import itertools
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numba import njit
from pcodec import wrapped

from spm.arrays import F64, I32, I64, U32
from spm.errors import CorruptBlock
from spm.fast_dataclass import dataclass
from spm.limits import COLUMN_VALUES_MAX
from spm.store.encoding import codec
from spm.store.encoding.codec import Column

PAGE_VALUES = 2_048  # about 8 series of an hour at 10 s: smaller pages take more room, larger ones more time
PAGED_FROM = 16_384  # values; fewer are unpacked together, and kept so: a directory would take an eighth more room
SERIES_VALUES_MAX = 65_536
GROUP_VALUES_MAX = 65_536  # unpacked before they are copied: half a megabyte stays in the processor's cache
_FLOATS = -1  # in the place of a scale: values that are no decimals
_local = threading.local()
_numbers = itertools.count()


def pack(values: F64, counts: I32) -> tuple[dict[str, Column], bytes]:
    """Pack the values of series with these counts: the columns of the directory, and the pages one after the other."""
    sizes = page_sizes(counts, PAGE_VALUES, SERIES_VALUES_MAX)
    scale, numbers, missed = codec.split_decimals(values)
    compressor = wrapped.FileCompressor()
    chunk = compressor.chunk_compressor(numbers, codec.paged_config(numbers, sizes.tolist()))
    pages = [chunk.write_page(number) for number in range(len(sizes))]
    directory: dict[str, Column] = {
        "page_values": sizes,
        "page_bytes": np.array([len(page) for page in pages], np.int32),
        "page_hash": np.array([zlib.crc32(page) for page in pages], np.uint32),
        "scale": np.array([scale], np.int32),
        "missed": missed,
        "missed_bits": values.view(np.int64)[missed],
        "tables": np.frombuffer(compressor.write_header() + chunk.write_meta(), np.uint8),
    }
    return directory, b"".join(pages)


@njit(cache=True, nogil=True)
def page_sizes(counts: I32, page_values: int, series_values_max: int) -> I32:
    """Return how many values each page of series with these counts has; see ``PAGE_VALUES``."""
    sizes, pages, size = np.empty(len(counts) + int(counts.sum()) // series_values_max + 1, np.int32), 0, 0
    for count in counts:
        size += count
        while size > series_values_max:
            sizes[pages] = series_values_max
            pages, size = pages + 1, size - series_values_max
        if size >= page_values:
            sizes[pages] = size
            pages, size = pages + 1, 0
    if size:
        sizes[pages] = size
        pages += 1
    return sizes[:pages]


@dataclass(frozen=True, slots=True)
class PagedValues:
    """Packed values, and where their pages lie."""

    ends: I64  # [P] number of values up to the end of each page
    offsets: I64  # [P + 1] of the pages' bytes in ``packed``
    hashes: U32  # [P]
    scale: int  # decimal digits after the point, or -1
    missed: I32  # [M] places of the values that are no such decimals, ascending
    missed_bits: I64  # [M] their bits
    tables: bytes
    packed: bytes
    number: int = field(default_factory=_numbers.__next__)  # names these values among all of a process

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        columns = (self.ends, self.offsets, self.hashes, self.missed, self.missed_bits)
        return sum(column.nbytes for column in columns) + len(self.tables) + len(self.packed)

    @classmethod
    def of(cls, directory: Mapping[str, Column], packed: bytes, count: int) -> "PagedValues":
        """Read a directory; raise ``CorruptBlock`` where it does not fit the pages, or the ``count`` of values."""
        sizes, lengths, hashes, scale, missed, missed_bits, tables = (directory[name] for name in DIRECTORY)
        ends, offsets = np.cumsum(sizes, dtype=np.int64), np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        fits = (
            len(sizes) == len(lengths) == len(hashes)
            and len(scale) == 1
            and _FLOATS <= scale[0] < codec.SCALES
            and not (sizes < 1).any()
            and not (lengths < 0).any()
            and len(ends) > 0
            and ends[-1] == count <= COLUMN_VALUES_MAX
            and offsets[-1] == len(packed)
            and len(missed) == len(missed_bits)
            and not (len(missed) and (missed[0] < 0 or missed[-1] >= count or (np.diff(missed) <= 0).any()))
        )
        if not fits:
            raise CorruptBlock("a directory of pages does not fit its values", got=len(packed), wanted=int(offsets[-1]))
        return cls(ends, offsets, hashes, int(scale[0]), missed, missed_bits, tables.tobytes(), packed)

    def page_of(self, places: I64) -> I64:
        """Return the number of the page in which each value lies."""
        pages: I64 = np.minimum(np.searchsorted(self.ends, places, side="right"), len(self.ends) - 1)
        return pages

    def damaged(self) -> list[int]:
        """Return the numbers of the pages that fail their checksum."""
        packed, offsets = memoryview(self.packed), self.offsets.tolist()
        return [
            number
            for number, known in enumerate(self.hashes.tolist())
            if zlib.crc32(packed[offsets[number] : offsets[number + 1]]) != known
        ]

    def whole(self) -> F64:
        """Return all values, in a new array; raise ``CorruptBlock``."""
        count = int(self.ends[-1])
        pages, values = range(len(self.ends)), np.empty(count)
        if self.scale == _FLOATS:
            self._unpack(self._decompressor(), pages, values)
            return values
        numbers = values.view(np.int64)  # in place
        self._unpack(self._decompressor(), pages, numbers)
        values[:] = numbers
        if self.scale:
            values /= 10.0**self.scale
        values.view(np.int64)[self.missed] = self.missed_bits
        return values

    def take(self, plan: "TakePlan", out: F64) -> None:
        """Copy the planned values to the beginning of ``out``; raise ``CorruptBlock``."""
        chunk = self._decompressor()
        for group in plan.groups:
            self._take(chunk, *group, out)

    def unpacked(self, pages: Sequence[int]) -> list[F64]:
        """Return the values of each of these pages; raise ``CorruptBlock``."""
        chunk, columns = self._decompressor(), list[F64]()
        for page in pages:
            begin = int(self.ends[page - 1]) if page else 0
            size = int(self.ends[page]) - begin
            columns.append(np.empty(size))
            self._take(chunk, [page], np.array([[0, 0, size, begin]], np.int64), size, columns[-1])
        return columns

    def _take(self, chunk: wrapped.ChunkDecompressor, pages: Sequence[int], copies: I64, count: int, out: F64) -> None:
        """Unpack the ``count`` values of these pages, and make the copies of a plan."""
        numbers = _scratch(count)
        if self.scale == _FLOATS:
            floats = numbers.view(np.float64)
            self._unpack(chunk, pages, floats)
            _copy_floats(floats, copies, out)
        else:
            self._unpack(chunk, pages, numbers)
            _copy_decimals(numbers, copies, 10.0**self.scale, self.missed, self.missed_bits, out)

    def _decompressor(self) -> wrapped.ChunkDecompressor:
        """Return one for this call: no two threads may share one."""
        kind = "f64" if self.scale == _FLOATS else "i64"
        try:
            decompressor, read = wrapped.FileDecompressor.new(self.tables)
            return decompressor.chunk_decompressor(self.tables[read:], kind)[0]
        except (ValueError, TypeError, RuntimeError) as error:
            raise CorruptBlock(f"the tables of a chunk's pages are damaged: {error}", got=kind) from error

    def _unpack(self, chunk: wrapped.ChunkDecompressor, pages: Sequence[int], into: Column) -> None:
        """Unpack these pages one after the other."""
        offsets, ends, at = self.offsets, self.ends, 0
        try:
            for page in pages:
                size = int(ends[page] - (ends[page - 1] if page else 0))
                progress, _ = chunk.read_page_into(
                    self.packed[offsets[page] : offsets[page + 1]], size, into[at : at + size]
                )
                if progress.n_processed != size or not progress.finished:
                    raise ValueError(f"a page of {progress.n_processed} values or more")
                at += size
        except (ValueError, TypeError, RuntimeError) as error:
            raise CorruptBlock(f"a page does not unpack: {error}", got=len(into)) from error


DIRECTORY = ("page_values", "page_bytes", "page_hash", "scale", "missed", "missed_bits", "tables")


@dataclass(frozen=True, slots=True)
class TakePlan:
    """Which pages hold some wanted runs of values, and what is copied from each: valid for equal ``ends``.

    Pages are unpacked in groups, each with its copies (I64[C, 4]: place in the unpacked pages, place in the result,
    number of values, place in the column) and the number of its values.
    """

    groups: Sequence[tuple[Sequence[int], I64, int]]

    @classmethod
    def of(cls, first: I64, counts: I32, ends: I64) -> "TakePlan":
        """Plan to take runs of ``counts`` values from ``first`` on, in ascending order, one after the other."""
        pages, copies, groups = _plan(first, counts, ends)
        numbers, plan, begin, begin_copies = pages.tolist(), [], 0, 0
        for end, end_copies, values in groups.tolist():
            plan.append((numbers[begin:end], copies[begin_copies:end_copies], values))
            begin, begin_copies = end, end_copies
        return cls(plan)


@njit(cache=True, nogil=True)
def _plan(first: I64, counts: I32, ends: I64) -> Any:
    """Return (pages, copies, per group: number of pages and of copies up to its end, values of its pages)."""
    pages, copies = np.empty(len(ends), np.int64), np.empty((len(first) + len(ends), 4), np.int64)
    groups = np.zeros((len(ends), 3), np.int64)
    used, size, group, base, to, page = 0, 0, 0, 0, 0, -1  # ``base``: where the last used page is unpacked
    for run in range(len(first)):
        at, end = first[run], first[run] + counts[run]
        while at < end:
            here = np.searchsorted(ends, at, side="right")
            begin = ends[here - 1] if here else 0
            if here != page:
                if groups[group, 2] + ends[here] - begin > GROUP_VALUES_MAX and groups[group, 2]:
                    group += 1
                base = groups[group, 2]
                groups[group, 2] += ends[here] - begin
                pages[used], page, used = here, here, used + 1
            count = min(end, ends[here]) - at
            copies[size] = base + at - begin, to, count, at
            size, to, at = size + 1, to + count, at + count
            groups[group, 0], groups[group, 1] = used, size
    return pages[:used], copies[:size], groups[: group + 1 if used else 0]


@njit(cache=True, nogil=True)
def _copy_floats(numbers: F64, copies: I64, out: F64) -> None:
    for source, to, count, _ in copies:
        out[to : to + count] = numbers[source : source + count]


@njit(cache=True, nogil=True)
def _copy_decimals(numbers: I64, copies: I64, divisor: float, missed: I32, missed_bits: I64, out: F64) -> None:
    bits = out.view(np.int64)
    for source, to, count, at in copies:
        for i in range(count):
            out[to + i] = numbers[source + i] / divisor
        for miss in range(np.searchsorted(missed, at), np.searchsorted(missed, at + count)):
            bits[to + missed[miss] - at] = missed_bits[miss]


def _scratch(values: int) -> I64:
    """Return this thread's array for so many values: fresh memory costs more than unpacking into it."""
    scratch: I64 | None = getattr(_local, "scratch", None)
    if scratch is None or len(scratch) < values:
        scratch = _local.scratch = np.empty(max(values, 1 << 16), np.int64)
    return scratch[:values]


def warm() -> None:
    """Compile the kernels: a rehearsal has too few samples for pages."""
    counts = np.full(2, 2, np.int32)
    for values in (np.arange(4.0), np.sqrt(np.arange(4.0))):
        directory, packed = pack(values, counts)
        PagedValues.of(directory, packed, len(values)).take(
            TakePlan.of(np.zeros(1, np.int64), counts[:1], np.full(1, len(values), np.int64)), np.empty(2)
        )
