"""What becomes of deliveries: stored and acknowledged, given back, or dead. Real writer, memory store, no broker."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as altered

import pytest
from msgspec.structs import replace

from ingest.http.body import UnknownEncoding
from ingest.routing import LINES_TYPE
from ingest.transport import topology
from ingest.transport.delivery import AckHandle, Delivery
from ingest.worker.batch import Batcher, Bounds
from ingest.worker.consumer import Consumer
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.errors import BadMessage, QueueUnavailable, StoreUnavailable
from spm.store.backends.base import Step
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.support.messages import message

EACH_ALONE = Bounds(messages=1)
FIVE = Bounds(messages=5, age_ms=10**9)


@dataclass
class Notes:
    """A source and publisher that records its calls."""

    lost: set[int] = field(default_factory=set)  # generations whose deliveries cannot be settled any more
    stored: list[tuple[int, bool]] = field(default_factory=list)  # (tag, and all before it)
    given_back: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    dead: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)
    passed_on: list[tuple[str, bytes, str]] = field(default_factory=list)
    waiting: list[tuple[str, bytes, str]] = field(default_factory=list)
    publisher_open: bool = True

    def holds(self, handle: AckHandle) -> bool:
        return handle.generation not in self.lost

    def acknowledge(self, handle: AckHandle, *, multiple: bool = True) -> None:
        self.stored.append((handle.tag, multiple))

    def give_back(self, handle: AckHandle) -> None:
        self.given_back.append(handle.tag)

    def reject(self, handle: AckHandle) -> None:
        self.rejected.append(handle.tag)

    def renew(self, why: str) -> None:
        self.renewed.append(why)

    def publish(
        self, exchange: str, key: str, body: bytes, *, timeout_s: float, message_id: str, headers: dict[str, str]
    ) -> None:
        if not self.publisher_open:
            raise QueueUnavailable("closed")
        self.dead.append((body, headers))

    def publish_all(self, exchange: str, messages: Sequence[tuple[str, bytes, str]], *, timeout_s: float) -> list[bool]:
        if self.publisher_open:
            {topology.EXCHANGE: self.passed_on, topology.WAITING: self.waiting}[exchange].extend(messages)
        return [self.publisher_open] * len(messages)


class Store(MemoryBackend):
    """A memory store that fails ``failures`` times, and keeps what it was asked to put."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures, self.puts = failures, list[list[Step]]()

    def put(self, steps: object) -> None:
        self.puts.append(list(steps))  # type: ignore[call-overload]
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not now")
        super().put(steps)  # type: ignore[arg-type]

    def commits(self) -> list[int]:
        """Return the number of commit records of each put."""
        return [sum(len(rows) for table, rows in steps if table == "pending") for steps in self.puts]

    def pending_rows(self) -> int:
        return len(list(self.scan("pending", b"", b"\xff" * 30)))


def consumer(store: Store, notes: Notes, bounds: Bounds = FIVE, clock: FakeClock | None = None) -> Consumer:
    time = clock or FakeClock()
    writer = Writer(store, PlacementTable())
    worker = Consumer(writer, notes, clock=time, batcher=Batcher(bounds), wait=time.sleep)
    worker.connect(notes)
    return worker


def delivery(tag: int, body: bytes | None = None, generation: int = 1, came_ms: int = 1_000_000) -> Delivery:
    return Delivery(generation, tag, "q", message(tag).to_bytes() if body is None else body, "id", came_ms)


def test_a_full_batch_is_stored_and_acknowledged_as_a_whole() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes)
    for tag in range(1, 6):
        worker.take(delivery(tag))
    worker.step()
    assert store.pending_rows() == 1
    assert notes.stored == [(5, True)]


def test_a_batch_of_several_queues_is_acknowledged_to_each_of_them() -> None:
    notes = Notes()
    worker = consumer(Store(), notes)
    for tag, queue in ((1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a")):
        worker.take(replace(delivery(tag), queue=queue))
    worker.step()
    assert notes.stored == [(3, True), (2, True)]


def test_nothing_is_acknowledged_before_the_batch_is_due() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes)
    worker.take(delivery(1))
    worker.step()
    assert (store.puts, notes.stored) == ([], [])


@pytest.mark.seed("A4", compares="a batch with a body nobody can read: its dead letter's cause, and its neighbours")
def test_a_body_that_cannot_be_read_is_dead_with_its_cause_and_harms_no_other() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes, Bounds(messages=2))
    worker.take(delivery(1, body=b"garbage"))
    worker.take(delivery(2))
    worker.take(delivery(3))
    worker.step()
    [(body, headers)] = notes.dead
    assert body == b"garbage"
    assert "not an envelope" in headers[topology.CAUSE]
    assert notes.stored == [(1, False), (3, True)]


