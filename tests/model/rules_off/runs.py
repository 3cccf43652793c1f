"""Rules of runs, each with a switch and a history that goes wrong without it: publishing, ledger, generations."""

import msgspec
import numpy as np
import pytest

from rollups.compute import source
from rollups.compute import task as compute_task
from rollups.compute.source import MergeInput
from rollups.crash_points import Hook
from rollups.decide import publication
from rollups.decide.day_result import DayResult, ledger_row
from rollups.decide.plan import MergeKind, PendingCommit
from rollups.decide.work import HourShardTask
from rollups.delete import purge
from rollups.manifest import cells, publish
from rollups.run import agenda, rollback
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.encoding.blocks import Messages
from spm.store.ledger import commit_records
from spm.store.manifest import HourInputs, HourPack, Manifest, Replay, fingerprint
from spm.store.versions import merge
from spm.store.versions.merge import Piece
from spm.store.versions.visibility import Visibility
from tests.model.rules_off.switch import Rule, keep, killed, right, world_of
from tests.model.world import APP, DAY, World, crash_at, meanwhile

Patch = pytest.MonkeyPatch


# --- 14: publishing ---------------------------------------------------------------------------------------------------


def publishes_without_comparison(patch: Patch) -> None:
    swap = cells.swap

    def blind(store: Backend, key: bytes, expected: object, value: bytes, landed: object) -> object:
        return swap(store, key, cells.read_cell(store, "manifest", key), value, landed)  # type: ignore[arg-type]

    patch.setattr(cells, "swap", blind)


def another_run_publishes_meanwhile() -> None:
    world = world_of()

    def other() -> None:
        world.send((0, HOUR_MS + 1, 2.0))
        world.roll(minor=True)

    world.roll(minor=True, at=meanwhile("compacted", other))
    right(world)


def repeated_nonces(patch: Patch) -> None:
    for module in (publish, purge, rollback):
        patch.setattr(module, "random_u64", lambda: 7)


def a_second_purge_during_a_run() -> None:
    world = world_of()
    world.roll(minor=True)
    shards = world.placement.all_shards(APP)
    purge.purge(world.store, APP, shards)
    world.send((0, 2, 2.0))
    world.roll(minor=True, at=meanwhile("compacted", lambda: purge.purge(world.store, APP, shards)))
    right(world)


def anything_fits(patch: Patch) -> None:
    patch.setattr(publication, "_fits", lambda now, change: True)


def a_roll_back_during_a_full_merge() -> None:
    world = world_of()
    first = world.roll(minor=True).run
    world.send((0, 2, 2.0))
    report = world.roll(at=meanwhile("compacted", lambda: rollback.roll_back(world.store, first, [APP])))
    assert [day.published for day in report.days] == [False]  # what was rolled back would be in force inside the merge
    right(world)


def a_replayed_batch_is_taken_by_two() -> None:
    """The second of two minor runs would stand for a replay list that the first has taken: one must drop its work."""
    world = world_of()
    rollback.roll_back(world.store, world.roll(minor=True).run, [APP])
    world.send((0, 2, 2.0))
    report = world.roll(minor=True, at=meanwhile("compacted", lambda: world.roll(minor=True)))
    assert [day.published for day in report.days] == [False]
    right(world)


def publishes_across_fences(patch: Patch) -> None:
    rebase = publication.rebase

    def across(now: Manifest, *, planned: Manifest, **rest: object) -> Manifest | None:
        return rebase(now, planned=msgspec.structs.replace(planned, fence=now.fence), **rest)  # type: ignore[arg-type]

    patch.setattr(publication, "rebase", across)


def a_purge_during_a_run() -> None:
    world = world_of()
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    shards = world.placement.all_shards(APP)
    world.roll(minor=True, at=meanwhile("compacted", lambda: purge.purge(world.store, APP, shards)))
    right(world)


