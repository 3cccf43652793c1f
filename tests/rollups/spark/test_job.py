"""Claims about runs on Spark: the same rows in force, hour by hour, as a run in this process gives."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from rollups.crash_points import Hook, from_environment
from rollups.decide.plan import MergeKind
from rollups.decide.work import HourShardTask
from rollups.move.redistribute import close_epoch, migrate
from rollups.run.local import TasksFailed
from rollups.run.rollback import roll_back
from rollups.spark.frames import TASKS, one_partition_each
from rollups.spark.job import (
    COMPACTED,
    PACKED,
    SparkExecutor,
    balance_tasks,
    build_months,
    compact_groups,
    points_of_worker,
)
from rollups.spark.session import spark, write_wrapper
from spm.limits import HOUR_MS
from spm.store import epochs, placement
from spm.store.backends import open_backend
from spm.store.keys import BYTE
from tests.model.world import APP, NEXT_DAY, World, days_in_force, whole_day

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for a module: a process has one session, and another module's may be that of a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(placement.SETTING, "tests.rollups.placing")  # an operator's own module
        with spark("local[2]", tmp_path_factory.mktemp("spark")) as started:
            yield started


def world_at(path: Path) -> tuple[World, str]:
    """A store with three series over four hours of two days, and its address."""
    url = f"lmdb://{path}"
    world = World(open_backend(url))
    for i in range(8):
        world.send(*((s, i * HOUR_MS // 2 + 1 + s, float(i + s)) for s in range(3)))
    world.send((0, 25 * HOUR_MS, 7.0))
    return world, url


def schema_of(frame: DataFrame) -> str:
    """The columns as the contracts are written."""
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema).replace("bigint", "long")


def test_spark_and_this_process_put_equal_data_into_force(session: SparkSession, tmp_path: Path) -> None:
    mine, _ = world_at(tmp_path / "local")
    theirs, url = world_at(tmp_path / "spark")
    mine.roll()
    report = theirs.driver().roll(SparkExecutor(session, url), [APP], now_ms=NEXT_DAY)
    assert report.errors == []
    assert report.samples == len(theirs.truth)
    assert theirs.answer() == mine.answer() == theirs.truth
    assert theirs.hours() == mine.hours() == theirs.recount()
    assert theirs.manifest().hours.keys() == mine.manifest().hours.keys() != set()
    assert theirs.pending_rows() == 0


def test_days_and_a_second_run_with_late_data_are_right_on_spark(session: SparkSession, tmp_path: Path) -> None:
    world, url = world_at(tmp_path / "store")
    executor = SparkExecutor(session, url)
    world.driver().roll(executor, [APP], now_ms=NEXT_DAY)
    world.send((1, 5, 100.0))
    world.driver().roll(executor, [APP], now_ms=NEXT_DAY)
    assert days_in_force(world) == whole_day(world)
    roll_back(world.store, 2, [APP])
    assert world.hours().items() >= world.recount().items()


def test_retractions_moves_and_upgrades_run_on_spark(session: SparkSession, tmp_path: Path) -> None:
    world, url = world_at(tmp_path / "store")
    executor = SparkExecutor(session, url)
    world.driver().roll(executor, [APP], now_ms=NEXT_DAY)
    number = world.retract(series=1)
    assert [day.published for day in world.driver().roll(executor, [APP], now_ms=NEXT_DAY).days] == [True] * 2
    assert world.hours() == world.recount()
    epochs.open_epoch(world.store, APP, function=BYTE, shards=16, spread=1)
    report = migrate(world.driver(), executor, APP, now_ms=NEXT_DAY)
    assert (report.errors, report.remaining) == ([], 0)
    world.undo(number)
    assert close_epoch(world.store, APP, 0).closed
    assert world.driver().roll(executor, [APP], upgrade=True, now_ms=NEXT_DAY).remaining == 0
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


@pytest.mark.seed("A23", compares="answers after a Spark worker was killed in a task, with the model")
@pytest.mark.parametrize("point", ["blocks read", "pages written", "inputs written", "hours written", "days written"])
def test_a_worker_killed_in_a_task_is_replaced_and_the_run_goes_on(
    session: SparkSession, tmp_path: Path, point: str
) -> None:
    world, url = world_at(tmp_path / "store")

    def once() -> Hook:
        context = TaskContext.get()
        first = context is not None and context.attemptNumber() == 0
        return from_environment({"SPM_CRASH_AT": point} if first else {})

    report = world.driver().roll(SparkExecutor(session, url, once), [APP], now_ms=NEXT_DAY)
    assert report.errors == []
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


@pytest.mark.seed("A29", compares="answers before and after a move by an operator's own strategy, on Spark's workers")
def test_an_operators_strategy_is_known_to_sparks_workers(session: SparkSession, tmp_path: Path) -> None:
    world, url = world_at(tmp_path / "store")
    world.roll()
    epochs.open_epoch(world.store, APP, function="two bytes", shards=64, spread=64)
    report = migrate(world.driver(), SparkExecutor(session, url), APP, now_ms=NEXT_DAY)
    assert (report.errors, report.remaining) == ([], 0)
    assert close_epoch(world.store, APP, 0).closed
    assert world.spread().has_one_live_epoch
    assert world.answer() == world.truth
    assert world.hours() == world.recount()


def test_a_task_that_kills_every_worker_fails_the_run_and_changes_nothing(
    session: SparkSession, tmp_path: Path
) -> None:
    world, url = world_at(tmp_path / "store")

    def always() -> Hook:
        return from_environment({"SPM_CRASH_AT": "inputs written"})

    with pytest.raises(TasksFailed, match="Spark gave up"):
        world.driver().roll(SparkExecutor(session, url, always), [APP], now_ms=NEXT_DAY)
    assert world.manifest().entries == {}
    assert world.answer() == world.truth
    world.roll()
    assert world.hours() == world.recount()


def test_the_stages_give_the_columns_they_promise(session: SparkSession, tmp_path: Path) -> None:
    frame = one_partition_each(session, [b"\x90"])
    assert schema_of(frame) == TASKS
    url = f"lmdb://{tmp_path}"
    frame_of_rows = frame.mapInArrow(compact_groups(url, 1, lambda _: None, points_of_worker), COMPACTED)
    assert schema_of(frame_of_rows) == COMPACTED
    assert frame_of_rows.collect() == []
    built = frame.limit(0).mapInArrow(build_months(url, 1, points_of_worker), PACKED)
    assert schema_of(built) == PACKED


def test_every_task_has_a_partition_of_its_own(session: SparkSession) -> None:
    for count in (0, 1, 5):
        tasks = [bytes([n]) for n in range(count)]
        partitions = one_partition_each(session, tasks).rdd.glom().collect()
        assert sorted(len(part) for part in partitions) == [1] * count or partitions == [[]]
        assert sorted(bytes(row.task) for part in partitions for row in part) == tasks


def test_groups_are_balanced_by_samples() -> None:
    tasks = [
        HourShardTask(APP, 0, hour, MergeKind.FULL, (), (), (), samples, True)
        for hour, samples in enumerate([9, 1, 1, 1, 8])
    ]
    groups = balance_tasks(tasks, 2)
    assert sorted(sum(t.samples for t in g) for g in groups) == [10, 10]
    assert balance_tasks(tasks[:1], 8) == [tasks[:1]]
    assert balance_tasks([], 8) == []


def test_the_wrapper_drops_the_argument_that_a_small_runtime_refuses(tmp_path: Path) -> None:
    home = write_wrapper(Path("/bin/echo"), tmp_path)
    output = os.popen(f"{home}/bin/java -Xmx1g --add-modules=jdk.incubator.vector -cp 'a b' Main").read()
    assert output == "-Xmx1g -cp a b Main\n"
