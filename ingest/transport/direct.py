"""The embedded transport: a thread commits to the store, all waiting messages as one batch (group commit).

A message that comes alone is committed at once; under load batches grow by themselves while the commit before them
takes its time. A batch whose commit fails is committed again, the same bytes, until the store has it; meanwhile no new
message is taken. Messages of an app that cannot be written for now (``AppUnavailable``) are set aside and tried again;
meanwhile only this app's messages are refused. A batch that cannot be written for another reason is written message by
message; one that still fails is stored as a dead letter. Senders wait for a bounded time, however long the store takes.

Messages with samples of long ago go to a second thread: a message may touch 2,500 hours, each of them some rows, which
takes seconds. What is live, of any app, never waits for it.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ingest.transport.base import OutcomeCallback, Submission, Transport, Trouble, tell_outcome, wait_until_done
from ingest.writer import Writer
from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import AppUnavailable, QueueUnavailable, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Envelope

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _PendingMessage:
    """One message on its way into the store, and its outcome."""

    envelope: Envelope
    weight: int
    outcome: OutcomeCallback
    done: threading.Event | None = None  # set with its outcome, where somebody waits for it
    settled: bool = False
    error: str | None = None

    def settle(self, error: str | None = None) -> None:
        """Set the outcome, once: stored or a dead letter; with an error neither, for good."""
        if self.settled:
            return
        self.settled, self.error = True, error
        tell_outcome(self.outcome, error is None)
        if self.done is not None:
            self.done.set()


class DirectTransport(Transport):
    """Group commit in front of one writer. Thread-safe."""

    def __init__(self, writer: Writer, clock: Clock | None = None) -> None:
        self._writer, self._clock = writer, clock or SystemClock()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # what the committer waits for, and ``close``
        self._past_changed = threading.Condition(lock)  # each thread is woken for its own messages alone
        self._queue: deque[_PendingMessage] = deque()
        self._past: deque[_PendingMessage] = deque()  # messages with samples of long ago
        self._weight = 0  # of all that is reserved and not settled
        self._weights: Counter[int] = Counter()  # of it, by app
        self._aside: dict[int, list[_PendingMessage]] = {}  # by app: what cannot be written for now
        self._aside_why: dict[int, str] = {}
        self._aside_due = 0.0  # when it is tried again
        self._closing = False
        self._trouble: str | None = None  # why the last commit failed, while it is tried again
        self._commit_start: float | None = None  # of the commit under way
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._past_thread: threading.Thread | None = None

    def reserve(self, app: int, source: str, weight: int, wait_s: float = limits.PUBLISH_ROOM_WAIT_S) -> None:
        with self._changed:
            why = "the transport is closing" if self._closing else self._standstill(app)
            if why is not None:
                raise StoreUnavailable(why)
            # An app may hold no more than is left for all others: one whose messages wait, since they are of long ago
            # or its rows are damaged, leaves room for the next one.
            if self._weight and self._weights[app] + weight > limits.COMMIT_QUEUE_BYTES_MAX - self._weight:
                raise QueueUnavailable("too many bytes wait for their commit")
            self._weight += weight
            self._weights[app] += weight

    def release(self, app: int, weight: int) -> None:
        self._free(Counter({app: weight}))

    def _free(self, weights: "Counter[int]") -> None:
        with self._changed:
            self._weight -= weights.total()
            self._weights -= weights  # without those that have nothing left
            if self._closing:
                self._notify_all()

    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        self._enqueue([_PendingMessage(each.envelope, each.weight, each.outcome) for each in messages])
        return [partial(self._standstill, each.envelope.app) for each in messages]

    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: OutcomeCallback) -> None:
        done = threading.Event()
        message = _PendingMessage(envelope, weight, outcome, done)
        self._enqueue([message])
        trouble = partial(self._standstill, envelope.app)
        why = wait_until_done(done, timeout_s, trouble, self._clock) or message.error
        if why is not None:
            raise StoreUnavailable(why)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._notify_all()
            if not self._changed.wait_for(lambda: self._weight == 0, limits.PUBLISH_CLOSE_S):
                log.error("%d bytes were not committed before the end", self._weight)
        self._stopped.set()

    def _notify_all(self) -> None:
        self._changed.notify_all()
        self._past_changed.notify_all()

    def _enqueue(self, messages: Sequence[_PendingMessage]) -> None:
        with self._changed:
            self._queue.extend(messages)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _standstill(self, app: int | None = None) -> str | None:
        """Return why nothing, or nothing of this app, is committed at present; ``None`` if something is."""
        if app in self._aside_why:
            return self._aside_why[app]
        start, now = self._commit_start, self._clock.monotonic()
        if self._trouble is None and start is not None and now - start > limits.PUBLISH_STALL_S:
            return f"the store has not answered for {now - start:.1f} s"
        return self._trouble

    def _run(self) -> None:
        while messages := self._take():
            try:
                past = _are_past([message.envelope for message in messages])
            except MemoryError:  # what becomes of them is for the commit to say; this thread goes on
                past = [False] * len(messages)
            self._pass_on([message for message, is_past in zip(messages, past, strict=True) if is_past])
            live = [message for message, is_past in zip(messages, past, strict=True) if not is_past]
            if live:
                self._settle(live)

    def _pass_on(self, messages: list[_PendingMessage]) -> None:
        """Leave messages with samples of long ago to the thread that commits them."""
        if not messages:
            return
        with self._changed:
            self._past.extend(messages)
            if self._past_thread is None:
                self._past_thread = threading.Thread(target=self._run_past, name="committer of the past", daemon=True)
                self._past_thread.start()
            self._past_changed.notify_all()

    def _run_past(self) -> None:
        while messages := self._take_past():
            self._settle(messages)

    def _take_past(self) -> list[_PendingMessage]:
        """Wait for messages with samples of long ago and return those of the next commit; none at the end."""
        with self._past_changed:
            self._past_changed.wait_for(lambda: self._past or (self._closing and not self._weight))
            messages: list[_PendingMessage] = []
            hours = size = 0
            while self._past:
                hours, size = hours + _hours_at_most(self._past[0].envelope), size + self._past[0].weight
                if messages and (hours > limits.BATCH_HOURS_MAX or size > limits.COMMIT_BYTES_MAX):
                    break
                messages.append(self._past.popleft())
            return messages

    def _settle(self, messages: list[_PendingMessage]) -> None:
        """Commit messages, and free the room of those that are settled."""
        try:
            self._commit(messages)
        except Exception as error:
            log.exception("a message can neither be stored nor become a dead letter")
            for message in messages:
                message.settle(repr(error))
        freed: Counter[int] = Counter()
        for message in messages:
            if message.settled:
                freed[message.envelope.app] += message.weight
        self._free(freed)

    def _take(self) -> list[_PendingMessage]:
        """Wait for messages and return those of the next commit; none at the end."""
        with self._changed:
            while not (self._queue or (self._closing and not self._weight)):
                wait_s = self._aside_due - self._clock.monotonic() if self._aside else None
                if wait_s is not None and wait_s <= 0:
                    return self._take_aside()
                self._changed.wait(wait_s)
            messages: list[_PendingMessage] = []
            size = 0
            while self._queue and (not messages or size + self._queue[0].weight <= limits.COMMIT_BYTES_MAX):
                messages.append(self._queue.popleft())
                size += messages[-1].weight
            return messages

    def _take_aside(self) -> list[_PendingMessage]:
        """Return the messages of one app that were set aside; the others keep their turn."""
        return self._aside.pop(next(iter(self._aside)))

    def _set_aside(self, app: int, messages: list[_PendingMessage], why: AppUnavailable) -> None:
        log.warning("%d messages of app %d cannot be written for now: %s", len(messages), app, why)
        with self._changed:
            self._aside.setdefault(app, []).extend(messages)
            self._aside_why[app] = str(why)
            self._aside_due = self._clock.monotonic() + limits.PUBLISH_AGAIN_S
            self._changed.notify_all()

    def _commit(self, messages: list[_PendingMessage]) -> None:
        envelopes = [message.envelope for message in messages]
        try:
            self._write(envelopes)
        except AppUnavailable as error:
            by_app: dict[int, list[_PendingMessage]] = {}
            for message in messages:
                by_app.setdefault(message.envelope.app, []).append(message)
            if len(by_app) > 1:
                for of_app in by_app.values():
                    self._commit(of_app)
            else:
                self._set_aside(*by_app.popitem(), error)
            return
        except StoreUnavailable:  # at the end of this process only
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(messages))
            if len(messages) > 1:
                for message in messages:
                    self._commit([message])
                return
            cause = f"cannot be written: {error!r}"
            self._retry(lambda: self._writer.write_dead_letter(envelopes[0], cause))
        for message in messages:
            self._aside_why.pop(message.envelope.app, None)
            message.settle()

    def _write(self, envelopes: list[Envelope]) -> None:
        batch = self._retry(lambda: self._writer.prepare(envelopes))

        def put() -> None:
            nonlocal batch
            try:
                self._writer.commit(batch)
            except StoreUnavailable as error:
                if error.rest is not None:  # the other steps are confirmed
                    batch = replace(batch, steps=tuple(error.rest))
                raise

        self._retry(put)

    def _retry(self, act: Callable[[], T]) -> T:
        """Return what ``act`` returns; repeat it for as long as the store does not answer."""
        wait_s = limits.PUBLISH_AGAIN_S
        is_live = threading.current_thread() is not self._past_thread
        while True:
            if is_live:  # nobody is told that the store does not answer because of a message of long ago
                self._commit_start = self._clock.monotonic()
            try:
                answer = act()
            except AppUnavailable:
                self._answered(is_live)
                raise
            except StoreUnavailable as error:
                if self._trouble is None:
                    log.warning("the store takes nothing now, the commit is repeated: %s", error)
                self._trouble = str(error)
                if self._stopped.wait(wait_s):
                    raise
            else:
                self._answered(is_live)
                return answer
            wait_s = min(2 * wait_s, limits.PUBLISH_AGAIN_MAX_S)

    def _answered(self, is_live: bool) -> None:
        """Note that the store took something, or that only an app's rows forbid it."""
        self._trouble = None
        if is_live:
            self._commit_start = None


