"""Deletes what no reader can need any more: superseded and orphaned generations, blocks that chunks hold (rule 19).

Enter by ``purge``. In order: list what there is; cut the histories and put up a fence by check-and-put of each manifest
that has something to lose; then delete only what was listed before and what the new values do not name. A run under way
cannot flip across the fence, so nothing it is about to name is deleted (rule 20). Blocks that no generation holds stay
until their hour's retention is over (rule 21). Pages go before the ``inputs`` that list them, so that a purge that was
killed is finished by the next.

Of an LMDB file the space is used again by what is written next; the file itself never shrinks. A compacting copy is not
offered: put in the file's place under processes that have it open, it would lose what they write. Who needs the disk's
space back stops everything and runs ``mdb_copy -c``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rollups.crash_points import Hook, nowhere
from rollups.decide.superseded import (
    COVERED,
    EXPIRED,
    REASONS,
    SUPERSEDED,
    Listed,
    Place,
    Word,
    cut,
    doomed,
    named_by_day,
    named_by_month,
)
from rollups.decide.superseded import states as states_of
from rollups.delete.listing import TABLES, Listing, every_shard, everything, of_day
from rollups.manifest import cells
from rollups.run.rollback import batches
from spm import limits
from spm.clock import random_u64
from spm.errors import CorruptBlock, Refused
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.ledger.commit_records import ledger_key
from spm.store.manifest import SEALED, Manifest, Month, first_day_of, month_of
from spm.store.versions import generations
from spm.store.versions.generations import HourShardData, Inputs

__all__ = ["COVERED", "EXPIRED", "REASONS", "SUPERSEDED", "TABLES", "Purged", "Tally", "cut", "every_shard", "purge"]

Watch = Callable[[int, int], None]  # days done, days in all


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows, and how many bytes they hold."""

    rows: int = 0
    size_bytes: int = 0

    def plus(self, rows: int, size_bytes: int) -> "Tally":
        """So many more."""
        return Tally(self.rows + rows, self.size_bytes + size_bytes)


@dataclass(slots=True)
class Purged:
    """What went (or would go) by (table, reason), and how many days were left for another time."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    busy: int = 0  # days whose manifest kept moving meanwhile
    damaged: int = 0  # days whose manifest and generations whose ``inputs`` cannot be read: ``fsck`` names them

    @property
    def rows(self) -> dict[str, int]:
        """Rows by table."""
        return {t: sum(tally.rows for (table, _), tally in self.tallies.items() if table == t) for t in TABLES}

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(tally.size_bytes for tally in self.tallies.values())

    def add(self, table: str, reason: str, rows: int, size_bytes: int) -> None:
        """Count some."""
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
    found: Mapping[int, Listing] | None = None,
    at: Hook = nowhere,
    watch: Watch = lambda done, total: None,
) -> Purged:
    """Delete what is superseded; ``keep`` former states of each unit stay, so that its last runs can be rolled back.

    ``days``: of these alone. ``found``: what somebody listed before (``purging``), who may have listed too much but not
    what came later. A dry run reads the same and changes nothing.
    """
    if found is None:
        found = everything(store, app, every_shard(store, app) if shards is None else shards, days)
    at("purge listed")
    done = Purged()
    for number, (day, listing) in enumerate(sorted(found.items()), 1):
        _purge_day(store, app, day, listing, done, keep=keep, dry_run=dry_run, at=at)
        watch(number, len(found))
    return done


def _purge_day(
    store: Backend, app: int, day: int, listing: Listing, done: Purged, *, keep: int, dry_run: bool, at: Hook
) -> None:
    try:
        fences = _fences(store, app, day, {*listing.made, *listing.pages}, keep=keep, dry_run=dry_run)
    except CorruptBlock:
        done.damaged += 1  # nobody knows what this day needs
        return
    if fences is None:
        done.busy += 1
        return
    found = [Listed("inputs", *place) for place in sorted({*listing.made, *listing.pages})]
    going = doomed([*found, *listing.blocks], _word(store, app, day, fences, listing))
    if not going:
        return
    at("purge fenced")
    for listed, reason in going.items():
        if listed.table == "log":
            _take(store, {"log": [listing.blocks[listed]]}, reason, done, dry_run=dry_run)
        else:
            _take_generation(store, app, listed.place, listing, reason, done, dry_run=dry_run)
        at("purge deleting")


# --- fences -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fences:
    """A day's manifest before, and with its history cut and a fence where anything may go; its month likewise."""

    before: Manifest
    day: Manifest
    month: Month


