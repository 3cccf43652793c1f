"""Messages of long ago take turns by app and by source: none waits behind all that another tenant imports."""

import threading
from collections.abc import Sequence

import pytest

from ingest.transport import topology
from ingest.transport.base import Submission, weight_of
from ingest.transport.direct import DirectTransport
from ingest.transport.limits import PAST_HOURS_MANY, PAST_LOAD_S
from ingest.transport.past import PastLoad
from ingest.transport.turns import Turns
from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.clock import FakeClock
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.ingest.transport.test_amqp import drained, opened
from tests.support.rows import START, envelope

PAST_MS = START - (limits.LIVE_HOURS + 1) * limits.HOUR_MS


def past(number: int, *, app: int = 1, source: str = "import", hours: int = 1) -> Envelope:
    """Message ``number``, which touches so many hours of long ago."""
    samples = [(1, PAST_MS - h * limits.HOUR_MS, 1.0) for h in range(hours)]
    message_id = number.to_bytes(16, "big")
    return envelope(samples, sequence=number, ms=START + number, app=app, source=source, message_id=message_id)


def test_each_app_has_its_turn_and_in_it_each_source() -> None:
    turns: Turns[str] = Turns()
    for app, source, name in (
        (1, "a", "1a1"),
        (1, "a", "1a2"),
        (1, "a", "1a3"),
        (1, "b", "1b1"),
        (2, "a", "2a1"),
        (2, "a", "2a2"),
    ):
        turns.put(app, source, name)
    assert (len(turns), turns.next()) == (6, "1a1")
    assert [turns.take() for _ in range(4)] == ["1a1", "2a1", "1b1", "2a2"]
    turns.put(3, "c", "3c1")
    assert [turns.take() for _ in range(3)] == ["1a2", "3c1", "1a3"]
    assert not turns


class _Slow(Writer):
    """A writer that notes the senders of its batches, the first of which waits until the others are there."""

    def __init__(self) -> None:
        super().__init__(MemoryBackend(), PlacementTable())
        self.senders: list[tuple[int, str]] = []
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def prepare(self, envelopes: Sequence[Envelope]) -> WriteBatch:  # type: ignore[override]
        self.senders += [(envelope.app, envelope.source) for envelope in envelopes]
        self.begun.set()
        assert self.may_go_on.wait(20)
        return super().prepare(envelopes)


def test_of_an_import_that_fills_the_line_one_message_comes_before_another_app_s_or_source_s() -> None:
    writer = _Slow()
    transport = DirectTransport(writer)
    stored: dict[int, threading.Event] = {}

    def send(each: Envelope) -> None:
        done = stored[each.stamp.sequence] = threading.Event()
        transport.reserve(each.app, each.source, weight_of(each))
        transport.submit([Submission(each, weight_of(each), lambda is_stored: done.set())])

    hours = limits.BATCH_HOURS_MAX
    try:
        for number in range(10):
            send(past(number, hours=hours))
        assert writer.begun.wait(10)
        send(past(10, app=2, source="agent", hours=hours))
        send(past(11, source="agent", hours=hours))
        writer.may_go_on.set()
        assert all(done.wait(20) for done in stored.values())
    finally:
        transport.close()
    assert (writer.senders.index((2, "agent")), writer.senders.index((1, "agent"))) == (2, 3)
    assert len(writer.senders) == 12


def test_an_app_that_sends_many_hours_of_long_ago_is_told_from_others_for_a_minute() -> None:
    clock = FakeClock()
    load = PastLoad(clock)
    half = PAST_HOURS_MANY // 2
    sent = [load.add(past(number, app=app, hours=half)) for number, app in enumerate((1, 1, 2, 1, 2, 1))]
    assert sent == [False, False, False, True, False, True]
    clock.advance(round(PAST_LOAD_S * 1_000))
    assert not load.add(past(9))


@pytest.mark.real
def test_an_app_that_sends_many_of_them_leaves_their_queue_to_others(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport:
        for number in range(1, 4):
            transport.publish(past(number, hours=PAST_HOURS_MANY), 10)
        transport.publish(past(4, app=2), 10)
    queues = {d.message_id: d.queue for d in drained(amqp_vhost, 4)}
    names = [queues[past(number).message_id.hex()] for number in range(1, 5)]
    assert names == [f"spm.metrics.{topology.PAST}", *2 * [f"spm.metrics.{topology.PAST_MANY}"], "spm.metrics.past"]
