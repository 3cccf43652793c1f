"""Turns plans into tasks, and the results of tasks into changes of the manifest and rows of the ledger.

``DayResult`` is one (app, day) after its hour shards were compacted: the changes to publish, the packs of hours to
write, the errors, and the corrections of hours that people may have seen. Nothing here reads or writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollups.decide import publication
from rollups.decide.plan import DayPlan, HourShardPlan, MergeKind, PendingCommit, StaleDay
from rollups.decide.publication import EntryChange
from rollups.decide.work import CompactionResult, DaySource, DaysTask, HourShardTask, PackResult, PackTask
from spm.clock import random_u64
from spm.store.encoding import blocks
from spm.store.keys import CLOSED, PlacementEpoch, PlacementTable
from spm.store.ledger import commit_records
from spm.store.manifest import OPEN, DayInputs, DayPack, Entry, HourInputs, HourPack, Manifest, Month, fingerprint
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import retractions

LATE, RETRACTED, UNDONE, ROLLED_BACK = "late", "retraction", "undo", "rollback"  # causes of corrections


@dataclass(frozen=True, slots=True)
class HourCorrection:
    """Why the aggregates of an hour were computed again, and the late samples that came in, with their sources."""

    app: int
    hour: int
    cause: str
    samples: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DayResult:
    """One (app, day) after its tasks: what to publish, what to pack, what was given up."""

    plan: DayPlan
    results: tuple[CompactionResult, ...]
    changes: tuple[EntryChange, ...]
    after: Manifest  # the planned one with the new generations, from which hours are aggregated
    packs: tuple[PackTask, ...]
    errors: tuple[str, ...]

    @classmethod
    def of(cls, plan: DayPlan, results: Mapping[tuple[int, int, int], CompactionResult], run: int) -> "DayResult":
        all_results = [
            (hour_shard, results[plan.app, hour_shard.shard, hour_shard.hour]) for hour_shard in plan.hour_shards
        ]
        done = [(hour_shard, result) for hour_shard, result in all_results if not result.reason]
        changes = tuple(_change(hour_shard, result) for hour_shard, result in done if result.generation is not None)
        after = publication.apply_changes(plan.manifest, changes, {}, run=run, nonce=0)
        by_shard: dict[int, dict[int, int]] = {}
        for hour_shard, result in done:
            if hour_shard.wants_hours:
                number = result.generation.number if result.generation else 0
                by_shard.setdefault(hour_shard.shard, {})[hour_shard.hour] = number
        packs = tuple(_pack_task(plan, shard, new_hours) for shard, new_hours in sorted(by_shard.items()))
        errors = tuple(result.reason for _, result in all_results if result.reason)
        return cls(plan, tuple(result for _, result in all_results), changes, after, packs, errors)

    def hours(self, shard: int, packed: PackResult) -> HourPack:
        """The manifest's entry for a new pack: its generation, and the inputs of each hour."""
        assert packed.generation is not None, "BUG: a pack that was given up"
        [task] = [t for t in self.packs if t.shard == shard]
        newest = {r.hour: r.stamp_max_ms for r in self.results if r.shard == shard}
        old = self.plan.manifest.hours.get(shard)
        hours = {hour: old.hours[hour] for hour in task.old_hours} if old else {}
        for hour in task.new_hours:
            entry = self.after.entry(shard, hour)
            hidden = retractions.touching(self.plan.context.retractions, entry, hour)
            hours[hour] = HourInputs(
                fingerprint(entry.state), retractions.ids(hidden), max(newest[hour], entry.stamp_max_ms)
            )
        return HourPack(packed.generation, hours)

    def corrections(self, packed: Iterable[int]) -> tuple[HourCorrection, ...]:
        """The hours whose aggregates changed, one correction each; ``packed``: shards whose packs were published."""
        results = {(r.shard, r.hour): r for r in self.results if not r.reason}
        by_hour: dict[int, HourCorrection] = {}
        for hour_shard in self.plan.hour_shards:
            if hour_shard.wants_hours and hour_shard.shard in packed and (hour_shard.shard, hour_shard.hour) in results:
                new = _correction(self.plan, hour_shard, results[hour_shard.shard, hour_shard.hour])
                if new is not None:
                    by_hour[new.hour] = _merge_corrections(by_hour[new.hour], new) if new.hour in by_hour else new
        return tuple(by_hour[hour] for hour in sorted(by_hour))

    def pending_of_changes(self) -> list[PendingCommit]:
        """The pending records of the hour shards that were published."""
        done = {(change.shard, change.hour) for change in self.changes}
        return [
            item
            for hour_shard in self.plan.hour_shards
            if (hour_shard.shard, hour_shard.hour) in done
            for item in hour_shard.pending
        ]


def hour_shard_task(day: DayPlan, hour_shard: HourShardPlan) -> HourShardTask:
    state = hour_shard.parent.state
    return HourShardTask(
        app=day.app,
        shard=hour_shard.shard,
        hour=hour_shard.hour,
        kind=hour_shard.kind,
        generations=state.generations,
        replay=state.replay,
        fresh=hour_shard.fresh,
        samples=hour_shard.samples,
        wants_hours=hour_shard.wants_hours,
        retractions=hour_shard.retractions,
        move_sources=hour_shard.move_sources,
        epoch=hour_shard.epoch,
        epochs=_epochs(day),
    )


def _epochs(day: DayPlan) -> tuple[PlacementEpoch, ...]:
    """The app's epochs, where closed ones may have left something behind."""
    epochs = day.context.placement.epochs
    return epochs if any(epoch.state == CLOSED for epoch in epochs) else ()


