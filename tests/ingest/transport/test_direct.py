"""Claims about ingest/transport/direct.py: group commit, commits made again until the store has them, bounded room."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ingest.transport import direct
from ingest.transport.base import Submission, weight_of
from ingest.transport.direct import DirectTransport
from ingest.transport.past import are_envelopes_past
from ingest.transport.turns import Turns
from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.errors import AppUnavailable, QueueUnavailable, SpmError, StoreUnavailable
from spm.store import epochs
from spm.store.backends import open_backend
from spm.store.backends.base import Step
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import dead_letters
from spm.wire import Envelope
from tests.support.rows import APP, START, envelope, plain
from tests.support.store_reader import look, reader


class Watched(Writer):
    """A writer that notes its batches; ``before`` may wait or raise."""

    def __init__(
        self, before: Callable[[Sequence[Envelope]], None] = lambda batch: None, store: MemoryBackend | None = None
    ) -> None:
        self.store = store or MemoryBackend()
        super().__init__(self.store, PlacementTable())
        self.batches: list[list[int]] = []
        self.before = before

    def prepare(self, envelopes: Sequence[Envelope]) -> WriteBatch:  # type: ignore[override]
        self.batches.append([e.stamp.sequence for e in envelopes])
        self.before(envelopes)
        return super().prepare(envelopes)


class Flaky(MemoryBackend):
    """A store whose next puts are lost, each after its first ``steps`` steps; ``put_steps`` has all puts."""

    def __init__(self, failures: int = 0, steps: int = 0) -> None:
        super().__init__()
        self.failures, self.steps = failures, steps
        self.put_steps: list[list[Step]] = []
        self.hangs: threading.Event | None = None

    def put(self, steps: Sequence[Step]) -> None:
        self.put_steps.append(list(steps))
        if self.hangs is not None:
            assert self.hangs.wait(10)
        if self.failures:
            self.failures -= 1
            super().put(steps[: self.steps])
            error = StoreUnavailable("no answer")
            error.rest = steps[self.steps :] if self.steps else None
            raise error
        super().put(steps)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_AGAIN_S", 0.02)
    monkeypatch.setattr(limits, "PUBLISH_LOOK_S", 0.01)
    monkeypatch.setattr(limits, "PUBLISH_CLOSE_S", 0.5)


@pytest.fixture
def opened() -> Iterator[Callable[[Writer], DirectTransport]]:
    """Makes transports, and closes them."""
    transports: list[DirectTransport] = []

    def make(writer: Writer) -> DirectTransport:
        transports.append(DirectTransport(writer))
        return transports[-1]

    yield make
    for transport in transports:
        transport.close()


Opener = Callable[[Writer], DirectTransport]


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


def _note(event: threading.Event, stored: bool) -> None:
    event.set()


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_a_message_is_durable_when_publish_returns(opened: Opener) -> None:
    writer, outcomes = Watched(), list[bool]()
    opened(writer).publish(message(1), 5, outcomes.append)
    assert look(reader(writer.store)) == plain([message(1)])
    assert outcomes == [True]


def test_messages_that_wait_at_the_same_time_are_committed_together(opened: Opener) -> None:
    busy, go = threading.Event(), threading.Event()

    def first_waits(batch: Sequence[Envelope]) -> None:
        if batch[0].stamp.sequence == 0:
            busy.set()
            assert go.wait(10)

    writer = Watched(first_waits)
    transport = opened(writer)
    first = threading.Thread(target=transport.publish, args=(message(0), 20))
    first.start()
    assert busy.wait(10)
    threads = [threading.Thread(target=transport.publish, args=(message(i), 20)) for i in range(1, 9)]
    for t in threads:
        t.start()
    assert soon(lambda: len(transport._queue) == 8)
    go.set()
    for t in (first, *threads):
        t.join()
    assert [sorted(b) for b in writer.batches] == [[0], list(range(1, 9))]
    assert look(reader(writer.store)) == plain([message(i) for i in range(9)])


@pytest.mark.timed
def test_a_failed_commit_is_made_again_with_the_same_bytes_after_its_sender_was_told(opened: Opener) -> None:
    store, outcomes = Flaky(failures=3), list[bool]()
    transport = opened(Watched(store=store))
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer"):
        transport.publish(message(1), 20, outcomes.append)
    assert time.monotonic() - begun < 1
    assert soon(lambda: outcomes == [True])
    assert look(reader(store)) == plain([message(1)])
    assert len(store.put_steps) == 4
    assert all(steps == store.put_steps[0] for steps in store.put_steps)


def test_steps_that_are_confirmed_are_not_put_again(opened: Opener) -> None:
    store, outcomes = Flaky(failures=1, steps=1), list[bool]()
    with pytest.raises(StoreUnavailable):
        opened(Watched(store=store)).publish(message(1), 20, outcomes.append)
    assert soon(lambda: outcomes == [True])
    assert [[table for table, _ in steps] for steps in store.put_steps] == [["log", "pending"], ["pending"]]
    assert look(reader(store)) == plain([message(1)])


def test_nothing_is_taken_while_a_commit_is_made_again_and_all_is_well_afterwards(opened: Opener) -> None:
    store = Flaky(failures=10**9)
    transport = opened(Watched(store=store))
    with pytest.raises(StoreUnavailable):
        transport.publish(message(1), 20)
    with pytest.raises(StoreUnavailable, match="no answer"):
        transport.reserve(APP, "host", 1)
    store.failures = 0
    assert soon(lambda: transport._trouble is None)
    transport.publish(message(2), 5)
    assert look(reader(store)) == plain([message(1), message(2)])


def test_a_message_that_cannot_be_written_becomes_a_dead_letter_and_harms_no_other(opened: Opener) -> None:
    def fails_for_seven(batch: Sequence[Envelope]) -> None:
        if any(e.stamp.sequence == 7 for e in batch):
            raise ZeroDivisionError("seven")

    writer = Watched(fails_for_seven)
    outcome = together(opened(writer), [message(i) for i in range(30)])
    assert set(outcome.values()) == {None}
    assert look(reader(writer.store)) == plain([message(i) for i in range(30) if i != 7])
    [letter] = dead_letters.newest(writer.store, APP, count=9)
    assert "seven" in dead_letters.decode(letter.raw).cause


def test_a_damaged_row_of_one_app_holds_its_messages_and_no_other_app_s(opened: Opener) -> None:
    """They are stored once it is mended; not one sample of the larger one becomes a dead letter."""
    store = MemoryBackend()
    row = epochs.row_key(APP), epochs.COLUMN
    store.check_and_put("config", *row, None, b"damaged bytes")
    transport, outcomes = opened(Watched(store=store)), list[bool]()
    others = [replace(message(number), app=8) for number in (2, 3)]
    for mine, other in zip((message(0, 60_000), message(1)), others, strict=True):
        with pytest.raises(StoreUnavailable, match="damaged"):
            transport.publish(mine, 20, outcomes.append)
        transport.publish(other, 20)
    with pytest.raises(StoreUnavailable, match="damaged"):
        transport.reserve(APP, "host", 1)
    assert store.check_and_put("config", *row, b"damaged bytes", epochs.encode(PlacementTable()))
    assert soon(lambda: outcomes == [True])
    assert look(reader(store)) == plain([message(0, 60_000)])
    assert dead_letters.newest(store, APP, count=9) == []
    transport.publish(message(5), 20)
    assert transport._weight == 0


def test_what_was_set_aside_is_tried_again_although_other_apps_never_pause(opened: Opener) -> None:
    store, ends, numbers = MemoryBackend(), threading.Event(), itertools.count(100)
    row = epochs.row_key(APP), epochs.COLUMN
    store.check_and_put("config", *row, None, b"damaged bytes")

    def send_another(batch: Sequence[Envelope]) -> None:
        if batch[0].app != APP and not ends.is_set():
            another = replace(message(next(numbers)), app=8)
            transport.reserve(8, another.source, 1)
            transport.submit([Submission(another, 1, lambda stored: None)])

    transport = opened(Watched(send_another, store))
    with pytest.raises(StoreUnavailable, match="damaged"):
        transport.publish(message(1), 20)
    transport.publish(replace(message(2), app=8), 20)
    assert store.check_and_put("config", *row, b"damaged bytes", epochs.encode(PlacementTable()))
    is_stored = soon(lambda: look(reader(store)) == plain([message(1)]))
    ends.set()
    assert is_stored


def test_a_message_that_can_neither_be_stored_nor_become_a_dead_letter_is_reported_as_lost(opened: Opener) -> None:
    def breaks(batch: Sequence[Envelope]) -> None:
        raise MemoryError

    writer, outcomes = Watched(breaks), list[bool]()
    writer.write_dead_letter = lambda envelope, cause: breaks([])  # type: ignore[method-assign]
    transport = opened(writer)
    with pytest.raises(StoreUnavailable, match="MemoryError"):
        transport.publish(message(1), 5, outcomes.append)
    assert outcomes == [False]
    writer.before = lambda batch: None
    transport.publish(message(2), 5)
    assert look(reader(writer.store)) == plain([message(2)])


def test_a_store_that_does_not_answer_is_not_waited_for_longer_than_told(opened: Opener) -> None:
    store = Flaky()
    store.hangs = threading.Event()
    transport, outcomes = opened(Watched(store=store)), list[bool]()
    with pytest.raises(StoreUnavailable, match="no confirm within"):
        transport.publish(message(1), 0.05, outcomes.append)
    store.hangs.set()
    assert soon(lambda: outcomes == [True])


def test_a_store_that_hangs_frees_its_senders_and_takes_no_more(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_STALL_S", 0.1)
    store = Flaky()
    store.hangs = threading.Event()
    transport = opened(Watched(store=store))
    with pytest.raises(StoreUnavailable, match="not answered for"):
        transport.publish(message(1), 20)
    with pytest.raises(StoreUnavailable, match="not answered for"):
        transport.reserve(APP, "host", 1)
    store.hangs.set()
    assert soon(lambda: transport._standstill() is None)
    transport.publish(message(2), 5)
    assert look(reader(store)) == plain([message(1), message(2)])


@pytest.mark.parametrize(("over", "taken"), [(0, True), (1, False)], ids=["as much as there is", "one byte more"])
def test_the_room_for_messages_is_bounded(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, over: int, taken: bool
) -> None:
    monkeypatch.setattr(limits, "COMMIT_QUEUE_BYTES_MAX", 1000)
    transport = opened(Watched())
    transport.reserve(APP, "host", 400)
    if taken:
        transport.reserve(APP + 1, "host", 600 + over)
        transport.release(APP + 1, 600)
    else:
        with pytest.raises(QueueUnavailable, match="too many bytes"):
            transport.reserve(APP + 1, "host", 600 + over)
    transport.release(APP, 400)


def test_an_app_never_takes_the_room_that_is_left_for_others(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_QUEUE_BYTES_MAX", 1000)
    transport = opened(Watched())
    for _ in range(5):
        transport.reserve(APP, "host", 100)
    with pytest.raises(QueueUnavailable, match="too many bytes"):
        transport.reserve(APP, "host", 1)
    transport.reserve(APP + 1, "host", 250)
    for app, weight in ((APP, 500), (APP + 1, 250)):
        transport.release(app, weight)
    assert not transport._weights


def test_one_message_larger_than_the_room_is_taken_alone(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_QUEUE_BYTES_MAX", 1)
    writer = Watched()
    opened(writer).publish(message(1), 5)
    assert look(reader(writer.store)) == plain([message(1)])


def test_a_batch_stays_within_its_bytes(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_BYTES_MAX", 1)
    writer = Watched()
    together(opened(writer), [message(i) for i in range(9)])
    assert all(len(batch) == 1 for batch in writer.batches)


def test_closing_waits_for_what_is_under_way_and_takes_no_more(opened: Opener) -> None:
    store, outcomes = Flaky(failures=2), list[bool]()
    transport = opened(Watched(store=store))
    with pytest.raises(StoreUnavailable):
        transport.publish(message(1), 20, outcomes.append)
    transport.close()
    assert outcomes == [True]
    with pytest.raises(StoreUnavailable, match="transport is closing"):
        transport.reserve(APP, "host", 1)


@pytest.mark.timed
def test_closing_does_not_wait_for_ever(opened: Opener) -> None:
    transport, outcomes = opened(Watched(store=Flaky(failures=10**9))), list[bool]()
    with pytest.raises(StoreUnavailable):
        transport.publish(message(1), 20, outcomes.append)
    begun = time.monotonic()
    transport.close()
    assert time.monotonic() - begun < 2
    assert soon(lambda: outcomes == [False])


def test_the_weight_of_a_message_is_never_less_than_its_bytes() -> None:
    for one in (message(1), message(2, samples=500), envelope([], source="x" * 255)):
        assert weight_of(one) >= len(one.to_bytes())


def test_many_threads_over_lmdb_lose_nothing(tmp_path: object, opened: Opener) -> None:
    backend = open_backend(f"lmdb://{tmp_path}/store")
    messages = [message(i, samples=20) for i in range(60)]
    transport = opened(Writer(backend, PlacementTable()))
    assert set(together(transport, messages).values()) == {None}
    assert look(reader(backend)) == plain(messages)
    transport.close()
    backend.close()


@pytest.mark.timed
def test_submitted_messages_say_why_they_are_not_durable_and_are_in_the_end(opened: Opener) -> None:
    store, outcomes = Flaky(failures=10**9), list[bool]()
    transport = opened(Watched(store=store))
    messages = [Submission(message(i), weight_of(message(i)), outcomes.append) for i in range(5)]
    for each in messages:
        transport.reserve(APP, "host", each.weight)
    begun = time.monotonic()
    troubles = transport.submit(messages)
    assert time.monotonic() - begun < 1
    assert soon(lambda: all("no answer" in (trouble() or "") for trouble in troubles))
    assert outcomes == []
    store.failures = 0
    assert soon(lambda: outcomes == [True] * 5)
    assert [trouble() for trouble in troubles] == [None] * 5
    assert look(reader(store)) == plain([message(i) for i in range(5)])


def test_live_messages_never_wait_for_one_with_samples_of_long_ago(opened: Opener) -> None:
    """One that touches 2,500 hours in 16 shards takes seconds: others were told that the store does not answer."""
    slow = threading.Event()

    def before(batch: Sequence[Envelope]) -> None:
        if min(int(one.ts.min()) for one in batch) < START:
            assert slow.wait(20)

    writer = Watched(before)
    transport = opened(writer)
    past = envelope([(1, START - limits.LIVE_HOURS * limits.HOUR_MS - 1, 1.0)], sequence=1, ms=START)
    live = [envelope([(1, START + n, 1.0)], sequence=n, ms=START + n) for n in range(2, 5)]
    thread = threading.Thread(target=together, args=[transport, [past]])
    thread.start()
    try:
        assert together(transport, live) == dict.fromkeys((2, 3, 4))
        assert thread.is_alive()
    finally:
        slow.set()
        thread.join()
    assert look(reader(writer.store)) == plain([past, *live])


def test_live_messages_do_not_wake_the_thread_that_commits_those_of_long_ago(opened: Opener) -> None:
    transport = opened(Watched())
    past = envelope([(1, START - limits.LIVE_HOURS * limits.HOUR_MS - 1, 1.0)], sequence=1, ms=START)
    assert together(transport, [past]) == {1: None}
    looks = _Looks()
    transport._past._turns = looks
    for number in range(2, 12):
        assert together(transport, [message(number)]) == {number: None}
    assert looks.seen <= 1  # it may still have been on its way from its own commit to its next wait


class _Looks(Turns[Any]):
    """A line that counts how often a thread looks whether it has anything."""

    seen = 0

    def __len__(self) -> int:
        self.seen += 1
        return super().__len__()


def test_messages_of_long_ago_that_are_set_aside_are_tried_again(opened: Opener) -> None:
    refusals = [AppUnavailable("a row by which data is written is damaged")]

    def fail_once(_: Sequence[Envelope]) -> None:
        if refusals:
            raise refusals.pop()

    writer = Watched(fail_once)
    transport = opened(writer)
    past = envelope([(1, START - limits.LIVE_HOURS * limits.HOUR_MS - 1, 1.0)], sequence=1, ms=START)
    transport.reserve(APP, past.source, 1)
    transport.submit([Submission(past, 1, lambda stored: None)])
    assert soon(lambda: len(writer.batches) == 2)
    assert soon(lambda: look(reader(writer.store)) == plain([past]))


def test_the_committer_outlives_a_lack_of_memory_before_its_commit(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Sequence[Envelope]) -> list[bool]:
        raise MemoryError

    monkeypatch.setattr(direct, "are_envelopes_past", fail)
    writer = Watched(lambda _: None)
    transport = opened(writer)
    sent = [envelope([(1, START + n, 1.0)], sequence=n, ms=START + n) for n in range(2, 5)]
    assert together(transport, sent) == dict.fromkeys((2, 3, 4))
    assert look(reader(writer.store)) == plain(sent)


def test_messages_of_long_ago_are_committed_together_up_to_a_bound_of_hours(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_HOURS_MAX", 6)
    first = threading.Event()

    def before(batch: Sequence[Envelope]) -> None:
        if batch[0].stamp.sequence == 0:
            first.wait(20)

    writer = Watched(before)
    transport = opened(writer)
    messages = [
        envelope([(1, START - (100 + h) * limits.HOUR_MS, 1.0) for h in range(2)], sequence=n, ms=START + n)
        for n in range(6)
    ]
    done = [threading.Event() for _ in messages]
    for one, event in zip(messages, done, strict=True):
        weight = weight_of(one)
        transport.reserve(APP, "s", weight)
        transport.submit([Submission(one, weight, partial(_note, event))])
    first.set()
    assert all(event.wait(20) for event in done)
    assert max(map(len, writer.batches)) <= 3
    assert len(writer.batches) <= 4
    assert look(reader(writer.store)) == plain(messages)


def test_the_age_of_live_messages_is_found_by_one_look_at_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = START - limits.LIVE_HOURS * limits.HOUR_MS
    live = [envelope([(1, oldest, 1.0), (1, START, 2.0)], sequence=1, ms=START), envelope([], sequence=2, ms=START)]
    past = envelope([(1, START, 1.0), (1, oldest - 1, 2.0)], sequence=3, ms=START)
    assert are_envelopes_past([*live, past]) == [False, False, True]
    monkeypatch.setattr(np, "cumsum", None)  # what tells the messages apart
    assert are_envelopes_past(live) == [False, False]
