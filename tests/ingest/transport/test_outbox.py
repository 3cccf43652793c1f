"""Claims about ingest/transport/outbox.py: messages are published until they are confirmed, within bounded room."""

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.transport.outbox import Outbox, OutgoingMessage
from spm import limits
from spm.clock import FakeClock
from spm.errors import LimitExceeded, QueueUnavailable

KEYS = ("000", "001")
WEIGHT = 10


def outgoing(
    number: int = 0, *, key: str = "000", until_confirmed: bool = True, outcomes: list[bool] | None = None
) -> OutgoingMessage:
    outcome: Callable[[bool], None] = (lambda stored: None) if outcomes is None else outcomes.append
    return OutgoingMessage(
        "x", key, b"%d" % number, str(number), WEIGHT, until_confirmed=until_confirmed, outcome=outcome
    )


def opened(clock: FakeClock | None = None) -> Outbox:
    """An outbox with a connection."""
    outbox = Outbox(clock or FakeClock())
    outbox.connected()
    return outbox


def put(outbox: Outbox, *messages: OutgoingMessage) -> None:
    for one in messages:
        outbox.reserve(one.key, one.weight, 0)
        outbox.add(one)


def bodies(outbox: Outbox) -> list[bytes]:
    return [one.body for _, one in outbox.take()]


def test_what_waits_is_taken_in_order_under_tags_from_one() -> None:
    outbox = opened()
    put(outbox, *map(outgoing, range(3)))
    assert [(tag, one.body) for tag, one in outbox.take()] == [(1, b"0"), (2, b"1"), (3, b"2")]
    assert outbox.take() == []


def test_what_a_lost_connection_left_unconfirmed_goes_first_in_its_order_with_the_same_bytes() -> None:
    outbox = opened()
    put(outbox, *map(outgoing, range(4)))
    outbox.take()
    outbox.confirm(2, multiple=False, taken=True)
    put(outbox, outgoing(4))
    outbox.disconnected("gone")
    assert outbox.take() == []
    outbox.connected()
    assert bodies(outbox) == [b"0", b"2", b"3", b"4"]


def test_a_confirm_of_several_settles_all_up_to_it_each_once() -> None:
    outbox, outcomes = opened(), list[bool]()
    put(outbox, *(outgoing(n, outcomes=outcomes) for n in range(5)))
    outbox.take()
    outbox.confirm(3, multiple=True, taken=True)
    assert outcomes == [True] * 3
    outbox.disconnected("gone")
    outbox.connected()
    assert bodies(outbox) == [b"3", b"4"]


@pytest.mark.parametrize("how", ["refused", "returned"])
def test_what_the_queue_refused_is_published_again_and_nothing_more_is_taken_for_it(how: str) -> None:
    outbox, outcomes = opened(), list[bool]()
    put(outbox, outgoing(outcomes=outcomes))
    outbox.take()
    if how == "returned":
        outbox.returned(1, "NO_ROUTE")
    assert outbox.confirm(1, multiple=False, taken=how == "returned")
    with pytest.raises(QueueUnavailable, match="refused the message"):
        outbox.reserve("000", WEIGHT, 0)
    outbox.reserve("001", WEIGHT, 0)  # another queue's matter
    assert bodies(outbox) == []
    outbox.retry_refused()
    assert bodies(outbox) == [b"0"]
    outbox.confirm(2, multiple=False, taken=True)
    assert outcomes == [True]
    outbox.reserve("000", WEIGHT, 0)


def test_the_sender_of_a_refused_message_is_told_why_and_the_message_goes_on() -> None:
    outbox = opened()
    one = outgoing()
    put(outbox, one)
    outbox.take()
    outbox.returned(1, "NO_ROUTE")
    outbox.confirm(1, multiple=False, taken=True)
    with pytest.raises(QueueUnavailable, match="no queue for it: NO_ROUTE"):
        outbox.wait(one, 0)
    outbox.retry_refused()
    assert bodies(outbox) == [b"0"]


