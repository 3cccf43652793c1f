"""What a worker writes at once: messages gathered until there are enough of them, or the oldest has waited enough.

Pure: whoever calls says what time it is, and does what this decides. ``Batcher.add`` takes a message, ``take_due``
gives the batch that is to be written now, ``wait_ms`` says how long nothing needs to be done. Order is kept; nothing is
dropped, and a batch is never empty. No I/O and no clock here.
"""

from collections import Counter
from dataclasses import dataclass

from spm import limits
from spm.wire import Envelope


@dataclass(frozen=True, slots=True)
class Item:
    """One message at hand: its envelope, where it came from, its size, and when it came (its clock only grows)."""

    envelope: Envelope
    queue: str
    tag: int
    size: int
    came_ms: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What makes a batch complete: whichever is reached first."""

    messages: int = limits.BATCH_MESSAGES
    samples: int = limits.BATCH_SAMPLES
    size: int = limits.BATCH_BYTES
    age_ms: int = limits.BATCH_AGE_MS
    share: int = limits.CONSUME_PREFETCH // 2  # of one queue: it sends no more before some of these are acknowledged


class Batcher:
    """Gathers messages into batches."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._items: list[Item] = []
        self._shares: Counter[str] = Counter()
        self._samples = self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Take one message; call ``take_due`` after each."""
        self._items.append(item)
        self._shares[item.queue] += 1
        self._samples += len(item.envelope)
        self._size += item.size

    def take_due(self, now_ms: int) -> list[Item]:
        """The batch that is to be written now; empty when there is time yet."""
        return self.take() if self.wait_ms(now_ms) == 0 else []

    def take(self) -> list[Item]:
        """All that has gathered, due or not."""
        taken, self._items = self._items, []
        self._shares.clear()
        self._samples = self._size = 0
        return taken

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until a batch is due by age alone: 0 when it is due, ``None`` when there is nothing to wait for."""
        if not self._items:
            return None
        if self.full():
            return 0
        return max(0, self._items[0].came_ms + self._bounds.age_ms - now_ms)

    def full(self) -> bool:
        """Whether the batch is complete, whatever its age. One that is not may take more although it is due."""
        bounds = self._bounds
        return bool(self._items) and (
            len(self._items) >= bounds.messages
            or self._samples >= bounds.samples
            or self._size >= bounds.size
            or max(self._shares.values()) >= bounds.share
        )
