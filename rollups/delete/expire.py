"""Expires samples but keeps their hours, and later expires hours but keeps their days (PROTOCOL 23).

Enter by ``expire``, which does all that is due for an app and may be repeated after a crash; ``preview`` says what
would be deleted. The hours of a day are sealed in this order: mark them ``sealing`` by check-and-put, so that nobody
else publishes them; only THEN read pending records and retractions; merge and aggregate what is missing, in all shards;
mark them ``sealed``; then delete (``sweep``). Samples acked before the first mark are in; later ones are in or counted
as late. A day waits while data of one of its hours lies in two places: if the other hours were sealed before that data
is moved, no daily row could contain both. An hour that cannot be merged is opened again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rollups.decide import plan as planning
from rollups.decide import retention as decide
from rollups.decide.plan import DayPlan, PlanContext
from rollups.decide.retention import RetentionPeriods, RetentionPlan
from rollups.delete import sweep
from rollups.delete.purge import PurgeResult
from rollups.manifest import cells
from rollups.run import agenda, survey
from rollups.run.driver import Driver
from rollups.run.local import Executor
from spm import limits
from spm.clock import random_u64
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import replace_cell
from spm.store.manifest import OPEN, SEALED, SEALING, Manifest, Month, month_of
from spm.store.versions import generations
from spm.store.versions.generations import HourShard

__all__ = ["ExpiryResult", "RetentionPeriods", "expire", "preview", "seal_hours"]


@dataclass(slots=True)
class ExpiryResult:
    """What the retention did for an app."""

    run: int = 0
    sealed_hours: list[int] = field(default_factory=list)  # hours
    expired_days: list[int] = field(default_factory=list)  # days whose hours were deleted
    dropped_days: list[int] = field(default_factory=list)  # days that were deleted
    late: int = 0  # samples that came too late
    deletions: PurgeResult = field(default_factory=PurgeResult)  # rows and bytes deleted
    errors: list[str] = field(default_factory=list)


def expire(
    driver: Driver,
    executor: Executor,
    app: int,
    keep: RetentionPeriods,
    *,
    now_ms: int,
    run: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> ExpiryResult:
    """Seals, expires and drops what is due, and deletes its rows. ``watch`` gets the days done and the days in all."""
    store = driver.store
    result = ExpiryResult(cells.take_run(store) if run is None else run)
    todo = _due(store, app, keep, now_ms)
    total = len(todo.seal) + len(todo.expire) + len(todo.drop)
    for number, (day, hours) in enumerate(todo.seal.items(), 1):
        sealed, errors = seal_hours(driver, executor, app, day, hours, now_ms=now_ms, run=result.run)
        result.sealed_hours += sealed
        result.errors += errors
        watch(number, total)
    for day in _due(store, app, keep, now_ms).expire:
        if _expire(driver, app, day, now_ms):
            result.expired_days.append(day)
        else:
            result.errors.append(f"the hours of day {day} of app {app} stay: no daily row is made of all of them yet")
    for month, days in _due(store, app, keep, now_ms).drop.items():
        sweep.drop_days(store, app, month, _drop(driver, app, month, days), result.deletions, driver.at)
        result.dropped_days += days
    result.late = sweep.sweep(store, app, result.deletions, now_ms=now_ms, at=driver.at)
    for day in _due(store, app, keep, now_ms).forget_days:
        _swap_day(store, app, day, lambda now: decide.with_seals_only(now, random_u64()))
    watch(total, total)
    return result


def preview(reader: Reader, app: int, keep: RetentionPeriods, *, now_ms: int) -> dict[str, PurgeResult]:
    """The rows and bytes that this retention would delete now of samples (``raw``), ``hours`` and ``days``."""
    manifests, months = _read(reader, app)
    raw = [day for day in manifests if decide.is_over(keep.raw_days, day, now_ms)]
    hours = [day for day in manifests if decide.is_over(keep.hour_days, day, now_ms)]
    days = {
        month: value
        for month, value in months.items()
        if all(decide.is_over(keep.day_days, day, now_ms) for pack in value.days.values() for day in pack.days)
    }
    return {
        "raw": sweep.measure_raw(reader, app, {day: manifests[day] for day in raw}),
        "hours": sweep.measure_hours(reader, app, {day: manifests[day] for day in hours}),
        "days": sweep.measure_days(reader, app, days),
    }


def _due(reader: Reader, app: int, keep: RetentionPeriods, now_ms: int) -> RetentionPlan:
    manifests, months = _read(reader, app)
    return decide.plan_retention(keep, now_ms, manifests, months)


def _read(reader: Reader, app: int) -> tuple[dict[int, Manifest], dict[int, Month]]:
    months = cells.scan_cells(reader, app, months=True)
    manifests = survey.decode_manifests(app, dict(cells.scan_cells(reader, app)))
    return manifests, {month: manifest.decode_month(cell) for month, cell in months.items()}


# --- sealing ----------------------------------------------------------------------------------------------------------


def seal_hours(
    driver: Driver, executor: Executor, app: int, day: int, hours: Sequence[int], *, now_ms: int, run: int
) -> tuple[list[int], list[str]]:
    """Seals as many of these hours of a day as possible; returns (the sealed ones, why others are not)."""
    split_hours = _split_hours(driver, app, day)
    if split_hours:
        _reopen(driver.store, app, day, hours)
        return [], [f"hour {hour} of app {app} waits until its data has been moved" for hour in sorted(split_hours)]
    to_seal, errors = tuple(hours), list[str]()
    _swap_day(driver.store, app, day, lambda now: _with_sealing(now, to_seal))
    driver.at("sealing")
    plans = _plans(driver, app, day, to_seal, now_ms)
    work = [hour for hour, plan in plans.items() if plan is None or plan.hour_shards]
    for hour in work:
        change = partial(decide.with_final_hours, hours=(hour,))
        report = driver.finish_hour(executor, run, app, hour, now_ms=now_ms, change=change)
        errors += report.errors
    if work:
        agenda.mark_due(driver.store, app, [day], now_ms)  # its daily row is older than its hours now
    _seal_rest(driver, app, day, to_seal, now_ms)
    after = manifest.decode(cells.read_cell(driver.store, "manifest", keys.manifest(app, day)))
    not_sealed = [hour for hour in to_seal if after.seal(hour) < SEALED]
    _reopen(driver.store, app, day, not_sealed)
    driver.at("sealed")
    return [hour for hour in to_seal if hour not in not_sealed], errors


def _with_sealing(now: Manifest, hours: tuple[int, ...]) -> Manifest:
    fresh = tuple(hour for hour in hours if now.seal(hour) == OPEN)
    return decide.with_seal(now, fresh, SEALING, random_u64()) if fresh else now


def _split_hours(driver: Driver, app: int, day: int) -> set[int]:
    """The hours in which a metric may lie in two shards: their data must be moved first."""
    survey_result = survey.read_survey(driver.store, app)
    value = manifest.decode(cells.read_cell(driver.store, "manifest", keys.manifest(app, day)))
    places = [(item.key.shard, item.hour) for item in survey_result.pending.get(day, ())]
    return planning.find_split_hours(value, places, survey_result.placement)


def _plans(driver: Driver, app: int, day: int, hours: Sequence[int], now_ms: int) -> dict[int, DayPlan | None]:
    """Plans what each hour still lacks; reads pending records, retractions and manifests in the order of PROTOCOL 9."""
    survey_result = survey.read_survey(driver.store, app)
    context = PlanContext(now_ms, False, False, survey_result.active, survey_result.placement, driver.thresholds)
    cell = cells.read_cell(driver.store, "manifest", keys.manifest(app, day))
    value, waiting = manifest.decode(cell), survey_result.pending.get(day, ())
    return {
        hour: planning.plan_hour(app, hour, cell=cell, manifest=value, pending=waiting, context=context)
        for hour in hours
        if value.seal(hour) == SEALING
    }


def _seal_rest(driver: Driver, app: int, day: int, hours: Sequence[int], now_ms: int) -> None:
    """Seals all hours that lack nothing by one check-and-put; most were merged when they closed."""
    for _ in range(limits.PUBLISH_TRIES_MAX):
        plans = _plans(driver, app, day, hours, now_ms)
        ready = tuple(hour for hour, plan in plans.items() if plan is not None and not plan.hour_shards)
        if not ready:
            return
        [cell] = {plan.cell for plan in plans.values() if plan is not None}
        nonce = random_u64()
        value = decide.with_final_hours(decide.with_seal(manifest.decode(cell), (), SEALED, nonce), ready)
        key = keys.manifest(app, day)
        if cells.swap(driver.store, key, cell, manifest.encode(value), cells.has_nonce(nonce))[0]:
            return


def _reopen(store: Backend, app: int, day: int, hours: Sequence[int]) -> None:
    """Opens hours that could not be sealed again."""
    if hours:
        _swap_day(store, app, day, lambda now: _without_sealing(now, hours))


def _without_sealing(now: Manifest, hours: Sequence[int]) -> Manifest:
    sealing = tuple(hour for hour in hours if now.seal(hour) == SEALING)
    return decide.with_seal(now, sealing, OPEN, random_u64()) if sealing else now


def _swap_day(store: Backend, app: int, day: int, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Publishes a change of the day's manifest; on a conflict it computes the change again from the new manifest."""

    def changed(row: Mapping[bytes, bytes]) -> tuple[bytes | None, Manifest]:
        now = manifest.decode(row.get(cells.COLUMN))
        value = change(now)
        return None if value == now else manifest.encode(value), value

    return replace_cell(
        store,
        "manifest",
        keys.manifest(app, day),
        changed,
        error=f"the manifest of day {day} of app {app} kept changing: try again",
        tries=limits.SEAL_TRIES,
        retry_lost_answers=True,
    )


