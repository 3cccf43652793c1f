"""Values between a plan, its tasks and the flip: what each task is told, and what its result changes.

``Work`` is one (app, day) after its units were compacted: the changes to flip, the packs of hours to write, what was
given up, and which hours that people may have seen are corrected by it. The other functions make tasks and rows from
plans. Nothing here reads or writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollups.decide import publication
from rollups.decide.plan import DayPlan, Kind, StaleDay, UnitPlan, Waiting
from rollups.decide.publication import Change
from rollups.decide.work import Compacted, DayOfHours, DaysTask, Packed, PackTask, UnitTask
from spm.clock import random_u64
from spm.store.encoding import blocks
from spm.store.keys import CLOSED, Distribution, Epoch
from spm.store.ledger import commit_records
from spm.store.manifest import OPEN, DayInputs, Days, Entry, HourInputs, Hours, Manifest, Month, fingerprint
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import retractions

LATE, RETRACTED, UNDONE, ROLLED_BACK = "late", "retraction", "undo", "rollback"  # causes of corrections


@dataclass(frozen=True, slots=True)
class Correction:
    """Hours of an hour that had hours before were made anew: why, and which samples came in with it from where."""

    app: int
    hour: int
    cause: str
    samples: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One (app, day) after its tasks: what to flip, what to pack, what was given up."""

    plan: DayPlan
    results: tuple[Compacted, ...]
    changes: tuple[Change, ...]
    after: Manifest  # as planned, with the new generations: what hours are made of
    packs: tuple[PackTask, ...]
    troubles: tuple[str, ...]

    @classmethod
    def of(cls, plan: DayPlan, results: Mapping[tuple[int, int, int], Compacted], run: int) -> "Work":
        mine = [(unit, results[plan.app, unit.shard, unit.hour]) for unit in plan.units]
        done = [(unit, result) for unit, result in mine if not result.reason]
        changes = tuple(_change(unit, result) for unit, result in done if result.made is not None)
        after = publication.apply(plan.manifest, changes, {}, run=run, nonce=0)
        counted: dict[int, dict[int, int]] = {}
        for unit, result in done:
            if unit.hours:
                counted.setdefault(unit.shard, {})[unit.hour] = result.made.number if result.made else 0
        packs = tuple(_pack_task(plan, shard, made) for shard, made in sorted(counted.items()))
        troubles = tuple(result.reason for _, result in mine if result.reason)
        return cls(plan, tuple(result for _, result in mine), changes, after, packs, troubles)

    def hours(self, shard: int, packed: Packed) -> Hours:
        """The manifest's word on a new pack: its generation, and what each hour was made of."""
        assert packed.made is not None, "BUG: a pack that was given up"
        [task] = [t for t in self.packs if t.shard == shard]
        newest = {r.hour: r.stamp_max_ms for r in self.results if r.shard == shard}
        old = self.plan.manifest.hours.get(shard)
        hours = {hour: old.hours[hour] for hour in task.kept} if old else {}
        for hour in task.made:
            entry = self.after.entry(shard, hour)
            hidden = retractions.touching(self.plan.order.retractions, entry, hour)
            hours[hour] = HourInputs(
                fingerprint(entry.state), retractions.ids(hidden), max(newest[hour], entry.stamp_max_ms)
            )
        return Hours(packed.made, hours)

    def corrections(self, packed: Iterable[int]) -> tuple[Correction, ...]:
        """Which hours are not what they were, given the shards whose packs went in; one per hour."""
        results = {(r.shard, r.hour): r for r in self.results if not r.reason}
        found: dict[int, Correction] = {}
        for unit in self.plan.units:
            if unit.hours and unit.shard in packed and (unit.shard, unit.hour) in results:
                made = _correction(self.plan, unit, results[unit.shard, unit.hour])
                if made is not None:
                    found[made.hour] = _together(found[made.hour], made) if made.hour in found else made
        return tuple(found[hour] for hour in sorted(found))

    def settled(self) -> list[Waiting]:
        """The pending cells of the units that went in."""
        done = {(change.shard, change.hour) for change in self.changes}
        return [item for unit in self.plan.units if (unit.shard, unit.hour) in done for item in unit.waiting]


def unit_task(day: DayPlan, unit: UnitPlan) -> UnitTask:
    state = unit.parent.state
    return UnitTask(
        app=day.app,
        shard=unit.shard,
        hour=unit.hour,
        kind=unit.kind,
        generations=state.generations,
        replay=state.replay,
        fresh=unit.fresh,
        samples=unit.samples,
        hours=unit.hours,
        retractions=unit.retractions,
        moved=unit.moved,
        place=unit.place,
        epochs=_epochs(day),
    )


def _epochs(day: DayPlan) -> tuple[Epoch, ...]:
    """The app's epochs, where closed ones may have left something behind."""
    epochs = day.order.distribution.epochs
    return epochs if any(epoch.state == CLOSED for epoch in epochs) else ()


