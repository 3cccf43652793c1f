"""Claims about runs on Spark: the same rows in force, hour by hour, as a run in this process gives."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rollups.job import COMPACTED, PACKED, TASKS, Batches, SparkExecutor, balanced, compact_groups, results_of
from rollups.local import TasksFailed
from rollups.outcome import unit_task
from rollups.plan import Kind
from rollups.rollback import roll_back
from rollups.session import spark, wrapped
from rollups.work import UnitTask
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from tests.rollups.world import APP, NEXT_DAY, World, days_in_force, whole_day

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark for the whole test run."""
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


def test_spark_and_this_process_put_equal_data_into_force(session: SparkSession, tmp_path: Path) -> None:
    mine, _ = world_at(tmp_path / "local")
    theirs, url = world_at(tmp_path / "spark")
    mine.roll()
    report = theirs.driver().roll(SparkExecutor(session, url), [APP], now_ms=NEXT_DAY)
    assert report.troubles == []
    assert report.samples == len(theirs.truth)
    assert theirs.answer() == mine.answer() == theirs.truth
    assert theirs.hours() == mine.hours() == theirs.recount()
    assert theirs.manifest().hours.keys() == mine.manifest().hours.keys() != set()
    assert theirs.pending_rows() == 0


def test_days_and_a_second_run_with_late_data_are_right_on_spark(session: SparkSession, tmp_path: Path) -> None:
    world, url = world_at(tmp_path / "store")
    del world.truth[0, max(ts for _, ts in world.truth)]  # of the other day
    executor = SparkExecutor(session, url)
    world.driver().roll(executor, [APP], now_ms=NEXT_DAY)
    world.send((1, 5, 100.0))
    world.driver().roll(executor, [APP], now_ms=NEXT_DAY)
    assert days_in_force(world) == whole_day(world)
    roll_back(world.store, 2, [APP])
    assert world.hours().items() >= world.recount().items()


@pytest.mark.seed("A23", compares="answers after a Spark worker was killed in a task, with the model")
def test_a_worker_killed_in_the_middle_leaves_nothing_that_is_seen(session: SparkSession, tmp_path: Path) -> None:
    world, url = world_at(tmp_path / "store")
    tasks = [
        unit_task(day, unit) for day in world.driver().plan(APP, minor=False, now_ms=NEXT_DAY) for unit in day.units
    ]

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        os.environ["SPM_CRASH_AT"] = "pages written:2"
        yield from compact_groups(url, 99, lambda _: None)(batches)

    frame = session.createDataFrame([(msgspec.msgpack.encode(tasks),)], TASKS)
    with pytest.raises(TasksFailed, match="Spark gave up"):
        results_of(frame.mapInArrow(stage, COMPACTED))
    left = [k for b in world.distribution.all(APP) for k, _ in world.store.scan("inputs", *keys.app_range(b, APP))]
    assert len(left) == 1
    assert world.answer() == world.truth
    world.roll()
    assert world.hours() == world.recount()


def test_the_stages_give_the_columns_they_promise(session: SparkSession, tmp_path: Path) -> None:
    frame = session.createDataFrame([(b"\x90",)], "task binary")
    made = frame.mapInArrow(compact_groups(f"lmdb://{tmp_path}", 1, lambda _: None), COMPACTED)
    assert [f"{f.name} {f.dataType.simpleString()}" for f in made.schema] == [
        part.replace(" long", " bigint") for part in COMPACTED.split(", ")
    ]
    assert made.collect() == []
    assert PACKED.count(",") == 3


def test_groups_are_balanced_by_samples() -> None:
    tasks = [
        UnitTask(APP, 0, slot, Kind.FULL, (), (), (), samples, True) for slot, samples in enumerate([9, 1, 1, 1, 8])
    ]
    groups = balanced(tasks, 2)
    assert sorted(sum(t.samples for t in g) for g in groups) == [10, 10]
    assert balanced(tasks[:1], 8) == [tasks[:1]]
    assert balanced([], 8) == []


def test_the_wrapper_drops_the_argument_that_a_small_runtime_refuses(tmp_path: Path) -> None:
    home = wrapped(Path("/bin/echo"), tmp_path)
    told = os.popen(f"{home}/bin/java -Xmx1g --add-modules=jdk.incubator.vector -cp 'a b' Main").read()
    assert told == "-Xmx1g -cp a b Main\n"
