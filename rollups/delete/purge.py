"""Deletes rows that no reader can need any more: superseded and orphaned generations, covered blocks (PROTOCOL 19).

Enter by ``purge``. In order: list the rows; cut the history and set a fence by check-and-put of each manifest that has
rows to lose; then delete only rows that were listed before and that the new manifest does not name. A run in progress
cannot publish across the fence, so no row that it is about to name is deleted (PROTOCOL 20). Blocks that no generation
holds stay until their hour's retention is over (PROTOCOL 21). Pages go before the ``inputs`` that list them, so that
the next purge finishes one that was killed.

LMDB uses the freed space for new rows; its file does not shrink by itself. ``spm.store.backends.lmdb_file`` puts a
compact copy in its place: at a start, when most of the file is free, and by ``bin/manage maintain --compact``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollups.crash_points import Hook, ignore_point
from rollups.decide.superseded import (
    COVERED,
    EXPIRED,
    REASONS,
    SUPERSEDED,
    ListedRows,
    Place,
    References,
    cut_history,
    find_superseded,
    named_by_day,
    named_by_month,
    states_of,
)
from rollups.delete.listing import TABLES, Listing, every_shard, list_all, list_day
from rollups.manifest import cells
from rollups.run.rollback import batches
from spm import limits
from spm.clock import random_u64
from spm.errors import CorruptBlock, Refused
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.ledger import folded_hours
from spm.store.ledger.commit_records import ledger_key
from spm.store.manifest import SEALED, Manifest, Month, first_day_of, month_of
from spm.store.versions import generations
from spm.store.versions.generations import HourShard, Inputs

__all__ = [
    "COVERED",
    "EXPIRED",
    "REASONS",
    "SUPERSEDED",
    "TABLES",
    "PurgeResult",
    "Tally",
    "cut_history",
    "every_shard",
    "purge",
]

Watch = Callable[[int, int], None]  # days done, days in all


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows, and how many bytes they hold."""

    rows: int = 0
    size_bytes: int = 0

    def plus(self, rows: int, size_bytes: int) -> "Tally":
        """The sum with more rows."""
        return Tally(self.rows + rows, self.size_bytes + size_bytes)


@dataclass(slots=True)
class PurgeResult:
    """The rows that were (or would be) deleted by (table, reason), and how many days were skipped."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    busy: int = 0  # days that were skipped because their manifest kept changing
    damaged: int = 0  # days whose manifest and generations whose ``inputs`` cannot be read: ``fsck`` names them

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {t: sum(tally.rows for (table, _), tally in self.tallies.items() if table == t) for t in TABLES}

    @property
    def size_bytes(self) -> int:
        """The bytes of all rows."""
        return sum(tally.size_bytes for tally in self.tallies.values())

    def add(self, table: str, reason: str, rows: int, size_bytes: int) -> None:
        """Adds rows of a table."""
        if rows:
            self.tallies[table, reason] = self.tallies.get((table, reason), Tally()).plus(rows, size_bytes)


def purge(
    store: Backend,
    app: int,
    shards: Sequence[int] | None = None,
    *,
    keep: int = limits.PURGE_HISTORY,
    dry_run: bool = False,
    days: Collection[int] | None = None,
    listings: Mapping[int, Listing] | None = None,
    at: Hook = ignore_point,
    watch: Watch = lambda done, total: None,
) -> PurgeResult:
    """Deletes superseded rows; ``keep`` former states of each hour shard stay, so that runs can be rolled back.

    ``days`` restricts it to these days. ``listings`` is an earlier listing (by Spark): it may name too many rows, but
    none that came later. A dry run reads everything and changes nothing.
    """
    if listings is None:
        listings = list_all(store, app, every_shard(store, app) if shards is None else shards, days)
    at("purge listed")
    result = PurgeResult()
    for number, (day, listing) in enumerate(sorted(listings.items()), 1):
        _purge_day(store, app, day, listing, result, keep=keep, dry_run=dry_run, at=at)
        watch(number, len(listings))
    return result


def _purge_day(
    store: Backend, app: int, day: int, listing: Listing, result: PurgeResult, *, keep: int, dry_run: bool, at: Hook
) -> None:
    try:
        fences = _fences(store, app, day, {*listing.generations, *listing.pages}, keep=keep, dry_run=dry_run)
    except CorruptBlock:
        result.damaged += 1  # it is unknown which rows this day needs
        return
    if fences is None:
        result.busy += 1
        return
    generations = [ListedRows("inputs", *place) for place in sorted({*listing.generations, *listing.pages})]
    superseded = find_superseded([*generations, *listing.blocks], _references(store, app, day, fences, listing))
    if not superseded:
        return
    at("purge fenced")
    for listed, reason in superseded.items():
        if listed.table == "log":
            _delete_or_measure(store, app, {"log": [listing.blocks[listed]]}, reason, result, dry_run=dry_run)
        else:
            _delete_generation(store, app, listed.place, listing, reason, result, dry_run=dry_run)
        at("purge deleting")


# --- fences -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fences:
    """A day's manifest before the purge, its manifest with a cut history and a fence, and its month with a fence."""

    before: Manifest
    day: Manifest
    month: Month


