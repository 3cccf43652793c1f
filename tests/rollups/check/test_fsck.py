"""Claims about checking a store: it finds every kind of damage, repairs what is safe, is silent when all is well."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollups import retraction
from rollups.check.findings import DAMAGED, DIFFERS, LOST, UNKNOWN, UNLISTED, UNMARKED, Report
from rollups.check.fsck import fsck
from rollups.decide.work import CompactionResult, HourShardTask
from rollups.delete.purge import every_shard, purge
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from spm.limits import FSCK_BLOCK_AGE_MS, HISTORY_MAX, HOUR_MS
from spm.query.request.provenance import DAYS, RAW
from spm.store import epochs, keys, manifest
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records, watermarks
from spm.store.ledger.watermarks import Announcement
from spm.store.manifest import Manifest
from spm.store.rollup import aggregates
from spm.store.rollup import rows as rollup_rows
from tests.model.world import APP, DAY, NEXT_DAY, START, Crash, World, crash_at
from tests.rollups.delete.expiry import expire_app
from tests.support.faults import flip, keys_of

NOW = START + 60 * HOUR_MS
HOUR = DAY * 24


def filled() -> World:
    """Two metrics in two shards, three hours of a day and one of the next; all merged, hours and days in force."""
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.5), (2, 3, 5.0), (0, HOUR_MS + 1, 4.0), (0, HOUR_MS + 2, 2.0))
    world.send((0, 2, 7.0), (2, 5 * HOUR_MS, 8.0), (3, 25 * HOUR_MS, 1.0), source="b")
    world.roll(now_ms=NOW)
    return world


def check(world: World, *, repair: bool = False, hours: list[int] | None = None) -> Report:
    """A check of the app."""
    return fsck(world.store, APP, now_ms=NOW + FSCK_BLOCK_AGE_MS, hours=hours, repair=repair)


def kinds(report: Report) -> set[tuple[str, str]]:
    """What was found where."""
    return {(finding.kind, finding.table) for finding in report.findings}


def rows(world: World, table: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The app's rows of a table."""
    return [r for b in every_shard(world.store, APP) for r in world.store.scan(table, *keys.app_range(b, APP))]


# --- all is well ------------------------------------------------------------------------------------------------------


def with_pending() -> World:
    """Late data that waits."""
    world = filled()
    world.send((0, 9, 9.0))
    return world


def rolled_back() -> World:
    """A replay list."""
    world = filled()
    roll_back(world.store, max(e.history[-1].run for e in world.manifest().entries.values()), [APP])
    return world


def retracted() -> World:
    """Hours that leave something out, of another metric hours that do not know yet."""
    world = filled()
    world.retract(source="b", metric=0)
    world.roll(now_ms=NOW + HOUR_MS)
    world.retract(source="b", metric=2)
    return world


def undone() -> World:
    """Hours that leave out what is back already."""
    world = filled()
    number = world.retract(source="b")
    world.roll(now_ms=NOW + HOUR_MS)
    retraction.undo(world.store, APP, number, world.clock.now_ms())
    return world


def crashed() -> World:
    """A run that died after it published and before it wrote the ledger."""
    world = with_pending()
    with pytest.raises(Crash):
        world.roll(now_ms=NOW, at=crash_at("published"))
    return world


def half_written() -> World:
    """A run that died in its pages."""
    world = with_pending()
    with pytest.raises(Crash):
        world.roll(now_ms=NOW, at=crash_at("pages written"))
    return world


def purged() -> World:
    """Blocks and history are gone."""
    world = filled()
    purge(world.store, APP, keep=0)
    return world


def sealed() -> World:
    """Samples are gone."""
    world = purged()
    expire_app(world)
    return world


def expired() -> World:
    """Hours, too."""
    world = sealed()
    expire_app(world, raw=1, hour=1)
    return world


def empty() -> World:
    """Nothing was ever sent."""
    return World()


WELL = [filled, with_pending, rolled_back, retracted, undone, crashed, half_written, purged, sealed, expired, empty]


@pytest.mark.parametrize("make", WELL, ids=lambda make: make.__name__.replace("_", "-"))
def test_a_store_in_which_all_is_well_has_no_findings(make: Callable[[], World]) -> None:
    world = make()
    report = check(world)
    assert (report.findings, report.status) == ([], 0)


def test_a_check_tells_how_much_it_looked_at() -> None:
    world = purged()
    report = check(world)
    units = sum(len(world.manifest(day).entries) for day in (DAY, DAY + 1))
    assert (report.hours, report.days, report.stale, report.unreferenced) == (units, 3, 0, 0)
    assert report.rows > 3 * units
    world.send((0, 9, 9.0))
    world.roll(now_ms=NOW)
    assert check(world).unreferenced > 0