def _fences(
    store: Backend, app: int, day: int, found: Collection[Place], *, keep: int, dry_run: bool
) -> _Fences | None:
    """Put up what is needed before anything of these is deleted; ``None`` when others keep changing the manifests.

    Days are packed at the first hour of their month: rows there may be of either.
    """
    first = day == first_day_of(month_of(day))
    of_month = manifest.decode_month(cells.read_cell(store, "manifest", keys.manifest_month(app, month_of(day))))
    mine = set(found) - named_by_month(month_of(day), of_month) if first else found
    of_day = _fence_day(store, app, day, mine, keep=keep, dry_run=dry_run)
    if of_day is None:
        return None
    theirs = set(found) - named_by_day(day, of_day[1])
    month = _fence_month(store, app, month_of(day), theirs, dry_run=dry_run) if first else of_month
    return None if month is None else _Fences(*of_day, month)


def _fence_day(
    store: Backend, app: int, day: int, found: Collection[Place], *, keep: int, dry_run: bool
) -> tuple[Manifest, Manifest] | None:
    """A day without a manifest gets one: a run that died before its first flip is fenced off like any other."""
    key = keys.manifest(app, day)
    for _ in range(limits.ROLL_REPLANS_MAX):
        cell = cells.read_cell(store, "manifest", key)
        before = manifest.decode(cell)
        value = cut(before, keep, random_u64())
        if dry_run or (set(found) <= named_by_day(day, value) and value.entries == before.entries):
            return before, value
        if cells.swap(store, key, cell, manifest.encode(value), cells.holds(value.nonce))[0]:
            return before, value
    return None


def _fence_month(store: Backend, app: int, month: int, found: Collection[Place], *, dry_run: bool) -> Month | None:
    """A new nonce alone stops who is building days: flips of months are never rebased."""
    key = keys.manifest_month(app, month)
    for _ in range(limits.ROLL_REPLANS_MAX):
        cell = cells.read_cell(store, "manifest", key)
        value = Month(random_u64(), manifest.decode_month(cell).days)
        if dry_run or set(found) <= named_by_month(month, value):
            return value
        if cells.swap(store, key, cell, manifest.encode_month(value), _holds(value.nonce))[0]:
            return value
    return None


def _holds(nonce: int) -> Callable[[bytes | None], bool]:
    return lambda cell: manifest.decode_month(cell).nonce == nonce


# --- what manifests and inputs say ------------------------------------------------------------------------------------


def word(store: Backend, app: int, day: int, shards: Sequence[int], *, keep: int) -> Word:
    """What a purge would go by now; nothing is changed. Raises ``CorruptBlock``."""
    listing = of_day(store, app, shards, day)
    fences = _fences(store, app, day, listing.made, keep=keep, dry_run=True)
    assert fences is not None, "BUG: a dry run was kept from a fence"
    return _word(store, app, day, fences, listing)


def _word(store: Backend, app: int, day: int, fences: _Fences, listing: Listing) -> Word:
    word = Word.of({day: fences.day}, {month_of(day): fences.month})
    let_go = named_by_day(day, fences.before) - word.named
    blocks: dict[tuple[int, int], list[keys.LogKey]] = {}
    for listed, key in listing.blocks.items():
        blocks.setdefault((listed.shard, listed.hour), []).append(keys.LogKey.parse(key))
    return Word(
        word.named,
        _parents(store, app, word.named, listing) | let_go,
        word.sealed,
        {
            place: _held(store, HourShardData(place[0], app, place[1]), fences.day, found)
            for place, found in blocks.items()
        },
    )


def _parents(store: Backend, app: int, named: Collection[Place], listing: Listing) -> frozenset[Place]:
    """What the named generations were made of, as far as it is still there: superseded, not orphaned."""
    hours = {place[:2] for place in listing.made - set(named)}
    left = [place for place in named if place[:2] in hours]
    found: set[Place] = set()
    while left:
        shard, hour, number = left.pop()
        made = _inputs(store, app, (shard, hour, number))
        parents = {(shard, hour, parent) for parent in made.parents} if isinstance(made, Inputs) else set()
        fresh = (parents & listing.made) - found - set(named)
        found |= fresh
        left += fresh
    return frozenset(found)


