"""Reading units: the one way from the tables to numbers, by the rules of DESIGN (9, 10, 11, 22, 23).

``Scan`` is one query's view: retractions, the distribution and pending first, then manifests, then rows by exact key.
When an expected row is missing it asks whether the manifest has moved (``Moved``: the query starts again), else it is
an ``IntegrityError``. A unit is all its generations, the blocks of its replay list and its pending blocks, merged; the
lens then says which versions may be seen. While a distribution is not settled, an hour's units are merged across
shards before any winner is chosen. Enter by ``units`` and ``hour``.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from spm.arrays import BOOL, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS
from spm.query.request.provenance import RAW, Ground
from spm.query.samples.page_selection import ByMetric, Known, Pages, SharedPage
from spm.query.view.page_cache import PageCache
from spm.query.view.tail import TailView
from spm.store import epochs as distribution
from spm.store import keys, manifest
from spm.store.backends.base import Reader
from spm.store.encoding.blocks import ChunkPage, TimelinesPage
from spm.store.keys import Distribution
from spm.store.manifest import SEALED, Entry, Manifest, Month, month_of
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import generations as units
from spm.store.versions.generations import HourShardData, Inputs, PageRequest
from spm.store.versions.merge import EMPTY, Piece, Winners, merge, narrow, pick
from spm.store.versions.quarantine import Quarantine
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility

COLUMN = b"v"
_MANIFEST_GROWTH = 12  # bytes of a decoded manifest for each of its cell's
_FORMS: dict[str, Callable[[Mapping[bytes, bytes]], object]] = {
    "chunks": lambda row: SharedPage.of(ChunkPage.from_bytes(row[COLUMN])),
    "timelines": lambda row: TimelinesPage.from_bytes(row[COLUMN]),
    "inputs": lambda row: units.decode_inputs(row[COLUMN]),
    "log": Piece.of_row,
}
Form = Callable[[Mapping[bytes, bytes]], object]


class Moved(Exception):
    """A row that this view names is gone because a run has moved on: look again."""


class Rows:
    """Decoded rows by key, cached, with damaged ones set aside."""

    def __init__(self, app: int, cache: PageCache, quarantine: Quarantine) -> None:
        self._app, self._cache, self._quarantine = app, cache, quarantine

    def fetch(self, reader: Reader, table: str, names: Sequence[bytes]) -> list[object | None]:
        """Decoded rows; ``None`` where there is no row; a damaged one comes back as its ``CorruptBlock``."""
        return self._cache.fetch(table, names, lambda missing: self._load(reader, table, missing, _FORMS[table]))

    def aggregates(
        self, reader: Reader, table: str, names: Sequence[bytes], columns: Sequence[str]
    ) -> list[object | None]:
        """The same for rows of `hours` and `days`, of which only these columns are read and decoded."""
        cells = [rollup_rows.SHAPE, *(rollup_rows.CELLS[name] for name in columns)]

        def load(missing: Sequence[bytes]) -> list[object | None]:
            return self._load(reader, table, missing, lambda row: rollup_rows.decode_row(row, columns), cells)

        return self._cache.fetch(f"{table} {' '.join(columns)}", names, load)

    def manifests(self, reader: Reader, days: Sequence[int]) -> dict[int, Manifest]:
        """The manifests of these days; absent ones are left out. Raises ``CorruptBlock``."""
        rows = reader.get("manifest", [keys.manifest(self._app, day) for day in days], [COLUMN])
        raw = {day: row[COLUMN] for day, row in zip(days, rows, strict=True) if row is not None}
        found = self._cache.fetch("manifest", list(raw.values()), lambda new: [*map(manifest.decode, new)], _grown)
        return {day: made for day, made in zip(raw, found, strict=True) if isinstance(made, Manifest)}

    def month(self, reader: Reader, month: int) -> Month:
        """The manifest of a month; an empty one where there is none. Raises ``CorruptBlock``."""
        [row] = reader.get("manifest", [keys.manifest_month(self._app, month)], [COLUMN])
        if row is None:
            return Month()
        [made] = self._cache.fetch("month", [row[COLUMN]], lambda new: [*map(manifest.decode_month, new)], _grown)
        assert isinstance(made, Month), "BUG: a month that is none"
        return made

    def _load(
        self,
        reader: Reader,
        table: str,
        names: Sequence[bytes],
        form: Form,
        columns: Sequence[bytes] | None = None,
    ) -> list[object | None]:
        found = reader.get(table, names, columns)
        return [
            None if row is None else self._decode(table, key, row, form) for key, row in zip(names, found, strict=True)
        ]

    def _decode(self, table: str, key: bytes, row: Mapping[bytes, bytes], form: Form) -> object:
        try:
            return form(row)
        except CorruptBlock as error:
            self._quarantine.report(self._app, table, key, b"".join(row.values()), error)
            return error

    def held(self, table: str, names: Sequence[bytes]) -> list[object | None]:
        """Those of these rows that are decoded already, in order; ``None`` for all others."""
        return self._cache.held(table, names)

    def lines(self, reader: Reader, unit: HourShardData, generation: manifest.Generation, pages: Pages) -> Known | None:
        """The lines of these pages of a generation's pool; ``None`` where they cannot be used as they are."""

        def load(_: Sequence[bytes]) -> list[object | None]:
            def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
                return self._load(reader, table, names, _FORMS[table])

            return [Known.of(units.open_pool(fetch, unit, generation, np.array(pages, np.int32)))]

        key = lines_key(unit.shard, self._app, unit.hour, generation, pages)
        [known] = self._cache.fetch("lines", [key], load)
        assert known is None or isinstance(known, Known), "BUG: lines of another kind"
        return known

    def log(self, reader: Reader, names: Sequence[bytes]) -> list[Piece | None]:
        """Blocks as pieces; ``None`` where there is no row, an empty piece for a damaged one. Not cached."""
        loaded = self._load(reader, "log", names, _FORMS["log"])
        return [piece if piece is None or isinstance(piece, Piece) else EMPTY for piece in loaded]