def _fences(
    store: Backend, app: int, day: int, places: Collection[Place], *, keep: int, dry_run: bool
) -> _Fences | None:
    """Sets the fences that must exist before any row is deleted; ``None`` if others keep changing the manifests.

    Packs of days have the first hour of their month as their place: rows there may belong to a day or to a month.
    """
    first = day == first_day_of(month_of(day))
    month_before = manifest.decode_month(cells.read_cell(store, "manifest", keys.manifest_month(app, month_of(day))))
    of_the_day = set(places) - named_by_month(month_of(day), month_before) if first else places
    day_fence = _fence_day(store, app, day, of_the_day, keep=keep, dry_run=dry_run)
    if day_fence is None:
        return None
    of_the_month = set(places) - named_by_day(day, day_fence[1])
    month = _fence_month(store, app, month_of(day), of_the_month, dry_run=dry_run) if first else month_before
    return None if month is None else _Fences(*day_fence, month)


def _fence_day(
    store: Backend, app: int, day: int, places: Collection[Place], *, keep: int, dry_run: bool
) -> tuple[Manifest, Manifest] | None:
    """Sets a day's fence; a day without a manifest gets one, to fence off a run that died before it published."""
    key = keys.manifest(app, day)
    for _ in range(limits.PUBLISH_TRIES_MAX):
        cell = cells.read_cell(store, "manifest", key)
        before = manifest.decode(cell)
        value = cut_history(before, keep, random_u64())
        if dry_run or (set(places) <= named_by_day(day, value) and value.entries == before.entries):
            return before, value
        if cells.swap(store, key, cell, manifest.encode(value), cells.has_nonce(value.nonce))[0]:
            return before, value
    return None


def _fence_month(store: Backend, app: int, month: int, places: Collection[Place], *, dry_run: bool) -> Month | None:
    """Sets a month's fence: a new nonce is enough, because the publication of a month is never rebased."""
    key = keys.manifest_month(app, month)
    for _ in range(limits.PUBLISH_TRIES_MAX):
        cell = cells.read_cell(store, "manifest", key)
        value = Month(random_u64(), manifest.decode_month(cell).days)
        if dry_run or set(places) <= named_by_month(month, value):
            return value
        if cells.swap(store, key, cell, manifest.encode_month(value), _month_has_nonce(value.nonce))[0]:
            return value
    return None


def _month_has_nonce(nonce: int) -> Callable[[bytes | None], bool]:
    return lambda cell: manifest.decode_month(cell).nonce == nonce


# --- references of manifests and inputs -------------------------------------------------------------------------------


