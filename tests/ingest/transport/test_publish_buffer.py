"""Claims about ingest/transport/publish_buffer.py: messages are published until they are confirmed, in bounded room."""

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.transport.publish_buffer import OutgoingMessage, PublishBuffer
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


def opened(clock: FakeClock | None = None) -> PublishBuffer:
    """An buffer with a connection."""
    buffer = PublishBuffer(clock or FakeClock())
    buffer.connected()
    return buffer


def put(buffer: PublishBuffer, *messages: OutgoingMessage) -> None:
    for one in messages:
        buffer.reserve(one.key, one.weight, 0)
        buffer.add(one)


def bodies(buffer: PublishBuffer) -> list[bytes]:
    return [one.body for _, one in buffer.take()]


def test_what_waits_is_taken_in_order_under_tags_from_one() -> None:
    buffer = opened()
    put(buffer, *map(outgoing, range(3)))
    assert [(tag, one.body) for tag, one in buffer.take()] == [(1, b"0"), (2, b"1"), (3, b"2")]
    assert buffer.take() == []


def test_what_a_lost_connection_left_unconfirmed_goes_first_in_its_order_with_the_same_bytes() -> None:
    buffer = opened()
    put(buffer, *map(outgoing, range(4)))
    buffer.take()
    buffer.confirm(2, multiple=False, taken=True)
    put(buffer, outgoing(4))
    buffer.disconnected("gone")
    assert buffer.take() == []
    buffer.connected()
    assert bodies(buffer) == [b"0", b"2", b"3", b"4"]


def test_a_confirm_of_several_settles_all_up_to_it_each_once() -> None:
    buffer, outcomes = opened(), list[bool]()
    put(buffer, *(outgoing(n, outcomes=outcomes) for n in range(5)))
    buffer.take()
    buffer.confirm(3, multiple=True, taken=True)
    assert outcomes == [True] * 3
    buffer.disconnected("gone")
    buffer.connected()
    assert bodies(buffer) == [b"3", b"4"]


@pytest.mark.parametrize("how", ["refused", "returned"])
def test_what_the_queue_refused_is_published_again_and_nothing_more_is_taken_for_it(how: str) -> None:
    buffer, outcomes = opened(), list[bool]()
    put(buffer, outgoing(outcomes=outcomes))
    buffer.take()
    if how == "returned":
        buffer.returned(1, "NO_ROUTE")
    assert buffer.confirm(1, multiple=False, taken=how == "returned")
    with pytest.raises(QueueUnavailable, match="refused the message"):
        buffer.reserve("000", WEIGHT, 0)
    buffer.reserve("001", WEIGHT, 0)  # another queue's matter
    assert bodies(buffer) == []
    buffer.retry_refused()
    assert bodies(buffer) == [b"0"]
    buffer.confirm(2, multiple=False, taken=True)
    assert outcomes == [True]
    buffer.reserve("000", WEIGHT, 0)


def test_the_sender_of_a_refused_message_is_told_why_and_the_message_goes_on() -> None:
    buffer = opened()
    one = outgoing()
    put(buffer, one)
    buffer.take()
    buffer.returned(1, "NO_ROUTE")
    buffer.confirm(1, multiple=False, taken=True)
    with pytest.raises(QueueUnavailable, match="no queue for it: NO_ROUTE"):
        buffer.wait(one, 0)
    buffer.retry_refused()
    assert bodies(buffer) == [b"0"]


def test_a_message_that_is_not_kept_is_forgotten_with_its_sender_or_its_connection() -> None:
    buffer = opened()
    begun, waiting, left = (outgoing(n, until_confirmed=False) for n in range(3))
    put(buffer, begun)
    buffer.take()
    put(buffer, waiting, left)
    with pytest.raises(QueueUnavailable, match="no confirm"):
        buffer.wait(left, 0)
    buffer.disconnected("gone")
    for one in (begun, waiting):
        with pytest.raises(QueueUnavailable, match="gone"):
            buffer.wait(one, 0)
    buffer.connected()
    assert buffer.take() == []
    assert (buffer._count, buffer._weight) == (0, 0)


def test_while_the_broker_is_blocked_nothing_is_taken_written_or_waited_for() -> None:
    buffer = opened()
    one = outgoing()
    put(buffer, one)
    buffer.block("low on memory")
    assert buffer.take() == []
    with pytest.raises(QueueUnavailable, match="low on memory"):
        buffer.reserve("001", WEIGHT, 60)
    with pytest.raises(QueueUnavailable, match="low on memory"):
        buffer.wait(one, 60)
    buffer.block(None)
    assert bodies(buffer) == [b"0"]
    buffer.reserve("001", WEIGHT, 0)


@pytest.mark.timed
def test_a_block_frees_those_who_wait_already_within_a_second() -> None:
    buffer = PublishBuffer(real := _Real())
    buffer.connected()
    one = outgoing()
    put(buffer, one)
    buffer.take()
    threading.Timer(0.05, buffer.block, ["low on disk"]).start()
    begun = real.monotonic()
    with pytest.raises(QueueUnavailable, match="low on disk"):
        buffer.wait(one, 20)
    assert real.monotonic() - begun < 1


class _Real(FakeClock):
    def monotonic(self) -> float:
        return time.monotonic()


