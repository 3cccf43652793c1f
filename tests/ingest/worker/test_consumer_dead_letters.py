"""What a worker does with the queue of dead letters: keeps them, and writes what should not be there."""

from collections.abc import Callable, Collection, Sequence

import pytest
from msgspec.structs import replace

from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.worker.batch import Batcher
from ingest.worker.consumer import Consumer
from ingest.worker.dead_queue import DeadDelivery
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.errors import StoreUnavailable
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.ingest.worker.test_consumer import FIVE, FailingOn, FakeAcceptor, Notes, Store, delivery, fed_by_agents
from tests.support.messages import message


def test_dead_letters_are_kept_before_they_are_acknowledged() -> None:
    store, notes, recorded = Store(), Notes(), list[int]()
    clock = FakeClock()
    failures = iter([True, True, False])

    def keep(letters: Collection[DeadDelivery]) -> None:
        if next(failures):
            raise StoreUnavailable("not now")
        assert notes.stored == []
        recorded.extend(letter.tag for letter, _ in letters)

    writer = Writer(store, PlacementTable())
    worker = Consumer(writer, notes, clock=clock, batcher=Batcher(FIVE), wait=clock.sleep, record_dead_letters=keep)
    worker.connect(notes)
    for tag in (1, 2):
        worker.take(replace(delivery(tag, body=b"whatever"), queue=topology.DEAD))
    worker.step()
    assert (recorded, notes.stored, notes.dead) == ([1, 2], [(2, True)], [])


def test_dead_letters_are_given_back_when_the_store_does_not_come_back_in_time() -> None:
    notes, clock = Notes(), FakeClock()

    def keep(letters: Collection[DeadDelivery]) -> None:
        raise StoreUnavailable("not now")

    writer = Writer(Store(), PlacementTable())
    worker = Consumer(writer, notes, clock=clock, batcher=Batcher(FIVE), wait=clock.sleep, record_dead_letters=keep)
    worker.connect(notes)
    worker.take(replace(delivery(1, body=b"whatever"), queue=topology.DEAD))
    worker.step()
    assert (notes.given_back, notes.stored) == ([1], [])


def given_up(tag: int, body: bytes, reason: str = "delivery_limit", key: str = "003") -> Delivery:
    """A dead letter that the broker itself has moved to the queue of dead letters."""
    moved = {"x-death": [{"reason": reason}]}
    return replace(delivery(tag, body=body), queue=topology.DEAD, exchange=topology.DEAD, key=key, headers=moved)


