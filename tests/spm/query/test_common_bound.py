"""Indexes and tails of all apps together stay within a bound, whatever the tenants of a site send and ask."""

import gc

import numpy as np
import pytest

from ingest.writer import Writer
from spm import query
from spm.bounded import LruCache
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.view.app_state import AppState
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from tests.support.messages import message

APPS, SERIES = 40, 300


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryBackend:
    """Forty apps with some series and a tail each, and a process that may hold four of them."""
    backend = MemoryBackend()
    writer = Writer(backend, PlacementTable())
    for app in range(1, APPS + 1):
        writer.write([message(app, app=app, samples=SERIES)])
    monkeypatch.setattr(query, "_SETTINGS", {"url": "of this test"})
    monkeypatch.setattr(query, "open_backend", lambda _: backend)
    monkeypatch.setattr(query, "_STORAGES", LruCache[int, AppStorage](4 * of_an_app_bytes(), count_max=APPS))
    return backend


def of_an_app_bytes() -> int:
    """What is held of one app of this test, about: each of its series in the index, and its sample in the tail."""
    return SERIES * (600 + 28 + 40)


def sum_of(app: int) -> float:
    """The sum of an app's values, as a query reads them."""
    at_ms = int(message(app).ts[0])
    read = query.storage_for(app).select([Matcher("__name__", "=~", ".+")], at_ms - 1, at_ms)
    return float(read.values.sum())


def test_of_ten_times_as_much_as_a_process_may_hold_the_least_recently_used_goes(store: MemoryBackend) -> None:
    wanted = {app: float(np.sum(message(app, samples=SERIES).values)) for app in range(1, APPS + 1)}
    for app in range(1, APPS + 1):
        assert sum_of(app) == wanted[app]
        assert sum_of(1) == wanted[1], "what is used all the time stays"
    first = query.storage_for(1)
    gc.collect()
    states = [each for each in gc.get_objects() if type(each) is AppState and each._backend is store]
    assert len(states) <= 5
    assert sum(state.index.size_bytes for state in states) <= 5 * of_an_app_bytes()
    assert query.storage_for(1) is first
    assert {app: sum_of(app) for app in wanted} == wanted


def test_one_app_of_more_than_the_bound_is_held_alone(store: MemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_STORAGES", LruCache[int, AppStorage](of_an_app_bytes() // 2, count_max=APPS))
    for app in (1, 2, 2):
        sum_of(app)
    second = query.storage_for(2)
    assert (query._STORAGES.get(1), query._STORAGES.get(2)) == (None, second)
