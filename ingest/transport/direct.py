"""The embedded transport: a thread commits to the store, all waiting messages as one batch (group commit).

A message that comes alone is committed at once; under load batches grow by themselves while the commit before them
takes its time. Few messages, before which no others wait, are committed by the thread that brings them, which tries
once (``submit_here``): to wake another one would cost a tenth of such a commit. A batch whose commit fails is committed
again, the same bytes, until the store has it; meanwhile no new message is taken. Messages of an app that cannot be
written for now (``AppUnavailable``) are set aside and tried again; meanwhile only this app's messages are refused. A
batch that cannot be written for another reason is written message by message; one that still fails is stored as a dead
letter. Senders wait for a bounded time, however long the store takes.

Messages that take long to write go to threads of their own, since no other app's may wait for them: those with samples
of long ago, of which one may touch 2,500 hours, each of them some rows, which takes seconds; and large ones, and those
of ``submit_apart``. In these threads apps take turns, and sources within an app.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TypeVar

from ingest.transport.base import OutcomeCallback, Submission, Transport, Trouble, tell_outcome, wait_until_done
from ingest.transport.limits import COMMIT_HERE_BYTES_MAX
from ingest.transport.past import are_envelopes_past
from ingest.transport.side_line import SideLine
from ingest.writer import WriteBatch, Writer
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


@dataclass(slots=True, eq=False)
class _Group:
    """Messages that are committed together, and their batch once its bytes are made."""

    messages: list[_PendingMessage]
    batch: WriteBatch | None = None


class DirectTransport(Transport):
    """Group commit in front of one writer. Thread-safe."""

    def __init__(self, writer: Writer, clock: Clock | None = None) -> None:
        self._writer, self._clock = writer, clock or SystemClock()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # what the committer waits for, and ``close``
        self._queue: deque[_PendingMessage] = deque()
        self._past = SideLine("committer of the past", lock, self._settle_apart, self._is_over)
        self._large = SideLine("committer of large messages", lock, self._settle_apart, self._is_over)
        self._weight = 0  # of all that is reserved and not settled
        self._weights: Counter[int] = Counter()  # of it, by app
        self._aside: dict[int, list[_PendingMessage]] = {}  # by app: what cannot be written for now
        self._aside_why: dict[int, str] = {}
        self._aside_due = 0.0  # when it is tried again
        self._is_committing = False  # the committer has live messages
        self._has_helper = False  # the thread that brought messages commits them
        self._left: _Group | None = None  # what it could not commit
        self._closing = False
        self._trouble: str | None = None  # why the last commit failed, while it is tried again
        self._commit_starts: dict[str, float] = {}  # of the commits under way, by line
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

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
        self._free({app: weight})

    def _free(self, weights: Mapping[int, int]) -> None:
        with self._changed:
            for app, weight in weights.items():
                self._weight -= weight
                self._weights[app] -= weight
                if not self._weights[app]:
                    del self._weights[app]
            if self._closing:
                self._notify_all()

    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        self._enqueue([_PendingMessage(each.envelope, each.weight, each.outcome) for each in messages])
        return [partial(self._standstill, each.envelope.app) for each in messages]

    def submit_here(self, messages: Sequence[Submission], tell_troubles: Callable[[list[Trouble]], None]) -> None:
        tell_troubles([partial(self._standstill, each.envelope.app) for each in messages])
        pending = [_PendingMessage(each.envelope, each.weight, each.outcome) for each in messages]
        if not self._commit_here(pending):
            self._enqueue(pending)

    def submit_apart(self, messages: Sequence[Submission], tell_troubles: Callable[[list[Trouble]], None]) -> None:
        tell_troubles([partial(self._standstill, each.envelope.app) for each in messages])
        pending = [_PendingMessage(each.envelope, each.weight, each.outcome) for each in messages]
        past = _are_past(pending)
        self._pass_on(
            list(compress(pending, past)), [one for one, is_past in zip(pending, past, strict=True) if not is_past]
        )

    def standstill(self) -> str | None:
        return self._standstill()

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
        self._past.look()
        self._large.look()

    def _is_over(self) -> bool:
        """Whether nothing more can come; under the lock."""
        return self._closing and not self._weight

    def _enqueue(self, messages: Sequence[_PendingMessage]) -> None:
        with self._changed:
            self._queue.extend(messages)
            self._wake()

    def _wake(self) -> None:
        """Wake the committer; under the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _commit_here(self, messages: list[_PendingMessage]) -> bool:
        """Commit few messages in the calling thread unless others are before them; return whether they are taken.

        It is tried once: whatever fails is left to the committer, with the bytes that may have been put.
        """
        with self._changed:
            others = self._is_committing or self._has_helper or self._queue or self._aside or self._left
            size = sum([message.weight for message in messages])
            if others or self._trouble is not None or self._closing or size > COMMIT_HERE_BYTES_MAX:
                return False
            self._has_helper = True
        group = _Group(messages)
        try:
            group.messages = self._live(messages)
            if group.messages:
                self._write(group, once=True)
        except Exception:
            self._end_help(group)
            return True
        except BaseException:
            self._end_help(group)
            raise
        for message in group.messages:
            message.settle()
        self._free_settled(group.messages)
        self._end_help(None)
        return True

    def _end_help(self, left: _Group | None) -> None:
        """Let the committer go on, with what the helper leaves to it."""
        with self._changed:
            self._has_helper, self._left = False, left
            if left is not None or self._queue or self._aside or self._closing:
                self._wake()

    def _standstill(self, app: int | None = None) -> str | None:
        """Return why nothing, or nothing of this app, is committed at present; ``None`` if something is."""
        if app in self._aside_why:
            return self._aside_why[app]
        starts = tuple(self._commit_starts.values())
        if self._trouble is None and starts:
            took_s = self._clock.monotonic() - min(starts)
            if took_s > limits.PUBLISH_STALL_S:
                return f"the store has not answered for {took_s:.1f} s"
        return self._trouble

    def _run(self) -> None:
        while group := self._take():
            if group.batch is None:
                group.messages = self._live(group.messages)
            if group.messages:
                self._settle(group)

    def _live(self, messages: list[_PendingMessage]) -> list[_PendingMessage]:
        """Return the messages that are written soon; the others go to the threads that commit those."""
        try:
            past = _are_past(messages)
        except MemoryError:  # what becomes of them is for the commit to say; this thread goes on
            return messages
        live: list[_PendingMessage] = []
        large: list[_PendingMessage] = []
        for message, is_past in zip(messages, past, strict=True):
            if not is_past:
                (large if message.weight > COMMIT_HERE_BYTES_MAX else live).append(message)
        if len(live) < len(messages):
            self._pass_on(list(compress(messages, past)), large)
        return live

    def _pass_on(self, past: list[_PendingMessage], large: list[_PendingMessage]) -> None:
        """Leave messages to the threads that commit what takes long."""
        with self._changed:
            if past:
                self._past.put(past)
            if large:
                self._large.put(large)

    def _settle_apart(self, messages: list[_PendingMessage]) -> None:
        self._settle(_Group(messages))

    def _settle(self, group: _Group) -> None:
        """Commit messages, and free the room of those that are settled."""
        try:
            self._commit(group)
        except Exception as error:
            log.exception("a message can neither be stored nor become a dead letter")
            for message in group.messages:
                message.settle(repr(error))
        self._free_settled(group.messages)

    def _free_settled(self, messages: Sequence[_PendingMessage]) -> None:
        freed: Counter[int] = Counter()
        for message in messages:
            if message.settled:
                freed[message.envelope.app] += message.weight
        self._free(freed)

    def _take(self) -> _Group | None:
        """Wait for messages and return those of the next commit; ``None`` at the end."""
        with self._changed:
            self._is_committing = False
            group = self._wait_for_group()
            self._is_committing = group is not None
            return group

    def _wait_for_group(self) -> _Group | None:
        while True:
            left, self._left = self._left, None
            if left is not None:
                return left
            wait_s = self._aside_due - self._clock.monotonic() if self._aside else None
            if wait_s is not None and wait_s <= 0 and not self._has_helper:
                return _Group(self._take_aside())
            if self._queue and not self._has_helper:
                break
            if self._closing and not self._weight:
                return None
            self._changed.wait(None if self._has_helper else wait_s)  # a helper wakes us at its end
        messages: list[_PendingMessage] = []
        size = 0
        while self._queue and (not messages or size + self._queue[0].weight <= limits.COMMIT_BYTES_MAX):
            messages.append(self._queue.popleft())
            size += messages[-1].weight
        return _Group(messages)

    def _take_aside(self) -> list[_PendingMessage]:
        """Return the messages of one app that were set aside; the others keep their turn."""
        return self._aside.pop(next(iter(self._aside)))

    def _set_aside(self, app: int, messages: list[_PendingMessage], why: AppUnavailable) -> None:
        log.warning("%d messages of app %d cannot be written for now: %s", len(messages), app, why)
        with self._changed:
            self._aside.setdefault(app, []).extend(messages)
            self._aside_why[app] = str(why)
            self._aside_due = self._clock.monotonic() + limits.PUBLISH_AGAIN_S
            self._wake()

    def _commit(self, group: _Group) -> None:
        messages = group.messages
        try:
            self._write(group)
        except AppUnavailable as error:
            by_app: dict[int, list[_PendingMessage]] = {}
            for message in messages:
                by_app.setdefault(message.envelope.app, []).append(message)
            if len(by_app) > 1:
                for of_app in by_app.values():
                    self._commit(_Group(of_app))
            else:
                self._set_aside(*by_app.popitem(), error)
            return
        except StoreUnavailable:  # at the end of this process only
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(messages))
            if len(messages) > 1:
                for message in messages:
                    self._commit(_Group([message]))
                return
            cause = f"cannot be written: {error!r}"
            self._retry(lambda: self._writer.write_dead_letter(messages[0].envelope, cause))
        for message in messages:
            self._aside_why.pop(message.envelope.app, None)
            message.settle()

    def _write(self, group: _Group, *, once: bool = False) -> None:
        if group.batch is None:
            envelopes = [message.envelope for message in group.messages]
            group.batch = self._retry(lambda: self._writer.prepare(envelopes), once=once)
        batch = group.batch

        def put() -> None:
            nonlocal batch
            try:
                self._writer.commit(batch)
            except StoreUnavailable as error:
                if error.rest is not None:  # the other steps are confirmed
                    batch = group.batch = replace(batch, steps=tuple(error.rest))
                raise

        self._retry(put, once=once)

    def _retry(self, act: Callable[[], T], *, once: bool = False) -> T:
        """Return what ``act`` returns; repeat it for as long as the store does not answer, unless ``once``."""
        wait_s = limits.PUBLISH_AGAIN_S
        here = threading.current_thread()
        # Nobody is told that the store does not answer because of what is of long ago.
        line, is_past = "large" if here is self._large.thread else "live", here is self._past.thread
        while True:
            if not is_past:
                self._commit_starts[line] = self._clock.monotonic()
            try:
                answer = act()
            except AppUnavailable:
                self._answered(line, is_past)
                raise
            except StoreUnavailable as error:
                if self._trouble is None:
                    log.warning("the store takes nothing now, the commit is repeated: %s", error)
                self._trouble = str(error)
                if once or self._stopped.wait(wait_s):
                    raise
            else:
                self._answered(line, is_past)
                return answer
            wait_s = min(2 * wait_s, limits.PUBLISH_AGAIN_MAX_S)

    def _answered(self, line: str, is_past: bool) -> None:
        """Note that the store took something, or that only an app's rows forbid it."""
        self._trouble = None
        if not is_past:
            self._commit_starts.pop(line, None)


def _are_past(messages: Sequence[_PendingMessage]) -> list[bool]:
    return are_envelopes_past([message.envelope for message in messages])


def open_url(url: str) -> DirectTransport:
    """Return the direct transport to the store at ``url``."""
    return DirectTransport(Writer(open_backend(url), PlacementTable()))
