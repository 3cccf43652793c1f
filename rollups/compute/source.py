"""The reading side of a task: a unit's generations and blocks, and packs of hours or days, by exact key (rule 12).

A task reads only what its plan names. Whatever is missing raises ``IntegrityError``, and the unit is given up: nothing
is flipped, nothing deleted, the next run plans again. One absence is right: a pending block that a purge took because a
generation in force holds its batch already. Nothing here writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rollups.decide.plan import Kind, Moved
from rollups.decide.work import Part, UnitTask
from spm.errors import IntegrityError
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.encoding.blocks import ChunkPage, TimelinesPage
from spm.store.manifest import Generation, Replay
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.rows import StepColumns
from spm.store.versions import generations as versions_generations
from spm.store.versions.generations import HourShardData, Inputs, PageRequest
from spm.store.versions.merge import Piece, narrow

COLUMN = b"v"
_FORMS = {"chunks": ChunkPage.from_bytes, "timelines": TimelinesPage.from_bytes}


@dataclass(frozen=True, slots=True)
class Source:
    """What a generation will be made of: pieces to merge, the generations they stand for, every batch inside."""

    pieces: list[Piece]
    parts: tuple[Part, ...]  # generations of the unit itself
    parents: tuple[int, ...]  # of other shards, too
    batches: frozenset[Replay]  # of the unit itself: a batch has a block of its own in every shard


def read_unit(reader: Reader, task: UnitTask) -> Source:
    """All that a unit's task reads; raises ``IntegrityError`` or ``CorruptBlock``."""
    unit = HourShardData(task.shard, task.app, task.hour)
    merged = () if task.kind == Kind.MINOR else task.generations
    made = [_inputs(reader, unit, generation) for generation in merged]
    pieces: list[Piece] = []
    for generation, inputs in zip(merged, made, strict=True):
        pieces += _read_generation(reader, task, unit, generation, inputs)
    blocks, read = _read_blocks(reader, unit, task)
    for moved in task.moved:
        pieces += _read_moved(reader, task, moved)
    inside = {batch for inputs in made for batch in inputs.batches}
    parts = tuple(Part(g.number, i.samples, i.sources) for g, i in zip(merged, made, strict=True))
    parents = [g.number for g in (*merged, *(g for moved in task.moved for g in moved.generations))]
    return Source(pieces + _placed(task, blocks), parts, tuple(parents), frozenset(inside | read))


def _read_moved(reader: Reader, task: UnitTask, moved: Moved) -> list[Piece]:
    """What another shard holds of the metrics that belong to the task's shard now."""
    unit = HourShardData(moved.shard, task.app, task.hour)
    pieces: list[Piece] = []
    for generation in moved.generations:
        pieces += _read_generation(reader, task, unit, generation, _inputs(reader, unit, generation))
    names = [keys.LogKey(unit.shard, unit.app, unit.hour, r.ingest_ms, r.batch) for r in moved.replay]
    found = reader.get("log", [name.to_bytes() for name in names]) if names else []
    if any(row is None for row in found):
        raise IntegrityError(f"a block of the replay list of {unit} is missing")
    return pieces + _placed(task, [Piece.of_row(row) for row in found if row is not None])


def _placed(task: UnitTask, pieces: list[Piece]) -> list[Piece]:
    """The pieces with only the metrics that a redistribution puts in the task's shard."""
    if task.place is None:
        return pieces
    chosen = [narrow(p, task.place.of(task.app, p.metrics) == task.shard) for p in pieces]
    return [piece for piece in chosen if len(piece)]


def _inputs(reader: Reader, unit: HourShardData, generation: Generation) -> Inputs:
    inputs = versions_generations.read_inputs(reader, unit, generation)
    if inputs is None:
        raise IntegrityError(f"inputs of generation {generation.number:016x} of {unit} are missing")
    return inputs


def _read_generation(
    reader: Reader, task: UnitTask, unit: HourShardData, generation: Generation, inputs: Inputs
) -> list[Piece]:
    def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
        rows = reader.get(table, names, [COLUMN]) if names else []
        return [None if row is None else _FORMS[table](row[COLUMN]) for row in rows]

    wanted = None
    if task.place is not None:
        metrics = np.array(sorted(inputs.pages), np.uint64)
        mine = metrics[task.place.of(task.app, metrics) == task.shard]
        wanted = PageRequest(dict.fromkeys(mine.tolist()))
    return versions_generations.read_generation(fetch, lambda: inputs, unit, generation, wanted)


def _read_blocks(reader: Reader, unit: HourShardData, task: UnitTask) -> tuple[list[Piece], set[Replay]]:
    wanted = sorted({*task.replay, *task.fresh})
    names = [keys.LogKey(unit.shard, unit.app, unit.hour, r.ingest_ms, r.batch).to_bytes() for r in wanted]
    found = reader.get("log", names) if names else []
    missing = {batch for batch, row in zip(wanted, found, strict=True) if row is None}
    lost = missing & set(task.replay) or missing - (_covered(reader, unit, task.generations) if missing else set())
    if lost:
        raise IntegrityError(f"{len(lost)} block(s) of {unit} are missing, one of batch {min(lost).batch:016x}")
    pieces = [Piece.of_row(row) for row in found if row is not None]
    return pieces, set(wanted) - missing


def _covered(reader: Reader, unit: HourShardData, generations: Sequence[Generation]) -> set[Replay]:
    """Every batch inside the generations in force."""
    return {batch for generation in generations for batch in _inputs(reader, unit, generation).batches}


# --- packs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pack lies: ``hours`` of a day or ``days`` of a month. ``hour``: its first one, for its inputs row."""

    table: str
    app: int
    shard: int
    period: int
    hour: int

    @property
    def unit(self) -> HourShardData:
        """The place of its inputs row: a pack's generation number is no other generation's."""
        return HourShardData(self.shard, self.app, self.hour)

    def key(self, number: int, metric: int, page: int) -> bytes:
        """The key of one page of one metric of the pack's generation ``number``."""
        layout = keys.hours if self.table == "hours" else keys.days
        return layout(self.shard, self.app, metric, self.period, number, page)


def read_pack(reader: Reader, place: Place, generation: Generation) -> Iterator[tuple[int, StepColumns]]:
    """(metric id, aggregates) of every page of a pack; raises ``IntegrityError`` when one is missing."""
    inputs = _inputs(reader, place.unit, generation)
    for metric, pages in inputs.pages.items():
        rows = reader.get(place.table, [place.key(generation.number, metric, page) for page in pages])
        for row in rows:
            if row is None:
                raise IntegrityError(f"a row of {place} of generation {generation.number:016x} is missing")
            yield metric, rollup_rows.decode_row(row)
