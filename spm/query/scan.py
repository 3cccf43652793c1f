"""Reading units: the one way from the tables to numbers, by the rules of DESIGN (9, 10, 11).

``Scan`` is one query's view: pending first, then manifests, then rows by exact key. When an expected row is missing it
asks whether the manifest has moved (``Moved``: the query starts again), else it is an ``IntegrityError``. A unit is all
its generations, the blocks of its replay list and its pending blocks, merged. Enter by ``units`` and ``unit``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spm.errors import CorruptBlock, IntegrityError
from spm.limits import DAY_SLOTS
from spm.query.cache import PageCache
from spm.query.tail import TailView, UnitKey
from spm.store import keys, manifest, tiers, units
from spm.store.backends.base import Reader
from spm.store.blocks import ChunkPage, TimelinesPage
from spm.store.manifest import Entry, Manifest
from spm.store.merge import EMPTY, Picked, Piece, merge, narrow, pick
from spm.store.quarantine import Quarantine
from spm.store.units import Inputs, Unit, Wanted
from spm.wire import U64

COLUMN = b"v"
_FORMS: dict[str, Callable[[Mapping[bytes, bytes]], object]] = {
    "chunks": lambda row: ChunkPage.from_bytes(row[COLUMN]),
    "timelines": lambda row: TimelinesPage.from_bytes(row[COLUMN]),
    "inputs": lambda row: units.decode_inputs(row[COLUMN]),
    "log": Piece.of_row,
    "hours": tiers.decode_row,
}


class Moved(Exception):
    """A row that this view names is gone because a run has moved on: look again."""


class Rows:
    """Decoded rows by key, cached, with damaged ones set aside."""

    def __init__(self, app: int, cache: PageCache, quarantine: Quarantine) -> None:
        self._app, self._cache, self._quarantine = app, cache, quarantine

    def fetch(self, reader: Reader, table: str, names: Sequence[bytes]) -> list[object | None]:
        """Decoded rows; ``None`` where there is no row; a damaged one comes back as its ``CorruptBlock``."""
        return self._cache.fetch(table, names, lambda missing: self._load(reader, table, missing))

    def _load(self, reader: Reader, table: str, names: Sequence[bytes]) -> list[object | None]:
        found = reader.get(table, names)
        return [None if row is None else self._decode(table, key, row) for key, row in zip(names, found, strict=True)]

    def _decode(self, table: str, key: bytes, row: Mapping[bytes, bytes]) -> object:
        try:
            return _FORMS[table](row)
        except CorruptBlock as error:
            self._quarantine.report(self._app, table, key, b"".join(row.values()), error)
            return error

    def log(self, reader: Reader, names: Sequence[bytes]) -> list[Piece | None]:
        """Blocks as pieces; ``None`` where there is no row, an empty piece for a damaged one. Not cached."""
        loaded = self._load(reader, "log", names)
        return [piece if piece is None or isinstance(piece, Piece) else EMPTY for piece in loaded]


def read_manifests(reader: Reader, app: int, days: Sequence[int]) -> dict[int, Manifest]:
    """The manifests of these days; absent ones are left out. Raises ``CorruptBlock``."""
    rows = reader.get("manifest", [keys.manifest(app, day) for day in days], [COLUMN])
    return {d: manifest.decode(row[COLUMN]) for d, row in zip(days, rows, strict=True) if row is not None}


@dataclass(frozen=True, slots=True)
class Scan:
    """One query's view of an app: its tail, then its manifests."""

    app: int
    buckets: Sequence[int]
    reader: Reader
    tail: TailView
    manifests: Mapping[int, Manifest]
    rows: Rows

    def units(self, first_slot: int, last_slot: int) -> list[UnitKey]:
        """(bucket, slot) of every unit with data between two slots, in the order of time."""
        found = {u for u in self.tail.units() if first_slot <= u[1] <= last_slot}
        for day in self.manifests.values():
            for (bucket, slot), entry in day.entries.items():
                if first_slot <= slot <= last_slot and (entry.state.generations or entry.state.replay):
                    found.add((bucket, slot))
        return sorted(found, key=lambda u: (u[1], u[0]))

    def entry(self, bucket: int, slot: int) -> Entry:
        """What the manifest says of a unit."""
        day = self.manifests.get(slot // DAY_SLOTS)
        return day.entry(bucket, slot) if day else Entry()

    def unit(self, bucket: int, slot: int, wanted: Wanted | None) -> list[Picked]:
        """The winners of one unit, in one or more parts with disjoint series; ``wanted`` ``None``: all series."""
        pieces, clean = self.versions(bucket, slot, wanted)
        if clean:
            return [pick(p) for p in pieces]
        return [pick(merge(pieces))] if pieces else []

    def versions(self, bucket: int, slot: int, wanted: Wanted | None) -> tuple[list[Piece], bool]:
        """All versions of one unit, and whether the pieces are merged already and have no series in common."""
        entry, unit = self.entry(bucket, slot), Unit(bucket, self.app, slot)
        self._check_tail(unit, entry)
        pieces: list[Piece] = []
        try:
            for generation in entry.state.generations:
                pieces += self._generation(unit, generation, wanted)
        except IntegrityError:
            self._moved_or_lost(slot)
            raise
        others = self._blocks(unit, entry) + self.tail.pieces(bucket, slot)
        chosen = [p if wanted is None else narrow(p, _of(p, wanted)) for p in others]
        chosen = [p for p in chosen if len(p)]
        clean = not chosen and len(entry.state.generations) <= 1
        return pieces + chosen, clean or (not pieces and len(chosen) == 1 and not entry.state.replay)

    def _generation(self, unit: Unit, generation: manifest.Generation, wanted: Wanted | None) -> list[Piece]:
        def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
            return self.rows.fetch(self.reader, table, names)

        return units.read_generation(fetch, lambda: self._inputs(unit, generation), unit, generation, wanted)

    def _inputs(self, unit: Unit, generation: manifest.Generation) -> Inputs | CorruptBlock | None:
        """The generation's directory, from the cache as a rule; ``None`` where there is no row."""
        [made] = self.rows.fetch(self.reader, "inputs", [units.inputs_key(unit, generation)])
        return made if isinstance(made, Inputs | CorruptBlock) else None

    def _blocks(self, unit: Unit, entry: Entry) -> list[Piece]:
        """The blocks of the replay list."""
        names = [keys.LogKey(unit.bucket, unit.app, unit.slot, r.ingest_ms, r.batch) for r in entry.state.replay]
        found = self.rows.log(self.reader, [n.to_bytes() for n in names]) if names else []
        if any(piece is None for piece in found):
            self._moved_or_lost(unit.slot)
            raise IntegrityError(f"a block of the replay list of {unit} is missing")
        return [piece for piece in found if piece is not None]

    def _check_tail(self, unit: Unit, entry: Entry) -> None:
        """Blocks that were gone when the tail was read must be inside a generation in force; else look again."""
        missing = set(self.tail.missing.get((unit.bucket, unit.slot), ()))
        if not missing:
            return
        made = [self._inputs(unit, generation) for generation in entry.state.generations]
        missing -= {replay.batch for inputs in made if isinstance(inputs, Inputs) for replay in inputs.batches}
        if missing:
            self._moved_or_lost(unit.slot)
            raise IntegrityError(f"{len(missing)} block(s) of {unit} are missing, one of batch {min(missing):016x}")

    def _moved_or_lost(self, slot: int) -> None:
        """Raise ``Moved`` if the day's manifest is no longer the one this view was made from."""
        day = slot // DAY_SLOTS
        now = read_manifests(self.reader, self.app, [day]).get(day, Manifest())
        if now.nonce != self.manifests.get(day, Manifest()).nonce:
            raise Moved(f"manifest of day {day}")


def _of(piece: Piece, wanted: Wanted) -> np.ndarray:
    """bool[S]: the series of a piece that are wanted. Metrics of a query are few."""
    chosen = np.zeros(len(piece.series), np.bool_)
    for metric, series in wanted.series.items():
        held = piece.metrics == np.uint64(metric)
        chosen |= held if series is None else held & np.isin(piece.series, series)
    return chosen


def wanted_of(series: U64, metrics: U64) -> Wanted:
    """What to read for these series, by metric."""
    order = np.argsort(metrics, kind="stable")
    names, first = np.unique(metrics[order], return_index=True)
    parts = np.split(series[order], first[1:]) if len(names) else []
    return Wanted({int(m): np.sort(s) for m, s in zip(names, parts, strict=True)})
