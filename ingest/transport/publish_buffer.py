"""What a publisher has not had confirmed yet, how much room is left, and why it takes no more now, as senders read it.

A message is in one place: waiting → in flight (by delivery tag) → confirmed, or refused and soon waiting again. A lost
connection puts what was in flight back in front, in its order. A message with ``until_confirmed`` leaves by a confirm
only; the others are forgotten when their sender gives up. Room is counted from ``reserve`` on, so that the buffer is
bounded (``AMQP_UNCONFIRMED_MAX``, ``…_BYTES_MAX``). Nothing is reserved while it could not be published: blocked,
stalled, closing, disconnected for longer than a moment, or a queue that has just refused. No connection here: ``amqp``
has it. Enter by ``PublishBuffer``.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.transport.base import OutcomeCallback, tell_outcome, wait_until_done
from spm import limits
from spm.clock import Clock
from spm.errors import LimitExceeded, QueueUnavailable

REFUSED = "the queue refused the message"


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """One message on its way; ``trouble``: why it is not confirmed, by the queue's last answer.

    ``other_key``: under which it is published once its queue has refused it.
    """

    exchange: str
    key: str
    body: bytes
    message_id: str
    weight: int
    until_confirmed: bool  # published again until it is confirmed; else forgotten when its sender gives up
    headers: Mapping[str, str] | None = None
    other_key: str | None = None
    outcome: OutcomeCallback = lambda stored: None
    done: threading.Event = field(default_factory=threading.Event)
    trouble: str | None = None
    returned: str | None = None
    refused: bool = False


class PublishBuffer:
    """The unconfirmed messages of one publisher.

    Thread-safe; ``take`` and all methods below it are for the connection's thread alone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = threading.Condition(threading.RLock())
        self._waiting: deque[OutgoingMessage] = deque()
        self._in_flight: dict[int, OutgoingMessage] = {}  # by delivery tag, growing
        self._refused: list[OutgoingMessage] = []
        self._refusing: Counter[str] = Counter()  # by key: messages that were refused and are not confirmed yet
        self._body_max = limits.AMQP_BODY_BYTES_MAX
        self._count = self._weight = self._tag = 0
        self._wake_pending = self._closing = False
        self._blocked: str | None = None
        self._why_down = "not connected yet"
        self._down_since: float | None = clock.monotonic()
        self._progress_at = clock.monotonic()  # when a message was last confirmed, or the first one was in flight

    def reserve(self, key: str, weight: int, wait_s: float = limits.PUBLISH_ROOM_WAIT_S) -> None:
        """Reserve room for a message.

        ``QueueUnavailable``: there is none now; ``LimitExceeded``: for this one never.
        """
        if weight > self._body_max:
            raise LimitExceeded("a message is too large", got=weight, wanted=self._body_max)
        end = self._clock.monotonic() + wait_s
        with self._room:
            while True:
                self._refuse(key)
                hindrance, until = self._hindrance(weight, end, wait_s)
                if hindrance is None:
                    break
                remaining_s = until - self._clock.monotonic()
                if remaining_s <= 0:
                    raise QueueUnavailable(f"RabbitMQ: {hindrance}")
                self._room.wait(remaining_s)
            self._count, self._weight = self._count + 1, self._weight + weight

    def release(self, weight: int) -> None:
        """Give the room of a message back that is not sent."""
        with self._room:
            self._free(weight)

    def add(self, message: OutgoingMessage) -> bool:
        """Add a message that has its room; return whether the connection's thread is to be woken."""
        with self._room:
            self._waiting.append(message)
            wake, self._wake_pending = not self._wake_pending, True
            return wake

    def wait(self, message: OutgoingMessage, timeout_s: float) -> None:
        """Return when the message is confirmed; ``QueueUnavailable`` when its sender should wait no longer."""
        why = wait_until_done(message.done, timeout_s, lambda: self.trouble(message), self._clock) or message.trouble
        if why is not None:
            self._abandon(message)
            raise QueueUnavailable(f"RabbitMQ: {why}")

    def take(self) -> list[tuple[int, OutgoingMessage]]:
        """Return what is to be published now, each message under its delivery tag."""
        with self._room:
            self._wake_pending = False
            if self._down_since is not None or self._blocked is not None:
                return []
            if not self._in_flight:
                self._progress_at = self._clock.monotonic()
            messages = []
            while self._waiting:
                message = self._waiting.popleft()
                self._tag += 1
                self._in_flight[self._tag] = message
                messages.append((self._tag, message))
            return messages

    def confirm(self, tag: int, *, multiple: bool, taken: bool) -> bool:
        """Apply the broker's answer to a message, or all up to it; return whether some must be published again."""
        settled = []
        with self._room:
            self._progress_at = self._clock.monotonic()
            for number in [t for t in self._in_flight if t <= tag] if multiple else [tag]:
                message = self._in_flight.pop(number)
                if not taken or message.returned is not None:
                    self._refuse_message(message, message.returned or REFUSED)
                    continue
                if message.refused:
                    self._refusing[message.key] -= 1
                message.trouble = None
                self._free(message.weight)
                settled.append(message)
        for message in settled:
            tell_outcome(message.outcome, True)
            message.done.set()
        return bool(self._refused)

    def returned(self, tag: int, why: str) -> None:
        """Note that no queue takes the message. Its confirm follows, and must not be taken for a success."""
        self._in_flight[tag].returned = f"no queue for it: {why}"

    def retry_refused(self) -> None:
        """Put refused messages back in front of the waiting ones."""
        with self._room:
            self._waiting.extendleft(reversed(self._refused))
            self._refused.clear()

    def block(self, reason: str | None) -> None:
        """Note that the broker is out of memory or disk (``None``: no longer): it neither reads nor confirms."""
        with self._room:
            self._blocked = reason
            self._progress_at = self._clock.monotonic()
            self._room.notify_all()

    def connected(self) -> None:
        """Begin a connection, on which delivery tags begin at 1."""
        with self._room:
            self._tag, self._down_since, self._progress_at = 0, None, self._clock.monotonic()
            self._room.notify_all()

    def disconnected(self, why: str) -> None:
        """End a connection. Nobody knows whether messages in flight arrived: they are published again."""
        with self._room:
            unconfirmed = [*self._in_flight.values(), *self._refused, *self._waiting]
            self._in_flight.clear()
            self._refused.clear()
            self._waiting = deque(m for m in unconfirmed if m.until_confirmed)
            for message in unconfirmed:
                message.returned = None
                if not message.until_confirmed:
                    self._fail(message, why)
            self._wake_pending, self._blocked, self._why_down = False, None, why
            if self._down_since is None:
                self._down_since = self._clock.monotonic()
            self._room.notify_all()

    def limit_body_size(self, body_max: int) -> None:
        """Fail larger bodies for good: the broker closes the channel for one, so it can never be confirmed."""
        with self._room:
            self._body_max = min(self._body_max, body_max)
            too_large = [m for m in [*self._in_flight.values(), *self._waiting] if len(m.body) > body_max]
            self._in_flight = {tag: m for tag, m in self._in_flight.items() if m not in too_large}
            self._waiting = deque(m for m in self._waiting if m not in too_large)
            for message in too_large:
                self._fail(message, f"it takes no bodies of {len(message.body)} bytes")
        for message in too_large:
            tell_outcome(message.outcome, False)

    def close(self, wait_s: float) -> bool:
        """Take no more; return whether everything was confirmed within the time."""
        with self._room:
            self._closing = True
            self._room.notify_all()
            return self._room.wait_for(lambda: self.unconfirmed_count() == 0, wait_s)

    def unconfirmed_count(self) -> int:
        """Return how many messages must be confirmed and are not, those included that only have their room yet."""
        with self._room:
            return self._count - sum(not m.until_confirmed for m in [*self._in_flight.values(), *self._waiting])

    def _abandon(self, message: OutgoingMessage) -> None:
        """Forget a waiting message whose sender gives up, unless it is published until it is confirmed."""
        with self._room:
            if not message.until_confirmed and message in self._waiting:
                self._waiting.remove(message)
                self._free(message.weight)

    def _refuse(self, key: str) -> None:
        """Raise when a message under this key must not be taken, and waiting would not help."""
        why = "the transport is closing" if self._closing else self._standstill()
        if why is None and self._refusing.get(key):
            why = f"{REFUSED} before this one"
        if why is not None:
            raise QueueUnavailable(f"RabbitMQ: {why}")

    def _standstill(self) -> str | None:
        """Return why nothing can be published at all, ``None`` if it can."""
        if self._blocked is not None:
            return f"it takes no messages: {self._blocked}"
        silent_s = self._clock.monotonic() - self._progress_at
        if self._in_flight and silent_s > limits.PUBLISH_STALL_S:
            return f"no confirm of anything for {silent_s:.1f} s"
        return None

    def _hindrance(self, weight: int, end: float, wait_s: float) -> tuple[str | None, float]:
        """Return a hindrance that may pass, and until when to wait for that."""
        if self._down_since is not None:
            return self._why_down, min(end, self._down_since + wait_s)
        full = self._count >= limits.AMQP_UNCONFIRMED_MAX
        if self._count and (full or self._weight + weight > limits.AMQP_UNCONFIRMED_BYTES_MAX):
            return "no room for another message", end
        return None, end

    def trouble(self, message: OutgoingMessage) -> str | None:
        """Return why the sender of a message should wait no longer, ``None`` if it should."""
        with self._room:
            down_s = 0.0 if self._down_since is None else self._clock.monotonic() - self._down_since
            if down_s > limits.PUBLISH_ROOM_WAIT_S:
                return self._why_down
            return message.trouble or self._standstill()

    def _refuse_message(self, message: OutgoingMessage, why: str) -> None:
        message.returned = None
        if not message.until_confirmed:
            self._fail(message, why)
            return
        if message.other_key is not None:
            message.key, message.other_key = message.other_key, None
            self._refused.append(message)
            return
        message.trouble = why
        self._refusing[message.key] += not message.refused
        message.refused = True
        self._refused.append(message)

    def _fail(self, message: OutgoingMessage, why: str) -> None:
        """End a message that will not be published again."""
        message.trouble = why
        self._free(message.weight)
        message.done.set()

    def _free(self, weight: int) -> None:
        self._count, self._weight = self._count - 1, self._weight - weight
        self._room.notify_all()