def _change(unit: UnitPlan, result: Compacted) -> Change:
    assert result.made is not None, "BUG: a change without a generation"
    state = unit.parent.state
    return Change(
        shard=unit.shard,
        hour=unit.hour,
        made=result.made,
        replaced=state.generations if unit.kind == Kind.FULL else (),
        taken=state.replay,
        stamp_min_ms=result.stamp_min_ms,
        stamp_max_ms=result.stamp_max_ms,
        sources=result.sources,
    )


def _pack_task(plan: DayPlan, shard: int, made: Mapping[int, int]) -> PackTask:
    """Hours of the old pack stay unless they are made anew, or were made of something no longer in force."""
    old = plan.manifest.hours.get(shard)
    if old is None:
        return PackTask(plan.app, shard, plan.day, None, (), dict(made))
    exact = [hour for hour in old.hours if plan.manifest.counted(shard, hour)]
    kept = tuple(sorted(set(exact) - set(made)))
    sealed = all(plan.manifest.seal(hour) != OPEN for hour in kept)  # nobody can make these in a newer form
    form = rollup_rows.FORM if sealed else old.generation.form
    return PackTask(plan.app, shard, plan.day, old.generation, kept, dict(made), form)


# --- corrections ------------------------------------------------------------------------------------------------------


def _correction(plan: DayPlan, unit: UnitPlan, result: Compacted) -> Correction | None:
    """Why the hours of a unit had to be made anew; ``None`` when it had none, or nothing but their form was old."""
    pack = plan.manifest.hours.get(unit.shard)
    was = pack.hours.get(unit.hour) if pack else None
    if was is None:
        return None
    late = _newer(unit.parent, was)
    samples = unit.samples + sum(part.samples for part in result.parts if part.number in late)
    sources = {name for item in unit.waiting for name in item.commit.messages.sources}
    sources |= {name for part in result.parts if part.number in late for name in part.sources}
    now, then = {r.number for r in unit.retractions}, retractions.numbers(was.retractions)
    if samples:
        return Correction(plan.app, unit.hour, LATE, samples, tuple(sorted(sources)))
    if was.inputs != fingerprint(unit.parent.state):
        return Correction(plan.app, unit.hour, ROLLED_BACK)
    if now - then:
        return Correction(plan.app, unit.hour, RETRACTED)
    return Correction(plan.app, unit.hour, UNDONE) if then - now else None


def _newer(entry: Entry, was: HourInputs) -> set[int]:
    """Generations in force that minor runs have added since the hours were made."""
    for former in entry.history:
        if fingerprint(former.state) == was.inputs:
            return {g.number for g in entry.state.generations} - {g.number for g in former.state.generations}
    return set()


def _together(one: Correction, other: Correction) -> Correction:
    """Of one hour in two shards: the cause that brought samples, else the first."""
    cause = other.cause if other.samples and not one.samples else one.cause
    sources = tuple(sorted({*one.sources, *other.sources}))
    return Correction(one.app, one.hour, cause, one.samples + other.samples, sources)


# --- accounts ---------------------------------------------------------------------------------------------------------


def told(items: Sequence[Waiting], spread: Distribution, outcome: int) -> list[tuple[Waiting, int]]:
    """The pending cells that may be accounted for, each with its outcome, by the distribution as it is after the flip.

    What was put by an epoch that is ending waits: whoever closes it may or may not have seen it. What was put by one
    that is closed is abandoned, since nothing waited there when it closed.
    """
    found = []
    for item in items:
        epoch = None if item.commit.epoch is None else spread.epoch(item.commit.epoch)
        if item.commit.epoch is None or (epoch is not None and epoch.counts):
            found.append((item, outcome))
        elif epoch is None or not epoch.ending:
            found.append((item, commit_records.ABANDONED))
    return found


def account(app: int, item: Waiting, outcome: int = commit_records.STORED) -> tuple[bytes, dict[bytes, bytes]]:
    """The account row of one pending cell. Its key follows from the cell: a repeated run writes the same row."""
    key = commit_records.ledger_key(item.key.log(item.hour))
    return key, {commit_records.COLUMN: commit_records.encode(item.commit, blocks.LEDGER, outcome, item.key.batch)}


# --- months -----------------------------------------------------------------------------------------------------------


def days_task(app: int, month: int, shard: int, in_force: Month, stale: Sequence[StaleDay]) -> DaysTask:
    mine = [s for s in stale if s.shard == shard]
    old = in_force.days.get(shard)
    kept = tuple(sorted(set(old.days) - {s.day for s in mine})) if old else ()
    days = tuple(DayOfHours(s.day, s.hours.generation, tuple(sorted(s.hours.hours))) for s in mine)
    form = min([*(s.hours.generation.form for s in mine), *([old.generation.form] if old and kept else [])])
    return DaysTask(app, shard, month, old.generation if old else None, kept, days, form)


def month_after(in_force: Month, packed: Sequence[Packed], stale: Sequence[StaleDay]) -> Month:
    days = dict(in_force.days)
    for pack in packed:
        assert pack.made is not None, "BUG: a pack that was given up"
        old = days.get(pack.shard)
        new = {s.day: DayInputs(s.inputs, s.retractions, s.stamp_max_ms) for s in stale if s.shard == pack.shard}
        days[pack.shard] = Days(pack.made, {**(old.days if old else {}), **new})
    return Month(random_u64(), days)
