"""Claims about a run on a real Spark cluster against the real HBase: two workers that have nothing of ours.

One cluster and one session serve the module: speculation is on, and packages travel as archives. The store is HBase,
each test with tables of its own.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from rollups.crash_points import Hook, from_environment, ignore_point
from rollups.spark.cluster import ClusterUnfit
from rollups.spark.executors import open_executor
from rollups.spark.job import SparkExecutor
from rollups.spark.session import spark
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from tests.model.world import APP, NEXT_DAY, World, days_in_force, whole_day
from tests.servers.java.spark import SparkCluster

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SLEEP_S = 240  # of the task that is slowed: the run ends long before
MORE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # a task that takes three times as long as the others gets a rival
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
}


@pytest.fixture(scope="module")
def session(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        with spark(spark_cluster.url, tmp_path_factory.mktemp("session"), MORE) as started:
            yield started


def world_at(url: str) -> World:
    world = World(open_backend(url))
    for i in range(8):
        world.send(*((s, i * HOUR_MS // 2 + 1 + s, float(i + s)) for s in range(3)))
    return world


def exact(world: World) -> None:
    """What any reader must be answered after a full run."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)
    assert world.pending_rows() == 0


def test_the_cluster_puts_equal_data_into_force_as_this_process(
    session: SparkSession, hbase_url: str, tmp_path: Path
) -> None:
    url = f"{hbase_url}/{tmp_path.name}"
    theirs, mine = world_at(url), world_at(f"lmdb://{tmp_path}")
    report = theirs.driver().roll(SparkExecutor(session, url), [APP], now_ms=NEXT_DAY)
    mine.roll()
    assert report.errors == []
    assert report.executor == "spark"
    assert theirs.hours() == mine.hours()
    assert days_in_force(theirs) == days_in_force(mine)
    exact(theirs)


@pytest.mark.timed
def test_a_slow_task_gets_a_rival_and_the_answers_stay_right(
    session: SparkSession, hbase_url: str, tmp_path: Path
) -> None:
    url = f"{hbase_url}/{tmp_path.name}"
    world = world_at(url)

    def slow() -> Hook:
        """The first attempt of the first task sleeps in the middle of its writing, until its rival is done."""
        context = TaskContext.get()
        sleepy = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0

        def at(point: str) -> None:
            ignore_point(point)
            if sleepy and point == "pages written":
                time.sleep(SLEEP_S)

        return at

    began = time.monotonic()
    report = world.driver().roll(SparkExecutor(session, url, slow), [APP], now_ms=NEXT_DAY)
    assert time.monotonic() - began < SLEEP_S, "nobody overtook the slow task"
    assert report.errors == []
    exact(world)


def test_a_worker_killed_on_the_cluster_is_replaced(session: SparkSession, hbase_url: str, tmp_path: Path) -> None:
    url = f"{hbase_url}/{tmp_path.name}"
    world = world_at(url)

    def once() -> Hook:
        context = TaskContext.get()
        first = context is not None and context.attemptNumber() == 0
        return from_environment({"SPM_CRASH_AT": "inputs written"} if first else {})

    report = world.driver().roll(SparkExecutor(session, url, once), [APP], now_ms=NEXT_DAY)
    assert report.errors == []
    exact(world)


def test_workers_run_our_sources_from_the_archive_and_nothing_else(session: SparkSession) -> None:
    def places(_: object) -> Iterator[tuple[str, str, str]]:
        import numba

        import rollups

        yield str(rollups.__file__), str(numba.__file__), os.getcwd()

    workers = session.sparkContext.parallelize(range(2), 2).mapPartitions(places).collect()
    repository = str(Path(__file__).resolve().parents[3])
    for ours, theirs, folder in workers:
        assert not ours.startswith(repository)
        assert theirs.startswith(folder)
        assert not folder.startswith(repository)


def test_a_store_on_this_machines_disk_is_refused(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/store"
    opened = open_executor(
        "spark", open_backend(url), url=url, master=spark_cluster.url, folder=tmp_path, at=ignore_point
    )
    with pytest.raises(ClusterUnfit, match="LMDB is a file of this machine"), opened:
        pass