def read_references(store: Backend, app: int, day: int, shards: Sequence[int], *, keep: int) -> References:
    """Reads the references by which a purge would decide now; changes nothing. Raises ``CorruptBlock``."""
    listing = list_day(store, app, shards, day)
    fences = _fences(store, app, day, listing.generations, keep=keep, dry_run=True)
    assert fences is not None, "BUG: a dry run needs no fence"
    return _references(store, app, day, fences, listing)


def _references(store: Backend, app: int, day: int, fences: _Fences, listing: Listing) -> References:
    references = References.of({day: fences.day}, {month_of(day): fences.month})
    cut_from_history = named_by_day(day, fences.before) - references.named
    blocks: dict[tuple[int, int], list[keys.LogKey]] = {}
    for listed, key in listing.blocks.items():
        blocks.setdefault((listed.shard, listed.hour), []).append(keys.LogKey.parse(key))
    return References(
        references.named,
        _ancestors(store, app, references.named, listing) | cut_from_history,
        references.sealed,
        {
            place: _covered_batches(store, HourShard(place[0], app, place[1]), fences.day, of_place)
            for place, of_place in blocks.items()
        },
    )


def _ancestors(store: Backend, app: int, named: Collection[Place], listing: Listing) -> frozenset[Place]:
    """The ancestors of the named generations that still exist: they are superseded, not orphaned."""
    hours = {place[:2] for place in listing.generations - set(named)}
    to_follow = [place for place in named if place[:2] in hours]
    ancestors: set[Place] = set()
    while to_follow:
        shard, hour, number = to_follow.pop()
        inputs = _inputs(store, app, (shard, hour, number))
        parents = {(shard, hour, parent) for parent in inputs.parents} if isinstance(inputs, Inputs) else set()
        fresh = (parents & listing.generations) - ancestors - set(named)
        ancestors |= fresh
        to_follow += fresh
    return frozenset(ancestors)


