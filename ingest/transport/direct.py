"""The embedded transport: one thread commits to the store, everything that waits as one batch (group commit).

Nobody lingers when nobody else is there; under load batches grow by themselves while the commit before them takes its
time. A batch whose commit fails is committed again, the same bytes, until the store has it; meanwhile nothing more is
taken. What cannot be written for another reason is written message by message; the one that still fails is buried as a
dead letter. Senders wait for a bounded time, never the store's.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ingest.transport.base import Outcome, Transport, waited
from ingest.writer import Writer
from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.keys import Distribution
from spm.wire import Envelope

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiting:
    """One message and what became of it."""

    envelope: Envelope
    weight: int
    outcome: Outcome
    done: threading.Event = field(default_factory=threading.Event)
    error: str | None = None

    def settle(self, error: str | None = None) -> None:
        """Stored or buried; with an error: neither, for good. The first word counts."""
        if self.done.is_set():
            return
        self.error = error
        self.outcome(error is None)
        self.done.set()


class DirectTransport(Transport):
    """Group commit in front of one writer. Thread-safe."""

    def __init__(self, writer: Writer, clock: Clock | None = None) -> None:
        self._writer, self._clock = writer, clock or SystemClock()
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._weight = 0  # of all that is reserved and not settled
        self._closing = False
        self._trouble: str | None = None  # why the last commit failed, while it is tried again
        self._begun: float | None = None  # when the commit under way began
        self._pause = threading.Event()  # set at the end
        self._thread: threading.Thread | None = None

    def reserve(self, app: int, source: str, weight: int) -> None:
        with self._changed:
            why = "it is being left" if self._closing else self._standstill()
            if why is not None:
                raise StoreUnavailable(why)
            if self._weight and self._weight + weight > limits.COMMIT_QUEUE_BYTES_MAX:
                raise QueueUnavailable("too many bytes wait for their commit")
            self._weight += weight

    def release(self, weight: int) -> None:
        with self._changed:
            self._weight -= weight
            self._changed.notify_all()

    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: Outcome) -> None:
        mine = _Waiting(envelope, weight, outcome)
        with self._changed:
            self._queue.append(mine)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        why = waited(mine.done, timeout_s, self._standstill, self._clock) or mine.error
        if why is not None:
            raise StoreUnavailable(why)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._weight == 0, limits.PUBLISH_CLOSE_S):
                log.error("%d bytes were not committed before the end", self._weight)
        self._pause.set()

    def _standstill(self) -> str | None:
        """Why nothing more is committed at present."""
        begun, now = self._begun, self._clock.monotonic()
        if self._trouble is None and begun is not None and now - begun > limits.PUBLISH_STALL_S:
            return f"the store has not answered for {now - begun:.1f} s"
        return self._trouble

    def _run(self) -> None:
        while taken := self._take():
            try:
                self._commit(taken)
            except Exception as error:
                log.exception("a message can neither be stored nor buried")
                for waiting in taken:
                    waiting.settle(repr(error))
            self.release(sum(waiting.weight for waiting in taken))

    def _take(self) -> list[_Waiting]:
        """What is committed together next; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or (self._closing and not self._weight))
            taken: list[_Waiting] = []
            size = 0
            while self._queue and (not taken or size + self._queue[0].weight <= limits.COMMIT_BYTES_MAX):
                taken.append(self._queue.popleft())
                size += taken[-1].weight
            return taken

    def _commit(self, taken: list[_Waiting]) -> None:
        envelopes = [waiting.envelope for waiting in taken]
        try:
            self._write(envelopes)
        except StoreUnavailable:  # at the end of this process only
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(taken))
            if len(taken) > 1:
                for waiting in taken:
                    self._commit([waiting])
                return
            cause = f"cannot be written: {error!r}"
            self._patiently(lambda: self._writer.bury(envelopes[0], cause))
        for waiting in taken:
            waiting.settle()

    def _write(self, envelopes: list[Envelope]) -> None:
        batch = self._patiently(lambda: self._writer.prepare(envelopes))

        def put() -> None:
            nonlocal batch
            try:
                self._writer.commit(batch)
            except StoreUnavailable as error:
                if error.rest is not None:  # the other steps are confirmed
                    batch = replace(batch, steps=tuple(error.rest))
                raise

        self._patiently(put)

    def _patiently(self, act: Callable[[], T]) -> T:
        """What ``act`` answers, asked again for as long as the store does not."""
        wait_s = limits.PUBLISH_AGAIN_S
        while True:
            self._begun = self._clock.monotonic()
            try:
                answer = act()
            except StoreUnavailable as error:
                if self._trouble is None:
                    log.warning("the store takes nothing now, it is asked again: %s", error)
                self._trouble = str(error)
                if self._pause.wait(wait_s):
                    raise
            else:
                self._trouble = self._begun = None
                return answer
            wait_s = min(2 * wait_s, limits.PUBLISH_AGAIN_MAX_S)


def open_url(url: str) -> DirectTransport:
    """The direct transport to the store at ``url``."""
    return DirectTransport(Writer(open_backend(url), Distribution()))