def test_only_chosen_hours_are_recounted() -> None:
    assert check(filled(), hours=[HOUR + 1]).hours == 1


def test_stale_hours_are_counted_and_are_no_fault() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    report = check(world)
    assert (report.stale, report.hours, report.status) == (1, 0, 0)


# --- damage -----------------------------------------------------------------------------------------------------------


def named(world: World, table: str) -> list[bytes]:
    """Rows of a table that the manifests name: after a purge all of them."""
    return [key for key, _ in rows(world, table)]


@pytest.mark.parametrize("table", ["chunks", "timelines", "inputs", "hours", "days"])
@pytest.mark.parametrize("what", [LOST, DAMAGED])
def test_a_row_that_is_lost_or_damaged_is_named(table: str, what: str) -> None:
    world = purged()
    key = named(world, table)[0]
    [row] = world.store.get(table, [key])
    assert row is not None
    column = next(iter(row))
    if what == LOST:
        world.store.delete(table, [(key, None)])
    else:
        world.store.put([(table, [(key, {column: row[column][:-1] + bytes([row[column][-1] ^ 1])})])])
    report = check(world)
    assert (what, table) in kinds(report)
    assert report.status == 1
    assert key in [finding.key for finding in report.findings if finding.kind == what]


def test_a_lost_block_of_a_replay_list_is_named() -> None:
    world = rolled_back()
    world.store.delete("log", [(key, None) for key, _ in rows(world, "log")])
    assert (LOST, "log") in kinds(check(world))


def test_a_page_that_no_directory_names_is_told() -> None:
    world = purged()
    key, row = rows(world, "chunks")[0]
    shard, app, metric, hour, generation, _ = keys.parse_chunk(key)
    world.store.put([("chunks", [(keys.chunk(shard, app, metric, hour, generation, 7), row)])])
    assert kinds(check(world)) == {(UNLISTED, "chunks")}


@pytest.mark.parametrize("table", ["marks", "pending", "ledger"])
def test_a_damaged_row_of_the_account_is_named(table: str) -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.send((0, 2, 1.0))
    watermarks.announce(world.store, APP, 1, Announcement(1, 0, 1, 1, 0, 0, 0, 1))
    [key] = keys_of(world.store, table)
    [row] = world.store.get(table, [key])
    assert row is not None
    flip(world.store, table, key, next(iter(row)))
    assert [(f.kind, f.table, f.key) for f in check(world).findings] == [(DAMAGED, table, key)]


def test_a_damaged_manifest_is_named_and_the_rest_is_checked() -> None:
    world = filled()
    world.store.put([("manifest", [(keys.manifest(APP, DAY), {b"v": b"damaged"})])])
    report = check(world)
    assert (DAMAGED, "manifest") in kinds(report)
    assert report.hours == 1
    assert UNMARKED not in {kind for kind, _ in kinds(check(world, repair=True))}


# --- hours and days that are wrong ------------------------------------------------------------------------------------


def spoil(world: World, table: str, name: str) -> None:
    """Change one aggregate of every row of hours or days, under a good checksum."""
    for key, row in rows(world, table):
        metric = keys.parse_chunk(key)[2]
        steps = rollup_rows.decode_row(row)
        column = getattr(steps.rows, name).copy()
        column[0] += 1
        wrong = with_column(steps.rows, name, column)
        by_step = [(int(step), wrong.take(steps.step == step)) for step in np.unique(steps.step)]
        [(_, encoded)] = rollup_rows.encode_rows({metric: by_step}, lambda _, page: b"key")
        world.store.put([(table, [(key, encoded)])])


def with_column(rows_: aggregates.Aggregates, name: str, column: np.ndarray) -> aggregates.Aggregates:
    """The same aggregates with another column."""
    columns = {n: getattr(rows_, n) for n, _ in aggregates.COLUMNS}
    return aggregates.Aggregates(series=rows_.series, **{**columns, name: column}, sketch=rows_.sketch)


@pytest.mark.parametrize("name", [name for name, _ in aggregates.COLUMNS])
@pytest.mark.parametrize("table", ["hours", "days"])
def test_an_aggregate_that_is_off_is_found_and_goes_out_of_force(table: str, name: str) -> None:
    world = purged()
    spoil(world, table, name)
    report = check(world)
    assert kinds(report) == {(DIFFERS, t) for t in {"hours": ("hours", "days"), "days": ("days",)}[table]}
    assert name in report.findings[0].text
    assert report.status == 1
    repaired = check(world, repair=True)
    assert all(finding.repaired for finding in repaired.findings if finding.table == table)
    check(world, repair=True)  # days of hours that were wrong, too
    assert world.hours() == world.recount()
    assert world.days() == world.model.days()
    world.roll(now_ms=NOW + HOUR_MS)
    assert check(world).findings == []
    assert world.resolutions() == {DAYS}