# --- hours and days ---------------------------------------------------------------------------------------------------


def _expire(driver: Driver, app: int, day: int, now_ms: int) -> bool:
    """Makes a day answer from `days` alone, if those are made of all its hours; the next sweep deletes its rows."""
    month = month_of(day)
    days_in_force = manifest.decode_month(cells.read_cell(driver.store, "manifest", keys.manifest_month(app, month)))
    key = keys.manifest(app, day)
    cell = cells.read_cell(driver.store, "manifest", key)
    value = manifest.decode(cell)
    if not decide.are_days_final(day, value, days_in_force):
        agenda.mark_due(driver.store, app, [day], now_ms)  # for the next full run, which builds it
        return False
    if _has_metric_in_two_shards(driver.store, app, day, value):
        return False
    after = decide.without_hours(value, day, random_u64())
    is_published, _, _ = cells.swap(driver.store, key, cell, manifest.encode(after), cells.has_nonce(after.nonce))
    if is_published:
        driver.at("expired")
    return is_published


def _has_metric_in_two_shards(reader: Reader, app: int, day: int, value: Manifest) -> bool:
    """Whether a metric has hours in two shards: then neither daily row has its increase over the day."""
    metrics: set[int] = set()
    for shard, pack in value.hours.items():
        inputs = generations.read_inputs(reader, HourShard(shard, app, day * DAY_HOURS), pack.generation)
        if inputs is None or metrics & inputs.pages.keys():
            return True
        metrics |= inputs.pages.keys()
    return False


def _drop(driver: Driver, app: int, month: int, days: tuple[int, ...]) -> Mapping[int, int]:
    """Removes days from a month; returns the packs (shard → generation) of shards of which it names no day any more."""

    def changed(row: Mapping[bytes, bytes]) -> tuple[bytes, dict[int, int]]:
        now = manifest.decode_month(row.get(cells.COLUMN))
        value = decide.without_days(now, days, random_u64())
        unnamed = {shard: pack.generation.number for shard, pack in now.days.items() if shard not in value.days}
        return manifest.encode_month(value), unnamed

    dropped = replace_cell(
        driver.store,
        "manifest",
        keys.manifest_month(app, month),
        changed,
        error=f"the manifest of month {month} of app {app} kept changing: try again",
        tries=limits.SEAL_TRIES,
    )
    driver.at("days dropped")
    return dropped
