"""A retraction and its undo hold although a region server is killed in the midst of them, compacted data or not."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from ingest.writer import Writer
from rollups.retraction import retract, undo
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from tests.servers.java.cluster import REGIONS, Cluster
from tests.support.messages import message
from tests.support.stored import Sample, samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
APP, HOSTS, MESSAGES, TRIES = 1, 4, 200, 60
T = TypeVar("T")


def retried(act: Callable[[], T]) -> T:
    """Return what it returns, once the store answers: each call waits for a region itself."""
    for _ in range(TRIES):
        try:
            return act()
        except StoreUnavailable:
            SystemClock().sleep(1)
    raise AssertionError(f"the store did not answer {TRIES} times")


def killed_meanwhile(cluster: Cluster, region: str, act: Callable[[], T]) -> T:
    """Do something while a region server dies, and comes back."""
    cluster.process(region).kill()
    back = threading.Thread(target=cluster.start_region, args=(region,))
    back.start()
    try:
        return retried(act)
    finally:
        back.join()


def in_force(store: Backend) -> list[Retraction]:
    return [each for each in retractions.read(store, APP) if each.active()]


@pytest.mark.seed(
    "A20", compares="answers after a retraction and after its undo, a region server killed in each of them"
)
@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.proof)], ids=["one round", "four rounds"])
def test_a20_a_retraction_and_its_undo_are_durable_across_a_region_server_s_kill(
    cluster: Cluster, tmp_path: Path, figure: Callable[[str], None], rounds: int
) -> None:
    store, clock = open_backend(f"{cluster.url}/{tmp_path.name}"), SystemClock()
    messages = [message(number, source=f"host{number % HOSTS}") for number in range(MESSAGES)]
    writer, half = Writer(store, PlacementTable()), MESSAGES // 2
    retried(lambda: writer.write(messages[:half]))
    Driver(store, clock).roll(LocalExecutor(store), [APP])
    retried(lambda: writer.write(messages[half:]))
    first, last = int(messages[0].ts.min()) - 1, int(messages[-1].ts.max())
    everything, left = sent(messages), sent([each for each in messages if each.source != "host1"])

    def read() -> Counter[Sample]:
        return retried(lambda: samples(store, first, last))

    assert read() == everything
    for number in range(rounds):
        in_retraction, in_undo = REGIONS if number % 2 == 0 else REGIONS[::-1]
        draft = Retraction(0, clock.now_ms(), 0, 0, clock.now_ms(), first, last, "host1", (), "test", "test")
        killed_meanwhile(cluster, in_retraction, partial(retract, store, APP, draft))
        assert read() == left
        for each in retried(lambda: in_force(store)):  # several, where an answer was lost
            killed_meanwhile(cluster, in_undo, partial(undo, store, APP, each.number, clock.now_ms()))
        assert read() == everything
        assert retried(lambda: in_force(store)) == []
    figure(f"{rounds} retractions and their undos, a region server killed in each")
    store.close()
