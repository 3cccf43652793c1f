"""A line of messages that take long to write, with a thread of its own: nothing else waits for them.

In it apps take turns, and sources within an app. Enter by ``SideLine``.
"""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ingest.transport.past import hours_at_most
from ingest.transport.turns import Turns
from spm import limits
from spm.wire import Envelope


class Waiting(Protocol):
    """A message that waits for its commit."""

    envelope: Envelope
    weight: int


M = TypeVar("M", bound=Waiting)


class SideLine(Generic[M]):
    """Messages that one thread settles, some at a time.

    Its methods are called under ``lock``, the transport's. The thread ends when ``is_over`` says that nothing more can
    come.
    """

    def __init__(
        self, name: str, lock: threading.RLock, settle: Callable[[list[M]], None], is_over: Callable[[], bool]
    ) -> None:
        self.name, self._settle, self._is_over = name, settle, is_over
        self._changed = threading.Condition(lock)  # each thread is woken for its own messages alone
        self._turns: Turns[M] = Turns()
        self.thread: threading.Thread | None = None  # begins with the first message

    def put(self, messages: list[M]) -> None:
        """Let messages wait for their turns."""
        for message in messages:
            self._turns.put(message.envelope.app, message.envelope.source, message)
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self.thread.start()
        self._changed.notify()

    def look(self) -> None:
        """Look whether it is over."""
        self._changed.notify()

    def _run(self) -> None:
        while messages := self._take():
            self._settle(messages)

    def _take(self) -> list[M]:
        """Wait for messages and return those of the next commit; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns or self._is_over())
            messages: list[M] = []
            hours = size = 0
            while self._turns:
                message = self._turns.next()
                hours, size = hours + hours_at_most(message.envelope), size + message.weight
                if messages and (hours > limits.BATCH_HOURS_MAX or size > limits.COMMIT_BYTES_MAX):
                    break
                messages.append(self._turns.take())
            return messages
