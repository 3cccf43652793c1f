"""Deletes the rows of what has expired: samples of sealed hours, hours of expired days, days that nobody names.

Enter by ``sweep``. The manifest said so before, and nobody can flip such an hour again: that is the fence (rule 23).
``inputs`` rows go last, so that a key scan of them is the list of what a crash has left. Before them, pending cells of
sealed hours are accounted for: which of those came in time is written in ``inputs``. The ``weigh_…`` functions count
rows and bytes and change nothing.
"""

from collections.abc import Iterator, Mapping

from rollups.crash_points import Hook
from rollups.decide import plan, retention
from rollups.decide.plan import Order
from rollups.decide.superseded import EXPIRED as REASON
from rollups.decide.superseded import Place, states
from rollups.delete import listing, purge
from rollups.delete.purge import Purged
from rollups.manifest import cells, publish
from rollups.run import survey
from spm.errors import CorruptBlock
from spm.limits import DAY_HOURS
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.ledger import commit_records
from spm.store.manifest import SEALED, Manifest, Month, first_day_of
from spm.store.versions import generations
from spm.store.versions.generations import Inputs

_RAW = ("chunks", "timelines")


def sweep(store: Backend, app: int, done: Purged, *, now_ms: int, at: Hook) -> int:
    """Delete what is left of sealed hours and expired days; returns how many samples came too late for them."""
    manifests = survey.decoded(app, dict(cells.scan_cells(store, app)))
    sealed = {hour for value in manifests.values() for hour, seal in value.seals.items() if seal >= SEALED}
    if not sealed:
        return 0
    shards = sorted({*listing.every_shard(store, app), *(b for value in manifests.values() for b, _ in value.entries)})
    late = _settle(store, app, shards, sealed, manifests, now_ms=now_ms, at=at)
    ranges = [keys.hours_range(shard, app, min(sealed) // DAY_HOURS * DAY_HOURS, max(sealed)) for shard in shards]
    for place in list(_places(store, "inputs", ranges)):
        raw, hours = retention.leftovers(place[1] // DAY_HOURS, manifests.get(place[1] // DAY_HOURS, Manifest()))
        if place in raw:
            _delete(store, app, place, _RAW, done, at, "raw deleting")
        elif place in hours:
            _delete(store, app, place, ("hours",), done, at, "hours deleting")
    blocks = [key for key, _ in scan_ranges(store, "log", ranges, keys_only=True)]
    gone = [key for key in blocks if keys.LogKey.parse(key).hour in sealed]
    if gone:
        done.add("log", REASON, *purge.take(store, "log", gone))
        at("raw deleting")
    return late


def _settle(
    store: Backend,
    app: int,
    shards: list[int],
    sealed: set[int],
    manifests: Mapping[int, Manifest],
    *,
    now_ms: int,
    at: Hook,
) -> int:
    waiting = plan.by_day(item for item in commit_records.scan(store, app, shards) if item.hour in sealed)
    plans = [
        plan.plan_day(app, day, cell=None, manifest=manifests[day], waiting=items, order=Order(now_ms))
        for day, items in waiting.items()
    ]
    return sum(publish.settle_late(store, day, at) for day in plans)


def _places(reader: Reader, table: str, ranges: list[tuple[bytes, bytes]]) -> Iterator[Place]:
    return (listing.place_of(table, key) for key, _ in scan_ranges(reader, table, ranges, keys_only=True))


def _delete(
    store: Backend, app: int, place: Place, tables: tuple[str, ...], done: Purged, at: Hook, point: str
) -> None:
    made = _inputs(store, app, place)
    if made is None:
        done.damaged += 1
        return
    pages = purge.pages_of(app, place, made)
    for table in tables:
        done.add(table, REASON, *purge.take(store, table, pages.get(table, ())))
        at(point)
    inputs = [keys.inputs(place[0], app, place[1], place[2])]
    done.add("inputs", REASON, *purge.take(store, "inputs", inputs))


def _inputs(reader: Reader, app: int, place: Place) -> Inputs | None:
    [row] = reader.get("inputs", [keys.inputs(place[0], app, place[1], place[2])])
    try:
        return None if row is None else generations.decode_inputs(row[generations.COLUMN])
    except CorruptBlock:
        return None


def drop_days(store: Backend, app: int, month: int, packs: Mapping[int, int], done: Purged, at: Hook) -> None:
    """Delete the rows of packs of days (shard → generation) that their month does not name any more."""
    for shard, number in packs.items():
        place = shard, first_day_of(month) * DAY_HOURS, number
        _delete(store, app, place, ("days",), done, at, "hours deleting")


# --- weighing ---------------------------------------------------------------------------------------------------------


def weigh_raw(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> Purged:
    """Samples of these days: generations in force and in history, and blocks."""
    done = Purged()
    for day, value in manifests.items():
        for (shard, hour), entry in value.entries.items():
            numbers = {g.number for state in states(entry) for g in state.generations}
            for number in sorted(numbers):
                _weigh(reader, app, (shard, hour, number), _RAW, done)
        for shard in sorted({shard for shard, _ in value.entries}):
            hours = retention.hours_of_day(day)
            found = reader.scan("log", *keys.hours_range(shard, app, hours[0], hours[-1]))
            sizes = [sum(map(len, row.values())) for _, row in found]
            done.add("log", REASON, len(sizes), sum(sizes))
    return done


def weigh_hours(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> Purged:
    """Packs of hours of these days."""
    done = Purged()
    for day, value in manifests.items():
        for shard, pack in value.hours.items():
            _weigh(reader, app, (shard, day * DAY_HOURS, pack.generation.number), ("hours",), done)
    return done


def weigh_days(reader: Reader, app: int, months: Mapping[int, Month]) -> Purged:
    """Packs of days of these months."""
    done = Purged()
    for month, found in months.items():
        for shard, pack in found.days.items():
            place = shard, first_day_of(month) * DAY_HOURS, pack.generation.number
            _weigh(reader, app, place, ("days",), done)
    return done


def _weigh(reader: Reader, app: int, place: Place, tables: tuple[str, ...], done: Purged) -> None:
    made = _inputs(reader, app, place)
    if made is None:
        return
    pages = purge.pages_of(app, place, made)
    for table in tables:
        done.add(table, REASON, *purge.weigh(reader, table, pages.get(table, ())))
    done.add("inputs", REASON, *purge.weigh(reader, "inputs", [keys.inputs(place[0], app, place[1], place[2])]))
