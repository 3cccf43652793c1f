"""What nobody starts: beat begins a run on Spark by itself, for hours that have ended, and its answers are right.

It gives an hour two minutes of grace: other tests of Spark run meanwhile.
"""

import json
import time
from collections.abc import Iterator, Mapping

import pytest

from spm.clock import SystemClock
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from tests.e2e.product.senders import Sender
from tests.servers.product import Served, start_product
from tests.support.fleet import Fleet
from tests.support.messages import RECENT_MS
from tests.support.recount import assert_hours_equal, assert_raw_equal

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]
WAIT_S = 400  # grace of an hour, beat's period, and the start of a JVM on a busy machine


@pytest.fixture(scope="session")
def fleet() -> Fleet:
    return Fleet.make(hosts=20, steps=200, start_ms=RECENT_MS)


@pytest.fixture(scope="session")
def left_alone(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[Served]:
    """A product that has been sent a fleet's samples of yesterday, and is asked for nothing else."""
    running = start_product(tmp_path_factory.mktemp("alone"))
    Sender(running).send_all(list(fleet.large_bodies(1_000)))
    yield running
    running.stop()


def finished_runs(served: Served) -> list[Mapping[str, object]]:
    """The runs that are done, as the REST interface lists them."""
    connection = served.connection()
    connection.request("GET", f"/api/v1/apps/{served.app}/runs", headers=dict(served.headers))
    return [run for run in json.load(connection.getresponse()) if run["state"] == "done"]


def storage_of(served: Served) -> AppStorage:
    """A fresh reader of its store."""
    backend = open_backend(f"lmdb://{served.data}/store")
    return AppStorage(backend, served.app, placement=PlacementTable(), clock=SystemClock(), cache=PageCache())


def test_what_no_run_has_seen_is_answered_whole(left_alone: Served, fleet: Fleet) -> None:
    assert assert_raw_equal(storage_of(left_alone), fleet) == len(fleet)


@pytest.mark.late
def test_beat_starts_a_run_on_spark_once_hours_have_ended(left_alone: Served, fleet: Fleet) -> None:
    until = time.monotonic() + WAIT_S
    while not any(run["executor"] == "spark" for run in finished_runs(left_alone)):
        assert time.monotonic() < until, f"no run on Spark: {finished_runs(left_alone)}"
        time.sleep(2)
    assert {run["kind"] for run in finished_runs(left_alone) if run["executor"] == "spark"} == {"full"}
    storage = storage_of(left_alone)
    assert assert_raw_equal(storage, fleet) == len(fleet)
    assert assert_hours_equal(storage, fleet) > 0