def hours_of_now(patch: Patch) -> None:
    apply = publication.apply_changes

    def marked(now: Manifest, changes: object, hour_rows: dict[int, HourPack], **rest: object) -> Manifest:
        value = apply(now, changes, hour_rows, **rest)  # type: ignore[arg-type]
        packs = dict(value.hours)
        for shard in hour_rows:
            hours = {
                hour: HourInputs(fingerprint(value.entry(shard, hour).state), of.retractions, of.stamp_max_ms)
                for hour, of in packs[shard].hours.items()
            }
            packs[shard] = HourPack(packs[shard].generation, hours)
        return msgspec.structs.replace(value, hours=packs)

    patch.setattr(publication, "apply_changes", marked)


def late_data_during_a_full_run() -> None:
    world = world_of()

    def late() -> None:
        world.send((0, 2, 2.0))
        world.roll(minor=True)

    world.roll(at=meanwhile("compacted", late))
    right(world)


# --- 13, 15, 16: attempts, ledger rows, what a generation holds ------------------------------------------------------


def numbers_that_come_again(patch: Patch) -> None:
    patch.setattr(cells, "take_run", lambda store: 1)


def two_minor_runs() -> None:
    world = world_of()
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    world.roll(minor=True)
    right(world)


def every_cell_of_the_hour_shard_goes(patch: Patch) -> None:
    settle = publish.settle

    def greedy(store: Backend, app: int, items: list[PendingCommit], at: Hook, *rest: int) -> None:
        settle(store, app, items, at, *rest)
        hour_shards = {(item.key.shard, item.hour) for item in items}
        for result in list(commit_records.scan(store, app, sorted({shard for shard, _ in hour_shards}))):
            if (result.key.shard, result.hour) in hour_shards:
                store.delete("pending", [(result.key.to_bytes(), [keys.hour_column(result.hour)])])

    patch.setattr(publish, "settle", greedy)


def more_of_the_same_hour_during_a_run() -> None:
    world = world_of()
    world.roll(at=meanwhile("compacted", lambda: world.send((0, 2, 2.0))))
    right(world)


def whole_records_go(patch: Patch) -> None:
    settle = publish.settle

    def whole(store: Backend, app: int, items: list[PendingCommit], at: Hook, *rest: int) -> None:
        store.delete("pending", [(item.key.to_bytes(), None) for item in items])
        settle(store, app, items, at, *rest)

    patch.setattr(publish, "settle", whole)


def a_message_of_two_days_and_a_kill_after_the_first() -> None:
    world = world_of((0, 1, 1.0), (0, 25 * HOUR_MS, 2.0))
    killed(lambda: world.roll(at=crash_at("unpended")))
    right(world)


def cells_go_before_the_publish(patch: Patch) -> None:
    publish_day = publish.publish_day

    def late(store: Backend, work: DayResult, hours: object, *, run: int, at: Hook) -> object:
        publish.settle(store, work.plan.app, work.pending_of_changes(), at)
        return publish_day(store, work, hours, run=run, at=at)  # type: ignore[arg-type]

    patch.setattr(publish, "publish_day", late)


def a_kill_when_the_cells_are_gone() -> None:
    world = world_of()
    killed(lambda: world.roll(at=crash_at("unpended")))
    right(world)


def cells_deleted_before_ledger_rows(patch: Patch) -> None:
    def unaccounted(store: Backend, app: int, items: list[PendingCommit], at: Hook, *rest: int) -> None:
        store.delete("pending", [(i.key.to_bytes(), [keys.hour_column(i.hour)]) for i in items])
        at("unpended")
        store.put([("ledger", [ledger_row(app, item) for item in items])])

    patch.setattr(publish, "settle", unaccounted)


def a_kill_between_cells_and_ledger_rows() -> None:
    world = world_of()
    killed(lambda: world.roll(at=crash_at("unpended")))
    right(world)
    assert world.accounts() == world.model.accounts()


