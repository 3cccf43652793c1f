"""Deletes expired rows: samples of sealed hours, hours of expired days, days that no month names.

Enter by ``sweep``. The manifest says already that they are expired, and nobody can publish such an hour again: that is
the fence (PROTOCOL 23). ``inputs`` rows go last, so that a key scan of them lists what a crash has left. Before that,
pending records of sealed hours are settled, because only ``inputs`` says which of those came in time. The
``measure_…`` functions count rows and bytes and change nothing.
"""

from collections.abc import Iterator, Mapping

from rollups.crash_points import Hook
from rollups.decide import plan, retention
from rollups.decide.plan import PlanContext
from rollups.decide.superseded import EXPIRED as REASON
from rollups.decide.superseded import Place, states_of
from rollups.delete import listing, purge
from rollups.delete.purge import PurgeResult
from rollups.manifest import cells, publish
from rollups.run import survey
from spm.errors import CorruptBlock
from spm.limits import DAY_HOURS
from spm.store import keys
from spm.store.backends.base import Backend, Reader, scan_ranges
from spm.store.ledger import commit_records
from spm.store.manifest import SEALED, Manifest, Month, first_day_of
from spm.store.versions import generations
from spm.store.versions.generations import Inputs

_RAW_TABLES = ("chunks", "timelines")


def sweep(store: Backend, app: int, deletions: PurgeResult, *, now_ms: int, at: Hook) -> int:
    """Deletes the rows of sealed hours and expired days; returns how many samples came too late for them."""
    manifests = survey.decode_manifests(app, dict(cells.scan_cells(store, app)))
    sealed = {hour for value in manifests.values() for hour, seal in value.seals.items() if seal >= SEALED}
    if not sealed:
        return 0
    shards = sorted({*listing.every_shard(store, app), *(b for value in manifests.values() for b, _ in value.entries)})
    late = _settle(store, app, shards, sealed, manifests, now_ms=now_ms, at=at)
    ranges = [keys.hours_range(shard, app, min(sealed) // DAY_HOURS * DAY_HOURS, max(sealed)) for shard in shards]
    for place in list(_places(store, "inputs", ranges)):
        raw, hours = retention.leftovers(place[1] // DAY_HOURS, manifests.get(place[1] // DAY_HOURS, Manifest()))
        if place in raw:
            _delete(store, app, place, _RAW_TABLES, deletions, at, "raw deleting")
        elif place in hours:
            _delete(store, app, place, ("hours",), deletions, at, "hours deleting")
    blocks = [key for key, _ in scan_ranges(store, "log", ranges, keys_only=True)]
    expired = [key for key in blocks if keys.LogKey.parse(key).hour in sealed]
    if expired:
        deletions.add("log", REASON, *purge.delete_rows(store, app, "log", expired))
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
    waiting = plan.group_by_day(item for item in commit_records.scan(store, app, shards) if item.hour in sealed)
    plans = [
        plan.plan_day(app, day, cell=None, manifest=manifests[day], pending=items, context=PlanContext(now_ms))
        for day, items in waiting.items()
    ]
    return sum(publish.settle_late(store, day, at) for day in plans)


def _places(reader: Reader, table: str, ranges: list[tuple[bytes, bytes]]) -> Iterator[Place]:
    return (listing.place_of(table, key) for key, _ in scan_ranges(reader, table, ranges, keys_only=True))


def _delete(
    store: Backend, app: int, place: Place, tables: tuple[str, ...], deletions: PurgeResult, at: Hook, point: str
) -> None:
    inputs = _inputs(store, app, place)
    if inputs is None:
        deletions.damaged += 1
        return
    pages = purge.pages_of(app, place, inputs)
    for table in tables:
        deletions.add(table, REASON, *purge.delete_rows(store, app, table, pages.get(table, ())))
        at(point)
    inputs_keys = [keys.inputs(place[0], app, place[1], place[2])]
    deletions.add("inputs", REASON, *purge.delete_rows(store, app, "inputs", inputs_keys))


def _inputs(reader: Reader, app: int, place: Place) -> Inputs | None:
    [row] = reader.get("inputs", [keys.inputs(place[0], app, place[1], place[2])])
    try:
        return None if row is None else generations.decode_inputs(row[generations.COLUMN])
    except CorruptBlock:
        return None


def drop_days(store: Backend, app: int, month: int, packs: Mapping[int, int], deletions: PurgeResult, at: Hook) -> None:
    """Deletes the rows of packs of days (shard → generation) that their month does not name any more."""
    for shard, number in packs.items():
        place = shard, first_day_of(month) * DAY_HOURS, number
        _delete(store, app, place, ("days",), deletions, at, "hours deleting")


# --- measuring --------------------------------------------------------------------------------------------------------


def measure_raw(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> PurgeResult:
    """Counts the samples of these days: generations in force and in history, and blocks."""
    deletions = PurgeResult()
    for day, value in manifests.items():
        for (shard, hour), entry in value.entries.items():
            numbers = {g.number for state in states_of(entry) for g in state.generations}
            for number in sorted(numbers):
                _measure(reader, app, (shard, hour, number), _RAW_TABLES, deletions)
        for shard in sorted({shard for shard, _ in value.entries}):
            hours = retention.hours_of_day(day)
            rows = reader.scan("log", *keys.hours_range(shard, app, hours[0], hours[-1]))
            sizes = [sum(map(len, row.values())) for _, row in rows]
            deletions.add("log", REASON, len(sizes), sum(sizes))
    return deletions


def measure_hours(reader: Reader, app: int, manifests: Mapping[int, Manifest]) -> PurgeResult:
    """Counts the packs of hours of these days."""
    deletions = PurgeResult()
    for day, value in manifests.items():
        for shard, pack in value.hours.items():
            _measure(reader, app, (shard, day * DAY_HOURS, pack.generation.number), ("hours",), deletions)
    return deletions


def measure_days(reader: Reader, app: int, months: Mapping[int, Month]) -> PurgeResult:
    """Counts the packs of days of these months."""
    deletions = PurgeResult()
    for month, packs in months.items():
        for shard, pack in packs.days.items():
            place = shard, first_day_of(month) * DAY_HOURS, pack.generation.number
            _measure(reader, app, place, ("days",), deletions)
    return deletions


def _measure(reader: Reader, app: int, place: Place, tables: tuple[str, ...], deletions: PurgeResult) -> None:
    inputs = _inputs(reader, app, place)
    if inputs is None:
        return
    pages = purge.pages_of(app, place, inputs)
    for table in tables:
        deletions.add(table, REASON, *purge.measure_rows(reader, table, pages.get(table, ())))
    deletions.add(
        "inputs", REASON, *purge.measure_rows(reader, "inputs", [keys.inputs(place[0], app, place[1], place[2])])
    )
