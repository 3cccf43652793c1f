"""Generations: writes merged versions of a HourShard to rows of `chunks`, `timelines` and `inputs`, and reads them.

Enter by ``paginate`` (the run) and ``read_generation`` (reader and run). Times and stamps are stored once per timeline,
values once per series. Pages are written first, then the inputs, then the manifest is published. A page that the
directory in the inputs does not list holds no data; a listed page that is missing is an ``IntegrityError``, never "no
data" (PROTOCOL 10).
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from spm import limits
from spm.arrays import I32, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.store import keys
from spm.store.backends.base import Reader, RowPut
from spm.store.encoding import blocks, kernels
from spm.store.encoding.blocks import Messages, TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.encoding.codec import Column
from spm.store.manifest import Generation, Replay, named_sources
from spm.store.versions.merge import Piece

FORM = 3  # of the rows that are written now: 2 has inputs as columns and stamps as lags after times, 3 values in pages
COLUMN = b"v"
_PAGE_BITS_MAX = 16  # a key has two bytes for the page


class Inputs(msgspec.Struct, frozen=True, array_like=True):
    """The inputs row of a generation: its parents, every batch inside it, and the directory of its pages."""

    parents: tuple[int, ...]
    batches: tuple[Replay, ...]  # its own and its parents', transitively (PROTOCOL 16)
    pages: dict[int, tuple[int, ...]]  # metric id -> chunk pages
    timeline_pages: int
    samples: int
    stamp_min_ms: int
    stamp_max_ms: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HourShard:
    """The part of an app's hour in one shard, which one task of a run merges."""

    shard: int
    app: int
    hour: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The rows of a generation, to be put in this order; the manifest then names ``generation``."""

    generation: Generation
    chunks: list[RowPut]
    timelines: list[RowPut]
    inputs: RowPut


def paginate(
    at: HourShard,
    number: int,
    piece: Piece,
    *,
    parents: Collection[int],
    batches: Collection[Replay],
    samples_max: int = limits.PAGE_SAMPLES_MAX,
) -> Pages:
    """Build the rows of generation ``number`` from a merged piece. Pure.

    1. Series with equal (ts, message) columns share a timeline.
    2. The timelines are cut into pages of at most about ``samples_max`` rows.
    3. Each metric's series are cut into pages by the top bits of their ids.
    """
    timeline, representatives, _ = kernels.find_timelines(piece.counts, piece.ts, piece.message)
    starts = np.cumsum(piece.counts, dtype=np.int64) - piece.counts
    shift = _shift(piece.counts[representatives], samples_max)
    generation = Generation(number, _page_bits(piece, samples_max), shift, FORM)
    chunks, directory = _chunk_rows(at, generation, piece, starts, timeline)
    pools = _timeline_rows(at, generation, piece, starts, representatives)
    inputs = Inputs(
        parents=tuple(sorted(parents)),
        batches=tuple(sorted(set(batches))),
        pages=directory,
        timeline_pages=len(pools),
        samples=len(piece),
        stamp_min_ms=int(piece.messages.ms.min()) if len(piece.messages) else 0,
        stamp_max_ms=int(piece.messages.ms.max()) if len(piece.messages) else 0,
        sources=named_sources(piece.messages.sources),
    )
    key = keys.inputs(at.shard, at.app, at.hour, number)
    return Pages(generation, chunks, pools, (key, {COLUMN: encode_inputs(inputs)}))


def _page_bits(piece: Piece, samples_max: int) -> int:
    """So many bits that a page of the largest metric stays within the bound; a series counts as two samples."""
    if not len(piece):
        return 0
    _, first = np.unique(piece.metrics, return_index=True)
    largest = int(np.add.reduceat(piece.counts.astype(np.int64) + 2, first).max())
    return min(_PAGE_BITS_MAX, (largest // samples_max).bit_length())


def _shift(lengths: I32, samples_max: int) -> int:
    """Return the exponent s of the 2^s timelines that a page holds.

    A page of the longest timelines still fits into ``samples_max``, and the pages are no more than keys can name.
    """
    longest = int(lengths.max()) if len(lengths) else 1
    return max(0, (samples_max // max(1, longest)).bit_length() - 1, len(lengths).bit_length() - _PAGE_BITS_MAX)


def _chunk_rows(
    at: HourShard, generation: Generation, piece: Piece, starts: I64, timeline: I32
) -> tuple[list[RowPut], dict[int, tuple[int, ...]]]:
    shift = np.uint64(64 - generation.page_bits) if generation.page_bits else None
    pages = np.zeros(len(piece.series), np.uint64) if shift is None else piece.series >> shift
    cuts = np.flatnonzero((np.diff(piece.metrics) != 0) | (np.diff(pages) != 0)) + 1
    rows: list[RowPut] = []
    directory: dict[int, tuple[int, ...]] = {}
    for part in np.split(np.arange(len(piece.series)), cuts) if len(piece.series) else []:
        first, last = int(part[0]), int(part[-1])
        begin, end = int(starts[first]), int(starts[last]) + int(piece.counts[last])
        metric, page = int(piece.metrics[first]), int(pages[first])
        body = ChunkPage(piece.series[part], timeline[part], piece.counts[part], piece.values[begin:end])
        key = keys.chunk(at.shard, at.app, metric, at.hour, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
        directory[metric] = (*directory.get(metric, ()), page)
    return rows, directory


def _timeline_rows(
    at: HourShard, generation: Generation, piece: Piece, starts: I64, representatives: I32
) -> list[RowPut]:
    rows: list[RowPut] = []
    size = 1 << generation.timeline_shift
    for page, first in enumerate(range(0, len(representatives), size)):
        part = representatives[first : first + size]
        counts = piece.counts[part]
        rows_taken = kernels.take_segments(starts[part], counts, int(counts.sum()))
        used, message = _renumber_by_first_use(piece.message[rows_taken])
        body = TimelinesPage(_messages_in_use(piece.messages, used), counts, piece.ts[rows_taken], message)
        key = keys.timeline(at.shard, at.app, at.hour, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
    return rows


def _renumber_by_first_use(message: I32) -> tuple[I32, I32]:
    """Renumber messages in the order of their first use, so that a source's are neighbours and its numbers ascend.

    On 100 hosts this saves half of the bytes of the timelines. The numbers in a page say nothing about the order of
    stamps: the rows are in that order already, and ``merge`` assigns new numbers.
    """
    used, first, number = np.unique(message, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(used), np.int32)
    place[order] = np.arange(len(used), dtype=np.int32)
    return used[order], place[number]


def _messages_in_use(messages: Messages, used: I32) -> Messages:
    """The message table with these rows only, and with the sources that they name."""
    source_numbers, source = np.unique(messages.source[used], return_inverse=True)
    sources = tuple(messages.sources[i] for i in source_numbers)
    m = messages
    return Messages(m.ms[used], m.process[used], m.sequence[used], source.astype(np.int32), sources)


def inputs_key(at: HourShard, generation: Generation) -> bytes:
    """The key of a generation's inputs."""
    return keys.inputs(at.shard, at.app, at.hour, generation.number)