def only_fresh_batches(patch: Patch) -> None:
    read = source.read_hour_shard

    def fresh(reader: Reader, task: HourShardTask) -> MergeInput:
        minor = task.kind == MergeKind.MINOR
        return read(reader, msgspec.structs.replace(task, replay=()) if minor else task)

    patch.setattr(source, "read_hour_shard", fresh)


def a_minor_run_after_a_roll_back() -> None:
    world = world_of()
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    rollback.roll_back(world.store, world.roll(minor=True).run, [APP])
    world.send((0, 3, 3.0))
    world.roll(minor=True)
    right(world)


def own_batches_only(patch: Patch) -> None:
    read = source.read_hour_shard

    def own(reader: Reader, task: HourShardTask) -> MergeInput:
        result = read(reader, task)
        blocks = [keys.LogKey(task.shard, task.app, task.hour, r.ingest_ms, r.batch) for r in result.batches]
        there = reader.get("log", [name.to_bytes() for name in blocks])
        batches = {Replay(b.ingest_ms, b.batch) for b, row in zip(blocks, there, strict=True) if row is not None}
        return MergeInput(
            result.pieces, result.merged, result.parents, frozenset(batches & {*task.fresh, *task.replay})
        )

    patch.setattr(source, "read_hour_shard", own)


def a_query_between_publish_and_ledger_row_of_a_purged_block() -> None:
    world = world_of()
    killed(lambda: world.roll(minor=True, at=crash_at("published")))
    purge.purge(world.store, APP, world.placement.all_shards(APP), keep=0)

    def look() -> None:
        assert world.answer() == world.truth

    world.roll(at=meanwhile("published", look))
    right(world)


def compaction_drops_what_is_retracted(patch: Patch) -> None:
    in_place = compute_task._without_abandoned

    def dropping(task: HourShardTask, piece: Piece) -> Piece:
        result = in_place(task, piece)
        visible = Visibility(task.retractions).visible_rows(result)
        return result if visible is None else keep(result, visible)

    patch.setattr(compute_task, "_without_abandoned", dropping)


def a_run_between_retraction_and_undo() -> None:
    world = world_of((0, 1, 1.0), (0, 2, 2.0))
    world.send((0, 1, 5.0), source="wrong")
    number = world.retract(source="wrong")
    world.roll()
    world.undo(number)
    right(world)


def equal_values_are_one(patch: Patch) -> None:
    whole = merge.merge_emptying

    def merged(pieces: list[Piece]) -> Piece:
        piece = whole(pieces)
        owner = np.repeat(np.arange(len(piece.counts)), piece.counts)
        said = list(zip(owner.tolist(), piece.ts.tolist(), piece.values.tolist(), strict=True))
        return keep(piece, np.array([said.index(row) == i for i, row in enumerate(said)], np.bool_))

    patch.setattr(compute_task, "merge_emptying", merged)


def one_of_two_equal_values_is_retracted() -> None:
    world = world_of((0, 1, 1.0))
    world.send((0, 1, 1.0), source="other")
    world.roll()
    world.retract(source="host")
    right(world)


def stamps_in_order_of_arrival(patch: Patch) -> None:
    def arrived(tables: list[Messages]) -> object:
        names = tuple(sorted({name for table in tables for name in table.sources}))
        ms, process, sequence = (np.concatenate([getattr(t, f) for t in tables]) for f in ("ms", "process", "sequence"))
        source = np.concatenate([np.array([names.index(n) for n in t.sources], np.int32)[t.source] for t in tables])
        order = np.argsort(ms, kind="stable")
        rank = np.empty(len(ms), np.int32)
        rank[order] = np.arange(len(ms), dtype=np.int32)
        table = Messages(ms[order], process[order], sequence[order], source[order], names)
        return table, np.split(rank, np.cumsum([len(t) for t in tables])[:-1])

    patch.setattr(merge, "merge_messages", arrived)