def test_a_dead_letter_is_left_to_the_broker_when_it_cannot_be_published() -> None:
    notes = Notes(publisher_open=False)
    worker = consumer(Store(), notes)
    worker.take(delivery(1, body=b"garbage"))
    worker.step()
    assert (notes.rejected, notes.stored) == ([1], [])


@pytest.mark.seed("A5", compares="bytes of each try of a batch whose store does not answer")
def test_the_same_bytes_are_put_again_while_the_store_does_not_answer() -> None:
    store, notes = Store(failures=3), Notes()
    worker = consumer(store, notes, EACH_ALONE)
    worker.take(delivery(1))
    worker.step()
    assert len(store.puts) == 4
    assert store.puts[0] == store.puts[3]
    assert notes.stored == [(1, True)]


class HalfWay(Store):
    """A store whose first put breaks off behind its first step, and says what it has not confirmed."""

    def put(self, steps: object) -> None:
        given: list[Step] = list(steps)  # type: ignore[call-overload]
        if not self.puts:
            self.puts.append(given)
            MemoryBackend.put(self, given[:1])
            error = StoreUnavailable("half way")
            error.rest = given[1:]
            raise error
        super().put(given)


@pytest.mark.seed("A5", compares="steps of the second try of a batch with those its first try had not confirmed")
def test_what_a_broken_put_has_confirmed_is_not_put_again(figure: Callable[[str], None]) -> None:
    store, notes = HalfWay(), Notes()
    worker = consumer(store, notes, EACH_ALONE)
    worker.take(delivery(1))
    worker.step()
    tries = [[table for table, _ in steps] for steps in store.puts]
    figure(f"first try {tries[0]}, broken off behind its first step; second try {tries[1]}")
    assert tries == [["log", "pending"], ["pending"]]
    assert (store.pending_rows(), notes.stored) == (1, [(1, True)])


@pytest.mark.seed("A5", compares="tries to write a batch until it is given back, with one in the longest pause")
def test_messages_are_given_back_when_the_store_does_not_come_back_in_time(figure: Callable[[str], None]) -> None:
    store, notes = Store(failures=10**6), Notes()
    clock = FakeClock()
    worker = consumer(store, notes, EACH_ALONE, clock)
    worker.take(delivery(1, came_ms=round(clock.monotonic() * 1000)))
    worker.step()
    assert (notes.given_back, notes.stored) == ([1], [])
    figure(
        f"{len(store.puts)} tries in {limits.CONSUME_RETRY_S} s without a store, then given back: delivered once more"
    )
    assert len(store.puts) <= limits.CONSUME_RETRY_S / limits.CONSUME_BACK_OFF_S + 10


def test_a_connection_that_was_lost_takes_its_unwritten_messages_with_it() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes, Bounds(messages=2, age_ms=10**9))
    worker.take(delivery(1))
    worker.step()
    notes.lost.add(1)
    worker.take(delivery(1, generation=2))
    worker.step()
    assert (store.pending_rows(), notes.stored) == (1, [(1, True)])
    assert store.commits() == [1], "only what can be acknowledged is written"


def test_nobody_waits_for_the_store_with_messages_that_are_another_worker_s_by_now() -> None:
    store, notes, clock = Store(failures=10**6), Notes(), FakeClock()

    def wait(seconds: float) -> None:
        clock.sleep(seconds)
        notes.lost.add(1)

    worker = Consumer(Writer(store, PlacementTable()), notes, clock=clock, batcher=Batcher(EACH_ALONE), wait=wait)
    worker.connect(notes)
    worker.take(delivery(1))
    worker.step()
    assert (len(store.puts), notes.stored) == (2, [])


class FailingOn(Writer):
    """A writer that cannot write messages of one source."""

    def prepare(self, envelopes):  # type: ignore[no-untyped-def]
        if any(e.source == "cursed" for e in envelopes):
            raise ZeroDivisionError("cursed")
        return super().prepare(envelopes)