def test_a_broker_that_confirms_nothing_is_told_after_a_moment_and_heals() -> None:
    clock = FakeClock()
    buffer = opened(clock)
    one = outgoing()
    clock.advance(60_000)  # that nothing was sent for long is no silence
    put(buffer, one)
    clock.advance(60_000)
    buffer.take()
    buffer.reserve("000", WEIGHT, 0)
    clock.advance(round(1000 * limits.PUBLISH_STALL_S) + 1)
    with pytest.raises(QueueUnavailable, match="no confirm of anything"):
        buffer.reserve("001", WEIGHT, 60)
    with pytest.raises(QueueUnavailable, match="no confirm of anything"):
        buffer.wait(one, 60)
    buffer.confirm(1, multiple=False, taken=True)
    buffer.reserve("001", WEIGHT, 0)


def test_a_broken_connection_is_waited_for_once_and_then_told_at_once() -> None:
    clock = FakeClock()
    buffer = opened(clock)
    buffer.disconnected("the peer closed")
    clock.advance(2000)
    with pytest.raises(QueueUnavailable, match="the peer closed"):
        buffer.reserve("000", WEIGHT, 1)
    buffer.connected()
    buffer.reserve("000", WEIGHT, 1)


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
    buffer = opened()
    for _ in range(taken):
        buffer.reserve("000", WEIGHT, 0)
    with pytest.raises(QueueUnavailable, match="no room"):
        buffer.reserve("000", WEIGHT, 0)
    buffer.release(WEIGHT)
    buffer.reserve("000", WEIGHT, 0)


def test_a_body_that_the_broker_never_takes_is_told_as_lost_and_no_other_is_taken() -> None:
    buffer, outcomes = opened(), list[bool]()
    large = OutgoingMessage("x", "000", b"x" * 9, "", WEIGHT, until_confirmed=True, outcome=outcomes.append)
    put(buffer, outgoing(1), large)
    buffer.take()
    buffer.limit_body_size(8)
    buffer.disconnected("channel closed")
    with pytest.raises(QueueUnavailable, match="no bodies of 9 bytes"):
        buffer.wait(large, 0)
    buffer.connected()
    assert (bodies(buffer), outcomes) == ([b"1"], [False])
    with pytest.raises(LimitExceeded, match="too large"):
        buffer.reserve("000", 9, 0)


def test_closing_waits_for_confirms_for_a_bounded_time_and_takes_no_more() -> None:
    buffer = opened()
    put(buffer, outgoing(0), outgoing(1, until_confirmed=False))
    buffer.take()
    assert not buffer.close(0.01)
    with pytest.raises(QueueUnavailable, match="transport is closing"):
        buffer.reserve("000", WEIGHT, 60)
    threading.Timer(0.02, buffer.confirm, [1], {"multiple": False, "taken": True}).start()
    assert buffer.close(5)  # nobody waits for a message that need not be confirmed


class Story:
    """A publisher's life, with what must be true of it; each act takes a number that says which way it goes."""

    def __init__(self) -> None:
        self.buffer = opened()
        self.up, self.blocked = True, False
        self.number = 0
        self.open: set[bytes] = set()  # published until confirmed, and not confirmed
        self.wire: dict[int, bytes] = {}  # tag → body, on this connection
        self.outcomes: Counter[bytes] = Counter()

    def push(self, way: int) -> None:
        key, until_confirmed = KEYS[way % 2], way % 7 > 0
        try:
            self.buffer.reserve(key, WEIGHT, 0)
        except QueueUnavailable:
            return
        assert (self.up, self.blocked) == (True, False), "room was reserved although nothing can be published"
        self.number += 1
        body = b"%d" % self.number
        self.buffer.add(
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
        messages = self.buffer.take()
        assert not messages or (self.up and not self.blocked)
        self.wire |= {tag: one.body for tag, one in messages}

    def answer(self, way: int) -> None:
        self.write(way)
        if not self.wire or self.blocked:
            return
        tag = sorted(self.wire)[way % len(self.wire)]
        taken, back, multiple = way % 3 > 0, way % 7 == 1, way % 2 == 0
        if back:
            self.buffer.returned(tag, "NO_ROUTE")
        self.buffer.confirm(tag, multiple=multiple, taken=taken)
        for number in [t for t in self.wire if t == tag or (multiple and t < tag)]:
            body = self.wire.pop(number)
            if taken and not (back and number == tag):
                self.open.discard(body)

    def again(self, way: int) -> None:
        self.buffer.retry_refused()

    def lose(self, way: int) -> None:
        self.buffer.disconnected("gone")
        self.up = self.blocked = False
        self.wire.clear()
        if way % 3:
            self.connect(way)

    def connect(self, way: int) -> None:
        if not self.up:
            self.buffer.connected()
            self.up = True

    def block(self, way: int) -> None:
        if self.up:
            self.blocked = way % 2 == 0
            self.buffer.block("low" if self.blocked else None)

    def check(self) -> None:
        assert set(self.outcomes.values()) <= {1}, "confirmed twice"
        assert not self.outcomes.keys() & self.open
        assert self.buffer.unconfirmed_count() == len(self.open), "something kept was forgotten"

    def end_well(self) -> None:
        """In the end the broker works: every message that must be confirmed is, and all room is free."""
        self.lose(1)
        self.buffer.retry_refused()
        self.write(0)
        if self.wire:
            self.buffer.confirm(max(self.wire), multiple=True, taken=True)
        assert self.open <= self.outcomes.keys()
        assert (self.buffer._count, self.buffer._weight) == (0, 0)
        for key in KEYS:
            self.buffer.reserve(key, WEIGHT, 0)


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