def two_processes_in_one_millisecond() -> None:
    for processes in ((9, 3, 5), (3, 5, 9)):
        world = World()
        for process in processes:
            world.acceptor = type(world.acceptor)(process, world.clock)
            world.clock.jump(-1)  # as ``send`` lets a millisecond pass
            world.send((0, 1, float(process)))
        right(world)


def compaction_makes_hours_of_all_it_holds(patch: Patch) -> None:
    hours = compute_task.aggregate_hour
    patch.setattr(compute_task, "aggregate_hour", lambda piece, visibility: hours(piece, Visibility()))


def a_retraction_before_a_full_run() -> None:
    world = world_of((0, 1, 1.0))
    world.send((0, 1, 9.0), source="wrong")
    world.retract(source="wrong")
    right(world)


def nothing_is_noted(patch: Patch) -> None:
    patch.setattr(agenda, "mark_due", lambda *args: None)


def a_minor_run_of_late_data_that_no_full_run_looks_for() -> None:
    world = world_of()
    world.roll()
    world.send((0, 2, 2.0))
    world.roll(minor=True)
    world.roll()
    assert {pack.hours[DAY * 24].inputs for pack in world.manifest().hours.values()} == {
        fingerprint(entry.state) for entry in world.manifest().entries.values()
    }


RULES = (
    Rule(
        "plan_cas",
        "a publish expects whatever is there now",
        publishes_without_comparison,
        another_run_publishes_meanwhile,
    ),
    Rule("unique_ver", "all values of manifests have one nonce", repeated_nonces, a_second_purge_during_a_run),
    Rule("rebase_check", "lost publishes are rebased onto anything", anything_fits, a_roll_back_during_a_full_merge),
    Rule(
        "rebase_check of replay lists",
        "replay lists are rebased onto anything",
        anything_fits,
        a_replayed_batch_is_taken_by_two,
    ),
    Rule("fence_rebase", "publishes are rebased across a fence", publishes_across_fences, a_purge_during_a_run),
    Rule("hours_stamp_now", "rebased hours claim the published entry", hours_of_now, late_data_during_a_full_run),
    Rule("unique_attempt", "run numbers come again", numbers_that_come_again, two_minor_runs),
    Rule(
        "exact_pending",
        "all cells of an HourShard are deleted",
        every_cell_of_the_hour_shard_goes,
        more_of_the_same_hour_during_a_run,
    ),
    Rule(
        "cell_per_unit", "whole records are deleted", whole_records_go, a_message_of_two_days_and_a_kill_after_the_first
    ),
    Rule(
        "publish_then_pending",
        "cells are deleted, then the manifest is published",
        cells_go_before_the_publish,
        a_kill_when_the_cells_are_gone,
    ),
    Rule(
        "ledger first",
        "cells are deleted, then ledger rows are put",
        cells_deleted_before_ledger_rows,
        a_kill_between_cells_and_ledger_rows,
    ),
    Rule("minor_covers", "minor runs forget the replay list", only_fresh_batches, a_minor_run_after_a_roll_back),
    Rule(
        "transitive",
        "inputs name own batches only",
        own_batches_only,
        a_query_between_publish_and_ledger_row_of_a_purged_block,
    ),
    Rule(
        "keep_retracted",
        "chunks lose what is retracted",
        compaction_drops_what_is_retracted,
        a_run_between_retraction_and_undo,
    ),
    Rule(
        "retractions in hours",
        "hours hold what is retracted",
        compaction_makes_hours_of_all_it_holds,
        a_retraction_before_a_full_run,
    ),
    Rule("full_dedupe", "equal values merge", equal_values_are_one, one_of_two_equal_values_is_retracted),
    Rule("total_order", "ties go by arrival", stamps_in_order_of_arrival, two_processes_in_one_millisecond),
    Rule(
        "agenda",
        "nothing is put on the agenda",
        nothing_is_noted,
        a_minor_run_of_late_data_that_no_full_run_looks_for,
    ),
)
