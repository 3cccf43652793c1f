"""What a worker writes at once: messages gathered until there are enough of them, or the oldest has waited enough.

How long is enough adapts: batches that come due far from full wait longer, up to a bound; a full one ends that.

Pure: whoever calls says what time it is, and does what this decides. ``Batcher.add`` takes a message, ``take_due``
gives the batch that is to be written now, ``wait_ms`` says how long nothing needs to be done. Order is kept; nothing is
dropped, and a batch is never empty. No I/O and no clock here.
"""

from dataclasses import dataclass

import msgspec

from ingest.transport.delivery import Delivery
from spm import limits
from spm.wire import Envelope

SPARSE = 0.5  # a batch less full than this came due too early


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message at hand: as it came, its envelope's bytes and samples; ``accepted`` if it was stamped here."""

    delivery: Delivery
    body: bytes
    samples: int
    accepted: Envelope | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What makes a batch complete: whichever is reached first; besides, the share of one queue (``Delivery``)."""

    messages: int = limits.BATCH_MESSAGES
    samples: int = limits.BATCH_SAMPLES
    size: int = limits.BATCH_BYTES
    age_ms: int = limits.BATCH_AGE_MS
    age_max_ms: int = limits.BATCH_AGE_MAX_MS


class Batcher:
    """Gathers messages into batches."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._items: list[Item] = []
        self._held: dict[str, int] = {}  # messages of each queue
        self._share = 0.0  # of the queue that has most of what it may send
        self._samples = self._size = 0
        self._age_ms = self._bounds.age_ms

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Take one message; call ``take_due`` after each."""
        self._items.append(item)
        delivery = item.delivery
        held = self._held[delivery.queue] = self._held.get(delivery.queue, 0) + 1
        self._share = max(self._share, held / delivery.share)
        self._samples += item.samples
        self._size += len(item.body)

    def take_due(self, now_ms: int) -> list[Item]:
        """The batch that is to be written now; empty when there is time yet."""
        if self.wait_ms(now_ms) != 0:
            return []
        bounds, fill = self._bounds, self.fill()
        if fill >= 1:
            self._age_ms = bounds.age_ms
        elif fill < SPARSE:
            self._age_ms = max(bounds.age_ms, min(bounds.age_max_ms, 3 * self._age_ms // 2))
        return self.take()

    def take(self) -> list[Item]:
        """All that has gathered, due or not."""
        taken, self._items = self._items, []
        self._held.clear()
        self._share = 0.0
        self._samples = self._size = 0
        return taken

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until a batch is due by age alone: 0 when it is due, ``None`` when there is nothing to wait for."""
        if not self._items:
            return None
        if self.fill() >= 1:
            return 0
        return max(0, self._items[0].delivery.came_ms + self._age_ms - now_ms)

    def full(self) -> bool:
        """Whether it should take no more. One that is not full may, although it is due."""
        bounds = self._bounds
        return len(self._items) >= bounds.messages or self._samples >= bounds.samples or self._size >= bounds.size

    def oldest(self) -> Item | None:
        """The message that has waited longest."""
        return self._items[0] if self._items else None

    def fill(self) -> float:
        """How full the batch is by its fullest measure; 1: complete."""
        bounds = self._bounds
        return max(
            len(self._items) / bounds.messages, self._samples / bounds.samples, self._size / bounds.size, self._share
        )
