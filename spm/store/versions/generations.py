"""Compacted units: from merged versions to rows of `chunks`, `timelines` and `inputs`, and back by exact key.

Enter by ``paginate`` (the run) and ``read_generation`` (reader and run). Times and stamps lie once per timeline, values
once per series. Order of writing: pages, then inputs, then the manifest's flip; a page that its generation's directory
does not list holds no data, a listed page that is missing is an ``IntegrityError``, never "no data" (rule 10).
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
from spm.store.encoding.blocks import ChunkPage, Messages, TimelinesPage
from spm.store.encoding.codec import Column
from spm.store.manifest import Generation, Replay
from spm.store.versions.merge import Piece

FORM = 2  # of the rows that are written now: 2 has inputs as columns, and stamps as lags behind times
COLUMN = b"v"
_PAGE_BITS_MAX = 16  # a key has two bytes for the page


class Inputs(msgspec.Struct, frozen=True, array_like=True):
    """What a generation was made of: its parents, every batch inside it, and the pages it wrote."""

    parents: tuple[int, ...]
    batches: tuple[Replay, ...]  # its own and its parents', transitively (rule 16)
    pages: dict[int, tuple[int, ...]]  # metric id -> chunk pages
    timeline_pages: int
    samples: int
    stamp_min_ms: int
    stamp_max_ms: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HourShardData:
    """Where a unit lies: shard, app, hour."""

    shard: int
    app: int
    hour: int


@dataclass(frozen=True, slots=True)
class Pages:
    """A unit's rows, ready to be put, in this order; ``generation`` goes into the manifest."""

    generation: Generation
    chunks: list[RowPut]
    timelines: list[RowPut]
    inputs: RowPut


def paginate(
    unit: HourShardData,
    number: int,
    piece: Piece,
    *,
    parents: Collection[int],
    batches: Collection[Replay],
    samples_max: int = limits.PAGE_SAMPLES_MAX,
) -> Pages:
    """The rows of generation ``number`` that hold all of ``piece`` (merged). Pure.

    1. series with the same (ts, message) columns share a timeline;
    2. the pool of timelines is cut into pages of at most about ``samples_max`` rows;
    3. each metric's series are cut into pages by the top bits of their ids.
    """
    timeline, standing, _ = kernels.find_timelines(piece.counts, piece.ts, piece.message)
    starts = np.cumsum(piece.counts, dtype=np.int64) - piece.counts
    shift = _shift(piece.counts[standing], samples_max)
    generation = Generation(number, _page_bits(piece, samples_max), shift, FORM)
    chunks, directory = _chunk_rows(unit, generation, piece, starts, timeline)
    pools = _timeline_rows(unit, generation, piece, starts, standing)
    inputs = Inputs(
        parents=tuple(sorted(parents)),
        batches=tuple(sorted(set(batches))),
        pages=directory,
        timeline_pages=len(pools),
        samples=len(piece),
        stamp_min_ms=int(piece.messages.ms.min()) if len(piece.messages) else 0,
        stamp_max_ms=int(piece.messages.ms.max()) if len(piece.messages) else 0,
        sources=piece.messages.sources,
    )
    key = keys.inputs(unit.shard, unit.app, unit.hour, number)
    return Pages(generation, chunks, pools, (key, {COLUMN: encode_inputs(inputs)}))