@pytest.mark.seed("A4", compares="a batch with a message no row may hold: its dead letter, and its neighbours")
def test_a_message_that_cannot_be_written_is_dead_and_the_rest_of_its_batch_is_stored() -> None:
    store, notes = Store(), Notes()
    worker = Consumer(FailingOn(store, PlacementTable()), notes, clock=FakeClock(), batcher=Batcher(Bounds(messages=3)))
    worker.connect(notes)
    for tag, source in ((1, "a"), (2, "cursed"), (3, "b")):
        worker.take(delivery(tag, message(tag, source=source).to_bytes()))
    worker.step()
    assert [headers[topology.CAUSE] for _, headers in notes.dead] == ["cannot be written: ZeroDivisionError('cursed')"]
    assert store.pending_rows() == 2
    assert notes.stored == [(3, True)]


@pytest.mark.seed("A2", compares="what a stopped worker held, with what is stored and acknowledged")
def test_stopping_writes_what_is_at_hand() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes)
    worker.take(delivery(1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert notes.stored == [(1, True)]


@pytest.mark.seed("A2", compares="what a stopped worker could not write, with what it gave back")
def test_stopping_gives_back_what_the_store_does_not_take() -> None:
    store, notes = Store(failures=10**6), Notes()
    worker = consumer(store, notes)
    worker.take(delivery(1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert (notes.given_back, notes.stored) == ([1], [])
    assert len(store.puts) == 1, "nobody waits for the store when the worker is to end"


@dataclass
class FakeAcceptor:
    """An acceptor of agents' messages that gives its answers one after the other, and records its calls."""

    answers: list[Envelope | Exception | None]
    settled_: list[Envelope] = field(default_factory=list)
    retired: int = 0

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        results: list[Envelope | Exception | None] = []
        while len(results) < len(deliveries):
            results.append(self.answers.pop(0))
            if isinstance(results[-1], StoreUnavailable):
                results += [results[-1]] * (len(deliveries) - len(results))
        return results

    def app_of(self, delivery: Delivery) -> int | None:
        return 7 if delivery.key.startswith("spm_good.") else None

    def confirm(self, envelope: Envelope) -> None:
        self.settled_.append(envelope)

    def retire(self) -> None:
        self.retired += 1


def fed_by_agents(store: Store, notes: Notes, acceptor: FakeAcceptor, *keys: str) -> Consumer:
    """A worker to which agents have sent lines under these keys."""
    clock = FakeClock()
    bounds = Bounds(messages=len(keys))
    worker = Consumer(
        Writer(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(bounds),
        wait=clock.sleep,
        acceptor=acceptor,
    )
    worker.connect(notes)
    for tag, key in enumerate(keys, 1):
        worker.take(replace(delivery(tag, body=b"cpu v=1"), content_type=LINES_TYPE, key=key))
    return worker


def test_lines_wait_while_the_database_does_not_say_whose_they_are() -> None:
    store, notes, locked = Store(), Notes(), StoreUnavailable("locked")
    acceptor = FakeAcceptor([locked, locked, message(1)])
    fed_by_agents(store, notes, acceptor, "k").step()
    assert (store.pending_rows(), notes.stored, notes.dead) == (1, [(1, True)], [])
    assert [envelope.stamp for envelope in acceptor.settled_] == [message(1).stamp]


def test_lines_of_which_nothing_can_be_taken_are_acknowledged_alone() -> None:
    store, notes = Store(), Notes()
    fed_by_agents(store, notes, FakeAcceptor([None, message(2)]), "k", "k").step()
    assert (store.pending_rows(), notes.stored, notes.dead) == (0, [(1, False)], [])


@pytest.mark.parametrize(("key", "app"), [("spm_good.h", "7"), ("spm_gone.h", "0")], ids=["known", "unknown"])
def test_a_body_an_agent_sent_dies_with_the_name_of_the_app_that_is_proven(key: str, app: str) -> None:
    store, notes = Store(), Notes()
    fed_by_agents(store, notes, FakeAcceptor([BadMessage("no lines at all")]), key).step()
    [(body, headers)] = notes.dead
    assert (body, headers[topology.APP], headers[topology.CAUSE]) == (b"cpu v=1", app, "no lines at all")
    assert notes.stored == [(1, False)]


@pytest.mark.parametrize("error", [UnknownEncoding("unknown"), ZeroDivisionError()], ids=["foreseen", "not foreseen"])
def test_a_body_whose_reading_fails_in_any_way_is_dead_and_the_next_one_is_taken(error: Exception) -> None:
    store, notes = Store(), Notes()
    fed_by_agents(store, notes, FakeAcceptor([error, message(2)]), "k").step()
    assert (len(notes.dead), notes.stored, notes.renewed) == (1, [(1, False)], [])


def test_what_was_stamped_here_and_is_given_back_ends_the_accepting_process() -> None:
    store, notes, acceptor = Store(failures=10**6), Notes(), FakeAcceptor([message(1)])
    fed_by_agents(store, notes, acceptor, "k").step()
    assert (notes.given_back, acceptor.retired, acceptor.settled_) == ([1], 1, [])


def test_what_was_stamped_here_and_is_lost_to_another_worker_ends_the_accepting_process() -> None:
    store, notes, acceptor = Store(), Notes(lost={1}), FakeAcceptor([message(1)])
    fed_by_agents(store, notes, acceptor, "k").step()
    assert (store.puts, notes.stored, acceptor.retired) == ([], [], 1)


@pytest.mark.seed("A4", compares="a batch with a body damaged behind its head: its dead letter, and its neighbours")
def test_a_damaged_body_is_found_with_its_batch_and_dies_alone() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes, Bounds(messages=3))
    damaged = bytearray(message(2).to_bytes())
    damaged[-1] ^= 1
    for tag, body in ((1, None), (2, bytes(damaged)), (3, None)):
        worker.take(delivery(tag, body))
    worker.step()
    [(body, headers)] = notes.dead
    assert (body, "checksum" in headers[topology.CAUSE]) == (bytes(damaged), True)
    assert notes.stored == [(2, False), (3, True)]


def test_a_damaged_last_message_is_not_acknowledged_twice() -> None:
    """The broker closes the channel when a tag is acknowledged that it does not know any more."""
    store, notes = Store(), Notes()
    worker = consumer(store, notes, Bounds(messages=2))
    worker.take(delivery(1))
    worker.take(delivery(2, message(2).to_bytes()[:-1] + b"x"))
    worker.step()
    assert notes.stored == [(2, False), (1, True)]


def test_of_many_messages_only_the_one_that_cannot_be_written_dies() -> None:
    store, notes = Store(), Notes()
    worker = Consumer(
        FailingOn(store, PlacementTable()), notes, clock=FakeClock(), batcher=Batcher(Bounds(messages=40))
    )
    worker.connect(notes)
    for tag in range(1, 41):
        worker.take(delivery(tag, message(tag, source="cursed" if tag == 17 else "a").to_bytes()))
    worker.step()
    assert len(notes.dead) == 1
    assert sum(store.commits()) <= 8, "by halves, not one by one"
    assert notes.stored == [(40, True)]


def test_a_message_that_nobody_settled_three_times_is_tried_elsewhere_first() -> None:
    store, notes, tried = Store(), Notes(), list[int]()

    def trial(suspect: Delivery) -> str | None:
        tried.append(suspect.tag)
        return "ended the process that tried it" if suspect.tag == 2 else None

    worker = Consumer(Writer(store, PlacementTable()), notes, clock=FakeClock(), batcher=Batcher(FIVE), sandbox=trial)
    worker.connect(notes)
    for tag, tries in ((1, 3), (2, 3), (3, 2), (4, 0), (5, 5), (6, 0)):
        worker.take(replace(delivery(tag), tries=tries))
    worker.step()
    assert tried == [1, 2, 5]
    assert [headers[topology.CAUSE] for _, headers in notes.dead] == ["ended the process that tried it"]
    assert notes.stored == [(2, False), (6, True)]


def test_a_message_of_rejected_lines_alone_is_accounted_for() -> None:
    store, notes = Store(), Notes()
    worker = consumer(store, notes, EACH_ALONE)
    worker.take(delivery(1, altered(message(1, samples=0), rejected=7).to_bytes()))
    worker.step()
    assert len(list(store.scan("ledger", b"", b"\xff" * 30))) == 1
    assert notes.stored == [(1, True)]


def test_a_failure_nobody_foresaw_renews_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    worker = consumer(Store(), notes)
    monkeypatch.setattr(worker, "_gather", lambda delivery: 1 / 0)
    worker.take(delivery(1))
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert notes.renewed == ["the consumer failed"]
