"""How full the batches of many idle workers are, and what a worker holds at most: simulated with the real batcher.

Sources send at a steady low rate; their queues are shared out over k workers as ``topology.share`` does it.
"""

from collections.abc import Callable

import pytest

from ingest.batch import Batcher, Bounds, Item
from ingest.transport.delivery import Delivery
from ingest.transport.topology import Address, share
from spm import limits

ADDRESS = Address("", 16)
SOURCES, EVERY_MS, LASTS_MS = 200, 10_000, 120_000


def batches(workers: int) -> list[int]:
    """The sizes of all batches that so many workers write in two minutes."""
    shares = [share(ADDRESS.queues(), range(workers), own) for own in range(workers)]
    sizes = []
    for mine in shares:
        batcher = Batcher()
        for now in range(0, LASTS_MS, 10):
            for number in range(now * SOURCES // EVERY_MS, (now + 10) * SOURCES // EVERY_MS):
                queue = f"spm.metrics.{ADDRESS.route(1, f'host{number % SOURCES}', 1)}"
                if queue in mine:
                    batcher.add(Item(Delivery(1, number, queue, b"", "", now), b"x" * 1000, 10))
            if taken := batcher.take_due(now):
                sizes.append(len(taken))
    return sizes


@pytest.mark.seed("A7", compares="messages per batch of k workers with what an age that does not adapt would give them")
def test_batches_of_many_idle_workers_shrink_far_less_than_they_would_with_a_fixed_age(
    figure: Callable[[str], None],
) -> None:
    """What comes in while the oldest message may wait is all that a batch can hold; so the age grows, to its bound."""
    mean = {k: sum(found) / len(found) for k in (1, 2, 4, 8, 16) if (found := batches(k))}
    fixed = {k: max(1.0, limits.BATCH_AGE_MS * SOURCES / EVERY_MS / k) for k in mean}
    figure("; ".join(f"{k} workers: {mean[k]:.1f} messages a batch, {fixed[k]:.1f} with a fixed age" for k in mean))
    assert all(mean[k] > 2.2 * fixed[k] for k in mean)
    assert mean[16] > 3 * fixed[16]


@pytest.mark.seed("A6", compares="bytes a worker can be made to hold, with what its prefetch allows")
def test_what_a_worker_holds_is_bounded_by_its_queues_and_not_by_what_waits_in_them(
    figure: Callable[[str], None],
) -> None:
    held = sum(
        queue.prefetch * (limits.AMQP_PARTITION_BODY_BYTES_MAX if queue.prefetch > 4 else limits.BODY_DECODED_BYTES_MAX)
        for queue in ADDRESS.queues()
    )
    figure(f"at most {held / 2**20:,.0f} MiB of bodies in one worker alone with 16 queues")
    assert held < 700 * 2**20
    assert Bounds().size <= held
