"""Claims about ``DeliveryReader.read_many``: each message is stamped once, in its order, whenever the store answers."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from ingest.routing import LINES_TYPE
from ingest.transport.delivery import Delivery
from ingest.worker.batch import Batcher, Bounds, Item
from ingest.worker.consumer import Consumer
from ingest.worker.delivery_reader import DeliveryReader
from ingest.worker.inbox import Idle
from ingest.worker.metrics import ConsumerTally
from ingest.worker.retry import StoreRetry
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.errors import BadMessage, CorruptBlock, StoreUnavailable
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.ingest.worker.test_consumer import FIVE, Notes, Store
from tests.ingest.worker.test_consumer import delivery as own
from tests.support.messages import message


@dataclass
class Acceptor:
    """Stamps messages by the tags of their deliveries; ``outages`` counts by tag how often the store fails first."""

    outages: dict[int, int] = field(default_factory=dict)
    groups: list[list[int]] = field(default_factory=list)
    stamped: list[int] = field(default_factory=list)
    retired: int = 0

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        self.groups.append([each.tag for each in deliveries])
        results: list[Envelope | Exception | None] = []
        for each in deliveries:
            if self.outages.get(each.tag):
                self.outages[each.tag] -= 1
                unavailable = StoreUnavailable("not now")
                return results + [unavailable] * (len(deliveries) - len(results))
            results.append(self._accept(each))
        return results

    def _accept(self, delivery: Delivery) -> Envelope | Exception | None:
        if delivery.body == b"empty":
            return None
        if delivery.body == b"bad":
            return BadMessage("bad")
        self.stamped.append(delivery.tag)
        return message(delivery.tag)

    def app_of(self, delivery: Delivery) -> int | None:
        return 7

    def confirm(self, envelope: Envelope) -> None:
        raise AssertionError("BUG: nothing is written here")

    def retire(self) -> None:
        self.retired += 1


def reader_of(acceptor: Acceptor, tried: list[int] | None = None, deadly: int = 0) -> DeliveryReader:
    """A reader whose sandbox ends of one delivery, and notes those it is asked about."""
    clock = FakeClock()
    retry = StoreRetry(clock, Idle(clock), ConsumerTally(), threading.Event(), clock.sleep)
    retry.source = Notes()

    def sandbox(delivery: Delivery) -> str | None:
        (tried if tried is not None else list[int]()).append(delivery.tag)
        return "ended its process" if delivery.tag == deadly else None

    return DeliveryReader(acceptor, sandbox, retry)


def by_agent(tag: int, body: bytes = b"cpu v=1", tries: int = 0) -> Delivery:
    return altered(own(tag, body), content_type=LINES_TYPE, tries=tries)


def shown(result: Item | Exception | None) -> object:
    return result.delivery.tag if isinstance(result, Item) else None if result is None else type(result)


@given(
    st.lists(st.sampled_from(["own", "torn", "cpu v=1", "bad", "empty"]), max_size=10),
    st.dictionaries(st.integers(1, 10), st.integers(1, 4)),
    st.sets(st.integers(1, 10)),
)
def test_each_message_is_stamped_once_and_in_its_order_however_often_the_store_fails(
    kinds: list[str], outages: dict[int, int], suspects: set[int]
) -> None:
    acceptor, tried = Acceptor(dict(outages)), list[int]()
    deliveries, wanted = list[Delivery](), list[object]()
    for tag, kind in enumerate(kinds, 1):
        one = own(tag, b"torn" if kind == "torn" else None) if kind in ("own", "torn") else by_agent(tag, kind.encode())
        deliveries.append(altered(one, tries=limits.CONSUME_SUSPECT_TRIES) if tag in suspects else one)
        wanted.append({"torn": CorruptBlock, "bad": BadMessage, "empty": None}.get(kind, tag))
    results = reader_of(acceptor, tried).read_many(deliveries)
    assert [shown(result) for result in results] == wanted
    assert acceptor.stamped == [tag for tag, kind in enumerate(kinds, 1) if kind == "cpu v=1"]
    assert tried == [tag for tag in range(1, len(kinds) + 1) if tag in suspects]
    assert acceptor.retired == 0


def test_suspicious_deliveries_are_tried_and_accepted_one_by_one_between_the_others() -> None:
    acceptor, tried = Acceptor(), list[int]()
    deliveries = [by_agent(tag, tries=3 if tag in (3, 4, 6) else 0) for tag in range(1, 9)]
    results = reader_of(acceptor, tried, deadly=4).read_many(deliveries)
    assert tried == [3, 4, 6]
    assert acceptor.groups == [[1, 2], [3], [5], [6], [7, 8]]
    assert [shown(result) for result in results] == [1, 2, 3, CorruptBlock, 5, 6, 7, 8]


@pytest.mark.parametrize("suspects", [set(), {3}, {2, 3}], ids=str)
def test_what_is_stamped_and_cannot_be_handed_on_ends_the_accepting_process(suspects: set[int]) -> None:
    acceptor = Acceptor({3: 10**6})
    deliveries = [by_agent(tag, tries=3 if tag in suspects else 0) for tag in range(1, 5)]
    with pytest.raises(StoreUnavailable):
        reader_of(acceptor).read_many(deliveries)
    assert (acceptor.stamped, acceptor.retired > 0) == ([1, 2], True)


def test_without_a_stamp_nothing_ends_because_the_store_does_not_answer() -> None:
    acceptor = Acceptor({1: 10**6})
    with pytest.raises(StoreUnavailable):
        reader_of(acceptor).read_many([by_agent(1), by_agent(2)])
    assert (acceptor.stamped, acceptor.retired) == ([], 0)


def test_a_stamped_message_that_cannot_become_an_item_dies_alone_and_ends_the_process() -> None:
    class Unwritable(Acceptor):
        def _accept(self, delivery: Delivery) -> Envelope | Exception | None:
            envelope = message(delivery.tag)
            return replace(envelope, source="x" * 300) if delivery.tag == 2 else envelope

    acceptor = Unwritable()
    results = reader_of(acceptor).read_many([by_agent(tag) for tag in range(1, 4)])
    assert [isinstance(result, Item) for result in results] == [True, False, True]
    assert acceptor.retired == 1


def worker_of(acceptor: Acceptor, bounds: Bounds) -> tuple[Consumer, Notes]:
    notes, clock = Notes(), FakeClock()
    worker = Consumer(
        Writer(Store(), PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(bounds),
        wait=clock.sleep,
        acceptor=acceptor,
    )
    worker.connect(notes)
    return worker, notes


@pytest.mark.parametrize(
    ("bound", "most", "groups"),
    [
        ("CONSUME_JOIN_MESSAGES", 3, [[1, 2, 3], [4, 5, 6], [7]]),
        ("CONSUME_JOIN_BYTES", 8, [[1, 2], [3, 4], [5, 6], [7]]),
        ("CONSUME_JOIN_BYTES", 1, [[1], [2], [3], [4], [5], [6], [7]]),
    ],
)
def test_the_deliveries_at_hand_are_accepted_in_groups_of_bounded_size(
    bound: str, most: int, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, bound, most)
    acceptor = Acceptor()
    worker, _ = worker_of(acceptor, Bounds(messages=8, age_ms=10**9))
    for tag in range(1, 8):
        worker.take(by_agent(tag))  # of seven bytes
    worker.step()
    assert acceptor.groups == groups


def test_no_more_is_accepted_than_the_batch_has_room_for() -> None:
    acceptor = Acceptor()
    worker, _ = worker_of(acceptor, FIVE)
    for tag in range(1, 9):
        worker.take(by_agent(tag, b"bad" if tag in (2, 3) else b"cpu v=1"))
    with pytest.raises(AssertionError, match="nothing is written here"):
        worker.step()
    assert acceptor.groups == [[1, 2, 3, 4, 5], [6, 7]]
    assert acceptor.stamped == [1, 4, 5, 6, 7]


def test_dead_letters_of_a_group_are_published_and_settled_in_its_order() -> None:
    acceptor = Acceptor()
    worker, notes = worker_of(acceptor, Bounds(messages=9, age_ms=10**9))
    for tag, body in enumerate((b"bad", b"cpu v=1", b"empty", b"bad"), 1):
        worker.take(by_agent(tag, body))
    worker.step()
    assert notes.stored == [(1, False), (3, False), (4, False)]
    assert len(notes.dead) == 2