def encode_inputs(inputs: Inputs) -> bytes:
    """Encode the inputs. Batches are sorted by number, since those of one writer follow each other."""
    batch = np.array([b.batch for b in inputs.batches], np.uint64)
    ingest_ms = np.array([b.ingest_ms for b in inputs.batches], np.int64)
    order = np.lexsort((ingest_ms, batch))
    names = msgspec.msgpack.encode(inputs.sources)
    columns: dict[str, Column] = {
        "parent": np.array(inputs.parents, np.uint64),
        "batch": batch[order],
        "ingest_ms": ingest_ms[order],
        "metric_hash": np.array(list(inputs.pages), np.uint64),
        "counts": np.array([len(pages) for pages in inputs.pages.values()], np.int32),
        "page": np.array([page for pages in inputs.pages.values() for page in pages], np.int32),
        "numbers": np.array(
            [inputs.timeline_pages, inputs.samples, inputs.stamp_min_ms, inputs.stamp_max_ms], np.int64
        ),
        "sources": np.frombuffer(names, np.uint8),
    }
    return blocks.encode_columns(blocks.INPUTS, columns)


def decode_inputs(raw: bytes) -> Inputs:
    """Decode inputs of any version; raise ``CorruptBlock``."""
    version, content = blocks.read(blocks.INPUTS, raw)
    return blocks.as_record(content, Inputs) if version == 1 else _inputs_from_columns(content[0])


def _inputs_from_columns(c: Mapping[str, Column]) -> Inputs:
    counts, pages = c["counts"].tolist(), iter(c["page"].tolist())
    if sum(counts) != len(c["page"]) or len(counts) != len(c["metric_hash"]) or len(c["batch"]) != len(c["ingest_ms"]):
        raise CorruptBlock("the columns of inputs differ in length", got=len(c["page"]), wanted=sum(counts))
    order = np.lexsort((c["batch"], c["ingest_ms"]))
    timeline_pages, samples, stamp_min_ms, stamp_max_ms = c["numbers"].tolist()
    return Inputs(
        parents=tuple(c["parent"].tolist()),
        batches=tuple(map(Replay, c["ingest_ms"][order].tolist(), c["batch"][order].tolist())),
        pages={m: tuple(itertools.islice(pages, n)) for m, n in zip(c["metric_hash"].tolist(), counts, strict=True)},
        timeline_pages=timeline_pages,
        samples=samples,
        stamp_min_ms=stamp_min_ms,
        stamp_max_ms=stamp_max_ms,
        sources=blocks.as_record(c["sources"].tobytes(), tuple[str, ...]),
    )


