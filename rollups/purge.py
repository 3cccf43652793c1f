"""Deletes what no reader can need any more: superseded generations and packs, and blocks that chunks hold (rule 19).

Enter by ``purge``. Per month of an app and bucket: list what is there; cut the histories and put up a fence by
check-and-put of each manifest; then delete only what was listed before and what the new values do not name. A run under
way cannot flip across the fence, so nothing it is about to name is deleted (rule 20). Blocks that no generation holds
are never touched, however old (rule 21).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from rollups import cells
from rollups.plan import first_day_of, month_of
from rollups.points import Hook, nowhere
from rollups.rollback import batches
from spm import limits
from spm.clock import random_u64
from spm.errors import Refused
from spm.limits import DAY_SLOTS
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import Entry, Manifest, Month
from spm.store.units import Unit

_GENERATED = ("chunks", "timelines", "inputs", "hours", "days")
_TABLES = (*_GENERATED, "log")


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows of each table went (or would go), and months that were left for another time."""

    rows: dict[str, int]
    busy: int = 0  # (bucket, month)s whose manifests moved meanwhile


@dataclass(frozen=True, slots=True)
class _Listing:
    """Rows of one bucket and month: (key, slot, generation or batch) by table."""

    rows: dict[str, list[tuple[bytes, int, int]]] = field(default_factory=lambda: {t: [] for t in _TABLES})


def purge(
    store: Backend, app: int, buckets: Sequence[int], *,
    keep: int = limits.PURGE_HISTORY, dry_run: bool = False, at: Hook = nowhere,
) -> Purged:  # fmt: skip
    """Delete what is superseded; ``keep`` former states of each unit stay, so that its last runs can be rolled back."""
    rows = dict.fromkeys(_TABLES, 0)
    busy = 0
    for bucket in buckets:
        for month, listing in sorted(_list(store, app, bucket).items()):
            at("purge listed")
            doomed = _doomed(store, app, bucket, month, listing, keep=keep, dry_run=dry_run)
            if doomed is None:
                busy += 1
                continue
            at("purge fenced")
            for table, names in doomed.items():
                rows[table] += len(names)
                if not dry_run:
                    _delete(store, table, names, at)
    return Purged(rows, busy)


