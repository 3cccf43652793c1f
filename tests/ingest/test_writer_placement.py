"""Claims about where a writer puts a batch, and what it does when it looked there too early (PROTOCOL 22b)."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.errors import StoreUnavailable
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import BYTE, CLOSED, CLOSING, LogKey, PlacementTable
from spm.wire import Envelope
from tests.support.faults import Faulty, keys_of
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader

ONE_BATCH = ["put log", "put pending", "get config"]


def message(sequence: int, app: int = APP) -> Envelope:
    """One message of three metrics."""
    return envelope([(s, START + sequence, float(s + sequence)) for s in range(3)], sequence=sequence, app=app)


def opened(store: Backend, app: int = APP) -> int:
    """Open an epoch that puts every metric elsewhere; returns its number."""
    shards = 17 + epochs.read(store, app).newest.number
    return epochs.open_epoch(store, app, function=BYTE, shards=shards, spread=1).newest.number


def moved(store: Backend, state: int, app: int = APP) -> None:
    """Open an epoch, and take the one before it to ``state``."""
    before = epochs.read(store, app).newest.number
    opened(store, app)
    for step in range(CLOSING, state + 1):
        epochs.set_state(store, app, before, step)


def batches(store: Backend, app: int = APP) -> set[int]:
    return {k.batch for k in map(LogKey.parse, keys_of(store, "log")) if k.app == app}


def number_of(batch: WriteBatch) -> int:
    [(_, log), _] = batch.steps
    return LogKey.parse(log[0][0]).batch


def before(call: str, act: Callable[[], None]) -> Callable[[str], None]:
    """A hook that acts once, before the first such call."""
    done: list[str] = []

    def hook(now: str) -> None:
        if now == call and not done:
            done.append(now)
            act()

    return hook


def test_a_batch_costs_one_look_at_the_distribution() -> None:
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    writer.write([message(1)])
    store.calls.clear()
    for sequence in range(2, 5):
        writer.write([message(sequence), message(sequence + 10)])
    assert store.calls == ONE_BATCH * 3


def test_lmdb_says_where_data_lies_in_the_transaction_that_puts_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can close the epoch between; to begin another transaction costs a third of a small batch's commit."""
    store = LmdbBackend(str(tmp_path), map_bytes=1 << 26)
    writer = Writer(store, PlacementTable())
    writer.write([message(1)])
    before = store._env.info()["last_txnid"]
    with monkeypatch.context() as patch:
        patch.setattr(LmdbBackend, "snapshot", None)
        writer.write([message(2)])
    assert store._env.info()["last_txnid"] == before + 1
    moved(store, CLOSING)
    writer.write([message(3)])
    assert len(batches(store)) == 4  # it was written again where readers look
    assert look(reader(store)) == plain([message(1), message(2), message(3)])
    store.close()


def test_a_batch_of_several_apps_costs_one_look_too() -> None:
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    writer.write([message(1), message(2, app=8)])
    store.calls.clear()
    writer.write([message(3), message(4, app=8)])
    assert store.calls == ONE_BATCH


@pytest.mark.parametrize("call", ["put log", "put pending", "get config"])
@pytest.mark.parametrize("state", [CLOSING, CLOSED], ids=["closing", "closed"])
def test_a_batch_placed_by_an_epoch_that_closes_meanwhile_is_written_again(state: int, call: str) -> None:
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    writer.write([message(1)])
    store.calls.clear()
    store.hook = before(call, lambda: moved(store.inner, state))
    writer.write([message(2)])
    assert store.calls == ONE_BATCH * 2
    written = [LogKey.parse(key) for key in keys_of(store.inner, "log")]
    last = max(k.batch for k in written)
    newest = epochs.read(store.inner, APP).newest.place(APP, message(2).series.metrics)
    assert {k.shard for k in written if k.batch == last} == set(newest.tolist())
    assert len(batches(store.inner)) == 3  # the second time under a number of its own
    if state == CLOSING:
        assert look(reader(store.inner)) == plain([message(1), message(2)])


def test_what_was_acked_is_found_when_the_epoch_it_was_first_put_by_is_closed() -> None:
    """Without the second look the samples would lie where nobody looks."""
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    writer.write([message(1)])
    store.inner.delete("pending", [(key, None) for key in keys_of(store.inner, "pending")])
    moved(store.inner, CLOSED)
    writer.write([message(2)])
    assert look(reader(store.inner)) == plain([message(2)])


