"""When a batch is written, for any stream of messages."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.transport.delivery import Delivery
from ingest.worker.batch import Batcher, Bounds, Item

BOUNDS = Bounds(messages=10, samples=30, size=1000, age_ms=500, age_max_ms=900)
SHARE = 6  # of one queue
LOOSE = Bounds(messages=10**9, samples=10**9, size=10**9, age_ms=10**9, age_max_ms=10**9)


def item(tag: int, *, came_ms: int = 0, queue: str = "a", samples: int = 1, size: int = 10, share: int = 10**9) -> Item:
    return Item(Delivery(0, tag, queue, b"", "", came_ms, share=share), bytes(size), samples)


streams = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from("abc"), st.integers(0, 12), st.integers(1, 600)), max_size=60
)


def play(stream: list[tuple[int, str, int, int]]) -> tuple[list[list[Item]], list[int]]:
    """Feed (pause, queue, samples, size) to a batcher that is polled whenever it asks; its batches and their times."""
    batcher, now, batches, times = Batcher(BOUNDS), 0, [], []
    for tag, (pause, queue, samples, size) in enumerate(stream):
        wait = batcher.wait_ms(now)
        if wait is not None and wait <= pause:
            batches.append(batcher.take_due(now + wait))
            times.append(now + wait)
        now += pause
        batcher.add(item(tag, came_ms=now, queue=queue, samples=samples, size=size, share=SHARE))
        if taken := batcher.take_due(now):
            batches.append(taken)
            times.append(now)
    batches.append(batcher.take())
    return batches, [*times, now]


@given(streams)
def test_batches_hold_every_message_once_and_in_order(stream: list[tuple[int, str, int, int]]) -> None:
    batches, _ = play(stream)
    assert [i.delivery.tag for batch in batches for i in batch] == list(range(len(stream)))


@given(streams)
def test_a_batch_without_its_last_message_is_below_every_bound(stream: list[tuple[int, str, int, int]]) -> None:
    for *batch, _ in filter(None, play(stream)[0]):
        assert len(batch) < BOUNDS.messages
        assert sum(i.samples for i in batch) < BOUNDS.samples
        assert sum(len(i.body) for i in batch) < BOUNDS.size
        assert all(sum(i.delivery.queue == q for i in batch) < SHARE for q in "abc")


@given(streams)
def test_no_batch_is_written_before_it_is_full_or_old(stream: list[tuple[int, str, int, int]]) -> None:
    batches, times = play(stream)
    for batch, now in zip(batches[:-1], times[:-1], strict=True):
        alone = Batcher(BOUNDS)
        for each in batch:
            alone.add(each)
        assert alone.fill() >= 1 or now - batch[0].delivery.arrived_ms >= BOUNDS.age_ms


@pytest.mark.seed("A2", compares="the age of each batch's oldest message, with the bound")
@given(streams)
def test_no_message_waits_longer_than_the_age_of_a_batch(stream: list[tuple[int, str, int, int]]) -> None:
    for batch, now in zip(*play(stream), strict=True):
        assert all(now - i.delivery.arrived_ms <= BOUNDS.age_max_ms for i in batch)


@pytest.mark.parametrize(
    ("bounds", "second"),
    [
        (replace(LOOSE, messages=2), item(2)),
        (replace(LOOSE, samples=3), item(2, samples=2)),
        (replace(LOOSE, size=30), item(2, size=20)),
        (LOOSE, item(2, share=2)),
    ],
    ids=["its messages", "its samples", "its bytes", "one queue's share"],
)
def test_a_batch_is_due_at_once_when_the_bound_is_reached_of(bounds: Bounds, second: Item) -> None:
    batcher = Batcher(bounds)
    batcher.add(item(1))
    assert batcher.take_due(0) == []
    batcher.add(second)
    assert batcher.full() == (bounds != LOOSE), "it takes no more, unless one queue alone has sent its share"
    assert [i.delivery.tag for i in batcher.take_due(0)] == [1, 2]


def test_a_batch_ages_by_its_oldest_message() -> None:
    batcher = Batcher(replace(LOOSE, age_ms=100, age_max_ms=100))
    batcher.add(item(1, came_ms=1000))
    batcher.add(item(2, came_ms=1090))
    assert batcher.wait_ms(1099) == 1
    assert batcher.take_due(1099) == []
    assert [i.delivery.tag for i in batcher.take_due(1100)] == [1, 2]


def test_batches_that_come_due_nearly_empty_wait_longer_until_one_is_full() -> None:
    batcher, waits = Batcher(replace(LOOSE, messages=10, age_ms=100, age_max_ms=200)), []
    for messages in (1, 1, 1, 10, 1):
        for tag in range(messages):
            batcher.add(item(tag))
        waits.append(batcher.wait_ms(0))
        assert len(batcher.take_due(waits[-1] or 0)) == messages
    assert waits == [100, 150, 200, 0, 100]


def test_batches_that_come_due_half_full_wait_no_longer() -> None:
    batcher = Batcher(replace(LOOSE, messages=10, age_ms=100, age_max_ms=200))
    for _ in range(3):
        for tag in range(5):
            batcher.add(item(tag))
        assert batcher.wait_ms(0) == 100
        batcher.take_due(100)


def test_an_empty_batcher_has_nothing_to_wait_for() -> None:
    batcher = Batcher()
    assert batcher.wait_ms(10**9) is None
    assert batcher.take_due(10**9) == []
