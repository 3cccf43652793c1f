"""Reads the inputs of a task by exact key: generations and blocks, and packs of hours or days (PROTOCOL 12).

A task reads only the rows that its plan names. A missing row raises ``IntegrityError``, and the hour shard is given up:
nothing is published, nothing is deleted, the next run plans again. The one exception is a pending block that a purge
has deleted because a generation in force holds its batch. Nothing here writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rollups.decide.plan import MergeKind, MoveSource
from rollups.decide.work import HourShardTask, MergedGeneration
from spm.errors import IntegrityError
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.encoding.blocks import TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.manifest import Generation, Replay
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.rows import StepColumns
from spm.store.versions import generations as versions_generations
from spm.store.versions.generations import HourShard, Inputs, PageRequest
from spm.store.versions.merge import Piece, narrow

COLUMN = b"v"
_FORMS = {"chunks": ChunkPage.from_bytes, "timelines": TimelinesPage.from_bytes}


@dataclass(frozen=True, slots=True)
class MergeInput:
    """The inputs of a new generation: pieces to merge, the generations they come from, every batch inside."""

    pieces: list[Piece]
    merged: tuple[MergedGeneration, ...]  # generations of the hour shard itself
    parents: tuple[int, ...]  # also those of other shards
    batches: frozenset[Replay]  # of the hour shard itself: a batch has a block of its own in every shard


def read_hour_shard(reader: Reader, task: HourShardTask) -> MergeInput:
    """Reads all inputs of an hour shard's task; raises ``IntegrityError`` or ``CorruptBlock``."""
    hour_shard = HourShard(task.shard, task.app, task.hour)
    merged = () if task.kind == MergeKind.MINOR else task.generations
    all_inputs = [_read_inputs(reader, hour_shard, generation) for generation in merged]
    pieces: list[Piece] = []
    for generation, inputs in zip(merged, all_inputs, strict=True):
        pieces += _read_generation(reader, task, hour_shard, generation, inputs)
    blocks, read = _read_blocks(reader, hour_shard, task)
    for move_source in task.move_sources:
        pieces += _read_move_source(reader, task, move_source)
    inside = {batch for inputs in all_inputs for batch in inputs.batches}
    parts = tuple(MergedGeneration(g.number, i.samples, i.sources) for g, i in zip(merged, all_inputs, strict=True))
    parents = [g.number for g in (*merged, *(g for move_source in task.move_sources for g in move_source.generations))]
    return MergeInput(pieces + _narrow_to_shard(task, blocks), parts, tuple(parents), frozenset(inside | read))


def _read_move_source(reader: Reader, task: HourShardTask, move_source: MoveSource) -> list[Piece]:
    """Reads from another shard the metrics that belong to the task's shard now."""
    hour_shard = HourShard(move_source.shard, task.app, task.hour)
    pieces: list[Piece] = []
    for generation in move_source.generations:
        pieces += _read_generation(reader, task, hour_shard, generation, _read_inputs(reader, hour_shard, generation))
    names = [
        keys.LogKey(hour_shard.shard, hour_shard.app, hour_shard.hour, r.ingest_ms, r.batch) for r in move_source.replay
    ]
    rows = reader.get("log", [name.to_bytes() for name in names]) if names else []
    if any(row is None for row in rows):
        raise IntegrityError(f"a block of the replay list of {hour_shard} is missing")
    return pieces + _narrow_to_shard(task, [Piece.of_row(row) for row in rows if row is not None])


def _narrow_to_shard(task: HourShardTask, pieces: list[Piece]) -> list[Piece]:
    """The pieces with only the metrics that a redistribution places in the task's shard."""
    if task.epoch is None:
        return pieces
    narrowed = [narrow(p, task.epoch.place(task.app, p.metrics) == task.shard) for p in pieces]
    return [piece for piece in narrowed if len(piece)]


def _read_inputs(reader: Reader, hour_shard: HourShard, generation: Generation) -> Inputs:
    inputs = versions_generations.read_inputs(reader, hour_shard, generation)
    if inputs is None:
        raise IntegrityError(f"inputs of generation {generation.number:016x} of {hour_shard} are missing")
    return inputs


def _read_generation(
    reader: Reader, task: HourShardTask, hour_shard: HourShard, generation: Generation, inputs: Inputs
) -> list[Piece]:
    def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
        rows = reader.get(table, names, [COLUMN]) if names else []
        return [None if row is None else _FORMS[table](row[COLUMN]) for row in rows]

    page_request = None
    if task.epoch is not None:
        metrics = np.array(sorted(inputs.pages), np.uint64)
        mine = metrics[task.epoch.place(task.app, metrics) == task.shard]
        page_request = PageRequest(dict.fromkeys(mine.tolist()))
    return versions_generations.read_generation(fetch, lambda: inputs, hour_shard, generation, page_request)


def _read_blocks(reader: Reader, hour_shard: HourShard, task: HourShardTask) -> tuple[list[Piece], set[Replay]]:
    batches = sorted({*task.replay, *task.fresh})
    names = [
        keys.LogKey(hour_shard.shard, hour_shard.app, hour_shard.hour, r.ingest_ms, r.batch).to_bytes() for r in batches
    ]
    rows = reader.get("log", names) if names else []
    missing = {batch for batch, row in zip(batches, rows, strict=True) if row is None}
    lost_batches = missing & set(task.replay) or missing - (
        _batches_in(reader, hour_shard, task.generations) if missing else set()
    )
    if lost_batches:
        raise IntegrityError(
            f"{len(lost_batches)} block(s) of {hour_shard} are missing, one of batch {min(lost_batches).batch:016x}"
        )
    pieces = [Piece.of_row(row) for row in rows if row is not None]
    return pieces, set(batches) - missing


def _batches_in(reader: Reader, hour_shard: HourShard, generations: Sequence[Generation]) -> set[Replay]:
    """Every batch inside these generations."""
    return {batch for generation in generations for batch in _read_inputs(reader, hour_shard, generation).batches}


# --- packs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackPlace:
    """The place of a pack: ``hours`` of a day or ``days`` of a month. ``hour`` is its first, for its inputs row."""

    table: str
    app: int
    shard: int
    period: int
    hour: int

    @property
    def hour_shard(self) -> HourShard:
        """The place of its inputs row: no other generation has a pack's generation number."""
        return HourShard(self.shard, self.app, self.hour)

    def key(self, number: int, metric: int, page: int) -> bytes:
        """The key of one page of one metric of the pack's generation ``number``."""
        layout = keys.hours if self.table == "hours" else keys.days
        return layout(self.shard, self.app, metric, self.period, number, page)


def read_pack(reader: Reader, place: PackPlace, generation: Generation) -> Iterator[tuple[int, StepColumns]]:
    """Reads (metric id, aggregates) of every page of a pack; raises ``IntegrityError`` if one is missing."""
    inputs = _read_inputs(reader, place.hour_shard, generation)
    for metric, pages in inputs.pages.items():
        rows = reader.get(place.table, [place.key(generation.number, metric, page) for page in pages])
        for row in rows:
            if row is None:
                raise IntegrityError(f"a row of {place} of generation {generation.number:016x} is missing")
            yield metric, rollup_rows.decode_row(row)