def test_hours_that_cannot_be_read_go_out_of_force_as_their_samples_are_there() -> None:
    world = purged()
    world.store.delete("hours", [(key, None) for key, _ in rows(world, "hours")])
    report = check(world, repair=True)
    assert {(UNKNOWN, "hours"), (LOST, "hours")} <= kinds(report)
    assert RAW in world.resolutions() or world.resolutions() == {DAYS}
    assert world.hours() == world.recount()
    world.roll(now_ms=NOW + HOUR_MS)
    assert check(world).findings == []


def test_hours_stay_in_force_when_their_samples_cannot_be_read() -> None:
    """They are the last that is left."""
    world = purged()
    world.store.delete("chunks", [(key, None) for key, _ in rows(world, "chunks")])
    before = world.manifest()
    report = check(world, repair=True)
    assert report.status == 1
    assert world.manifest() == before


def test_sealed_hours_are_never_taken_out_of_force() -> None:
    world = sealed()
    spoil(world, "hours", "sum")
    before = world.manifest()
    check(world, repair=True)
    assert world.manifest() == before


def test_hours_that_kept_a_retracted_sample_are_found() -> None:
    """What they say they leave out is what they are compared with."""
    world = filled()
    number = world.retract(source="b")
    value = world.manifest()
    mark = number.to_bytes(8, "big")
    replace = msgspec.structs.replace
    hours = {
        b: replace(pack, hours={s: replace(of, retractions=mark) for s, of in pack.hours.items()})
        for b, pack in value.hours.items()
    }
    after = Manifest(1, 1, value.entries, hours, value.seals)
    world.store.put([("manifest", [(keys.manifest(APP, DAY), {b"v": manifest.encode(after)})])])
    assert (DIFFERS, "hours") in kinds(check(world))


# --- lost commit records ----------------------------------------------------------------------------------------------


def forget(world: World) -> None:
    """Every pending record is lost."""
    world.store.delete("pending", [(key, None) for key, _ in rows(world, "pending")])


def waits(world: World) -> dict[tuple[bytes, int], tuple[object, ...]]:
    """What pending records say, but for message ids, which no block tells."""
    rows_by_key: dict[tuple[bytes, int], tuple[object, ...]] = {}
    for key, row in rows(world, "pending"):
        for column, cell in row.items():
            commit = commit_records.decode(cell)
            m = commit.messages
            stamps = m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), m.source.tolist(), m.sources
            content = commit.samples.tolist(), commit.ts_min, commit.ts_max, sorted(commit.rows.names())
            rows_by_key[key, keys.column_hour(column)] = (stamps, content)
    return rows_by_key


def work_list(world: World) -> list[tuple[object, ...]]:
    """What a full run would do."""
    rows_by_key: list[tuple[object, ...]] = []

    class Listing(LocalExecutor):
        def compact(self, run: int, tasks: Sequence[HourShardTask], done: object) -> list[CompactionResult]:
            rows_by_key.extend((t.shard, t.hour, t.kind, t.fresh, t.replay, t.samples, t.wants_hours) for t in tasks)
            raise Crash("only looking")

    with pytest.raises(Crash):
        world.driver().roll(Listing(world.store), [APP], now_ms=NOW)
    return sorted(rows_by_key, key=repr)


def never_run() -> World:
    """Everything is pending, in several batches."""
    world = World()
    first = world.send((0, 1, 1.0), (2, 3, 5.0), (0, HOUR_MS + 1, 4.0))
    second = world.send((0, 2, 7.0), (2, 5 * HOUR_MS, 8.0), source="b")
    world.store_again(first, second)  # one batch of two messages, which repeats them
    return world


def partly_run() -> World:
    """A run has taken in some hours and has died; more has come since."""
    world = never_run()
    world.roll(minor=True)
    world.send((0, 9, 9.0), (3, 26 * HOUR_MS, 1.0))
    return world


def partly_purged() -> World:
    """Covered blocks are gone."""
    world = partly_run()
    purge(world.store, APP, keep=0)
    return world


LISTED = [never_run, partly_run, partly_purged, with_pending, rolled_back]


