"""Deletes the rows of what has expired: samples of sealed slots, hours of expired days, days that nobody names.

Enter by ``sweep``. The manifest said so before, and nobody can flip such a slot again: that is the fence (rule 23).
``inputs`` rows go last, so that a key scan of them is the list of what a crash has left. Before them, pending cells of
sealed slots are accounted for: which of those came in time is written in ``inputs``. The ``weigh_…`` functions count
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
from spm.limits import DAY_SLOTS
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.ledger import commit_records
from spm.store.manifest import SEALED, Manifest, Month, first_day_of
from spm.store.versions import generations
from spm.store.versions.generations import Inputs

_RAW = ("chunks", "timelines")


def sweep(store: Backend, app: int, done: Purged, *, now_ms: int, at: Hook) -> int:
    """Delete what is left of sealed slots and expired days; returns how many samples came too late for them."""
    manifests = survey.decoded(app, dict(cells.scan_cells(store, app)))
    sealed = {slot for value in manifests.values() for slot, seal in value.seals.items() if seal >= SEALED}
    if not sealed:
        return 0
    buckets = sorted(
        {*listing.every_bucket(store, app), *(b for value in manifests.values() for b, _ in value.entries)}
    )
    late = _settle(store, app, buckets, sealed, manifests, now_ms=now_ms, at=at)
    ranges = [keys.slots_range(bucket, app, min(sealed) // DAY_SLOTS * DAY_SLOTS, max(sealed)) for bucket in buckets]
    for place in list(_places(store, "inputs", ranges)):
        raw, hours = retention.leftovers(place[1] // DAY_SLOTS, manifests.get(place[1] // DAY_SLOTS, Manifest()))
        if place in raw:
            _delete(store, app, place, _RAW, done, at, "raw deleting")
        elif place in hours:
            _delete(store, app, place, ("hours",), done, at, "hours deleting")
    blocks = [key for key, _ in scan_ranges(store, "log", ranges, keys_only=True)]
    gone = [key for key in blocks if keys.LogKey.parse(key).slot in sealed]
    if gone:
        done.add("log", REASON, *purge.take(store, "log", gone))
        at("raw deleting")
    return late


def _settle(
    store: Backend,
    app: int,
    buckets: list[int],
    sealed: set[int],
    manifests: Mapping[int, Manifest],
    *,
    now_ms: int,
    at: Hook,
) -> int:
    waiting = plan.by_day(item for item in commit_records.scan(store, app, buckets) if item.slot in sealed)
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
    """Delete the rows of packs of days (bucket → generation) that their month does not name any more."""
    for bucket, number in packs.items():
        place = bucket, first_day_of(month) * DAY_SLOTS, number
        _delete(store, app, place, ("days",), done, at, "hours deleting")


# --- weighing ---------------------------------------------------------------------------------------------------------


def weigh_raw(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> Purged:
    """Samples of these days: generations in force and in history, and blocks."""
    done = Purged()
    for day, value in manifests.items():
        for (bucket, slot), entry in value.entries.items():
            numbers = {g.number for state in states(entry) for g in state.generations}
            for number in sorted(numbers):
                _weigh(reader, app, (bucket, slot, number), _RAW, done)
        for bucket in sorted({bucket for bucket, _ in value.entries}):
            slots = retention.slots_of_day(day)
            found = reader.scan("log", *keys.slots_range(bucket, app, slots[0], slots[-1]))
            sizes = [sum(map(len, row.values())) for _, row in found]
            done.add("log", REASON, len(sizes), sum(sizes))
    return done


def weigh_hours(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> Purged:
    """Packs of hours of these days."""
    done = Purged()
    for day, value in manifests.items():
        for bucket, pack in value.hours.items():
            _weigh(reader, app, (bucket, day * DAY_SLOTS, pack.generation.number), ("hours",), done)
    return done


def weigh_days(reader: Reader, app: int, months: Mapping[int, Month]) -> Purged:
    """Packs of days of these months."""
    done = Purged()
    for month, found in months.items():
        for bucket, pack in found.days.items():
            place = bucket, first_day_of(month) * DAY_SLOTS, pack.generation.number
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
