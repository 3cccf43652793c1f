"""Lets samples go after their time and keeps their hours; later the hours, and keeps the days (rule 23).

Enter by ``retain``, which does all that is due for an app and may be repeated after a crash; ``would_go`` says what
would. A day's hours are sealed in order: mark them ``sealing`` by check-and-put, so that nobody else flips them; only
THEN read pending cells and retractions; merge and aggregate what is not yet, in all shards; mark them ``sealed``; then
delete (``sweep``). What is acked before the first mark is in; what comes later is in or counted as late. A day
waits while an hour of it lies in two places: were the others sealed before it is moved, no row of days could stand for
both. An hour that cannot be merged is opened again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rollups.decide import plan as planning
from rollups.decide import retention as decide
from rollups.decide.plan import DayPlan, Order
from rollups.decide.retention import Due, Keep
from rollups.delete import sweep
from rollups.delete.purge import Purged
from rollups.manifest import cells
from rollups.run import agenda, survey
from rollups.run.driver import Driver
from rollups.run.local import Executor
from spm import limits
from spm.clock import random_u64
from spm.errors import StoreUnavailable
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.manifest import OPEN, SEALED, SEALING, Manifest, Month, month_of
from spm.store.versions import generations
from spm.store.versions.generations import HourShardData

__all__ = ["Keep", "Retained", "retain", "seal_hours", "would_go"]


@dataclass(slots=True)
class Retained:
    """What retention did for an app."""

    run: int = 0
    sealed: list[int] = field(default_factory=list)  # hours
    expired: list[int] = field(default_factory=list)  # days whose hours went
    dropped: list[int] = field(default_factory=list)  # days that went
    late: int = 0  # samples that came too late
    gone: Purged = field(default_factory=Purged)  # rows and bytes deleted
    troubles: list[str] = field(default_factory=list)


def retain(
    driver: Driver,
    executor: Executor,
    app: int,
    keep: Keep,
    *,
    now_ms: int,
    run: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Retained:
    """Seal, expire and drop what is due, and delete its rows. ``watch`` is told of days done and days in all."""
    store = driver.store
    done = Retained(cells.take_run(store) if run is None else run)
    todo = _due(store, app, keep, now_ms)
    total = len(todo.seal) + len(todo.expire) + len(todo.drop)
    for number, (day, hours) in enumerate(todo.seal.items(), 1):
        sealed, troubles = seal_hours(driver, executor, app, day, hours, now_ms=now_ms, run=done.run)
        done.sealed += sealed
        done.troubles += troubles
        watch(number, total)
    for day in _due(store, app, keep, now_ms).expire:
        if _expire(driver, app, day, now_ms):
            done.expired.append(day)
        else:
            done.troubles.append(f"the hours of day {day} of app {app} stay: no row of days stands for all of them yet")
    for month, days in _due(store, app, keep, now_ms).drop.items():
        sweep.drop_days(store, app, month, _drop(driver, app, month, days), done.gone, driver.at)
        done.dropped += days
    done.late = sweep.sweep(store, app, done.gone, now_ms=now_ms, at=driver.at)
    for day in _due(store, app, keep, now_ms).forget:
        _swap_day(store, app, day, lambda now: decide.forgotten(now, random_u64()))
    watch(total, total)
    return done


def would_go(reader: Reader, app: int, keep: Keep, *, now_ms: int) -> dict[str, Purged]:
    """What this retention would delete now, of samples (``raw``), ``hours`` and ``days``: rows and bytes."""
    manifests, months = _read(reader, app)
    raw = [day for day in manifests if decide.over(keep.raw_days, day, now_ms)]
    hours = [day for day in manifests if decide.over(keep.hour_days, day, now_ms)]
    days = {
        month: found
        for month, found in months.items()
        if all(decide.over(keep.day_days, day, now_ms) for pack in found.days.values() for day in pack.days)
    }
    return {
        "raw": sweep.weigh_raw(reader, app, {day: manifests[day] for day in raw}),
        "hours": sweep.weigh_hours(reader, app, {day: manifests[day] for day in hours}),
        "days": sweep.weigh_days(reader, app, days),
    }


def _due(reader: Reader, app: int, keep: Keep, now_ms: int) -> Due:
    manifests, months = _read(reader, app)
    return decide.due(keep, now_ms, manifests, months)


def _read(reader: Reader, app: int) -> tuple[dict[int, Manifest], dict[int, Month]]:
    months = cells.scan_cells(reader, app, months=True)
    manifests = survey.decoded(app, dict(cells.scan_cells(reader, app)))
    return manifests, {month: manifest.decode_month(cell) for month, cell in months.items()}


# --- sealing ----------------------------------------------------------------------------------------------------------


def seal_hours(
    driver: Driver, executor: Executor, app: int, day: int, hours: Sequence[int], *, now_ms: int, run: int
) -> tuple[list[int], list[str]]:
    """Seal these hours of a day, as many as can be; (those that are sealed, why others are not)."""
    waits = _split(driver, app, day)
    if waits:
        _reopen(driver.store, app, day, hours)
        return [], [f"hour {hour} of app {app} waits until its data has been moved" for hour in sorted(waits)]
    wanted, troubles = tuple(hours), list[str]()
    _swap_day(driver.store, app, day, lambda now: _marked(now, wanted))
    driver.at("sealing")
    plans = _plans(driver, app, day, wanted, now_ms)
    work = [hour for hour, plan in plans.items() if plan is None or plan.units]
    for hour in work:
        change = partial(decide.sealed, hours=(hour,))
        report = driver.finish_hour(executor, run, app, hour, now_ms=now_ms, change=change)
        troubles += report.troubles
    if work:
        agenda.mark(driver.store, app, [day], now_ms)  # its row of days is older than its hours now
    _seal_rest(driver, app, day, wanted, now_ms)
    after = manifest.decode(cells.read_cell(driver.store, "manifest", keys.manifest(app, day)))
    left = [hour for hour in wanted if after.seal(hour) < SEALED]
    _reopen(driver.store, app, day, left)
    driver.at("sealed")
    return [hour for hour in wanted if hour not in left], troubles


def _marked(now: Manifest, hours: tuple[int, ...]) -> Manifest:
    fresh = tuple(hour for hour in hours if now.seal(hour) == OPEN)
    return decide.marked(now, fresh, SEALING, random_u64()) if fresh else now


def _split(driver: Driver, app: int, day: int) -> set[int]:
    """Hours of which a metric may lie in two shards: they must be moved together first."""
    found = survey.survey(driver.store, app)
    value = manifest.decode(cells.read_cell(driver.store, "manifest", keys.manifest(app, day)))
    places = [(item.key.shard, item.hour) for item in found.waiting.get(day, ())]
    return planning.split_hours(value, places, found.distribution)


def _plans(driver: Driver, app: int, day: int, hours: Sequence[int], now_ms: int) -> dict[int, DayPlan | None]:
    """What each hour still lacks, by what is pending, retracted and in force now (rule 9's order)."""
    found = survey.survey(driver.store, app)
    order = Order(now_ms, False, False, found.active, found.distribution, driver.thresholds)
    cell = cells.read_cell(driver.store, "manifest", keys.manifest(app, day))
    value, waiting = manifest.decode(cell), found.waiting.get(day, ())
    return {
        hour: planning.plan_hour(app, hour, cell=cell, manifest=value, waiting=waiting, order=order)
        for hour in hours
        if value.seal(hour) == SEALING
    }


def _seal_rest(driver: Driver, app: int, day: int, hours: Sequence[int], now_ms: int) -> None:
    """One flip for all hours that lack nothing, as most do: they were merged when they closed."""
    for _ in range(limits.ROLL_REPLANS_MAX):
        plans = _plans(driver, app, day, hours, now_ms)
        ready = tuple(hour for hour, plan in plans.items() if plan is not None and not plan.units)
        if not ready:
            return
        [cell] = {plan.cell for plan in plans.values() if plan is not None}
        nonce = random_u64()
        value = decide.sealed(decide.marked(manifest.decode(cell), (), SEALED, nonce), ready)
        key = keys.manifest(app, day)
        if cells.swap(driver.store, key, cell, manifest.encode(value), cells.holds(nonce))[0]:
            return


def _reopen(store: Backend, app: int, day: int, hours: Sequence[int]) -> None:
    """Hours that could not be sealed are everybody's again."""
    if hours:
        _swap_day(store, app, day, lambda now: _opened(now, hours))


def _opened(now: Manifest, hours: Sequence[int]) -> Manifest:
    begun = tuple(hour for hour in hours if now.seal(hour) == SEALING)
    return decide.marked(now, begun, OPEN, random_u64()) if begun else now


def _swap_day(store: Backend, app: int, day: int, change: Callable[[Manifest], Manifest]) -> Manifest:
    """The day's manifest after a change, which is made anew from what others put there meanwhile."""
    key = keys.manifest(app, day)
    for _ in range(limits.SEAL_TRIES):
        cell = cells.read_cell(store, "manifest", key)
        now = manifest.decode(cell)
        value = change(now)
        if value == now or cells.swap(store, key, cell, manifest.encode(value), cells.holds(value.nonce))[0]:
            return value
    raise StoreUnavailable(f"the manifest of day {day} of app {app} kept moving: try again")


# --- hours and days ---------------------------------------------------------------------------------------------------


def _expire(driver: Driver, app: int, day: int, now_ms: int) -> bool:
    """Let a day answer from `days` alone, if those stand for all of its hours; its rows go with the next sweep."""
    month = month_of(day)
    found = manifest.decode_month(cells.read_cell(driver.store, "manifest", keys.manifest_month(app, month)))
    key = keys.manifest(app, day)
    cell = cells.read_cell(driver.store, "manifest", key)
    value = manifest.decode(cell)
    if not decide.final(day, value, found):
        agenda.mark(driver.store, app, [day], now_ms)  # for the next full run, which builds it
        return False
    if _shared(driver.store, app, day, value):
        return False
    after = decide.without_hours(value, day, random_u64())
    landed, _, _ = cells.swap(driver.store, key, cell, manifest.encode(after), cells.holds(after.nonce))
    if landed:
        driver.at("expired")
    return landed


def _shared(reader: Reader, app: int, day: int, value: Manifest) -> bool:
    """Whether a metric has hours in two shards: its increase over the day stands in neither row of days."""
    seen: set[int] = set()
    for shard, pack in value.hours.items():
        made = generations.read_inputs(reader, HourShardData(shard, app, day * DAY_HOURS), pack.generation)
        if made is None or seen & made.pages.keys():
            return True
        seen |= made.pages.keys()
    return False


def _drop(driver: Driver, app: int, month: int, days: tuple[int, ...]) -> Mapping[int, int]:
    """Let a month forget days; the rows of a shard go when it names none of them any more."""
    key = keys.manifest_month(app, month)
    for _ in range(limits.SEAL_TRIES):
        cell = cells.read_cell(driver.store, "manifest", key)
        now = manifest.decode_month(cell)
        value = decide.without_days(now, days, random_u64())
        if driver.store.check_and_put("manifest", key, cells.COLUMN, cell, manifest.encode_month(value)):
            driver.at("days dropped")
            return {b: p.generation.number for b, p in now.days.items() if b not in value.days}
    raise StoreUnavailable(f"the manifest of month {month} of app {app} kept moving: try again")
