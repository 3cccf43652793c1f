"""Moves an app's data to the shards of its newest epoch, and closes the former epochs (PROTOCOL 22).

``migrate`` finds hour shards with metrics that the newest epoch places elsewhere, in every open hour. Their data is
merged with that of the shards it belongs to, one task per target shard; one check-and-put per (app, day), never
rebased, empties the old entries and publishes the new ones. ``PreviousState.together`` names the hour shards, so that a
roll back takes all of them or none. Pending records are left to ordinary runs; data that a late writer puts into an old
shard is moved by the next call. ``close_epoch`` closes an epoch or names the obstacles. Sealed hours stay where they
are: readers find their aggregates by the manifest. ``widen`` opens a wider epoch for an app of a high ``measure_rate``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from rollups.crash_points import Hook, ignore_point
from rollups.decide import plan as planning
from rollups.decide import publication
from rollups.decide.day_result import DayResult
from rollups.decide.plan import DayPlan, HourShardPlan, MergeKind, MoveSource, PlanContext
from rollups.decide.work import PackResult
from rollups.manifest import cells, publish
from rollups.run import agenda
from rollups.run.driver import Driver
from rollups.run.local import Executor
from rollups.run.progress import DayReport, ProgressCounter, RunReport, summarise_day
from spm import limits
from spm.arrays import U64
from spm.clock import random_u64
from spm.errors import IntegrityError, Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs as store_epochs
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.keys import CLOSED, CLOSING, HASH, OPEN, LogKey, PlacementEpoch, PlacementTable
from spm.store.ledger import commit_records
from spm.store.manifest import Entry, HourPack, Manifest, PreviousState, State
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

HourShardKey = tuple[int, int]  # shard, hour
_BLOCKS = 256  # read at once to find their metrics


def wider_spread(epoch: PlacementEpoch, samples_per_hour: int) -> int | None:
    """Over how many shards an app of this rate should be spread; ``None``: the present spread is enough.

    An hour shard is merged in the memory of one task. Spreads double, so that a growing app is moved seldom, and never
    shrink by themselves.
    """
    if epoch.function != HASH:
        return None
    spread = epoch.spread
    while spread < epoch.shards and samples_per_hour > spread * limits.SPREAD_HOUR_SHARD_SAMPLES:
        spread = min(2 * spread, epoch.shards)
    return spread if spread > epoch.spread else None


def measure_rate(reader: Reader, app: int, now_ms: int) -> int:
    """Samples an hour: the mean of the last day's hours that have any, by their generations."""
    last = now_ms // HOUR_MS
    days = cells.read_cells(reader, app, sorted({(last - DAY_HOURS) // DAY_HOURS, last // DAY_HOURS}))
    names = [
        (hour, generations.inputs_key(HourShard(shard, app, hour), generation))
        for cell in days.values()
        for (shard, hour), entry in manifest.decode(cell).entries.items()
        for generation in entry.state.generations
        if last - DAY_HOURS <= hour < last
    ]
    rows = reader.get("inputs", [key for _, key in names]) if names else []
    counted: Counter[int] = Counter()
    for (hour, _), row in zip(names, rows, strict=True):
        if row is not None:  # otherwise a run has just replaced it
            counted[hour] += generations.decode_inputs(row[generations.COLUMN]).samples
    return round(counted.total() / len(counted)) if counted else 0


def widen(store: Backend, app: int, samples_per_hour: int) -> PlacementTable | None:
    """Opens a wider epoch for an app that has grown; ``None`` if it is wide enough, or a move is in progress."""
    table = store_epochs.read(store, app)
    spread = wider_spread(table.newest, samples_per_hour)
    if spread is None or not table.has_one_live_epoch:
        return None
    return store_epochs.open_epoch(store, app, function=HASH, shards=table.newest.shards, spread=spread)


# --- metrics of an hour shard -----------------------------------------------------------------------------------------


def metrics_of(reader: Reader, app: int, states: Mapping[HourShardKey, State]) -> dict[HourShardKey, U64]:
    """The metric ids in each hour shard: from the directories of its generations, and from its replayed blocks."""
    metric_ids: dict[HourShardKey, set[int]] = {place: set() for place in states}
    names = [
        (p, generations.inputs_key(HourShard(p[0], app, p[1]), g))
        for p, state in states.items()
        for g in state.generations
    ]
    rows = reader.get("inputs", [key for _, key in names]) if names else []
    for (place, _), row in zip(names, rows, strict=True):
        if row is None:
            raise IntegrityError(f"inputs of shard {place[0]}, hour {place[1]} of app {app} are missing")
        metric_ids[place].update(generations.decode_inputs(row[generations.COLUMN]).pages)
    blocks = [LogKey(b, app, s, r.ingest_ms, r.batch) for (b, s), state in states.items() for r in state.replay]
    for block, metrics in _metrics_in_blocks(reader, blocks):
        metric_ids[block.shard, block.hour].update(metrics.tolist())
    return {place: np.array(sorted(metrics), np.uint64) for place, metrics in metric_ids.items()}


def _metrics_in_blocks(reader: Reader, blocks: Sequence[LogKey]) -> Iterator[tuple[LogKey, U64]]:
    """Yields the metrics of blocks. A missing block is inside a generation, or no manifest names it."""
    for start in range(0, len(blocks), _BLOCKS):
        part = blocks[start : start + _BLOCKS]
        for block, row in zip(part, reader.get("log", [key.to_bytes() for key in part]), strict=True):
            if row is not None:
                yield block, np.unique(Piece.of_row(row).metrics)


def _states(value: Manifest, seals: Collection[int]) -> dict[HourShardKey, State]:
    """The states in force of the hours with these seals."""
    return {
        place: entry.state
        for place, entry in value.entries.items()
        if value.seal(place[1]) in seals and (entry.state.generations or entry.state.replay)
    }


# --- moving -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """Hour shards of one hour that change together: their present entries, and the shards that their data moves to."""

    hour: int
    entries: Mapping[int, Entry]
    targets: tuple[int, ...]
    sources: frozenset[int]  # shards from which metrics move away

    @property
    def places(self) -> tuple[HourShardKey, ...]:
        """All its hour shards, including those that do not exist yet."""
        return tuple((shard, self.hour) for shard in sorted({*self.entries, *self.targets}))


def find_groups(reader: Reader, app: int, value: Manifest, table: PlacementTable) -> list[MoveGroup]:
    """The groups of a day's hours that have metrics outside the shards of the newest epoch."""
    if table.has_one_live_epoch:
        return []
    metrics = metrics_of(reader, app, _states(value, [manifest.OPEN]))
    by_hour: dict[int, dict[int, U64]] = {}
    for (shard, hour), ids in metrics.items():
        by_hour.setdefault(hour, {})[shard] = ids
    groups = (_group(app, hour, shards, value, table) for hour, shards in sorted(by_hour.items()))
    return [group for group in groups if group is not None]


def _group(
    app: int, hour: int, metrics_of_shard: Mapping[int, U64], value: Manifest, table: PlacementTable
) -> MoveGroup | None:
    targets_of = {shard: table.newest.place(app, ids) for shard, ids in metrics_of_shard.items()}
    sources = {shard for shard, targets in targets_of.items() if (targets != shard).any()}
    if not sources:
        return None
    targets = {int(target) for shard in sources for target in np.unique(targets_of[shard])}
    touched = sources | (targets & metrics_of_shard.keys())
    return MoveGroup(
        hour, {b: value.entry(b, hour) for b in sorted(touched)}, tuple(sorted(targets)), frozenset(sources)
    )


def plan_moves(
    app: int, day: int, *, cell: bytes | None, value: Manifest, groups: Sequence[MoveGroup], context: PlanContext
) -> DayPlan:
    """Plans each target shard of each group, from all data of the group."""
    plans = [_plan_target(group, shard, context) for group in groups for shard in group.targets]
    return DayPlan(app, day, cell, value, tuple(plans), context)


def _plan_target(group: MoveGroup, shard: int, context: PlanContext) -> HourShardPlan:
    others = group.sources - {shard}
    hiding: Iterable[Retraction] = (
        r for entry in group.entries.values() for r in retractions.touching(context.retractions, entry, group.hour)
    )
    return HourShardPlan(
        shard=shard,
        hour=group.hour,
        kind=MergeKind.FULL,
        parent=group.entries.get(shard, Entry()),
        fresh=(),
        pending=(),
        wants_hours=planning.is_closed(group.hour, context.now_ms, context.thresholds),
        retractions=tuple({r.number: r for r in hiding}.values()),
        move_sources=tuple(
            MoveSource(b, e.state.generations, e.state.replay) for b, e in group.entries.items() if b in others
        ),
        epoch=context.placement.newest,
    )


def migrate(
    driver: Driver, executor: Executor, app: int, *, now_ms: int | None = None, run: int | None = None
) -> RunReport:
    """Moves metrics to the shards of the newest epoch; the report's ``remaining`` counts what needs another run."""
    run = cells.take_run(driver.store) if run is None else run
    context = _read_context(driver, app, driver.clock.now_ms() if now_ms is None else now_ms)
    groups: dict[int, list[MoveGroup]] = {}
    plans = []
    for day, cell in sorted(cells.scan_cells(driver.store, app).items()):
        value = manifest.decode(cell)
        groups[day] = find_groups(driver.store, app, value, context.placement)
        plans.append(plan_moves(app, day, cell=cell, value=value, groups=groups[day], context=context))
    driver.at("planned")
    progress = ProgressCounter(driver.clock, sum(len(plan.hour_shards) for plan in plans), driver.watch)
    reports: list[DayReport] = []
    try:
        for wave in planning.cut_into_waves(plans):
            results, packs = driver.compact(executor, run, wave, progress)
            for result in results:
                day = result.plan.day
                reports.append(_publish_move(driver, result, groups[day], packs.get((app, day), []), run))
            executor.forget()
    finally:
        executor.forget()
    remaining = sum(len(plan.hour_shards) for plan in plans) - sum(
        report.hour_shards for report in reports if report.published
    )
    return RunReport(run, executor.name, False, tuple(reports), remaining=remaining)


def _read_context(driver: Driver, app: int, now_ms: int) -> PlanContext:
    table = store_epochs.read(driver.store, app)
    known = tuple(r for r in retractions.read(driver.store, app) if r.active())
    return PlanContext(now_ms, retractions=known, placement=table, thresholds=driver.thresholds)


def _publish_move(
    driver: Driver, result: DayResult, groups: Sequence[MoveGroup], packs: Sequence[PackResult], run: int
) -> DayReport:
    """Publishes, by one check-and-put, the hours of a day of which every hour shard was written."""
    plan = result.plan
    written = {(r.shard, r.hour) for r in result.results if not r.reason}
    complete = [g for g in groups if all((shard, g.hour) in written for shard in g.targets)]
    moving = {group.hour for group in complete}
    changes = [change for change in result.changes if change.hour in moving]
    hours = {
        p.shard: _hours_of_moved(result.hours(p.shard, p), result, moving) for p in packs if p.generation is not None
    }
    errors = [*result.errors, *(p.reason for p in packs if p.reason)]
    after = publication.apply_changes(plan.manifest, changes, hours, run=run, nonce=random_u64())
    value = with_moves(after, plan.manifest, complete, run)
    published = bool(complete) and publish.publish_exactly(driver.store, plan, value, changes, driver.at)
    if complete and not published:
        errors.append("others changed the day meanwhile: the next run moves it")
    if published:
        agenda.mark_due(driver.store, plan.app, [plan.day])  # its daily row was made of other generations
        driver.at("moved")
    sizes = [(r.samples, r.size_bytes) for r in result.results if r.hour in moving]
    report = summarise_day(plan.app, plan.day, published=published, sizes=sizes, errors=errors)
    return replace(report, size_bytes=report.size_bytes + sum(p.size_bytes for p in packs))


def _hours_of_moved(hours: HourPack, result: DayResult, moving: set[int]) -> HourPack:
    """The pack without the hours that are not moved after all."""
    not_moved = {item.hour for item in result.plan.hour_shards} - moving
    return HourPack(hours.generation, {hour: of for hour, of in hours.hours.items() if hour not in not_moved})


def with_moves(after: Manifest, before: Manifest, groups: Sequence[MoveGroup], run: int) -> Manifest:
    """The manifest with old entries emptied, and the hour shards of each group bound to be rolled back together."""
    entries, hours = dict(after.entries), dict(after.hours)
    for group in groups:
        for shard, hour in group.places:
            entry_before, entry_after = before.entry(shard, hour), after.entry(shard, hour)
            state = entry_after.state if shard in group.targets else State()
            former = PreviousState(run, entry_before.state, group.places)
            history = (*entry_before.history, former)[-limits.HISTORY_MAX :]
            entries[shard, hour] = msgspec.structs.replace(entry_after, state=state, history=history)
            if shard not in group.targets and shard in hours:
                other_hours = {s: of for s, of in hours[shard].hours.items() if s != hour}
                hours[shard] = HourPack(hours[shard].generation, other_hours)
    return msgspec.structs.replace(after, entries=entries, hours={b: pack for b, pack in hours.items() if pack.hours})


# --- closing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochClosing:
    """Whether an epoch is closed now, and if not, what prevents it."""

    closed: bool
    obstacles: tuple[str, ...] = ()


def close_epoch(store: Backend, app: int, number: int, at: Hook = ignore_point) -> EpochClosing:
    """Closes an epoch, or says what prevents it. Repeat it after a run, a move or a crash. Raises ``Refused``.

    1. set it closing: writers that still use it write again under the newest before they acknowledge anything;
    2. look for its pending records, and for generations and replay lists that only this epoch places where they are;
    3. set it ending: rows that watermark keepers and runs find by it from now on do not count as stored;
    4. look again: rows they counted before are still there or were moved; if there are any, set it closing again;
    5. cut the histories by check-and-put of each manifest that was read, with a fence, so that neither a roll back nor
       a run in progress brings anything back;
    6. set it closed: nobody reads its shards any more.
    """
    table = store_epochs.read(store, app)
    epoch = table.epoch(number)
    if epoch is None:
        raise Refused(f"app {app} has no epoch {number}")
    if epoch.state == OPEN:
        table = store_epochs.set_state(store, app, number, CLOSING)
        at("epoch closing")
        epoch = table.epoch(number) or epoch
    if epoch.state != CLOSED:
        try:
            obstacles = _end_epoch(store, app, epoch, _after_closing(table, number), at)
        except _EpochChanged as change:
            obstacles = [str(change)]
        if obstacles:
            return EpochClosing(False, tuple(obstacles))
        at("epoch closed")
    agenda.reset(store, app)  # hours in two shards were not aggregated: the next full run checks every day
    return EpochClosing(True)


class _EpochChanged(Exception):
    """Another process has changed the state of the epoch: what was read under the old state may be wrong."""


def _end_epoch(store: Backend, app: int, epoch: PlacementEpoch, after: PlacementTable, at: Hook) -> list[str]:
    """Does steps 2 to 6; returns the obstacles, which are none if the epoch is closed now."""
    if not epoch.ending:
        obstacles, _ = _obstacles(store, app, epoch, after)
        if obstacles:
            return obstacles
        epoch = _set_state(store, app, epoch, store_epochs.next_state(epoch))
        at("epoch ending")
    obstacles, days = _obstacles(store, app, epoch, after)
    if not obstacles:
        changed = [day for day, cell in sorted(days.items()) if not _cut_histories(store, app, day, cell, at)]
        obstacles = [f"day {day} was changed meanwhile" for day in changed]
    _set_state(store, app, epoch, store_epochs.next_state(epoch) if obstacles else CLOSED)
    return obstacles


def _set_state(store: Backend, app: int, epoch: PlacementEpoch, state: int) -> PlacementEpoch:
    """Puts the epoch into its next state; raises ``_EpochChanged`` if it is not in the state that was read."""
    try:
        store_epochs.set_state(store, app, epoch.number, state, expected=epoch.state)
    except Refused as refusal:
        raise _EpochChanged(str(refusal)) from refusal
    return msgspec.structs.replace(epoch, state=state)


def _obstacles(
    store: Backend, app: int, epoch: PlacementEpoch, after: PlacementTable
) -> tuple[list[str], dict[int, bytes]]:
    """Returns (the obstacles to closing this epoch, the manifest cells that were read)."""
    obstacles = _pending_obstacles(store, app, epoch, after)
    days = cells.scan_cells(store, app)
    obstacles += [line for day, cell in sorted(days.items()) for line in _hour_obstacles(store, app, day, cell, after)]
    return obstacles, days


def _after_closing(table: PlacementTable, number: int) -> PlacementTable:
    """The placement table after the epoch is closed."""
    changed = (msgspec.structs.replace(e, state=CLOSED) if e.number == number else e for e in table.epochs)
    return PlacementTable(tuple(changed))


def _pending_obstacles(store: Backend, app: int, epoch: PlacementEpoch, after: PlacementTable) -> list[str]:
    """Names pending records of this epoch, and records without an epoch that nobody would find after closing it."""
    items = list(commit_records.scan(store, app, epoch.all_shards(app)))
    epochs = [commit_records.decode(item.cell).epoch for item in items]
    unsaid = [item for item, of in zip(items, epochs, strict=True) if of is None]
    apart = [item for item in unsaid if item.key.shard not in after.all_shards(app)]
    shared = [item.key.log(item.hour) for item in unsaid if item.key.shard in after.all_shards(app)]
    count = epochs.count(epoch.number) + len(apart)
    count += sum(_in_closed_epochs_only(after, app, key.shard, ids) for key, ids in _metrics_in_blocks(store, shared))
    return [f"{count} pending record(s) of it wait for a run"] if count else []


def _hour_obstacles(store: Backend, app: int, day: int, cell: bytes, after: PlacementTable) -> list[str]:
    """Names hours with generations and replay lists that nobody would find after closing the epoch."""
    metrics = metrics_of(store, app, _states(manifest.decode(cell), [manifest.OPEN, manifest.SEALING]))
    places = [place for place, ids in metrics.items() if _in_closed_epochs_only(after, app, place[0], ids)]
    hours = {hour for _, hour in places}
    return [f"{len(hours)} hour(s) of day {day} are still in its shards"] if hours else []


def _in_closed_epochs_only(after: PlacementTable, app: int, shard: int, metrics: U64) -> bool:
    return store_epochs.in_closed_epoch_only(after, app, shard, metrics) is not None


def _cut_histories(store: Backend, app: int, day: int, cell: bytes, at: Hook) -> bool:
    """Cuts every history of a day and sets a fence; returns ``False`` if the cell has changed."""
    now, nonce = manifest.decode(cell), random_u64()
    entries = {place: msgspec.structs.replace(entry, history=()) for place, entry in now.entries.items()}
    value = msgspec.structs.replace(now, nonce=nonce, fence=nonce, entries=entries)
    is_published, _, _ = cells.swap(
        store, keys.manifest(app, day), cell, manifest.encode(value), cells.has_nonce(nonce)
    )
    if is_published:
        at("histories cut")
    return is_published
