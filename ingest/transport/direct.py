"""The embedded transport: requests that wait at the same time are committed together (group commit).

Whichever thread finds no commit under way becomes the leader: it takes everything that waits, writes it as one batch
with one fsync, and wakes the others. Nobody lingers when nobody else is there; under load batches grow by themselves.
A failed commit fails every message in it: their senders send again.
"""

import threading
from dataclasses import dataclass, field

from ingest.write import Writer
from spm import limits
from spm.errors import QueueUnavailable, SpmError, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.keys import Distribution
from spm.wire import Envelope


@dataclass(slots=True)
class _Waiting:
    """One message and what became of it."""

    envelope: Envelope
    weight: int
    done: threading.Event = field(default_factory=threading.Event)
    error: SpmError | None = None


class DirectTransport:
    """Group commit in front of one writer. Thread-safe."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._queue: list[_Waiting] = []
        self._queued_bytes = 0
        self._committing = threading.Lock()

    def publish(self, envelope: Envelope, timeout_s: float) -> None:
        """Return when the message is committed. Raises ``QueueUnavailable`` when too much waits already."""
        mine = _Waiting(envelope, 20 * len(envelope) + 64)
        with self._lock:
            if self._queue and self._queued_bytes + mine.weight > limits.COMMIT_QUEUE_BYTES_MAX:
                raise QueueUnavailable("too many bytes wait for their commit")
            self._queue.append(mine)
            self._queued_bytes += mine.weight
        self._settle(mine, timeout_s)
        if mine.error is not None:
            raise mine.error

    def _settle(self, mine: _Waiting, timeout_s: float) -> None:
        """Lead a commit, or wait for the one that has taken this message."""
        if not self._committing.acquire(timeout=timeout_s):
            raise StoreUnavailable(f"no commit within {timeout_s} s")
        try:
            while not mine.done.is_set():
                self._commit(self._take())
        finally:
            self._committing.release()

    def _take(self) -> list[_Waiting]:
        with self._lock:
            taken: list[_Waiting] = []
            size = 0
            while self._queue and (not taken or size + self._queue[0].weight <= limits.COMMIT_BYTES_MAX):
                taken.append(self._queue.pop(0))
                size += taken[-1].weight
            self._queued_bytes -= size
            return taken

    def _commit(self, taken: list[_Waiting]) -> None:
        error: SpmError | None = StoreUnavailable("the commit was broken off")
        try:
            self._writer.write([w.envelope for w in taken])
            error = None
        except SpmError as raised:
            error = raised
        finally:
            for waiting in taken:
                waiting.error = error
                waiting.done.set()

    def close(self) -> None:
        return


def open_url(url: str) -> DirectTransport:
    """The direct transport to the store at ``url``."""
    return DirectTransport(Writer(open_backend(url), Distribution()))
