"""Decides which messages a worker writes at once: it gathers them until there are enough, or the oldest is due.

How long a message may wait adapts: batches that are due long before they are full wait longer, up to a bound; a full
batch resets that. Enter by ``Batcher``: ``add`` takes a message, ``take_due`` returns the batch that is to be written
now, ``wait_ms`` how long nothing needs to be done. Order is preserved and nothing is dropped. Pure: the caller passes
the time and does the I/O. ``PastBatcher`` also counts the hours that messages of long ago touch.
"""

from dataclasses import dataclass

import msgspec

from ingest.transport.delivery import Delivery
from ingest.transport.past import hours_at_most
from spm import limits
from spm.errors import CorruptBlock
from spm.wire import Envelope

SPARSE = 0.5  # a batch less full than this was due too early


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch: its delivery, the bytes and samples of its envelope; ``accepted`` if stamped here."""

    delivery: Delivery
    body: bytes
    samples: int
    accepted: Envelope | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What makes a batch complete, whichever is reached first; besides, the share of one queue (``Delivery``)."""

    messages: int = limits.BATCH_MESSAGES
    samples: int = limits.BATCH_SAMPLES
    size: int = limits.BATCH_BYTES
    age_ms: int = limits.BATCH_AGE_MS
    age_max_ms: int = limits.BATCH_AGE_MAX_MS


def bounds_of(messages: int, age_ms: int) -> Bounds:
    """Return the bounds of batches with so many messages, the oldest of which waits so long at first."""
    longest = max(age_ms, age_ms * limits.BATCH_AGE_MAX_MS // limits.BATCH_AGE_MS)
    return Bounds(messages=messages, age_ms=age_ms, age_max_ms=longest)


class Batcher:
    """Gathers messages into batches."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._items: list[Item] = []
        self._queue_counts: dict[str, int] = {}  # messages of each queue
        self._share = 0.0  # of the queue that has most of what it may send
        self._samples = self._size = 0
        self._age_ms = self._bounds.age_ms

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Take one message; call ``take_due`` after each."""
        self._items.append(item)
        delivery = item.delivery
        count = self._queue_counts[delivery.queue] = self._queue_counts.get(delivery.queue, 0) + 1
        self._share = max(self._share, count / delivery.share)
        self._samples += item.samples
        self._size += len(item.body)

    def take_due(self, now_ms: int) -> list[Item]:
        """Return the batch that is to be written now; empty when none is due."""
        if self.wait_ms(now_ms) != 0:
            return []
        bounds, fill = self._bounds, self.fill()
        if fill >= 1:
            self._age_ms = bounds.age_ms
        elif fill < SPARSE:
            self._age_ms = max(bounds.age_ms, min(bounds.age_max_ms, 3 * self._age_ms // 2))
        return self.take()

    def take(self) -> list[Item]:
        """Return all gathered messages, due or not."""
        items, self._items = self._items, []
        self._queue_counts.clear()
        self._share = 0.0
        self._samples = self._size = 0
        return items

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long until a batch is due by age alone: 0 when it is due, ``None`` when there is no message."""
        if not self._items:
            return None
        if self.fill() >= 1:
            return 0
        return max(0, self._items[0].delivery.arrived_ms + self._age_ms - now_ms)

    def full(self) -> bool:
        """Whether it should take no more. A batch that is due but not full may still take some."""
        bounds = self._bounds
        return len(self._items) >= bounds.messages or self._samples >= bounds.samples or self._size >= bounds.size

    def room(self) -> int:
        """Return how many more messages it should take at once; 0 when it is full."""
        return 0 if self.full() else self._bounds.messages - len(self._items)

    def oldest(self) -> Item | None:
        """Return the message that has waited longest."""
        return self._items[0] if self._items else None

    def fill(self) -> float:
        """Return how full the batch is by its fullest measure; 1 is complete."""
        bounds = self._bounds
        return max(
            len(self._items) / bounds.messages, self._samples / bounds.samples, self._size / bounds.size, self._share
        )


class PastBatcher(Batcher):
    """Gathers messages with samples of long ago, one by one: each may touch thousands of hours, which take seconds.

    The message that makes ``BATCH_HOURS_MAX`` hours is the last of a batch, so that the next queue has its turn.
    """

    _hours = 0

    def add(self, item: Item) -> None:
        super().add(item)
        self._hours += _hours_of(item)

    def take(self) -> list[Item]:
        self._hours = 0
        return super().take()

    def full(self) -> bool:
        return self._hours >= limits.BATCH_HOURS_MAX or super().full()

    def room(self) -> int:
        return min(1, super().room())

    def fill(self) -> float:
        return max(self._hours / limits.BATCH_HOURS_MAX, super().fill())


def _hours_of(item: Item) -> int:
    try:
        return hours_at_most(item.accepted or Envelope.from_bytes(item.body)) if item.samples else 0
    except CorruptBlock:  # its batch says so of it
        return 0