def test_a_message_that_is_not_kept_is_forgotten_with_its_sender_or_its_connection() -> None:
    outbox = opened()
    begun, waiting, left = (outgoing(n, until_confirmed=False) for n in range(3))
    put(outbox, begun)
    outbox.take()
    put(outbox, waiting, left)
    with pytest.raises(QueueUnavailable, match="no confirm"):
        outbox.wait(left, 0)
    outbox.disconnected("gone")
    for one in (begun, waiting):
        with pytest.raises(QueueUnavailable, match="gone"):
            outbox.wait(one, 0)
    outbox.connected()
    assert outbox.take() == []
    assert (outbox._count, outbox._weight) == (0, 0)


def test_while_the_broker_is_blocked_nothing_is_taken_written_or_waited_for() -> None:
    outbox = opened()
    one = outgoing()
    put(outbox, one)
    outbox.block("low on memory")
    assert outbox.take() == []
    with pytest.raises(QueueUnavailable, match="low on memory"):
        outbox.reserve("001", WEIGHT, 60)
    with pytest.raises(QueueUnavailable, match="low on memory"):
        outbox.wait(one, 60)
    outbox.block(None)
    assert bodies(outbox) == [b"0"]
    outbox.reserve("001", WEIGHT, 0)


def test_a_block_frees_those_who_wait_already_within_a_second() -> None:
    outbox = Outbox(real := _Real())
    outbox.connected()
    one = outgoing()
    put(outbox, one)
    outbox.take()
    threading.Timer(0.05, outbox.block, ["low on disk"]).start()
    begun = real.monotonic()
    with pytest.raises(QueueUnavailable, match="low on disk"):
        outbox.wait(one, 20)
    assert real.monotonic() - begun < 1


class _Real(FakeClock):
    def monotonic(self) -> float:
        return time.monotonic()


def test_a_broker_that_confirms_nothing_is_told_after_a_moment_and_heals() -> None:
    clock = FakeClock()
    outbox = opened(clock)
    one = outgoing()
    clock.advance(60_000)  # that nothing was sent for long is no silence
    put(outbox, one)
    clock.advance(60_000)
    outbox.take()
    outbox.reserve("000", WEIGHT, 0)
    clock.advance(round(1000 * limits.PUBLISH_STALL_S) + 1)
    with pytest.raises(QueueUnavailable, match="no confirm of anything"):
        outbox.reserve("001", WEIGHT, 60)
    with pytest.raises(QueueUnavailable, match="no confirm of anything"):
        outbox.wait(one, 60)
    outbox.confirm(1, multiple=False, taken=True)
    outbox.reserve("001", WEIGHT, 0)


def test_a_broken_connection_is_waited_for_once_and_then_told_at_once() -> None:
    clock = FakeClock()
    outbox = opened(clock)
    outbox.disconnected("the peer closed")
    clock.advance(2000)
    with pytest.raises(QueueUnavailable, match="the peer closed"):
        outbox.reserve("000", WEIGHT, 1)
    outbox.connected()
    outbox.reserve("000", WEIGHT, 1)


@pytest.mark.parametrize(
    ("limit", "value", "taken"),
    [
        ("AMQP_UNCONFIRMED_MAX", 3, 3),
        ("AMQP_UNCONFIRMED_BYTES_MAX", 3 * WEIGHT, 3),
        ("AMQP_UNCONFIRMED_BYTES_MAX", 1, 1),
    ],
    ids=["so many messages", "so many bytes", "one larger than all room"],
)
def test_room_is_bounded_also_for_what_is_reserved_only(
    limit: str, value: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, value)
    outbox = opened()
    for _ in range(taken):
        outbox.reserve("000", WEIGHT, 0)
    with pytest.raises(QueueUnavailable, match="no room"):
        outbox.reserve("000", WEIGHT, 0)
    outbox.release(WEIGHT)
    outbox.reserve("000", WEIGHT, 0)


def test_a_body_that_the_broker_never_takes_is_told_as_lost_and_no_other_is_taken() -> None:
    outbox, outcomes = opened(), list[bool]()
    large = OutgoingMessage("x", "000", b"x" * 9, "", WEIGHT, until_confirmed=True, outcome=outcomes.append)
    put(outbox, outgoing(1), large)
    outbox.take()
    outbox.limit_body_size(8)
    outbox.disconnected("channel closed")
    with pytest.raises(QueueUnavailable, match="no bodies of 9 bytes"):
        outbox.wait(large, 0)
    outbox.connected()
    assert (bodies(outbox), outcomes) == ([b"1"], [False])
    with pytest.raises(LimitExceeded, match="too large"):
        outbox.reserve("000", 9, 0)