def _page_bits(piece: Piece, samples_max: int) -> int:
    """So many that a page of the largest metric stays within the bound; a series weighs as much as two samples."""
    if not len(piece):
        return 0
    _, first = np.unique(piece.metrics, return_index=True)
    largest = int(np.add.reduceat(piece.counts.astype(np.int64) + 2, first).max())
    return min(_PAGE_BITS_MAX, (largest // samples_max).bit_length())


def _shift(lengths: I32, samples_max: int) -> int:
    """Timelines per page, as a power of two: few enough for the longest, but never more pages than keys can name."""
    longest = int(lengths.max()) if len(lengths) else 1
    return max(0, (samples_max // max(1, longest)).bit_length() - 1, len(lengths).bit_length() - _PAGE_BITS_MAX)


def _chunk_rows(
    unit: HourShardData, generation: Generation, piece: Piece, starts: I64, timeline: I32
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
        key = keys.chunk(unit.shard, unit.app, metric, unit.hour, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
        directory[metric] = (*directory.get(metric, ()), page)
    return rows, directory


def _timeline_rows(
    unit: HourShardData, generation: Generation, piece: Piece, starts: I64, standing: I32
) -> list[RowPut]:
    rows: list[RowPut] = []
    size = 1 << generation.timeline_shift
    for page, at in enumerate(range(0, len(standing), size)):
        part = standing[at : at + size]
        counts = piece.counts[part]
        taken = kernels.take_segments(starts[part], counts, int(counts.sum()))
        used, message = _by_first_use(piece.message[taken])
        body = TimelinesPage(_only(piece.messages, used), counts, piece.ts[taken], message)
        key = keys.timeline(unit.shard, unit.app, unit.hour, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
    return rows


def _by_first_use(message: I32) -> tuple[I32, I32]:
    """Messages renumbered in the order of their first use: a source's then stand together, and its numbers ascend.

    On 100 hosts this saves half of the pool's bytes. Numbers in a page say nothing about the order of stamps: rows lie
    in it already, and ``merge`` numbers anew.
    """
    used, first, number = np.unique(message, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(used), np.int32)
    place[order] = np.arange(len(used), dtype=np.int32)
    return used[order], place[number]


def _only(messages: Messages, used: I32) -> Messages:
    """The message table with only these rows, and only the sources they name."""
    named, source = np.unique(messages.source[used], return_inverse=True)
    sources = tuple(messages.sources[i] for i in named)
    m = messages
    return Messages(m.ms[used], m.process[used], m.sequence[used], source.astype(np.int32), sources)


def inputs_key(unit: HourShardData, generation: Generation) -> bytes:
    """The key of a generation's inputs."""
    return keys.inputs(unit.shard, unit.app, unit.hour, generation.number)


def encode_inputs(inputs: Inputs) -> bytes:
    """The cell of a generation's inputs. Batches lie by number, since those of one writer follow each other."""
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
    """Inputs from their cell, of any version; raises ``CorruptBlock``."""
    version, found = blocks.read(blocks.INPUTS, raw)
    return blocks.as_record(found, Inputs) if version == 1 else _from_columns(found[0])


def _from_columns(c: Mapping[str, Column]) -> Inputs:
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


def read_inputs(reader: Reader, unit: HourShardData, generation: Generation) -> Inputs | None:
    """The generation's inputs; ``None`` when the row is absent (the run never finished, or it was purged)."""
    [row] = reader.get("inputs", [inputs_key(unit, generation)])
    return None if row is None else decode_inputs(row[COLUMN])


Page = ChunkPage | TimelinesPage
Fetch = Callable[[str, Sequence[bytes]], list[object | None]]
Directory = Callable[[], Inputs | CorruptBlock | None]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What to read of a unit: metric ids -> the series wanted of each (u64, sorted); ``None``: all of them."""

    series: Mapping[int, U64 | None]


def read_generation(
    fetch: Fetch,
    inputs: Directory,
    unit: HourShardData,
    generation: Generation,
    wanted: PageRequest | None,
) -> list[Piece]:
    """The pieces of one generation, one per chunk page found.

    ``fetch(table, keys)`` gives decoded pages (``None``: no such row) and may cache by key, since rows are write-once;
    a ``CorruptBlock`` in the place of a row leaves out what needs it (the run lets it be raised instead).
    ``inputs()`` reads the directory and is asked only when a page is missing or everything is wanted. Raises
    ``IntegrityError`` when a page that must be there is missing: the caller then looks at the manifest again.
    """
    chunks = [
        (metric, page, _chosen(page, wanted.series[metric] if wanted else None))
        for metric, page in open_chunks(fetch, inputs, unit, generation, wanted)
    ]
    numbers = [page.timeline[picked] >> generation.timeline_shift for _, page, picked in chunks]
    pages = np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int32)
    pool = open_pool(fetch, unit, generation, pages)
    pieces = [_piece(metric, page, picked, pool) for metric, page, picked in chunks]
    return [piece for piece in pieces if len(piece)]


def open_chunks(
    fetch: Fetch, inputs: Directory, unit: HourShardData, generation: Generation, wanted: PageRequest | None
) -> list[tuple[int, ChunkPage]]:
    """The chunk pages of the wanted metrics, each with its metric; damaged ones are left out."""
    listing = _listing(inputs, unit, generation, wanted)
    found = fetch("chunks", [key for _, key in listing])
    missing = [place for place, page in zip(listing, found, strict=True) if page is None]
    if missing:
        _absent_or_lost(inputs(), missing, unit)
    return [(metric, page) for (metric, _), page in zip(listing, found, strict=True) if isinstance(page, ChunkPage)]


def _listing(
    inputs: Directory, unit: HourShardData, generation: Generation, wanted: PageRequest | None
) -> list[tuple[int, bytes]]:
    def listed(metrics: Iterable[int], page: int) -> Iterator[tuple[int, bytes]]:
        metrics = list(metrics)
        heads = keys.chunk_heads(unit.shard, unit.app, metrics)
        names = keys.chunks(heads, unit.hour, generation.number, page)
        return zip(metrics, names, strict=True)

    if wanted is None:
        made = inputs()
        if made is None:
            raise IntegrityError(f"inputs of generation {generation.number:016x} of {unit} are missing")
        pages_of = {} if isinstance(made, CorruptBlock) else made.pages
        return [one for metric, pages in pages_of.items() for page in pages for one in listed([metric], page)]
    if not generation.page_bits:
        return list(listed(wanted.series, 0))
    listing: list[tuple[int, bytes]] = []
    for metric, series in wanted.series.items():
        if series is None:
            pages = list(range(1 << generation.page_bits))
        else:
            pages = np.unique(series >> np.uint64(64 - generation.page_bits)).tolist()
        listing += [one for page in pages for one in listed([metric], page)]
    return listing


def _absent_or_lost(made: Inputs | CorruptBlock | None, missing: list[tuple[int, bytes]], unit: HourShardData) -> None:
    if isinstance(made, CorruptBlock):
        return
    for metric, key in missing:
        page = keys.parse_chunk(key)[5]
        if made is None or page in made.pages.get(metric, ()):
            raise IntegrityError(f"page {page} of metric {metric:016x} of {unit} is missing")


def _chosen(page: ChunkPage, series: U64 | None) -> I64:
    if series is None:
        return np.arange(len(page.series))
    if not len(page.series):
        return np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(page.series, series), len(page.series) - 1)  # both are sorted, ids distinct
    found: I64 = at[page.series[at] == series]
    return found


@dataclass(frozen=True, slots=True)
class TimelinePool:
    """Timelines of one generation: pages side by side. ``place`` finds a timeline's row in ``counts`` (-1: damaged)."""

    messages: Messages
    shift: int
    pages: I64  # numbers of the pages read, ascending
    bases: I64  # where each page's timelines begin in ``counts``; -1 for a damaged one
    counts: I32
    starts: I64
    ts: I64
    message: I32

    def place(self, numbers: I32) -> I64:
        """The row of each timeline number."""
        pages = numbers >> self.shift
        base = self.bases[np.searchsorted(self.pages, pages)]
        return np.where(base < 0, -1, base + (numbers - (pages.astype(np.int64) << self.shift)))


def open_pool(fetch: Fetch, unit: HourShardData, generation: Generation, pages: I32) -> TimelinePool:
    """These pages of the pool (ascending), joined; as a rule there is one."""
    shift = generation.timeline_shift
    rows = [keys.timeline(unit.shard, unit.app, unit.hour, generation.number, int(p)) for p in pages]
    found = fetch("timelines", rows) if rows else []
    if any(page is None for page in found):
        raise IntegrityError(f"timelines of generation {generation.number:016x} of {unit} are missing")
    whole = [page for page in found if isinstance(page, TimelinesPage)]
    sizes = [len(page.counts) if isinstance(page, TimelinesPage) else -1 for page in found]
    bases = np.cumsum([0, *(max(0, size) for size in sizes)])[:-1]
    counts = _joined([page.counts for page in whole], np.int32)
    return TimelinePool(
        messages=_side_by_side([page.messages for page in whole]),
        shift=shift,
        pages=pages.astype(np.int64),
        bases=np.where(np.array(sizes, np.int64) < 0, -1, bases),
        counts=counts,
        starts=np.cumsum(counts, dtype=np.int64) - counts,
        ts=_joined([page.ts for page in whole], np.int64),
        message=_joined(_renumbered([(page.message, len(page.messages)) for page in whole]), np.int32),
    )


def _side_by_side(tables: Sequence[Messages]) -> Messages:
    """Message tables one after the other. Stamps are in order within each, and no series needs more than one."""
    if len(tables) == 1:
        return tables[0]
    return Messages(
        ms=_joined([t.ms for t in tables], np.int64),
        process=_joined([t.process for t in tables], np.int64),
        sequence=_joined([t.sequence for t in tables], np.int64),
        source=_joined(_renumbered([(t.source, len(t.sources)) for t in tables]), np.int32),
        sources=tuple(name for t in tables for name in t.sources),
    )


def _renumbered(columns: Sequence[tuple[I32, int]]) -> list[I32]:
    """Row numbers into tables that now lie one after the other: (numbers, size of their table) of each."""
    starts = np.cumsum([0, *(size for _, size in columns)])[:-1]
    return [numbers + np.int32(start) for (numbers, _), start in zip(columns, starts, strict=True)]


def _joined(columns: Sequence[np.ndarray], dtype: type[Any]) -> np.ndarray:
    if len(columns) == 1:
        return columns[0]
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _piece(metric: int, page: ChunkPage, picked: I64, pool: TimelinePool) -> Piece:
    """The chosen series of one chunk page joined with their timelines; those of a damaged pool are left out."""
    place = pool.place(page.timeline[picked])
    if (place < 0).any():
        picked, place = picked[place >= 0], place[place >= 0]
    counts = page.counts[picked]
    check_lengths(metric, counts, pool, place)
    total = int(counts.sum())
    starts = np.cumsum(page.counts, dtype=np.int64) - page.counts
    values = page.values[kernels.take_segments(starts[picked], counts, total)]
    rows = kernels.take_segments(pool.starts[place], counts, total)
    metrics = np.full(len(picked), metric, np.uint64)
    return Piece(pool.messages, page.series[picked], metrics, counts, pool.message[rows], pool.ts[rows], values)


def check_lengths(metric: int, counts: I32, pool: TimelinePool, place: I64) -> None:
    """Raise ``IntegrityError`` unless each series has as many values as its timeline has times."""
    if not np.array_equal(pool.counts[place], counts):
        raise IntegrityError(f"a chunk of metric {metric:016x} and its timelines differ in length")
