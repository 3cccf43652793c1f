"""Claims about ingest/transport/direct.py: group commit, failures that stay among their own, a bounded queue."""

import threading
from collections.abc import Callable, Sequence

import pytest

from ingest.transport.direct import DirectTransport
from ingest.write import Batch, Writer
from spm import limits
from spm.errors import QueueUnavailable, SpmError, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import Distribution
from spm.wire import Envelope
from tests.reading.look import look, reader
from tests.store.rows import START, envelope, plain


class Watched(Writer):
    """A writer that notes its batches; ``before`` may wait or raise."""

    def __init__(self, before: Callable[[Sequence[Envelope]], None] = lambda batch: None) -> None:
        self.store = MemoryBackend()
        super().__init__(self.store, Distribution())
        self.batches: list[list[int]] = []
        self.before = before

    def prepare(self, envelopes: Sequence[Envelope]) -> Batch:
        self.batches.append([e.stamp.sequence for e in envelopes])
        self.before(envelopes)
        return super().prepare(envelopes)


def message(number: int, samples: int = 1) -> Envelope:
    return envelope([(number % 50, START + number + i + 1, float(number)) for i in range(samples)], sequence=number)


def together(transport: DirectTransport, messages: Sequence[Envelope]) -> dict[int, SpmError | None]:
    """Publish from one thread each; what became of every message."""
    outcome: dict[int, SpmError | None] = {}

    def publish(one: Envelope) -> None:
        try:
            transport.publish(one, 20)
            outcome[one.stamp.sequence] = None
        except SpmError as error:
            outcome[one.stamp.sequence] = error

    threads = [threading.Thread(target=publish, args=(one,)) for one in messages]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return outcome


def test_a_message_is_durable_when_publish_returns() -> None:
    writer = Watched()
    DirectTransport(writer).publish(message(1), 5)
    assert look(reader(writer.store)) == plain([message(1)])


def test_messages_that_wait_at_the_same_time_are_committed_together() -> None:
    busy, go = threading.Event(), threading.Event()

    def first_waits(batch: Sequence[Envelope]) -> None:
        if batch[0].stamp.sequence == 0:
            busy.set()
            assert go.wait(10)

    writer = Watched(first_waits)
    transport = DirectTransport(writer)
    leader = threading.Thread(target=transport.publish, args=(message(0), 20))
    leader.start()
    assert busy.wait(10)
    threads = [threading.Thread(target=transport.publish, args=(message(i), 20)) for i in range(1, 9)]
    for t in threads:
        t.start()
    while len(transport._queue) < 8:
        pass
    go.set()
    for t in (leader, *threads):
        t.join()
    assert [sorted(b) for b in writer.batches] == [[0], list(range(1, 9))]
    assert look(reader(writer.store)) == plain([message(i) for i in range(9)])


def test_a_failed_commit_fails_exactly_its_messages() -> None:
    def fails_for_seven(batch: Sequence[Envelope]) -> None:
        if any(e.stamp.sequence == 7 for e in batch):
            raise StoreUnavailable("no answer")

    writer = Watched(fails_for_seven)
    outcome = together(DirectTransport(writer), [message(i) for i in range(30)])
    [failed] = [b for b in writer.batches if 7 in b]
    assert {i for i, error in outcome.items() if error} == set(failed)
    assert sorted(i for b in writer.batches for i in b) == list(range(30))
    assert look(reader(writer.store)) == plain([message(i) for i in range(30) if outcome[i] is None])


def test_a_leader_that_breaks_leaves_nobody_waiting_for_ever() -> None:
    def breaks_once(batch: Sequence[Envelope]) -> None:
        if len(writer.batches) == 1:
            raise MemoryError

    writer = Watched(breaks_once)
    transport = DirectTransport(writer)
    with pytest.raises(MemoryError):
        transport.publish(message(1), 5)
    transport.publish(message(2), 5)
    assert look(reader(writer.store)) == plain([message(2)])


def test_a_store_that_does_not_answer_is_not_waited_for_longer_than_told() -> None:
    go = threading.Event()
    transport = DirectTransport(Watched(lambda batch: assert_true(go.wait(10))))
    leader = threading.Thread(target=transport.publish, args=(message(1), 20))
    leader.start()
    with pytest.raises(SpmError):
        transport.publish(message(2), 0.05)
    go.set()
    leader.join()


def assert_true(value: bool) -> None:
    assert value


def test_one_message_more_than_the_queue_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go = threading.Event(), threading.Event()

    def waits(batch: Sequence[Envelope]) -> None:
        busy.set()
        assert go.wait(10)

    transport = DirectTransport(Watched(waits))
    threads = [threading.Thread(target=transport.publish, args=(message(0), 20))]
    threads[0].start()
    assert busy.wait(10)
    threads.append(threading.Thread(target=transport.publish, args=(message(1), 20)))
    threads[1].start()
    while not transport._queue:
        pass
    monkeypatch.setattr(limits, "COMMIT_QUEUE_BYTES_MAX", transport._queued_bytes + 1)
    with pytest.raises(QueueUnavailable):
        transport.publish(message(2), 20)
    go.set()
    for t in threads:
        t.join()


def test_a_batch_stays_within_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_BYTES_MAX", 1)
    writer = Watched()
    together(DirectTransport(writer), [message(i) for i in range(9)])
    assert all(len(batch) == 1 for batch in writer.batches)


def test_many_threads_over_lmdb_lose_nothing(tmp_path: object) -> None:
    backend = open_backend(f"lmdb://{tmp_path}/store")
    messages = [message(i, samples=20) for i in range(60)]
    assert set(together(DirectTransport(Writer(backend, Distribution())), messages).values()) == {None}
    assert look(reader(backend)) == plain(messages)
    backend.close()