def test_closing_waits_for_confirms_for_a_bounded_time_and_takes_no_more() -> None:
    outbox = opened()
    put(outbox, outgoing(0), outgoing(1, until_confirmed=False))
    outbox.take()
    assert not outbox.close(0.01)
    with pytest.raises(QueueUnavailable, match="transport is closing"):
        outbox.reserve("000", WEIGHT, 60)
    threading.Timer(0.02, outbox.confirm, [1], {"multiple": False, "taken": True}).start()
    assert outbox.close(5)  # nobody waits for a message that need not be confirmed


class Story:
    """A publisher's life, with what must be true of it; each act takes a number that says which way it goes."""

    def __init__(self) -> None:
        self.outbox = opened()
        self.up, self.blocked = True, False
        self.number = 0
        self.open: set[bytes] = set()  # published until confirmed, and not confirmed
        self.wire: dict[int, bytes] = {}  # tag → body, on this connection
        self.outcomes: Counter[bytes] = Counter()

    def push(self, way: int) -> None:
        key, until_confirmed = KEYS[way % 2], way % 7 > 0
        try:
            self.outbox.reserve(key, WEIGHT, 0)
        except QueueUnavailable:
            return
        assert (self.up, self.blocked) == (True, False), "room was reserved although nothing can be published"
        self.number += 1
        body = b"%d" % self.number
        self.outbox.add(
            OutgoingMessage(
                "x",
                key,
                body,
                "",
                WEIGHT,
                until_confirmed=until_confirmed,
                outcome=lambda stored: self.outcomes.update([body]),
            )
        )
        self.open |= {body} if until_confirmed else set()

    def write(self, way: int) -> None:
        messages = self.outbox.take()
        assert not messages or (self.up and not self.blocked)
        self.wire |= {tag: one.body for tag, one in messages}

    def answer(self, way: int) -> None:
        self.write(way)
        if not self.wire or self.blocked:
            return
        tag = sorted(self.wire)[way % len(self.wire)]
        taken, back, multiple = way % 3 > 0, way % 7 == 1, way % 2 == 0
        if back:
            self.outbox.returned(tag, "NO_ROUTE")
        self.outbox.confirm(tag, multiple=multiple, taken=taken)
        for number in [t for t in self.wire if t == tag or (multiple and t < tag)]:
            body = self.wire.pop(number)
            if taken and not (back and number == tag):
                self.open.discard(body)

    def again(self, way: int) -> None:
        self.outbox.retry_refused()

    def lose(self, way: int) -> None:
        self.outbox.disconnected("gone")
        self.up = self.blocked = False
        self.wire.clear()
        if way % 3:
            self.connect(way)

    def connect(self, way: int) -> None:
        if not self.up:
            self.outbox.connected()
            self.up = True

    def block(self, way: int) -> None:
        if self.up:
            self.blocked = way % 2 == 0
            self.outbox.block("low" if self.blocked else None)

    def check(self) -> None:
        assert set(self.outcomes.values()) <= {1}, "confirmed twice"
        assert not self.outcomes.keys() & self.open
        assert self.outbox.unconfirmed_count() == len(self.open), "something kept was forgotten"

    def end_well(self) -> None:
        """In the end the broker works: every message that must be confirmed is, and all room is free."""
        self.lose(1)
        self.outbox.retry_refused()
        self.write(0)
        if self.wire:
            self.outbox.confirm(max(self.wire), multiple=True, taken=True)
        assert self.open <= self.outcomes.keys()
        assert (self.outbox._count, self.outbox._weight) == (0, 0)
        for key in KEYS:
            self.outbox.reserve(key, WEIGHT, 0)


ACTS = st.sampled_from(
    ["push", "push", "push", "write", "write", "answer", "answer", "again", "lose", "connect", "block"]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(ACTS, st.integers(0, 1000)), min_size=40, max_size=80))
def test_whatever_the_broker_does_each_kept_message_is_confirmed_once(acts: list[tuple[str, int]]) -> None:
    story = Story()
    for act, way in acts:
        getattr(story, act)(way)
        story.check()
    story.end_well()