def reviving(
    store: Store, notes: Notes, keep: Callable[[Collection[DeadDelivery]], None], deadly: bytes = b""
) -> Consumer:
    """A worker to whom dead letters come, and whose trials end by one body."""
    clock = FakeClock()

    def trial(suspect: Delivery) -> str | None:
        assert (suspect.exchange, suspect.tries) == (topology.EXCHANGE, limits.AMQP_DELIVERY_LIMIT)
        return "ended the process that tried it" if suspect.body == deadly else None

    worker = Consumer(
        Writer(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(FIVE),
        wait=clock.sleep,
        record_dead_letters=keep,
        sandbox=trial,
    )
    worker.connect(notes)
    return worker


def test_what_was_only_delivered_too_often_is_stored_after_all_and_poison_stays_dead() -> None:
    store, notes, recorded = Store(failures=1), Notes(), dict[int, str]()
    deadly, damaged = message(3).to_bytes(), message(6).to_bytes()[:-1] + b"x"

    def keep(letters: Collection[DeadDelivery]) -> None:
        assert (notes.stored, store.pending_rows()) == ([], 0)
        recorded.update({letter.tag: cause for letter, cause in letters})

    worker = reviving(store, notes, keep, deadly)
    worker.take(given_up(1, message(1).to_bytes()))
    worker.take(given_up(2, message(2).to_bytes(), reason="rejected"))
    worker.take(given_up(3, deadly))
    worker.take(given_up(4, b"garbage"))
    worker.take(given_up(5, message(5).to_bytes()))
    worker.take(given_up(6, damaged))
    worker.step()
    causes = {2: "a worker rejected", 3: "ended the process", 4: "not an envelope", 6: "checksum"}
    assert {tag: headers in recorded.get(tag, "") for tag, headers in causes.items()} == dict.fromkeys(causes, True), (
        recorded
    )
    assert len(recorded) == len(causes)
    assert (notes.stored, notes.rejected, notes.dead) == ([(6, True)], [], []), "each is settled once, and at the end"
    assert store.commits()[-1] == 1


def test_a_letter_that_nobody_settles_either_is_not_tried_for_ever() -> None:
    store, notes, recorded = Store(), Notes(), list[DeadDelivery]()
    worker = reviving(store, notes, recorded.extend)
    for tag, tries in ((1, limits.AMQP_DELIVERY_LIMIT - 1), (2, limits.AMQP_DELIVERY_LIMIT)):
        worker.take(replace(given_up(tag, message(tag).to_bytes()), tries=tries))
    worker.step()
    assert [(letter.tag, cause) for letter, cause in recorded] == [
        (2, "it was delivered too often without being settled")
    ]
    assert (store.pending_rows(), notes.stored) == (1, [(2, True)])


def test_what_was_not_written_after_all_dies_anew_with_its_cause() -> None:
    store, notes, clock = Store(), Notes(), FakeClock()
    worker = Consumer(
        FailingOn(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(FIVE),
        wait=clock.sleep,
        record_dead_letters=lambda letters: None,
        sandbox=lambda suspect: None,
    )
    worker.connect(notes)
    for tag, source in ((1, "a"), (2, "cursed")):
        worker.take(given_up(tag, message(tag, source=source).to_bytes()))
    worker.step()
    assert [headers[topology.CAUSE] for _, headers in notes.dead] == ["cannot be written: ZeroDivisionError('cursed')"]
    assert (store.pending_rows(), notes.stored) == (1, [(2, True)])


def test_what_is_to_be_stored_after_all_comes_again_when_the_store_does_not_come_back_in_time() -> None:
    notes, clock = Notes(), FakeClock()
    worker = Consumer(
        Writer(Store(failures=10**6), PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(FIVE),
        wait=clock.sleep,
        record_dead_letters=lambda letters: None,
        sandbox=lambda suspect: None,
    )
    worker.connect(notes)
    worker.take(given_up(1, message(1).to_bytes()))
    worker.step()
    assert (notes.given_back, notes.stored, notes.dead) == ([1], [], [])


def of_an_agent(store: Store, acceptor: FakeAcceptor) -> tuple[Consumer, Notes]:
    """A worker that gets a dead letter which an agent sent and the broker gave up."""
    notes, clock = Notes(), FakeClock()
    worker = Consumer(
        Writer(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(FIVE),
        wait=clock.sleep,
        acceptor=acceptor,
        record_dead_letters=lambda letters: None,
        sandbox=lambda suspect: None,
    )
    worker.connect(notes)
    worker.take(given_up(1, b"cpu v=1", key="spm_good.h"))
    return worker, notes


def test_what_an_agent_sent_and_was_delivered_too_often_is_stamped_and_settled_fed_by_agents() -> None:
    store, acceptor = Store(), FakeAcceptor([message(1)])
    worker, notes = of_an_agent(store, acceptor)
    worker.step()
    assert (store.pending_rows(), notes.stored, acceptor.retired) == (1, [(1, True)], 0)
    assert [envelope.stamp for envelope in acceptor.settled_] == [message(1).stamp]


def test_what_was_stamped_of_a_letter_and_cannot_be_written_ends_the_accepting_process() -> None:
    store, acceptor = Store(failures=10**6), FakeAcceptor([message(1)])
    worker, notes = of_an_agent(store, acceptor)
    worker.step()
    assert (notes.given_back, notes.stored, acceptor.settled_, acceptor.retired) == ([1], [], [], 1)


def test_letters_of_a_channel_that_is_gone_are_left_to_the_next() -> None:
    notes, recorded = Notes(lost={1}), list[DeadDelivery]()
    worker = reviving(Store(), notes, recorded.extend)
    worker.take(given_up(1, message(1).to_bytes(), reason="rejected"))
    worker.step()
    assert (recorded, notes.stored, notes.given_back) == ([], [], [])


def test_a_letter_that_a_worker_wrote_keeps_the_cause_it_came_with() -> None:
    notes, recorded = Notes(), list[DeadDelivery]()
    worker = reviving(Store(), notes, recorded.extend)
    headers = {topology.CAUSE: "no lines at all"}
    worker.take(replace(delivery(1), queue=topology.DEAD, exchange=topology.DEAD, headers=headers))
    worker.step()
    assert [(letter.tag, cause) for letter, cause in recorded] == [(1, "no lines at all")]


class Locked(FakeAcceptor):
    """An acceptor behind which, once its answers are used up, no database answers."""

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        self.answers += [StoreUnavailable("locked")] * (len(deliveries) - len(self.answers))
        return super().accept_many(deliveries)


def test_letters_of_agents_come_again_while_the_database_does_not_say_whose_they_are() -> None:
    store, acceptor = Store(), Locked([message(1)])
    worker, notes = of_an_agent(store, acceptor)
    worker.take(given_up(2, b"cpu v=1", key="spm_good.h"))
    worker.step()
    assert (notes.given_back, notes.stored, store.pending_rows()) == ([2], [], 0)
    assert acceptor.retired == 1, "what was stamped of the first one is lost to this process"


def test_what_an_agent_sent_is_no_poison_because_the_database_does_not_answer() -> None:
    notes = Notes()
    with pytest.raises(StoreUnavailable, match="locked"):
        fed_by_agents(Store(), notes, Locked([]), "k").step()
    assert (notes.dead, notes.rejected, notes.stored) == ([], [], [])


def test_letters_come_again_when_a_new_one_cannot_be_written_beside_them() -> None:
    notes, clock = Notes(publisher_open=False), FakeClock()
    worker = Consumer(
        FailingOn(Store(), PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(FIVE),
        wait=clock.sleep,
        record_dead_letters=lambda letters: None,
        sandbox=lambda suspect: None,
    )
    worker.connect(notes)
    worker.take(given_up(1, message(1, source="cursed").to_bytes()))
    worker.step()
    assert (notes.given_back, notes.stored) == ([1], [])
