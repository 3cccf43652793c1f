"""Compacted units: from merged versions to rows of `chunks`, `timelines` and `inputs`, and back by exact key.

Enter by ``paginate`` (the run) and ``read_generation`` (reader and run). Times and stamps lie once per timeline, values
once per series. Order of writing: pages, then inputs, then the manifest's flip; a page that its generation's directory
does not list holds no data, a listed page that is missing is an ``IntegrityError``, never "no data" (rule 10).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from spm import limits
from spm.errors import IntegrityError
from spm.store import blocks, kernels, keys
from spm.store.backends.base import Reader, RowPut
from spm.store.blocks import ChunkPage, Messages, TimelinesPage
from spm.store.manifest import Generation, Replay
from spm.store.merge import Piece
from spm.wire import I32, I64, U64

COLUMN = b"v"


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
class Unit:
    """Where a unit lies: bucket, app, slot."""

    bucket: int
    app: int
    slot: int


@dataclass(frozen=True, slots=True)
class Pages:
    """A unit's rows, ready to be put, in this order; ``generation`` goes into the manifest."""

    generation: Generation
    chunks: list[RowPut]
    timelines: list[RowPut]
    inputs: RowPut


def paginate(
    unit: Unit, number: int, piece: Piece, *, parents: Collection[int], batches: Collection[Replay]
) -> Pages:
    """The rows of generation ``number`` that hold all of ``piece`` (merged). Pure.

    1. series with the same (ts, message) columns share a timeline;
    2. the pool of timelines is cut into pages of at most about ``PAGE_SAMPLES_MAX`` rows;
    3. each metric's series are cut into pages by the top bits of their ids.
    """
    timeline, standing, _ = kernels.find_timelines(piece.counts, piece.ts, piece.message)
    starts = np.cumsum(piece.counts, dtype=np.int64) - piece.counts
    shift = _shift(piece.counts[standing])
    generation = Generation(number, _page_bits(piece), shift)
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
    key = keys.inputs(unit.bucket, unit.app, unit.slot, number)
    return Pages(generation, chunks, pools, (key, {COLUMN: blocks.encode_record(blocks.INPUTS, inputs)}))


