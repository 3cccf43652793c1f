"""Which apps have new samples: those whose newest pending records changed, on every embedded store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from frontend.events.new_batches import NewBatches
from spm import limits
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PendingKey, PlacementTable

MS = 1_700_000_000_000


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = MemoryBackend() if request.param == "memory" else open_backend(f"lmdb://{tmp_path}/store")
    yield backend
    backend.close()


def key(app: int, ms: int, batch: int = 1) -> bytes:
    [shard, *_] = PlacementTable().all_shards(app)
    return PendingKey(shard, app, ms, batch).to_bytes()


def commit(store: Backend, app: int, ms: int, batch: int = 1) -> None:
    store.put([("pending", [(key(app, ms, batch), {b"0000": b"x"})])])


def test_batch_is_news_once_and_of_its_app_alone(store: Backend) -> None:
    batches = NewBatches(store)
    commit(store, 1, MS)
    assert batches.look([1, 2]) == {1: (MS, MS)}
    assert batches.look([1, 2]) == {}
    commit(store, 2, MS + 5)
    assert batches.look([1, 2]) == {2: (MS + 5, MS + 5)}


def test_app_that_is_new_to_the_look_is_looked_at_though_nothing_was_written(store: Backend) -> None:
    batches = NewBatches(store)
    commit(store, 1, MS)
    assert batches.look([2]) == {}
    assert batches.look([1, 2]) == {1: (MS, MS)}


def test_batch_that_is_stored_after_a_newer_one_is_news_with_a_higher_number(store: Backend) -> None:
    batches = NewBatches(store)
    commit(store, 1, MS)
    batches.look([1])
    commit(store, 1, MS - 2_000, batch=2)
    assert batches.look([1]) == {1: (MS + 1, MS)}


def test_older_records_that_a_run_uncovers_are_no_news(store: Backend) -> None:
    batches = NewBatches(store)
    newer = range(limits.EVENTS_BATCHES_SEEN)
    commit(store, 1, MS - 3_600_000)
    for number in newer:
        commit(store, 1, MS + number)
    assert batches.look([1]) == {1: (MS + newer[-1], MS + newer[-1])}
    store.delete("pending", [(key(1, MS + number), None) for number in newer])
    assert batches.look([1]) == {}


def test_of_very_many_apps_each_gets_its_turn(store: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_LOOK_APPS_MAX", 3)
    batches, apps = NewBatches(store), list(range(1, 9))
    for app in apps:
        commit(store, app, MS)
    looks = [batches.look(apps) for _ in range(3)]
    assert [len(look) for look in looks] <= [3, 3, 3]
    assert set().union(*looks) == set(apps)
    for app in apps:
        commit(store, app, MS + 1)
    assert set().union(*[batches.look(apps) for _ in range(3)]) == set(apps)