def _covered_batches(
    store: Backend, hour_shard: HourShard, value: Manifest, blocks: Sequence[keys.LogKey]
) -> frozenset[int]:
    """The batches of these blocks that nobody needs: every state in force and in history has them, or none has.

    A batch that no state has or replays was moved to other shards, if a run has compacted it.
    """
    if value.seal(hour_shard.hour) >= SEALED:
        return frozenset()
    inside: list[set[int]] = []
    replayed: set[int] = set()
    entry = value.entry(hour_shard.shard, hour_shard.hour)
    for state in states_of(entry):
        try:
            inside.append({r.batch for r in batches(store, hour_shard, state.generations)})
        except (Refused, CorruptBlock):
            return frozenset()
        replayed |= {r.batch for r in state.replay}
    covered = frozenset(set.intersection(*inside) - replayed)
    moved = _settled_batches(store, [block for block in blocks if block.batch not in replayed.union(*inside)])
    if moved:
        cell = cells.read_cell(store, "manifest", keys.manifest(hour_shard.app, hour_shard.hour // DAY_HOURS))
        if manifest.decode(cell).entry(hour_shard.shard, hour_shard.hour) != entry:
            return covered  # a run may have compacted them just now
    return covered | moved


def _settled_batches(store: Backend, all_blocks: Sequence[keys.LogKey]) -> frozenset[int]:
    """The batches that a run has compacted: they are in the ledger and not pending."""
    settled: set[int] = set()
    for part in _portions([block.to_bytes() for block in all_blocks]):
        blocks = [keys.LogKey.parse(key) for key in part]
        ledger_rows = store.get("ledger", [ledger_key(block) for block in blocks], [cells.COLUMN])
        folded = folded_hours.are_compacted(store, blocks[0].app, blocks)
        in_ledger = [
            block for block, row, named in zip(blocks, ledger_rows, folded, strict=True) if named or row is not None
        ]
        names = [keys.PendingKey(b.shard, b.app, b.ingest_ms, b.batch).to_bytes() for b in in_ledger]
        pending_rows = store.get("pending", names) if names else []
        settled |= {
            block.batch
            for block, row in zip(in_ledger, pending_rows, strict=True)
            if keys.hour_column(block.hour) not in (row or {})
        }
    return frozenset(settled)


def _inputs(store: Backend, app: int, place: Place) -> Inputs | CorruptBlock | None:
    [row] = store.get("inputs", [keys.inputs(place[0], app, place[1], place[2])])
    try:
        return None if row is None else generations.decode_inputs(row[generations.COLUMN])
    except CorruptBlock as error:
        return error


# --- deleting ---------------------------------------------------------------------------------------------------------


def _delete_generation(
    store: Backend, app: int, place: Place, listing: Listing, reason: str, result: PurgeResult, *, dry_run: bool
) -> None:
    """Deletes all rows of a generation: those in its directory, or else the listed ones; ``inputs`` goes last."""
    inputs = _inputs(store, app, place)
    if isinstance(inputs, CorruptBlock):
        result.damaged += 1
        return
    names: dict[str, list[bytes]] = {}
    for table, key in listing.pages.get(place, ()):
        names.setdefault(table, []).append(key)
    if inputs is not None:
        names = pages_of(app, place, inputs)
    _delete_or_measure(store, app, names, reason, result, dry_run=dry_run)
    if inputs is not None:
        _delete_or_measure(
            store, app, {"inputs": [keys.inputs(place[0], app, place[1], place[2])]}, reason, result, dry_run=dry_run
        )


def pages_of(app: int, place: Place, inputs: Inputs) -> dict[str, list[bytes]]:
    """The keys of a generation's pages. The directory does not say if it is a pack, so keys of packs are included."""
    shard, hour, number = place
    listed = [(metric, page) for metric, pages in inputs.pages.items() for page in pages]
    pool = range(inputs.timeline_pages)
    names = {
        "chunks": [keys.chunk(shard, app, metric, hour, number, page) for metric, page in listed],
        "timelines": [keys.timeline(shard, app, hour, number, page) for page in pool],
    }
    day = hour // DAY_HOURS
    if hour % DAY_HOURS == 0:
        names["hours"] = [keys.hours(shard, app, metric, day, number, page) for metric, page in listed]
    if hour == first_day_of(month_of(day)) * DAY_HOURS:
        names["days"] = [keys.days(shard, app, metric, month_of(day), number, page) for metric, page in listed]
    return names


def _delete_or_measure(
    store: Backend, app: int, names: dict[str, list[bytes]], reason: str, result: PurgeResult, *, dry_run: bool
) -> None:
    for table, listed in names.items():
        rows, size = measure_rows(store, table, listed) if dry_run else delete_rows(store, app, table, listed)
        result.add(table, reason, rows, size)


def delete_rows(store: Backend, app: int, table: str, names: Sequence[bytes]) -> tuple[int, int]:
    """Deletes these rows of an app in portions; returns (how many existed, their bytes).

    Raises ``IntegrityError``, and deletes nothing, if one belongs to another app.
    """
    keys.check_app(app, table, names)
    rows = size = 0
    for part in _portions(names):
        count, weight = measure_rows(store, table, part)
        rows, size = rows + count, size + weight
        if count:
            store.delete(table, [(name, None) for name in part])
    return rows, size


def measure_rows(reader: Reader, table: str, names: Sequence[bytes]) -> tuple[int, int]:
    """Returns (how many of these rows exist, their bytes)."""
    rows = size = 0
    for part in _portions(names):
        existing = [row for row in reader.get(table, part) if row is not None]
        rows += len(existing)
        size += sum(len(value) for row in existing for value in row.values())
    return rows, size


def _portions(names: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    """Cuts the list into portions that fit in memory."""
    step = limits.PURGE_ROWS_WEIGHED
    return (names[start : start + step] for start in range(0, len(names), step))
