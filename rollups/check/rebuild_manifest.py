"""Rebuilds a day's manifest that cannot be read from what it named: ``inputs`` rows, pages and blocks.

Enter by ``rebuild_manifest``. In force are again: of each HourShard the complete generations whose batches no later one
contains, and on the replay list the blocks that none of them holds and that are not pending. Naming too much is
harmless, since equal versions merge; a generation without one of its pages is left to its parents and blocks. What no
row tells is lost and reported: history (no earlier run can be rolled back), seals, and rollup rows, which the next run
makes anew. Nothing is rebuilt where that could not be made good: while data is being moved, and where hours or their
samples have expired. The damaged cell is kept in `dead`.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from rollups.check.findings import DAMAGED, LOST, UNKNOWN, Report
from rollups.compute import source
from rollups.compute.source import PackPlace
from rollups.delete import purge
from rollups.manifest import cells
from rollups.run import agenda
from spm.arrays import U64
from spm.clock import random_u64
from spm.errors import CorruptBlock, IntegrityError
from spm.limits import DAY_HOURS
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend, Reader, scan_ranges
from spm.store.encoding.blocks import LogBlock, TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.ledger import commit_records, dead_letters
from spm.store.ledger.dead_letters import DeadLetter
from spm.store.manifest import Entry, Generation, Manifest, Replay, State, joined_sources, named_sources
from spm.store.versions import generations
from spm.store.versions.generations import Inputs

_Place = tuple[int, int]  # shard, hour


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one HourShard: its complete generations, the batches of all, and its blocks that are not pending."""

    complete: dict[Generation, Inputs] = field(default_factory=dict)
    batches: set[Replay] = field(default_factory=set)
    blocks: dict[Replay, list[LogBlock]] = field(default_factory=dict)


def rebuild_manifest(store: Backend, app: int, day: int, report: Report, *, now_ms: int) -> bool:
    """Rebuilds the manifest of a day that is damaged; returns whether it is in force. Under the lock of runs."""
    key = keys.manifest(app, day)
    cell = cells.read_cell(store, "manifest", key)
    assert cell is not None, "BUG: a damaged manifest without a cell"
    table = epochs.read(store, app)
    if not table.has_one_live_epoch:
        report.add(UNKNOWN, "manifest", key, "not rebuilt: data is being moved between shards; close the move first")
        return False
    shards = list(table.all_shards(app))
    rows = _read_rows(store, app, day, shards, report)
    expired = _expired_hours(store, app, day, shards, rows)
    if expired:
        text = f"not rebuilt: the samples of hours {expired[:5]} have expired; restore the cell from a backup"
        report.add(UNKNOWN, "manifest", key, text)
        return False
    entries = {place: entry for place, each in sorted(rows.items()) if (entry := _entry(app, place, each, report))}
    nonce = random_u64()
    copy = DeadLetter(dead_letters.ROW, "a manifest that was rebuilt", cell, "manifest", key)
    store.put([dead_letters.step(app, now_ms, dead_letters.row_name("manifest", key), copy)])
    value = Manifest(nonce, nonce, entries)
    if not store.check_and_put("manifest", key, cells.COLUMN, cell, manifest.encode(value)):
        return False
    agenda.mark_due(store, app, [day], now_ms)
    count = sum(len(entry.state.generations) for entry in entries.values())
    replays = sum(len(entry.state.replay) for entry in entries.values())
    text = f"rebuilt with {count} generations and {replays} blocks; no run before now can be rolled back in this day"
    report.add(DAMAGED, "manifest", key, text, repaired=True)
    return True


def _read_rows(store: Backend, app: int, day: int, shards: list[int], report: Report) -> dict[_Place, _Rows]:
    ranges = [keys.hours_range(shard, app, day * DAY_HOURS, (day + 1) * DAY_HOURS - 1) for shard in shards]
    rows: dict[_Place, _Rows] = {}
    for key, row in scan_ranges(store, "inputs", ranges):
        shard, _, hour, number = keys.parse_inputs(key)
        try:
            inputs = generations.decode_inputs(row[generations.COLUMN])
        except CorruptBlock as error:
            report.add(DAMAGED, "inputs", key, str(error))
            continue
        if not inputs.timeline_pages:
            continue  # a pack of rollup rows
        of = rows.setdefault((shard, hour), _Rows())
        of.batches.update(inputs.batches)
        generation = _generation(store, app, (shard, hour, number), inputs)
        if generation is not None:
            of.complete[generation] = inputs
    pending = {(w.key.shard, w.hour, w.key.batch) for w in commit_records.scan(store, app, shards)}
    for key, row in scan_ranges(store, "log", ranges):
        place = keys.LogKey.parse(key)
        if (place.shard, place.hour, place.batch) in pending:
            continue
        try:
            block = LogBlock.from_cells(row)
        except CorruptBlock as error:
            report.add(DAMAGED, "log", key, str(error))
            continue
        of = rows.setdefault((place.shard, place.hour), _Rows())
        of.blocks[Replay(place.ingest_ms, place.batch)] = block
    return rows