def _hours_at_most(envelope: Envelope) -> int:
    """Return a bound of the hours that a message with samples touches."""
    return min(len(envelope), 1 + (int(envelope.ts.max()) - int(envelope.ts.min())) // limits.HOUR_MS + 1)


def _are_past(envelopes: Sequence[Envelope]) -> list[bool]:
    """Return of each message whether it has a sample older than ``LIVE_HOURS``; mostly none has, by one look."""
    ts = np.concatenate([envelope.ts for envelope in envelopes])
    if not len(ts) or ts.min() >= max(each.stamp.ms for each in envelopes) - limits.LIVE_HOURS * limits.HOUR_MS:
        return [False] * len(envelopes)
    sizes = np.array([len(envelope) for envelope in envelopes], np.int64)
    stamps = np.array([envelope.stamp.ms for envelope in envelopes], np.int64)
    past = np.zeros(len(envelopes), np.bool_)
    filled = sizes > 0
    if filled.any():
        starts = (np.cumsum(sizes) - sizes)[filled]
        oldest = np.minimum.reduceat(ts, starts)
        past[filled] = oldest < stamps[filled] - limits.LIVE_HOURS * limits.HOUR_MS
    answer: list[bool] = past.tolist()
    return answer


def open_url(url: str) -> DirectTransport:
    """Return the direct transport to the store at ``url``."""
    return DirectTransport(Writer(open_backend(url), PlacementTable()))
