"""How full the batches of many idle workers are, and what a worker holds at most: simulated with the real batcher.

Sources send at a steady low rate; their queues are shared out over k workers as ``topology`` does it.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.transport.topology import Address
from ingest.worker.batch import Batcher, Bounds, Item
from spm import limits

ADDRESS = Address("", 16)
SOURCES, EVERY_MS, LASTS_MS = 200, 10_000, 120_000
FEW = {queue.name for queue in ADDRESS.queues() if queue.few}
WORKERS = (1, 2, 4, 8, 16)


def prefetch(workers: Sequence[int], own: int, address: Address = ADDRESS) -> dict[str, int]:
    """Of each queue of one of these workers."""
    mine = topology.share(address.queues(), workers, own)
    return topology.prefetch(queue for queue in address.queues() if queue.name in mine)


def batches(workers: int, *, called: bool) -> list[int]:
    """The sizes of all batches that so many workers write in two minutes."""
    sharing = topology.sharing(range(workers), called=called)
    sizes = []
    for own in range(workers):
        mine = prefetch(workers=sharing, own=own)
        batcher = Batcher()
        for now in range(0, LASTS_MS, 10):
            for number in range(now * SOURCES // EVERY_MS, (now + 10) * SOURCES // EVERY_MS):
                queue = f"spm.metrics.{ADDRESS.route(1, f'host{number % SOURCES}', 1)}"
                if queue in mine:
                    delivery = Delivery(1, number, queue, b"", "", now, share=mine[queue] // 2)
                    batcher.add(Item(delivery, b"x" * 1000, 10))
            if taken := batcher.take_due(now):
                sizes.append(len(taken))
    return sizes


@pytest.mark.seed("A7", compares="messages per batch of k idle workers with those of one, and of k that all share")
def test_batches_of_many_idle_workers_are_as_full_as_those_of_a_few(figure: Callable[[str], None]) -> None:
    """What comes in while the oldest message may wait is all that a batch can hold, so few of many workers consume."""
    calm = {k: fmean(batches(k, called=False)) for k in WORKERS}
    every = {k: fmean(batches(k, called=True)) for k in WORKERS}
    figure("; ".join(f"{k} workers: {calm[k]:.1f} messages a batch, {every[k]:.1f} if all shared" for k in WORKERS))
    assert all(calm[k] == calm[limits.AMQP_CALM_WORKERS] for k in WORKERS if k >= limits.AMQP_CALM_WORKERS)
    assert all(calm[k] > 0.9 * calm[1] / limits.AMQP_CALM_WORKERS for k in WORKERS)
    assert all(limits.BATCH_AGE_MS * SOURCES / EVERY_MS / k < every[k] / 2 for k in WORKERS), "a batch's age adapts"


@pytest.mark.seed("A6", compares="bytes a worker can be made to hold, with what its prefetch allows")
def test_what_a_worker_holds_is_bounded_by_its_queues_and_not_by_what_waits_in_them(
    figure: Callable[[str], None],
) -> None:
    def prefetched(workers: int, own: int) -> int:
        """Bytes of the largest bodies."""
        sizes = {True: limits.BODY_DECODED_BYTES_MAX, False: limits.AMQP_PARTITION_BODY_BYTES_MAX}
        return sum(count * sizes[name in FEW] for name, count in prefetch(range(workers), own).items())

    most = {workers: max(prefetched(workers, own) for own in range(workers)) for workers in WORKERS}
    figure(
        "; ".join(
            f"{workers} workers: at most {size / 2**20:,.0f} MiB of bodies in one" for workers, size in most.items()
        )
    )
    assert max(most.values()) < 700 * 2**20
    assert Bounds().size <= min(most.values())


@given(st.integers(1, limits.AMQP_PARTITIONS_MAX), st.integers(1, 32))
def test_a_worker_holds_as_much_of_few_queues_as_of_many(partitions: int, workers: int) -> None:
    """Else its batches would be the smaller, and a value the dearer, the more workers there are."""
    address = Address("", partitions)
    for own in range(workers):
        of_worker = prefetch(range(workers), own, address)
        partition = [count for name, count in of_worker.items() if name not in FEW | topology.PAST_NAMES]
        assert len(set(partition)) <= 1
        together = sum(partition)
        assert not partition or limits.CONSUME_UNACKED_MAX / 2 < together <= max(
            limits.CONSUME_UNACKED_MAX, 16 * len(partition)
        )