def _generation(reader: Reader, app: int, place: tuple[int, int, int], inputs: Inputs) -> Generation | None:
    """The generation as its own pages describe it; ``None`` if one that the directory lists is missing.

    A purge deletes pages before the row that lists them. Pages that are damaged stay damaged pages of it. All pages of
    timelines but the last are full, which tells how many one holds; without any of these nothing does.
    """
    names = purge.pages_of(app, place, inputs)
    bits, sizes = 0, list[int]()
    for name in names["chunks"]:
        [row] = reader.get("chunks", [name])
        if row is None:
            return None
        with suppress(CorruptBlock):
            series = ChunkPage.from_bytes(row[generations.COLUMN]).series
            bits = max(bits, _bits_of(keys.parse_chunk(name)[5], series))
    for name in names["timelines"]:
        [row] = reader.get("timelines", [name])
        if row is None:
            return None
        with suppress(CorruptBlock):
            full = [] if name == names["timelines"][-1] else sizes
            full.append(len(TimelinesPage.from_bytes(row[generations.COLUMN]).counts))
    if inputs.timeline_pages == 1:
        return Generation(place[2], bits)
    return Generation(place[2], bits, sizes[0].bit_length() - 1) if sizes else None


def _bits_of(page: int, series: U64) -> int:
    """The fewest top bits of these series' ids that are the number of their page."""
    fits = (bits for bits in range(1, 17) if bool((series >> np.uint64(64 - bits) == page).all()))
    return next(fits, 0) if page else 0


def _expired_hours(reader: Reader, app: int, day: int, shards: Iterable[int], rows: dict[_Place, _Rows]) -> list[int]:
    """Hours with rollup rows but without samples: only the manifest knew that they are sealed."""
    there = {place for place, each in rows.items() if each.complete or each.blocks}
    return sorted(
        {hour for shard in shards for hour in _packed_hours(reader, app, shard, day) if (shard, hour) not in there}
    )


def _packed_hours(reader: Reader, app: int, shard: int, day: int) -> Iterator[int]:
    first = day * DAY_HOURS
    pack = PackPlace("hours", app, shard, day, first)
    for key, row in reader.scan("inputs", *keys.hours_range(shard, app, first, first)):
        number = keys.parse_inputs(key)[3]
        try:
            if not generations.decode_inputs(row[generations.COLUMN]).timeline_pages:
                for _, steps in source.read_pack(reader, pack, Generation(number)):
                    yield from set(steps.step.tolist())
        except (CorruptBlock, IntegrityError):
            continue  # a superseded pack that a purge has begun to delete, or one that nobody could read


def _entry(app: int, place: _Place, rows: _Rows, report: Report) -> Entry | None:
    chosen = {each: inputs for each, inputs in rows.complete.items() if not _is_contained(each, rows.complete)}
    batches_in_force = {batch for inputs in chosen.values() for batch in inputs.batches}
    replay = sorted(batch for batch in rows.blocks if batch not in batches_in_force)
    lost = rows.batches - batches_in_force - rows.blocks.keys()
    if lost:
        key = keys.inputs(place[0], app, place[1], 0)
        report.add(LOST, "inputs", key, f"hour {place[1]}: the samples of {len(lost)} batches are in no complete row")
    if not chosen and not replay:
        return None
    blocks = [part.messages for batch in replay for part in rows.blocks[batch]]
    stamps = [(inputs.stamp_min_ms, inputs.stamp_max_ms, inputs.sources) for inputs in chosen.values()]
    stamps += [(int(m.ms.min()), int(m.ms.max()), named_sources(m.sources)) for m in blocks if len(m)]
    return Entry(
        State(tuple(sorted(chosen, key=lambda each: each.number)), tuple(replay)),
        (),
        min(low for low, _, _ in stamps),
        max(high for _, high, _ in stamps),
        joined_sources((high, sources) for _, high, sources in stamps),
    )


def _is_contained(generation: Generation, complete: dict[Generation, Inputs]) -> bool:
    """Whether another complete generation was made from it or holds all its batches; of equal ones the newest stays."""
    mine = set(complete[generation].batches)
    return any(
        generation.number in inputs.parents
        or (mine <= set(inputs.batches) and (len(mine) < len(inputs.batches) or other.number > generation.number))
        for other, inputs in complete.items()
        if other != generation
    )