def _page_bits(piece: Piece) -> int:
    if not len(piece):
        return 0
    _, first = np.unique(piece.metrics, return_index=True)
    largest = int(np.add.reduceat(piece.counts.astype(np.int64), first).max())
    return min(16, max(0, (largest // limits.PAGE_SAMPLES_MAX).bit_length()))


def _shift(lengths: I32) -> int:
    longest = int(lengths.max()) if len(lengths) else 1
    return max(0, (limits.PAGE_SAMPLES_MAX // max(1, longest)).bit_length() - 1)


def _chunk_rows(
    unit: Unit, generation: Generation, piece: Piece, starts: I64, timeline: I32
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
        key = keys.chunk(unit.bucket, unit.app, metric, unit.slot, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
        directory[metric] = (*directory.get(metric, ()), page)
    return rows, directory


def _timeline_rows(
    unit: Unit, generation: Generation, piece: Piece, starts: I64, standing: I32
) -> list[RowPut]:
    rows: list[RowPut] = []
    size = 1 << generation.timeline_shift
    for page, at in enumerate(range(0, len(standing), size)):
        part = standing[at : at + size]
        counts = piece.counts[part]
        taken = kernels.take_segments(starts[part], counts, int(counts.sum()))
        used, message = np.unique(piece.message[taken], return_inverse=True)
        body = TimelinesPage(_only(piece.messages, used), counts, piece.ts[taken], message.astype(np.int32))
        key = keys.timeline(unit.bucket, unit.app, unit.slot, generation.number, page)
        rows.append((key, {COLUMN: body.to_bytes()}))
    return rows


def _only(messages: Messages, used: I32) -> Messages:
    """The message table with only these rows, and only the sources they name."""
    named, source = np.unique(messages.source[used], return_inverse=True)
    sources = tuple(messages.sources[i] for i in named)
    m = messages
    return Messages(m.ms[used], m.process[used], m.sequence[used], source.astype(np.int32), sources)


Decode = Callable[[str, bytes, Callable[[], object]], object]  # (table, key, make) -> make(), perhaps from a cache


def read_inputs(reader: Reader, unit: Unit, generation: Generation) -> Inputs | None:
    """The generation's inputs; ``None`` when the row is absent (the run never finished, or it was purged)."""
    [row] = reader.get("inputs", [keys.inputs(unit.bucket, unit.app, unit.slot, generation.number)])
    return None if row is None else blocks.decode_record(blocks.INPUTS, row[COLUMN], Inputs)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read of a unit: metric ids -> the series wanted of each (u64, sorted); ``None``: all of them."""

    series: Mapping[int, U64 | None]


def read_generation(
    fetch: Callable[[str, Sequence[bytes]], list[object | None]],
    inputs: Callable[[], Inputs | None],
    unit: Unit,
    generation: Generation,
    wanted: Wanted | None,
) -> list[Piece]:
    """The pieces of one generation, one per page found.

    ``fetch(table, keys)`` gives decoded pages (``None``: no such row) and may cache by key, since rows are write-once;
    ``inputs()`` reads the directory and is asked only when a page is missing or everything is wanted. Raises
    ``IntegrityError`` when a page that must be there is missing: the caller then looks at the manifest again.
    """
    listing = _listing(inputs, unit, generation, wanted)
    found = fetch("chunks", [key for _, key in listing])
    if wanted is not None and any(page is None for page in found):
        _absent_or_lost(inputs(), [listing[i] for i, page in enumerate(found) if page is None], unit)
    pages = [(metric, page) for (metric, _), page in zip(listing, found, strict=True) if page is not None]
    if wanted is None and len(pages) < len(listing):
        raise IntegrityError(f"pages of generation {generation.number:016x} of {unit} are missing")
    chosen = [_chosen(page, wanted and wanted.series[metric]) for metric, page in pages]  # type: ignore[arg-type]
    pools = _pools(fetch, unit, generation, chosen)
    pieces = [
        _piece(metric, page, picked, pools, generation.timeline_shift)  # type: ignore[arg-type]
        for (metric, page), picked in zip(pages, chosen, strict=True)
        if len(picked)
    ]
    return pieces


def _listing(
    inputs: Callable[[], Inputs | None], unit: Unit, generation: Generation, wanted: Wanted | None
) -> list[tuple[int, bytes]]:
    def key(metric: int, page: int) -> bytes:
        return keys.chunk(unit.bucket, unit.app, metric, unit.slot, generation.number, page)

    if wanted is None:
        made = inputs()
        if made is None:
            raise IntegrityError(f"inputs of generation {generation.number:016x} of {unit} are missing")
        return [(metric, key(metric, page)) for metric, pages in made.pages.items() for page in pages]
    listing = []
    for metric, series in wanted.series.items():
        every = range(1 << generation.page_bits)
        pages = every if series is None else sorted({generation.page_of(int(s)) for s in series})
        listing += [(metric, key(metric, page)) for page in pages]
    return listing


def _absent_or_lost(made: Inputs | None, missing: list[tuple[int, bytes]], unit: Unit) -> None:
    for metric, key in missing:
        page = keys.parse_chunk(key)[5]
        if made is None or page in made.pages.get(metric, ()):
            raise IntegrityError(f"page {page} of metric {metric:016x} of {unit} is missing")


def _chosen(page: ChunkPage, series: U64 | None) -> I64:
    if series is None:
        return np.arange(len(page.series))
    return np.flatnonzero(np.isin(page.series, series))


def _pools(
    fetch: Callable[[str, Sequence[bytes]], list[object | None]],
    unit: Unit,
    generation: Generation,
    chosen: list[I64],
) -> Callable[[I32], list[tuple[int, TimelinesPage]]]:
    def pools(numbers: I32) -> list[tuple[int, TimelinesPage]]:
        pages = [int(p) for p in np.unique(numbers >> generation.timeline_shift)]
        rows = [keys.timeline(unit.bucket, unit.app, unit.slot, generation.number, p) for p in pages]
        found = fetch("timelines", rows)
        if any(pool is None for pool in found):
            raise IntegrityError(f"timelines of generation {generation.number:016x} of {unit} are missing")
        return list(zip(pages, found, strict=True))  # type: ignore[arg-type]

    return pools


def _piece(
    metric: int,
    page: ChunkPage,
    picked: I64,
    pools: Callable[[I32], list[tuple[int, TimelinesPage]]],
    shift: int,
) -> Piece:
    """One chunk page joined with its timelines. Pages of the pool are few: as a rule one."""
    numbers, counts = page.timeline[picked], page.counts[picked]
    found = pools(numbers)
    starts = np.cumsum(page.counts, dtype=np.int64) - page.counts
    values = page.values[kernels.take_segments(starts[picked], counts, int(counts.sum()))]
    if len(found) > 1:
        return _across(metric, page, picked, found, values, shift)
    number, pool = found[0]
    local = numbers - np.int32(number << shift)
    _agree(pool.counts[local], counts, metric)
    begins = np.cumsum(pool.counts, dtype=np.int64) - pool.counts
    rows = kernels.take_segments(begins[local], counts, int(counts.sum()))
    metrics = np.full(len(picked), metric, np.uint64)
    return Piece(pool.messages, page.series[picked], metrics, counts, pool.message[rows], pool.ts[rows], values)


def _across(
    metric: int, page: ChunkPage, picked: I64, found: list[tuple[int, TimelinesPage]], values: np.ndarray, shift: int
) -> Piece:
    """The same where the series' timelines lie in several pages of the pool: their message tables are joined first."""
    from_pages = [pool for _, pool in found]
    bases = np.cumsum([0] + [len(p.messages) for p in from_pages])
    names = [p.messages.sources for p in from_pages]
    offsets = np.cumsum([0] + [len(n) for n in names])
    joined = Messages(
        *(np.concatenate([getattr(p.messages, f) for p in from_pages]) for f in ("ms", "process", "sequence")),
        np.concatenate([p.messages.source + np.int32(o) for p, o in zip(from_pages, offsets, strict=False)]),
        tuple(n for part in names for n in part),
    )
    pool_counts = np.concatenate([p.counts for p in from_pages])
    first_of = {number: int(n) for (number, _), n in zip(found, np.cumsum([0] + [len(p.counts) for p in from_pages]))}
    numbers, counts = page.timeline[picked], page.counts[picked]
    pages = numbers >> shift
    base = np.array([first_of[int(p)] for p in np.unique(pages)])[np.unique(pages, return_inverse=True)[1]]
    local = base + (numbers - (pages << shift))
    _agree(pool_counts[local], counts, metric)
    begins = np.cumsum(pool_counts, dtype=np.int64) - pool_counts
    rows = kernels.take_segments(begins[local], counts, int(counts.sum()))
    ts = np.concatenate([p.ts for p in from_pages])
    message = np.concatenate([p.message + np.int32(b) for p, b in zip(from_pages, bases, strict=False)])
    metrics = np.full(len(picked), metric, np.uint64)
    return Piece(joined, page.series[picked], metrics, counts, message[rows], ts[rows], values)


def _agree(pool: I32, page: I32, metric: int) -> None:
    if not np.array_equal(pool, page):
        raise IntegrityError(f"a chunk of metric {metric:016x} and its timelines differ in length")