def _held(store: Backend, unit: HourShardData, value: Manifest, found: Sequence[keys.LogKey]) -> frozenset[int]:
    """Batches, of those found, whose blocks nobody needs: every state in force or in history holds them, or none does.

    What none holds and none replays is gone from here when it was taken in by a run: it was moved to other shards.
    """
    if value.seal(unit.hour) >= SEALED:
        return frozenset()
    inside: list[set[int]] = []
    replayed: set[int] = set()
    entry = value.entry(unit.shard, unit.hour)
    for state in states_of(entry):
        try:
            inside.append({r.batch for r in batches(store, unit, state.generations)})
        except (Refused, CorruptBlock):
            return frozenset()
        replayed |= {r.batch for r in state.replay}
    held = frozenset(set.intersection(*inside) - replayed)
    apart = _settled(store, [block for block in found if block.batch not in replayed.union(*inside)])
    if apart:
        cell = cells.read_cell(store, "manifest", keys.manifest(unit.app, unit.hour // DAY_HOURS))
        if manifest.decode(cell).entry(unit.shard, unit.hour) != entry:
            return held  # a run may have taken them in just now
    return held | apart


def _settled(store: Backend, found: Sequence[keys.LogKey]) -> frozenset[int]:
    """Batches that a run has taken in: accounted for, and not pending."""
    settled: set[int] = set()
    for part in _portions([block.to_bytes() for block in found]):
        blocks = [keys.LogKey.parse(key) for key in part]
        accounts = store.get("ledger", [ledger_key(block) for block in blocks], [cells.COLUMN])
        taken = [block for block, row in zip(blocks, accounts, strict=True) if row is not None]
        names = [keys.PendingKey(b.shard, b.app, b.ingest_ms, b.batch).to_bytes() for b in taken]
        waiting = store.get("pending", names) if names else []
        settled |= {
            block.batch
            for block, row in zip(taken, waiting, strict=True)
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


def _take_generation(
    store: Backend, app: int, place: Place, listing: Listing, reason: str, done: Purged, *, dry_run: bool
) -> None:
    """All rows of a generation: those its directory lists, or those found without one; ``inputs`` last."""
    made = _inputs(store, app, place)
    if isinstance(made, CorruptBlock):
        done.damaged += 1
        return
    names: dict[str, list[bytes]] = {}
    for table, key in listing.pages.get(place, ()):
        names.setdefault(table, []).append(key)
    if made is not None:
        names = pages_of(app, place, made)
    _take(store, names, reason, done, dry_run=dry_run)
    if made is not None:
        _take(store, {"inputs": [keys.inputs(place[0], app, place[1], place[2])]}, reason, done, dry_run=dry_run)


def pages_of(app: int, place: Place, made: Inputs) -> dict[str, list[bytes]]:
    """The keys of a generation's pages, of a unit or of a pack: what it is its directory does not say, its hour may."""
    shard, hour, number = place
    listed = [(metric, page) for metric, pages in made.pages.items() for page in pages]
    pool = range(made.timeline_pages)
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


def _take(store: Backend, names: dict[str, list[bytes]], reason: str, done: Purged, *, dry_run: bool) -> None:
    for table, listed in names.items():
        rows, size = weigh(store, table, listed) if dry_run else take(store, table, listed)
        done.add(table, reason, rows, size)


def take(store: Backend, table: str, names: Sequence[bytes]) -> tuple[int, int]:
    """Delete these rows, portion by portion: (how many there were, their bytes)."""
    rows = size = 0
    for part in _portions(names):
        found, weight = weigh(store, table, part)
        rows, size = rows + found, size + weight
        if found:
            store.delete(table, [(name, None) for name in part])
    return rows, size


def weigh(reader: Reader, table: str, names: Sequence[bytes]) -> tuple[int, int]:
    """How many of these rows there are, and their bytes."""
    rows = size = 0
    for part in _portions(names):
        found = [row for row in reader.get(table, part) if row is not None]
        rows += len(found)
        size += sum(len(value) for row in found for value in row.values())
    return rows, size


def _portions(names: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    """So few at a time that they fit in memory."""
    step = limits.PURGE_ROWS_WEIGHED
    return (names[start : start + step] for start in range(0, len(names), step))