def _change(hour_shard: HourShardPlan, result: CompactionResult) -> EntryChange:
    assert result.generation is not None, "BUG: a change without a generation"
    state = hour_shard.parent.state
    return EntryChange(
        shard=hour_shard.shard,
        hour=hour_shard.hour,
        generation=result.generation,
        replaced=state.generations if hour_shard.kind == MergeKind.FULL else (),
        replayed=state.replay,
        stamp_min_ms=result.stamp_min_ms,
        stamp_max_ms=result.stamp_max_ms,
        sources=result.sources,
    )


def _pack_task(plan: DayPlan, shard: int, new_hours: Mapping[int, int]) -> PackTask:
    """Keeps the hours of the old pack, except those that are computed again or whose inputs are not in force."""
    old = plan.manifest.hours.get(shard)
    if old is None:
        return PackTask(plan.app, shard, plan.day, None, (), dict(new_hours))
    exact = [hour for hour in old.hours if plan.manifest.valid_inputs(shard, hour)]
    old_hours = tuple(sorted(set(exact) - set(new_hours)))
    sealed = all(plan.manifest.seal(hour) != OPEN for hour in old_hours)  # these can not be computed in a newer form
    form = rollup_rows.FORM if sealed else old.generation.form
    return PackTask(plan.app, shard, plan.day, old.generation, old_hours, dict(new_hours), form)


# --- corrections ------------------------------------------------------------------------------------------------------


def _correction(plan: DayPlan, hour_shard: HourShardPlan, result: CompactionResult) -> HourCorrection | None:
    """Why an hour was aggregated again; ``None`` if it had no aggregates, or only their form was old."""
    pack = plan.manifest.hours.get(hour_shard.shard)
    was = pack.hours.get(hour_shard.hour) if pack else None
    if was is None:
        return None
    late = _newer(hour_shard.parent, was)
    samples = hour_shard.samples + sum(part.samples for part in result.merged if part.number in late)
    sources = {name for item in hour_shard.pending for name in item.commit.messages.sources}
    sources |= {name for part in result.merged if part.number in late for name in part.sources}
    now, then = {r.number for r in hour_shard.retractions}, retractions.numbers(was.retractions)
    if samples:
        return HourCorrection(plan.app, hour_shard.hour, LATE, samples, tuple(sorted(sources)))
    if was.inputs != fingerprint(hour_shard.parent.state):
        return HourCorrection(plan.app, hour_shard.hour, ROLLED_BACK)
    if now - then:
        return HourCorrection(plan.app, hour_shard.hour, RETRACTED)
    return HourCorrection(plan.app, hour_shard.hour, UNDONE) if then - now else None


def _newer(entry: Entry, was: HourInputs) -> set[int]:
    """Generations in force that minor runs have added since the hour was aggregated."""
    for former in entry.history:
        if fingerprint(former.state) == was.inputs:
            return {g.number for g in entry.state.generations} - {g.number for g in former.state.generations}
    return set()


def _merge_corrections(one: HourCorrection, other: HourCorrection) -> HourCorrection:
    """Merges the corrections of one hour in two shards: takes the cause that brought samples, else the first."""
    cause = other.cause if other.samples and not one.samples else one.cause
    sources = tuple(sorted({*one.sources, *other.sources}))
    return HourCorrection(one.app, one.hour, cause, one.samples + other.samples, sources)


# --- ledger -----------------------------------------------------------------------------------------------------------


def ledger_outcomes(
    items: Sequence[PendingCommit], placement: PlacementTable, outcome: int
) -> list[tuple[PendingCommit, int]]:
    """The pending records that may go to the ledger, each with its outcome, by the placement after publishing.

    A record of an epoch that is ending waits, because the process that closes the epoch may or may not have read it. A
    record of a closed epoch is abandoned, because nothing was pending there when the epoch closed.
    """
    outcomes = []
    for item in items:
        epoch = None if item.commit.epoch is None else placement.epoch(item.commit.epoch)
        if item.commit.epoch is None or (epoch is not None and epoch.counts):
            outcomes.append((item, outcome))
        elif epoch is None or not epoch.ending:
            outcomes.append((item, commit_records.ABANDONED))
    return outcomes


def ledger_row(app: int, item: PendingCommit, outcome: int = commit_records.STORED) -> tuple[bytes, dict[bytes, bytes]]:
    """The ledger row of a pending record. Its key follows from the record: a repeated run writes the same row."""
    key = commit_records.ledger_key(item.key.log(item.hour))
    return key, {commit_records.COLUMN: commit_records.encode(item.commit, blocks.LEDGER, outcome, item.key.batch)}


# --- months -----------------------------------------------------------------------------------------------------------


def days_task(app: int, month: int, shard: int, in_force: Month, stale: Sequence[StaleDay]) -> DaysTask:
    of_shard = [s for s in stale if s.shard == shard]
    old = in_force.days.get(shard)
    old_days = tuple(sorted(set(old.days) - {s.day for s in of_shard})) if old else ()
    days = tuple(DaySource(s.day, s.pack.generation, tuple(sorted(s.pack.hours))) for s in of_shard)
    form = min([*(s.pack.generation.form for s in of_shard), *([old.generation.form] if old and old_days else [])])
    return DaysTask(app, shard, month, old.generation if old else None, old_days, days, form)


def month_after(in_force: Month, packed: Sequence[PackResult], stale: Sequence[StaleDay]) -> Month:
    days = dict(in_force.days)
    for pack in packed:
        assert pack.generation is not None, "BUG: a pack that was given up"
        old = days.get(pack.shard)
        new = {s.day: DayInputs(s.inputs, s.retractions, s.stamp_max_ms) for s in stale if s.shard == pack.shard}
        days[pack.shard] = DayPack(pack.generation, {**(old.days if old else {}), **new})
    return Month(random_u64(), days)
