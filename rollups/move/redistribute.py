"""Moves an app's data to the shards of its newest epoch, and closes the epochs before it (rule 22), while all goes on.

``migrate`` looks in every open hour for units that hold metrics which the newest epoch puts elsewhere. What they hold
is merged with what lies in the shards it belongs to, one task per target shard; one flip per (app, day) empties the
old entries and puts the new ones in force, never rebased. ``PreviousEntry.together`` names the units, so that a roll back
takes all of them or none. Pending cells are left to ordinary runs; what a late writer puts into an old shard is moved
next time. ``close_epoch`` says what still stands in the way, or closes. Sealed hours stay where they are: readers find
their hours by the manifest. ``widen`` opens a wider epoch for an app whose ``rate`` asks for one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from rollups.crash_points import Hook, nowhere
from rollups.decide import plan as planning
from rollups.decide import publication
from rollups.decide.outcome import Work
from rollups.decide.plan import DayPlan, Kind, Moved, Order, UnitPlan
from rollups.decide.work import Packed
from rollups.manifest import cells, publish
from rollups.run import agenda
from rollups.run.driver import Driver
from rollups.run.local import Executor
from rollups.run.progress import DayReport, RequestMetrics, RunReport, report_of
from spm import limits
from spm.arrays import U64
from spm.clock import random_u64
from spm.errors import IntegrityError, Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs as store_epochs
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.keys import CLOSED, CLOSING, HASH, OPEN, Distribution, Epoch, LogKey
from spm.store.ledger import commit_records
from spm.store.manifest import Entry, Hours, Manifest, PreviousEntry, State
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShardData
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

UnitKey = tuple[int, int]  # shard, hour
_BLOCKS = 256  # read at once to learn which metrics are in them


def wanted_spread(epoch: Epoch, samples_per_hour: int) -> int | None:
    """Over how many shards an app of this rate should lie from now on; ``None``: it may stay as it is.

    A unit, one shard's part of an hour, is merged in the memory of one task. Spreads double, so that a growing app is
    moved seldom, and never shrink by themselves.
    """
    if epoch.strategy != HASH:
        return None
    spread = epoch.spread
    while spread < epoch.shards and samples_per_hour > spread * limits.SPREAD_UNIT_SAMPLES:
        spread = min(2 * spread, epoch.shards)
    return spread if spread > epoch.spread else None


def rate(reader: Reader, app: int, now_ms: int) -> int:
    """Samples an hour: the mean of the last day's hours that have any, as their generations hold them."""
    last = now_ms // HOUR_MS
    days = cells.read_cells(reader, app, sorted({(last - DAY_HOURS) // DAY_HOURS, last // DAY_HOURS}))
    names = [
        (hour, generations.inputs_key(HourShardData(shard, app, hour), generation))
        for cell in days.values()
        for (shard, hour), entry in manifest.decode(cell).entries.items()
        for generation in entry.state.generations
        if last - DAY_HOURS <= hour < last
    ]
    rows = reader.get("inputs", [key for _, key in names]) if names else []
    counted: Counter[int] = Counter()
    for (hour, _), row in zip(names, rows, strict=True):
        if row is not None:  # else a run has just replaced it
            counted[hour] += generations.decode_inputs(row[generations.COLUMN]).samples
    return round(counted.total() / len(counted)) if counted else 0


def widen(store: Backend, app: int, samples_per_hour: int) -> Distribution | None:
    """Open a wider epoch for an app that has grown; ``None`` when it is wide enough, or is being moved as it is."""
    spread = store_epochs.read(store, app)
    wanted = wanted_spread(spread.newest, samples_per_hour)
    if wanted is None or not spread.settled:
        return None
    return store_epochs.open_epoch(store, app, strategy=HASH, shards=spread.newest.shards, spread=wanted)


# --- which metrics a unit holds ---------------------------------------------------------------------------------------


def metrics_of(reader: Reader, app: int, held: Mapping[UnitKey, State]) -> dict[UnitKey, U64]:
    """The metric ids in each unit: from the directories of its generations, and from replayed blocks themselves."""
    found: dict[UnitKey, set[int]] = {place: set() for place in held}
    names = [
        (p, generations.inputs_key(HourShardData(p[0], app, p[1]), g))
        for p, state in held.items()
        for g in state.generations
    ]
    rows = reader.get("inputs", [key for _, key in names]) if names else []
    for (place, _), row in zip(names, rows, strict=True):
        if row is None:
            raise IntegrityError(f"inputs of shard {place[0]}, hour {place[1]} of app {app} are missing")
        found[place].update(generations.decode_inputs(row[generations.COLUMN]).pages)
    blocks = [LogKey(b, app, s, r.ingest_ms, r.batch) for (b, s), state in held.items() for r in state.replay]
    for block, metrics in _in_blocks(reader, blocks):
        found[block.shard, block.hour].update(metrics.tolist())
    return {place: np.array(sorted(metrics), np.uint64) for place, metrics in found.items()}


def _in_blocks(reader: Reader, blocks: Sequence[LogKey]) -> Iterator[tuple[LogKey, U64]]:
    """The metrics of blocks; one that is gone is inside a generation, or nobody's."""
    for start in range(0, len(blocks), _BLOCKS):
        part = blocks[start : start + _BLOCKS]
        for block, row in zip(part, reader.get("log", [key.to_bytes() for key in part]), strict=True):
            if row is not None:
                yield block, np.unique(Piece.of_row(row).metrics)


def _states(value: Manifest, seals: Collection[int]) -> dict[UnitKey, State]:
    """What is in force in hours of these states."""
    return {
        place: entry.state
        for place, entry in value.entries.items()
        if value.seal(place[1]) in seals and (entry.state.generations or entry.state.replay)
    }


# --- moving -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Units of one hour that change together: what they hold now, and the shards that will hold it."""

    hour: int
    held: Mapping[int, Entry]
    targets: tuple[int, ...]
    strays: frozenset[int]  # shards of which something goes elsewhere

    @property
    def places(self) -> tuple[UnitKey, ...]:
        """All units of it, those that are still to be as well."""
        return tuple((shard, self.hour) for shard in sorted({*self.held, *self.targets}))


def groups_of(reader: Reader, app: int, value: Manifest, spread: Distribution) -> list[Group]:
    """The hours of a day of which something lies where the newest epoch does not put it."""
    if spread.settled:
        return []
    metrics = metrics_of(reader, app, _states(value, [manifest.OPEN]))
    by_hour: dict[int, dict[int, U64]] = {}
    for (shard, hour), ids in metrics.items():
        by_hour.setdefault(hour, {})[shard] = ids
    found = (_group(app, hour, held, value, spread) for hour, held in sorted(by_hour.items()))
    return [group for group in found if group is not None]


def _group(app: int, hour: int, held: Mapping[int, U64], value: Manifest, spread: Distribution) -> Group | None:
    goes = {shard: spread.newest.of(app, ids) for shard, ids in held.items()}
    strays = {shard for shard, targets in goes.items() if (targets != shard).any()}
    if not strays:
        return None
    targets = {int(target) for shard in strays for target in np.unique(goes[shard])}
    touched = strays | (targets & held.keys())
    return Group(hour, {b: value.entry(b, hour) for b in sorted(touched)}, tuple(sorted(targets)), frozenset(strays))


def plan_moves(
    app: int, day: int, *, cell: bytes | None, value: Manifest, groups: Sequence[Group], order: Order
) -> DayPlan:
    """The units to make: each target shard of each group, from all that the group holds."""
    found = [_unit(group, shard, order) for group in groups for shard in group.targets]
    return DayPlan(app, day, cell, value, tuple(found), order)


def _unit(group: Group, shard: int, order: Order) -> UnitPlan:
    others = group.strays - {shard}
    hiding: Iterable[Retraction] = (
        r for entry in group.held.values() for r in retractions.touching(order.retractions, entry, group.hour)
    )
    return UnitPlan(
        shard=shard,
        hour=group.hour,
        kind=Kind.FULL,
        parent=group.held.get(shard, Entry()),
        fresh=(),
        waiting=(),
        hours=planning.closed(group.hour, order.now_ms, order.thresholds),
        retractions=tuple({r.number: r for r in hiding}.values()),
        moved=tuple(Moved(b, e.state.generations, e.state.replay) for b, e in group.held.items() if b in others),
        place=order.distribution.newest,
    )


def migrate(
    driver: Driver, executor: Executor, app: int, *, now_ms: int | None = None, run: int | None = None
) -> RunReport:
    """Move what lies in shards where the newest epoch does not put it; ``left``: units that need another run."""
    run = cells.take_run(driver.store) if run is None else run
    order = _order(driver, app, driver.clock.now_ms() if now_ms is None else now_ms)
    groups: dict[int, list[Group]] = {}
    plans = []
    for day, cell in sorted(cells.scan_cells(driver.store, app).items()):
        value = manifest.decode(cell)
        groups[day] = groups_of(driver.store, app, value, order.distribution)
        plans.append(plan_moves(app, day, cell=cell, value=value, groups=groups[day], order=order))
    driver.at("planned")
    meter = RequestMetrics(driver.clock, sum(len(plan.units) for plan in plans), driver.watch)
    reports: list[DayReport] = []
    try:
        for wave in planning.waves(plans):
            works, packed = driver.compact(executor, run, wave, meter)
            for work in works:
                day = work.plan.day
                reports.append(_finish(driver, work, groups[day], packed.get((app, day), []), run))
            executor.forget()
    finally:
        executor.forget()
    left = sum(len(plan.units) for plan in plans) - sum(report.units for report in reports if report.flipped)
    return RunReport(run, executor.name, False, tuple(reports), left=left)


def _order(driver: Driver, app: int, now_ms: int) -> Order:
    spread = store_epochs.read(driver.store, app)
    known = tuple(r for r in retractions.read(driver.store, app) if r.active())
    return Order(now_ms, retractions=known, distribution=spread, thresholds=driver.thresholds)


def _finish(driver: Driver, work: Work, groups: Sequence[Group], packed: Sequence[Packed], run: int) -> DayReport:
    """One flip for all hours of a day whose every unit was made."""
    plan = work.plan
    made = {(r.shard, r.hour) for r in work.results if not r.reason}
    whole = [g for g in groups if all((shard, g.hour) in made for shard in g.targets)]
    moving = {group.hour for group in whole}
    changes = [change for change in work.changes if change.hour in moving]
    hours = {p.shard: _only(work.hours(p.shard, p), work, moving) for p in packed if p.made is not None}
    troubles = [*work.troubles, *(p.reason for p in packed if p.reason)]
    after = publication.apply(plan.manifest, changes, hours, run=run, nonce=random_u64())
    value = together(after, plan.manifest, whole, run)
    flipped = bool(whole) and publish.flip_exactly(driver.store, plan, value, changes, driver.at)
    if whole and not flipped:
        troubles.append("others changed the day meanwhile: it is moved next time")
    if flipped:
        agenda.mark(driver.store, plan.app, [plan.day])  # its row of days was made of other generations
        driver.at("moved")
    done = [(r.samples, r.size_bytes) for r in work.results if r.hour in moving]
    report = report_of(plan.app, plan.day, flipped=flipped, done=done, troubles=troubles)
    return replace(report, size_bytes=report.size_bytes + sum(p.size_bytes for p in packed))


def _only(hours: Hours, work: Work, moving: set[int]) -> Hours:
    """The pack without hours of hours that stay where they are after all."""
    gone = {unit.hour for unit in work.plan.units} - moving
    return Hours(hours.generation, {hour: of for hour, of in hours.hours.items() if hour not in gone})


def together(after: Manifest, before: Manifest, groups: Sequence[Group], run: int) -> Manifest:
    """The manifest with old entries emptied, and the units of each group bound to be rolled back in company."""
    entries, hours = dict(after.entries), dict(after.hours)
    for group in groups:
        for shard, hour in group.places:
            was, now = before.entry(shard, hour), after.entry(shard, hour)
            state = now.state if shard in group.targets else State()
            former = PreviousEntry(run, was.state, group.places)
            history = (*was.history, former)[-limits.HISTORY_MAX :]
            entries[shard, hour] = msgspec.structs.replace(now, state=state, history=history)
            if shard not in group.targets and shard in hours:
                kept = {s: of for s, of in hours[shard].hours.items() if s != hour}
                hours[shard] = Hours(hours[shard].generation, kept)
    return msgspec.structs.replace(after, entries=entries, hours={b: pack for b, pack in hours.items() if pack.hours})


# --- closing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closing:
    """Whether an epoch is closed now; else what was found in its shards."""

    closed: bool
    found: tuple[str, ...] = ()


def close_epoch(store: Backend, app: int, number: int, at: Hook = nowhere) -> Closing:
    """Close an epoch, or say why not yet. Repeat it after a run, a migration or a crash. Raises ``Refused``.

    1. set it closing: writers that still use it write again under the newest before they acknowledge anything;
    2. look for pending cells of it, and for generations and replay lists that only this epoch puts where they are;
    3. set it ending: what keepers and runs find by it from now on does not count as stored;
    4. look once more: what they have counted on by then is there, or was moved; set it closing again if it is there;
    5. cut the histories by check-and-put of each manifest looked at, with a fence, so that neither a roll back nor a
       run under way brings anything back;
    6. set it closed: nobody looks there any more.
    """
    spread = store_epochs.read(store, app)
    epoch = spread.epoch(number)
    if epoch is None:
        raise Refused(f"app {app} has no epoch {number}")
    if epoch.state == OPEN:
        spread = store_epochs.set_state(store, app, number, CLOSING)
        at("epoch closing")
        epoch = spread.epoch(number) or epoch
    if epoch.state != CLOSED:
        try:
            found = _ended(store, app, epoch, _closed(spread, number), at)
        except _Changed as change:
            found = [str(change)]
        if found:
            return Closing(False, tuple(found))
        at("epoch closed")
    agenda.reset(store, app)  # hours of hours in two shards were not made: the next full run looks at every day
    return Closing(True)


class _Changed(Exception):
    """Others have changed the state of an epoch meanwhile: what was looked up under it may hold no more."""


def _ended(store: Backend, app: int, epoch: Epoch, then: Distribution, at: Hook) -> list[str]:
    """Steps 2 to 6; what was found, if the epoch is not closed now."""
    if not epoch.ending:
        found, _ = _left_by(store, app, epoch, then)
        if found:
            return found
        epoch = _step(store, app, epoch, store_epochs.next_state(epoch))
        at("epoch ending")
    found, days = _left_by(store, app, epoch, then)
    if not found:
        moved = [day for day, cell in sorted(days.items()) if not _cut(store, app, day, cell, at)]
        found = [f"day {day} was changed meanwhile" for day in moved]
    _step(store, app, epoch, store_epochs.next_state(epoch) if found else CLOSED)
    return found


def _step(store: Backend, app: int, epoch: Epoch, state: int) -> Epoch:
    """The epoch in its next state; raises ``_Changed`` when it is not in the one that was looked at."""
    try:
        store_epochs.set_state(store, app, epoch.number, state, was=epoch.state)
    except Refused as refusal:
        raise _Changed(str(refusal)) from refusal
    return msgspec.structs.replace(epoch, state=state)


def _left_by(store: Backend, app: int, epoch: Epoch, then: Distribution) -> tuple[list[str], dict[int, bytes]]:
    """(what lies by this epoch, the manifest cells that were looked at)."""
    found = _waiting(store, app, epoch, then)
    days = cells.scan_cells(store, app)
    found += [line for day, cell in sorted(days.items()) for line in _standing(store, app, day, cell, then)]
    return found, days


def _closed(spread: Distribution, number: int) -> Distribution:
    """The distribution as it will be."""
    changed = (msgspec.structs.replace(e, state=CLOSED) if e.number == number else e for e in spread.epochs)
    return Distribution(tuple(changed))


def _waiting(store: Backend, app: int, epoch: Epoch, then: Distribution) -> list[str]:
    """Pending cells that were put by this epoch, or, where they do not say it, that nobody would look for any more."""
    items = list(commit_records.scan(store, app, epoch.all(app)))
    epochs = [commit_records.decode(item.cell).epoch for item in items]
    unsaid = [item for item, of in zip(items, epochs, strict=True) if of is None]
    apart = [item for item in unsaid if item.key.shard not in then.all(app)]
    shared = [item.key.log(item.hour) for item in unsaid if item.key.shard in then.all(app)]
    count = epochs.count(epoch.number) + len(apart)
    count += sum(_left(then, app, key.shard, ids) for key, ids in _in_blocks(store, shared))
    return [f"{count} pending cell(s) of it wait for a run"] if count else []


def _standing(store: Backend, app: int, day: int, cell: bytes, then: Distribution) -> list[str]:
    """Generations and replay lists that nobody would look for any more."""
    metrics = metrics_of(store, app, _states(manifest.decode(cell), [manifest.OPEN, manifest.SEALING]))
    left = [place for place, ids in metrics.items() if _left(then, app, place[0], ids)]
    hours = {hour for _, hour in left}
    return [f"{len(hours)} hour(s) of day {day} are still in its shards"] if hours else []


def _left(then: Distribution, app: int, shard: int, metrics: U64) -> bool:
    return store_epochs.abandoned(then, app, shard, metrics) is not None


def _cut(store: Backend, app: int, day: int, cell: bytes, at: Hook) -> bool:
    """Cut every history of a day and put up a fence; False when the cell has moved."""
    now, nonce = manifest.decode(cell), random_u64()
    entries = {place: msgspec.structs.replace(entry, history=()) for place, entry in now.entries.items()}
    value = msgspec.structs.replace(now, nonce=nonce, fence=nonce, entries=entries)
    landed, _, _ = cells.swap(store, keys.manifest(app, day), cell, manifest.encode(value), cells.holds(nonce))
    if landed:
        at("histories cut")
    return landed