def test_an_epoch_that_stays_open_keeps_what_was_put_by_it() -> None:
    """Readers look in the shards of both; the next batch goes by the newer."""
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    writer.write([message(1)])
    store.calls.clear()
    opened(store.inner)
    writer.write([message(2)])
    assert store.calls == ONE_BATCH
    writer.write([message(3)])
    assert store.calls == ONE_BATCH * 2
    assert look(reader(store.inner)) == plain([message(1), message(2), message(3)])


def test_epochs_that_close_one_after_the_other_are_followed_to_the_end() -> None:
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    left = [1, 2, 3]

    def hook(call: str) -> None:
        if call == "put pending" and left:
            left.pop()
            moved(store.inner, CLOSED)

    store.hook = hook
    writer.write([message(1)])
    assert len(batches(store.inner)) == 4
    assert look(reader(store.inner)) == plain([message(1)])


def test_only_the_app_whose_epoch_closes_is_written_again() -> None:
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    store.hook = before("put pending", lambda: moved(store.inner, CLOSING, app=8))
    writer.write([message(1), message(2, app=8)])
    assert (len(batches(store.inner)), len(batches(store.inner, app=8))) == (1, 2)
    assert look(reader(store.inner, app=8)) == plain([message(2, app=8)])


CALLS = 8  # get config, get and check series, log, pending, get config; then log and pending again


@pytest.mark.parametrize("lost_answer", [False, True], ids=["refused", "done, but the answer lost"])
@pytest.mark.parametrize("fails_at", range(CALLS + 1))
def test_a_crash_anywhere_between_the_two_writes_loses_and_doubles_nothing(fails_at: int, lost_answer: bool) -> None:
    store = Faulty(MemoryBackend(), fails_at=fails_at, lost_answer=lost_answer)
    store.hook = before("put pending", lambda: moved(store.inner, CLOSING))
    with pytest.raises(StoreUnavailable):  # the last of all is the look after the second write
        Writer(store, PlacementTable()).write([message(1)])
    store.hook = lambda call: None
    assert look(reader(store.inner)) in ({}, plain([message(1)]))
    Writer(store.inner, PlacementTable()).write([message(1)])
    if len(epochs.read(store.inner, APP).epochs) > 1:
        epochs.set_state(store.inner, APP, 0, CLOSED)
    assert look(reader(store.inner)) == plain([message(1)])


def test_a_batch_put_again_after_its_epoch_closed_follows_it() -> None:
    """As a queue's worker does, whose store did not answer for a while."""
    store = MemoryBackend()
    writer = Writer(store, PlacementTable())
    batch = writer.prepare([message(1)])
    writer.commit(batch)
    moved(store, CLOSED)
    writer.commit(batch)
    assert look(reader(store)) == plain([message(1)])


def test_a_process_that_starts_looks_before_it_writes() -> None:
    store = Faulty(MemoryBackend())
    moved(store.inner, CLOSED)
    Writer(store, PlacementTable()).write([message(1)])
    assert store.calls.index("get config") < store.calls.index("put log")
    assert len(batches(store.inner)) == 1
    assert look(reader(store.inner)) == plain([message(1)])


def test_one_more_app_than_a_process_remembers_makes_it_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITER_APPS_MAX", 2)
    store = Faulty(MemoryBackend())
    writer = Writer(store, PlacementTable())
    for app in (1, 2, 3, 1):
        writer.write([message(app, app=app)])
    assert store.calls.count("get config") == 8
    assert all(look(reader(store.inner, app=app)) == plain([message(app, app=app)]) for app in (1, 2, 3))


def test_batches_of_one_writer_are_numbered_one_after_the_other() -> None:
    """Neighbours in the list of a generation's batches then cost next to nothing; two writers start far apart."""
    store = MemoryBackend()
    writer = Writer(store, PlacementTable())
    numbers = [number_of(writer.prepare([message(n)])) for n in range(5)]
    assert [(b - a) & keys.U64 for a, b in pairwise(numbers)] == [1] * 4
    assert number_of(Writer(store, PlacementTable()).prepare([message(0)])) not in numbers