def lines_key(shard: int, app: int, hour: int, generation: manifest.Generation, pages: Pages) -> bytes:
    """By which the lines of these pages of a unit's pool are kept."""
    return keys.inputs(shard, app, hour, generation.number) + array("H", pages).tobytes()


def _grown(key: bytes, _: object) -> int:
    return 1_000 + _MANIFEST_GROWTH * len(key)


class Months:
    """The manifests of months, each read when a query first asks for it: after those of the days."""

    def __init__(self, rows: Rows, reader: Reader) -> None:
        self._rows, self._reader = rows, reader
        self._found: dict[int, Month] = {}

    def of(self, day: int) -> tuple[int, Month]:
        """(number of the month a day lies in, its manifest)."""
        number = month_of(day)
        if number not in self._found:
            self._found[number] = self._rows.month(self._reader, number)
        return number, self._found[number]


@dataclass(frozen=True, slots=True)
class Asked:
    """The series a query wants: by metric, and by the shards in which each metric may lie."""

    every: PageRequest
    by_shard: Mapping[int, PageRequest]
    apart: bool  # no metric lies in two shards

    def of(self, shard: int) -> PageRequest | None:
        """What to read in a shard; ``None``: nothing."""
        return self.by_shard.get(shard)


@dataclass(frozen=True, slots=True)
class Scan:
    """One query's view of an app: its tail, then its manifests."""

    app: int
    reader: Reader
    tail: TailView
    manifests: Mapping[int, Manifest]
    months: Months
    rows: Rows
    lens: Visibility
    active: tuple[Retraction, ...]  # all that are in force; the lens has those that this query can meet
    known: Mapping[int, Retraction]
    distribution: Distribution
    ground: Ground
    span_ms: tuple[int, int]  # samples with first < ts <= second are asked for
    tick: Callable[[], None]

    def asked(self, by_metric: ByMetric) -> Asked:
        """What to read for these series, where each metric lies in one shard only from that."""
        every = PageRequest({metric: by_metric.ids[a:b] for metric, (a, b) in by_metric.spans.items()})
        settled, shards = self.distribution.settled, self.distribution.all(self.app)
        if settled and len(shards) == 1:
            self.ground.shards.update(shards)
            return Asked(every, dict.fromkeys(shards, every), settled)
        names = np.fromiter(every.series, np.uint64, len(every.series))
        place = self.distribution.of(self.app, names)
        split: dict[int, PageRequest] = {}
        for shard in shards:
            kept = place == shard if settled else self._kept(shard, names)
            if kept.any():
                mine = every.series if kept.all() else {name: every.series[name] for name in names[kept].tolist()}
                split[shard] = PageRequest(mine)
        self.ground.shards.update(split)
        return Asked(every, split, settled)

    def _kept(self, shard: int, names: U64) -> BOOL:
        """bool[S]: the metrics that may lie in a shard."""
        left = distribution.abandoned(self.distribution, self.app, shard, names)
        return np.ones(len(names), np.bool_) if left is None else ~left

    def units(self, first_hour: int, last_hour: int, *, sealed: bool = False) -> Iterator[tuple[int, list[int]]]:
        """(hour, shards that hold samples of it) between two hours, in the order of time.

        Hours whose samples are gone are left out, unless ``sealed`` ones are asked for too.
        """
        found: dict[int, set[int]] = {}
        for shard, hour in self.tail.units():
            if first_hour <= hour <= last_hour:
                found.setdefault(hour, set()).add(shard)
        for day in self._days(first_hour, last_hour):
            for (shard, hour), entry in day.entries.items():
                if first_hour <= hour <= last_hour and (entry.state.generations or entry.state.replay):
                    found.setdefault(hour, set()).add(shard)
        for hour in sorted(found):
            if sealed or self.seal(hour) < SEALED:
                yield hour, sorted(found[hour])

    def sealed(self, first_hour: int, last_hour: int) -> dict[int, int]:
        """Hour -> state of those whose samples are gone, between two hours."""
        return {
            hour: state
            for day in self._days(first_hour, last_hour)
            for hour, state in day.seals.items()
            if state >= SEALED and first_hour <= hour <= last_hour
        }

    def _days(self, first_hour: int, last_hour: int) -> Iterator[Manifest]:
        days = range(first_hour // DAY_HOURS, last_hour // DAY_HOURS + 1)
        if len(days) > len(self.manifests):  # a thousand years of them
            return (found for day, found in self.manifests.items() if day in days)
        return (self.manifests[day] for day in days if day in self.manifests)

    def seal(self, hour: int) -> int:
        """The state of an hour."""
        day = self.manifests.get(hour // DAY_HOURS)
        return day.seal(hour) if day else manifest.OPEN

    def entry(self, shard: int, hour: int) -> Entry:
        """What the manifest says of a unit."""
        day = self.manifests.get(hour // DAY_HOURS)
        return day.entry(shard, hour) if day else Entry()

    def hour(self, hour: int, shards: Sequence[int], asked: Asked) -> list[Winners]:
        """The winners of one hour, in one or more parts with disjoint series.

        When metrics may lie in several shards, versions are merged across them before winners are chosen.
        """
        self.tick()
        wanted = [(shard, asked.of(shard)) for shard in shards]
        found = [self.versions(shard, hour, part) for shard, part in wanted if part is not None]
        if any(pieces for pieces, _ in found):
            self.ground.use(RAW, hour)
        if not asked.apart and len(found) > 1:
            return self._picked([piece for pieces, _ in found for piece in pieces], clean=False)
        return [part for pieces, clean in found for part in self._picked(pieces, clean=clean)]

    def fetch(self, table: str, names: Sequence[bytes]) -> list[object | None]:
        """Decoded rows, as ``Rows.fetch`` gives them."""
        return self.rows.fetch(self.reader, table, names)

    def _picked(self, pieces: list[Piece], *, clean: bool) -> list[Winners]:
        whole = pieces if clean or not pieces else [merge(pieces)]
        return [pick(piece, self._seen(piece)) for piece in whole]

    def _seen(self, piece: Piece) -> BOOL | None:
        """What the lens keeps of a piece; retractions that take something out of what is asked for are noted."""
        kept = self.lens.kept(piece)
        if kept is None:
            return None
        asked = (piece.ts > self.span_ms[0]) & (piece.ts <= self.span_ms[1])
        for retraction in self.lens.retractions:
            if retraction.number not in self.ground.retractions:
                left = Visibility((retraction,), self.lens.series_of).kept(piece)
                if left is not None and (asked & ~left).any():
                    self.ground.retractions.add(retraction.number)
        return kept

    def versions(self, shard: int, hour: int, wanted: PageRequest) -> tuple[list[Piece], bool]:
        """All versions of one unit, and whether the pieces are merged already and have no series in common."""
        entry, unit = self.entry(shard, hour), HourShardData(shard, self.app, hour)
        self._check_tail(unit, entry)
        pieces: list[Piece] = []
        try:
            for generation in entry.state.generations:
                pieces += self._generation(unit, generation, wanted)
        except IntegrityError:
            self.moved_or_lost(hour)
            raise
        others = self._blocks(unit, entry) + self.tail.pieces(shard, hour)
        chosen = [narrow(p, _of(p, wanted)) for p in others]
        chosen = [p for p in chosen if len(p)]
        clean = not chosen and len(entry.state.generations) <= 1
        return pieces + chosen, clean or (not pieces and len(chosen) == 1 and not entry.state.replay)

    def _generation(self, unit: HourShardData, generation: manifest.Generation, wanted: PageRequest) -> list[Piece]:
        return units.read_generation(self.fetch, lambda: self.directory(unit, generation), unit, generation, wanted)

    def directory(self, unit: HourShardData, generation: manifest.Generation) -> Inputs | CorruptBlock | None:
        """What a generation (of a unit, or of a pack by its first hour) says it wrote; ``None`` where no row is."""
        [made] = self.rows.fetch(self.reader, "inputs", [units.inputs_key(unit, generation)])
        return made if isinstance(made, Inputs | CorruptBlock) else None

    def _blocks(self, unit: HourShardData, entry: Entry) -> list[Piece]:
        """The blocks of the replay list."""
        names = [keys.LogKey(unit.shard, unit.app, unit.hour, r.ingest_ms, r.batch) for r in entry.state.replay]
        found = self.rows.log(self.reader, [n.to_bytes() for n in names]) if names else []
        if any(piece is None for piece in found):
            self.moved_or_lost(unit.hour)
            raise IntegrityError(f"a block of the replay list of {unit} is missing")
        return [piece for piece in found if piece is not None]

    def _check_tail(self, unit: HourShardData, entry: Entry) -> None:
        """Blocks that were gone when the tail was read must be inside a generation in force; else look again."""
        missing = set(self.tail.missing.get((unit.shard, unit.hour), ()))
        if not missing:
            return
        made = [self.directory(unit, generation) for generation in entry.state.generations]
        missing -= {replay.batch for inputs in made if isinstance(inputs, Inputs) for replay in inputs.batches}
        if missing:
            self.moved_or_lost(unit.hour)
            raise IntegrityError(f"{len(missing)} block(s) of {unit} are missing, one of batch {min(missing):016x}")

    def moved_or_lost(self, hour: int) -> None:
        """Raise ``Moved`` if the day's manifest is no longer the one this view was made from."""
        day = hour // DAY_HOURS
        now = self.rows.manifests(self.reader, [day]).get(day, Manifest())
        if now.nonce != self.manifests.get(day, Manifest()).nonce:
            raise Moved(f"manifest of day {day}")


def _of(piece: Piece, wanted: PageRequest) -> np.ndarray:
    """bool[S]: the series of a piece that are wanted. Metrics of a query are few."""
    chosen = np.zeros(len(piece.series), np.bool_)
    for metric, series in wanted.series.items():
        held = piece.metrics == np.uint64(metric)
        chosen |= held if series is None else held & np.isin(piece.series, series)
    return chosen