def read_inputs(reader: Reader, at: HourShard, generation: Generation) -> Inputs | None:
    """Read the generation's inputs; ``None`` when the row is absent (the run never finished, or it was purged)."""
    [row] = reader.get("inputs", [inputs_key(at, generation)])
    return None if row is None else decode_inputs(row[COLUMN])


Page = ChunkPage | TimelinesPage
Fetch = Callable[[str, Sequence[bytes]], list[object | None]]
Directory = Callable[[], Inputs | CorruptBlock | None]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The series to read of a HourShard: metric ids, ascending -> series ids (u64, sorted); ``None``: all of them."""

    series: Mapping[int, U64 | None]


def read_generation(
    fetch: Fetch,
    inputs: Directory,
    at: HourShard,
    generation: Generation,
    request: PageRequest | None,
) -> list[Piece]:
    """Read the pieces of one generation, one per chunk page.

    ``fetch(table, keys)`` returns decoded pages (``None``: no such row) and may cache by key, since rows are
    write-once. Where it returns a ``CorruptBlock``, the series that need the page are left out (a run's ``fetch``
    raises it). ``inputs()`` reads the directory; it is called only when a page is missing or everything is requested.
    Raises ``IntegrityError`` when a listed page is missing: the caller then reads the manifest again.
    """
    chunks = [
        (metric, page, _rows_of_series(page, request.series[metric] if request else None))
        for metric, page in open_chunks(fetch, inputs, at, generation, request)
    ]
    numbers = [page.timeline[rows] >> generation.timeline_shift for _, page, rows in chunks]
    pages = np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int32)
    pool = open_pool(fetch, at, generation, pages)
    pieces = [_piece(metric, page, rows, pool) for metric, page, rows in chunks]
    return [piece for piece in pieces if len(piece)]


def open_chunks(
    fetch: Fetch, inputs: Directory, at: HourShard, generation: Generation, request: PageRequest | None
) -> list[tuple[int, ChunkPage]]:
    """Read the chunk pages of the requested metrics, each with its metric; damaged ones are left out."""
    listing = _list_pages(inputs, at, generation, request)
    results = fetch("chunks", [key for _, key in listing])
    missing = [place for place, page in zip(listing, results, strict=True) if page is None]
    if missing:
        _check_absent(inputs(), missing, at)
    return [(metric, page) for (metric, _), page in zip(listing, results, strict=True) if isinstance(page, ChunkPage)]


def _list_pages(
    inputs: Directory, at: HourShard, generation: Generation, request: PageRequest | None
) -> list[tuple[int, bytes]]:
    def listed(metrics: Iterable[int], page: int) -> Iterator[tuple[int, bytes]]:
        metrics = list(metrics)
        heads = keys.chunk_heads(at.shard, at.app, metrics)
        names = keys.chunks(heads, at.hour, generation.number, page)
        return zip(metrics, names, strict=True)

    if request is None:
        directory = inputs()
        if directory is None:
            raise IntegrityError(f"inputs of generation {generation.number:016x} of {at} are missing")
        pages_of = {} if isinstance(directory, CorruptBlock) else directory.pages
        return [one for metric, pages in pages_of.items() for page in pages for one in listed([metric], page)]
    if not generation.page_bits:
        return list(listed(request.series, 0))
    listing: list[tuple[int, bytes]] = []
    for metric, series in request.series.items():
        if series is None:
            pages = list(range(1 << generation.page_bits))
        else:
            pages = np.unique(series >> np.uint64(64 - generation.page_bits)).tolist()
        listing += [one for page in pages for one in listed([metric], page)]
    return listing


def _check_absent(directory: Inputs | CorruptBlock | None, missing: list[tuple[int, bytes]], at: HourShard) -> None:
    if isinstance(directory, CorruptBlock):
        return
    for metric, key in missing:
        page = keys.parse_chunk(key)[5]
        if directory is None or page in directory.pages.get(metric, ()):
            raise IntegrityError(f"page {page} of metric {metric:016x} of {at} is missing")


def _rows_of_series(page: ChunkPage, series: U64 | None) -> I64:
    if series is None:
        return np.arange(len(page.series))
    if not len(page.series):
        return np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(page.series, series), len(page.series) - 1)  # both are sorted, ids distinct
    rows: I64 = at[page.series[at] == series]
    return rows


@dataclass(frozen=True, slots=True)
class TimelinePool:
    """Timelines of one generation, its pages concatenated. ``rows_of`` looks up rows in ``counts`` (-1: damaged)."""

    messages: Messages
    shift: int
    pages: I64  # numbers of the pages read, ascending
    bases: I64  # where each page's timelines begin in ``counts``; -1 for a damaged one
    counts: I32
    starts: I64
    ts: I64
    message: I32

    def rows_of(self, numbers: I32) -> I64:
        """The row of each timeline number."""
        pages = numbers >> self.shift
        base = self.bases[np.searchsorted(self.pages, pages)]
        return np.where(base < 0, -1, base + (numbers - (pages.astype(np.int64) << self.shift)))


def open_pool(fetch: Fetch, at: HourShard, generation: Generation, pages: I32) -> TimelinePool:
    """Read these pages of timelines (ascending) and concatenate them; usually there is one."""
    shift = generation.timeline_shift
    rows = [keys.timeline(at.shard, at.app, at.hour, generation.number, int(p)) for p in pages]
    results = fetch("timelines", rows) if rows else []
    if any(page is None for page in results):
        raise IntegrityError(f"timelines of generation {generation.number:016x} of {at} are missing")
    readable = [page for page in results if isinstance(page, TimelinesPage)]
    sizes = [len(page.counts) if isinstance(page, TimelinesPage) else -1 for page in results]
    bases = np.cumsum([0, *(max(0, size) for size in sizes)])[:-1]
    counts = _concatenate([page.counts for page in readable], np.int32)
    return TimelinePool(
        messages=_concatenate_messages([page.messages for page in readable]),
        shift=shift,
        pages=pages.astype(np.int64),
        bases=np.where(np.array(sizes, np.int64) < 0, -1, bases),
        counts=counts,
        starts=np.cumsum(counts, dtype=np.int64) - counts,
        ts=_concatenate([page.ts for page in readable], np.int64),
        message=_concatenate(_renumber([(page.message, len(page.messages)) for page in readable]), np.int32),
    )


def _concatenate_messages(tables: Sequence[Messages]) -> Messages:
    """Concatenate message tables. Stamps are in order within each, and no series needs more than one table."""
    if len(tables) == 1:
        return tables[0]
    return Messages(
        ms=_concatenate([t.ms for t in tables], np.int64),
        process=_concatenate([t.process for t in tables], np.int64),
        sequence=_concatenate([t.sequence for t in tables], np.int64),
        source=_concatenate(_renumber([(t.source, len(t.sources)) for t in tables]), np.int32),
        sources=tuple(name for t in tables for name in t.sources),
    )


def _renumber(columns: Sequence[tuple[I32, int]]) -> list[I32]:
    """Renumber row numbers for concatenated tables, from (numbers, size of their table) of each."""
    starts = np.cumsum([0, *(size for _, size in columns)])[:-1]
    return [numbers + np.int32(start) for (numbers, _), start in zip(columns, starts, strict=True)]


def _concatenate(columns: Sequence[np.ndarray], dtype: type[Any]) -> np.ndarray:
    if len(columns) == 1:
        return columns[0]
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _piece(metric: int, page: ChunkPage, chunk_rows: I64, pool: TimelinePool) -> Piece:
    """Join series of one chunk page with their timelines; those with a damaged page of timelines are left out."""
    place = pool.rows_of(page.timeline[chunk_rows])
    if (place < 0).any():
        chunk_rows, place = chunk_rows[place >= 0], place[place >= 0]
    counts = page.counts[chunk_rows]
    check_lengths(metric, counts, pool, place)
    total = int(counts.sum())
    values = page.values_of(chunk_rows)
    rows = kernels.take_segments(pool.starts[place], counts, total)
    metrics = np.full(len(chunk_rows), metric, np.uint64)
    return Piece(pool.messages, page.series[chunk_rows], metrics, counts, pool.message[rows], pool.ts[rows], values)


def check_lengths(metric: int, counts: I32, pool: TimelinePool, place: I64) -> None:
    """Raise ``IntegrityError`` unless each series has as many values as its timeline has times."""
    if not np.array_equal(pool.counts[place], counts):
        raise IntegrityError(f"a chunk of metric {metric:016x} and its timelines differ in length")