def _list(store: Backend, app: int, bucket: int) -> dict[int, _Listing]:
    """Everything of a bucket by month."""
    found: dict[int, _Listing] = {}
    for table in _TABLES:
        for key, _ in store.scan(table, *keys.app_range(bucket, app), keys_only=True):
            slot, number = _parse(table, key)
            found.setdefault(month_of(slot // DAY_SLOTS), _Listing()).rows[table].append((key, slot, number))
    return found


def _parse(table: str, key: bytes) -> tuple[int, int]:
    """(slot, generation or batch) of a row; for hours and days the slot of their inputs, the first of their period."""
    if table == "log":
        block = keys.LogKey.parse(key)
        return block.slot, block.batch
    if table == "timelines":
        _, _, slot, generation, _ = keys.parse_timeline(key)
        return slot, generation
    if table == "chunks":
        _, _, _, slot, generation, _ = keys.parse_chunk(key)
        return slot, generation
    if table == "inputs":
        _, _, slot, generation = keys.parse_inputs(key)
        return slot, generation
    _, _, _, period, generation, _ = keys.parse_chunk(key)
    return (period if table == "hours" else first_day_of(period)) * DAY_SLOTS, generation


def _doomed(
    store: Backend, app: int, bucket: int, month: int, listing: _Listing, *, keep: int, dry_run: bool
) -> dict[str, list[bytes]] | None:
    """What of the listing goes, by table, once the fences stand; ``None`` when a manifest moved meanwhile."""
    days = sorted({slot // DAY_SLOTS for rows in listing.rows.values() for _, slot, _ in rows})
    of_month = _fence_month(store, app, month, dry_run=dry_run)
    fenced = {day: _fence_day(store, app, day, keep=keep, dry_run=dry_run) for day in days}
    if of_month is None or any(value is None for value in fenced.values()):
        return None
    values = {day: value for day, value in fenced.items() if value is not None and value.nonce}
    named = _named(bucket, month, values, of_month)
    of_days = {(slot, number) for _, slot, number in listing.rows["days"]}  # the month's fence stands for these
    doomed = {
        table: [
            key
            for key, slot, number in listing.rows[table]
            if (slot, number) not in named and (slot // DAY_SLOTS in values or (slot, number) in of_days)
        ]
        for table in _GENERATED
    }
    doomed["log"] = list(_covered_blocks(store, app, bucket, values, listing.rows["log"]))
    return doomed


def _named(bucket: int, month: int, values: dict[int, Manifest], of_month: Month) -> set[tuple[int, int]]:
    """(slot, number) of every generation that must stay: of units, of packs of hours, of the month's days."""
    named = set()
    if bucket in of_month.days:
        named.add((first_day_of(month) * DAY_SLOTS, of_month.days[bucket].generation.number))
    for day, value in values.items():
        for (held_in, slot), entry in value.entries.items():
            if held_in == bucket:
                named |= {(slot, g.number) for state in _states(entry) for g in state.generations}
        if bucket in value.hours:
            named.add((day * DAY_SLOTS, value.hours[bucket].generation.number))
    return named


def _states(entry: Entry) -> list[manifest.State]:
    return [entry.state, *(former.state for former in entry.history)]


def _covered_blocks(
    store: Backend, app: int, bucket: int, values: dict[int, Manifest], rows: Sequence[tuple[bytes, int, int]]
) -> Iterator[bytes]:
    """Blocks of batches that every state in force or in history holds in its generations, and none replays."""
    held: dict[int, set[int]] = {}
    for key, slot, batch in rows:
        value = values.get(slot // DAY_SLOTS)
        if value is None:
            continue
        if slot not in held:
            held[slot] = _held(store, Unit(bucket, app, slot), value.entry(bucket, slot))
        if batch in held[slot]:
            yield key


def _held(store: Backend, unit: Unit, entry: Entry) -> set[int]:
    held: set[int] | None = None
    for state in _states(entry):
        try:
            inside = batches(store, unit, state.generations) - set(state.replay)
        except Refused:
            return set()
        held = {r.batch for r in inside} if held is None else held & {r.batch for r in inside}
    return held or set()


def cut(now: Manifest, keep: int, nonce: int) -> Manifest:
    """The manifest with only ``keep`` former states of each unit, and a new fence."""
    entries = {
        unit: msgspec.structs.replace(entry, history=entry.history[len(entry.history) - keep :] if keep else ())
        if len(entry.history) > keep
        else entry
        for unit, entry in now.entries.items()
    }
    return msgspec.structs.replace(now, nonce=nonce, fence=nonce, entries=entries)


def _fence_day(store: Backend, app: int, day: int, *, keep: int, dry_run: bool) -> Manifest | None:
    """The day's manifest with its history cut and a fence; an empty one where nothing was ever flipped: no row goes."""
    key = keys.manifest(app, day)
    cell = cells.read_cell(store, "manifest", key)
    if cell is None:
        return Manifest()
    value = cut(manifest.decode(cell), keep, random_u64())
    if dry_run:
        return value
    return value if cells.swap(store, key, cell, manifest.encode(value), cells.holds(value.nonce))[0] else None


def _fence_month(store: Backend, app: int, month: int, *, dry_run: bool) -> Month | None:
    """The month with a new nonce, which stops who is building days: flips of months are never rebased."""
    key = keys.manifest_month(app, month)
    cell = cells.read_cell(store, "manifest", key)
    value = Month(random_u64(), manifest.decode_month(cell).days)
    if dry_run:
        return value
    landed, _, _ = cells.swap(
        store, key, cell, manifest.encode_month(value), lambda found: manifest.decode_month(found).nonce == value.nonce
    )
    return value if landed else None


def _delete(store: Backend, table: str, names: Sequence[bytes], at: Hook) -> None:
    for start in range(0, len(names), limits.PURGE_ROWS_PER_CALL):
        store.delete(table, [(name, None) for name in names[start : start + limits.PURGE_ROWS_PER_CALL]])
        at("purge deleting")