@pytest.mark.parametrize("make", LISTED, ids=lambda make: make.__name__.replace("_", "-"))
def test_commit_records_rebuilt_from_blocks_give_the_same_work_list(make: Callable[[], World]) -> None:
    world = make()
    before, todo = waits(world), work_list(world)
    forget(world)
    if before:
        assert world.answer() != world.truth
    report = check(world, repair=True)
    assert {finding.kind for finding in report.findings} <= {UNMARKED}
    assert (waits(world), report.status) == (before, 0)
    assert work_list(world) == todo
    assert world.answer() == world.truth
    world.roll(now_ms=NOW)
    assert (world.answer(), world.hours()) == (world.truth, world.recount())
    assert world.pending_rows() == 0


def test_lost_commit_records_are_told_and_left_without_repair() -> None:
    world = never_run()
    forget(world)
    report = check(world)
    assert (kinds(report), report.status) == ({(UNMARKED, "log")}, 1)
    assert waits(world) == {}


@pytest.mark.parametrize("named_max", [1, 2], ids=["rows only counted", "rows named"])
def test_ids_of_messages_come_from_what_is_left_of_their_batch(named_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hour's record is lost, the other's tells who sent it."""
    monkeypatch.setattr(commit_records, "BATCH_ROWS_NAMED_MAX", named_max)
    world = World()
    world.send((0, 1, 1.0), (0, HOUR_MS + 1, 4.0))
    [(key, row)] = rows(world, "pending")
    column = min(row)
    world.store.delete("pending", [(key, [column])])
    check(world, repair=True)
    [(_, after)] = rows(world, "pending")
    assert after == row


def test_a_young_block_without_a_mark_may_be_on_its_way() -> None:
    world = never_run()
    forget(world)
    report = fsck(world.store, APP, now_ms=world.clock.now_ms(), repair=True)
    assert (report.findings, waits(world)) == ([], {})


def test_blocks_of_sealed_hours_are_not_brought_back() -> None:
    world = sealed()
    world.send((0, 9, 9.0))
    forget(world)
    assert check(world, repair=True).findings == []
    assert world.pending_rows() == 0


def test_blocks_that_were_moved_away_are_not_brought_back_where_late_data_came() -> None:
    world = World(placement=PlacementTable.single(spread=1))  # all in one shard, where later only m2 belongs
    world.send((0, 1, 1.0), (1, 2, 2.0))
    world.roll()
    epochs.open_epoch(world.store, APP, function="hash", shards=16, spread=3)
    world.migrate()
    for n in range(HISTORY_MAX + 1):  # until no former state knows what was there before
        world.send((2, 30 + n, 3.0))
        world.roll()
    assert check(world, repair=True).findings == []
    assert world.pending_rows() == 0


def test_nothing_is_rebuilt_of_a_unit_whose_directory_is_lost() -> None:
    """What its generations hold cannot be told, so that nothing is provably missing."""
    world = with_pending()
    forget(world)
    numbers = {g.number for entry in world.manifest().entries.values() for g in entry.state.generations}
    world.store.delete(
        "inputs", [(key, None) for key, _ in rows(world, "inputs") if keys.parse_inputs(key)[3] in numbers]
    )
    report = check(world, repair=True)
    assert (UNKNOWN, "inputs") in kinds(report)
    assert world.pending_rows() == 0


def test_a_damaged_block_without_a_mark_is_named() -> None:
    world = never_run()
    forget(world)
    key, _ = rows(world, "log")[0]
    world.store.put([("log", [(key, {b"v": b"damaged"})])])
    assert (DAMAGED, "log") in kinds(check(world, repair=True))


STEP = st.sampled_from(["send", "send", "minor", "full", "back", "purge", "late"])


@settings(max_examples=25, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_any_lost_commit_records_are_rebuilt(steps: list[str], draw: Random) -> None:
    world = World()
    for n, step in enumerate(steps):
        if step in ("send", "late"):
            world.send((n % 4, 1 + n + (n % 3) * HOUR_MS, float(n)), (2, 7, 1.0))
        elif step == "back" and world.manifest().entries:
            tops = {e.history[-1].run for e in world.manifest().entries.values() if e.history}
            if tops:
                roll_back(world.store, max(tops), [APP])
        elif step == "purge":
            purge(world.store, APP, keep=n % 3)
        else:
            world.driver().roll(LocalExecutor(world.store), [APP], minor=step == "minor", now_ms=NEXT_DAY)
    before = waits(world)
    lost = [key for key, _ in rows(world, "pending") if draw.random() < 0.7]
    world.store.delete("pending", [(key, None) for key in lost])
    check(world, repair=True)
    assert waits(world) == before
    assert world.answer() == world.truth
    assert check(world).status == 0
