"""What a publisher has not had confirmed: how much room is left, what waits, what is under way, what was refused.

A parcel is in one place: waiting → under way (by delivery tag) → confirmed, or refused and soon waiting again. A lost
connection puts what was under way back in front, in its order. Kept parcels leave by a confirm only; the others are
forgotten when their sender has gone. Room is counted from ``reserve`` on, so what is kept has a bound
(``AMQP_UNCONFIRMED_MAX``, ``…_BYTES_MAX``), and nothing is reserved while it could not be published: blocked, stalled,
closing, disconnected for longer than a moment, or a queue that has just refused. No connection here: ``amqp`` has it.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.transport.base import Outcome, waited
from spm import limits
from spm.clock import Clock
from spm.errors import LimitExceeded, QueueUnavailable

REFUSED = "the queue refused the message"


@dataclass(slots=True, eq=False)
class Parcel:
    """One message on its way; ``trouble``: why it is not confirmed, by the queue's last word."""

    exchange: str
    key: str
    body: bytes
    message_id: str
    weight: int
    kept: bool  # published again until it is confirmed; else forgotten when its sender has gone
    headers: Mapping[str, str] | None = None
    outcome: Outcome = lambda stored: None
    done: threading.Event = field(default_factory=threading.Event)
    trouble: str | None = None
    returned: str | None = None
    refused: bool = False


class Outbox:
    """The parcels of one publisher. Thread-safe; ``take`` and what follows it are the connection's thread's alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = threading.Condition(threading.RLock())
        self._waiting: deque[Parcel] = deque()
        self._under_way: dict[int, Parcel] = {}  # by delivery tag, growing
        self._refused: list[Parcel] = []
        self._refusing: Counter[str] = Counter()  # by key: parcels that were refused and are not confirmed yet
        self._body_max = limits.AMQP_BODY_BYTES_MAX
        self._count = self._weight = self._tag = 0
        self._asked = self._closing = False
        self._blocked: str | None = None
        self._why_down = "not connected yet"
        self._down_since: float | None = clock.monotonic()
        self._moved = clock.monotonic()  # when something was last confirmed, or began to be under way

    def reserve(self, key: str, weight: int, wait_s: float = limits.PUBLISH_ROOM_WAIT_S) -> None:
        """Keep room for a parcel. ``QueueUnavailable``: there is none now; ``LimitExceeded``: for this one never."""
        if weight > self._body_max:
            raise LimitExceeded("a message is too large", got=weight, wanted=self._body_max)
        end = self._clock.monotonic() + wait_s
        with self._room:
            while True:
                self._refuse(key)
                hindrance, until = self._hindrance(weight, end, wait_s)
                if hindrance is None:
                    break
                left = until - self._clock.monotonic()
                if left <= 0:
                    raise QueueUnavailable(f"RabbitMQ: {hindrance}")
                self._room.wait(left)
            self._count, self._weight = self._count + 1, self._weight + weight

    def release(self, weight: int) -> None:
        """Give room back."""
        with self._room:
            self._free(weight)

    def add(self, parcel: Parcel) -> bool:
        """Put a parcel for which room was kept; whether the connection's thread is to be woken."""
        with self._room:
            self._waiting.append(parcel)
            ask, self._asked = not self._asked, True
            return ask

    def wait(self, parcel: Parcel, timeout_s: float) -> None:
        """Return when the parcel is confirmed; ``QueueUnavailable`` when its sender should wait no longer."""
        why = waited(parcel.done, timeout_s, lambda: self._trouble(parcel), self._clock) or parcel.trouble
        if why is not None:
            self._leave(parcel)
            raise QueueUnavailable(f"RabbitMQ: {why}")

    def take(self) -> list[tuple[int, Parcel]]:
        """What is to be published now, each under its delivery tag."""
        with self._room:
            self._asked = False
            if self._down_since is not None or self._blocked is not None:
                return []
            if not self._under_way:
                self._moved = self._clock.monotonic()
            taken = []
            while self._waiting:
                parcel = self._waiting.popleft()
                self._tag += 1
                self._under_way[self._tag] = parcel
                taken.append((self._tag, parcel))
            return taken

    def confirm(self, tag: int, *, multiple: bool, taken: bool) -> bool:
        """The broker's word about a parcel, or all up to it; whether some are to be published again."""
        settled = []
        with self._room:
            self._moved = self._clock.monotonic()
            for number in [t for t in self._under_way if t <= tag] if multiple else [tag]:
                parcel = self._under_way.pop(number)
                if not taken or parcel.returned is not None:
                    self._refuse_parcel(parcel, parcel.returned or REFUSED)
                    continue
                if parcel.refused:
                    self._refusing[parcel.key] -= 1
                parcel.trouble = None
                self._free(parcel.weight)
                settled.append(parcel)
        for parcel in settled:
            parcel.outcome(True)
            parcel.done.set()
        return bool(self._refused)

    def returned(self, tag: int, why: str) -> None:
        """No queue takes the parcel. Its confirm follows, and must not be taken for a success."""
        self._under_way[tag].returned = f"no queue for it: {why}"

    def again(self) -> None:
        """What was refused waits once more, in front."""
        with self._room:
            self._waiting.extendleft(reversed(self._refused))
            self._refused.clear()

    def block(self, reason: str | None) -> None:
        """The broker is out of memory or disk (``None``: no longer): it reads nothing from us, and confirms nothing."""
        with self._room:
            self._blocked = reason
            self._moved = self._clock.monotonic()
            self._room.notify_all()

    def connected(self) -> None:
        """There is a connection, on which delivery tags begin at 1."""
        with self._room:
            self._tag, self._down_since, self._moved = 0, None, self._clock.monotonic()
            self._room.notify_all()

    def lost(self, why: str) -> None:
        """There is no connection. Whether what was under way arrived, nobody knows: it is published again."""
        with self._room:
            back = [*self._under_way.values(), *self._refused, *self._waiting]
            self._under_way.clear()
            self._refused.clear()
            self._waiting = deque(p for p in back if p.kept)
            for parcel in back:
                parcel.returned = None
                if not parcel.kept:
                    self._fail(parcel, why)
            self._asked, self._blocked, self._why_down = False, None, why
            if self._down_since is None:
                self._down_since = self._clock.monotonic()
            self._room.notify_all()

    def bound(self, body_max: int) -> None:
        """The broker takes no larger bodies, and closes the channel for one: what is larger can never be confirmed."""
        with self._room:
            self._body_max = min(self._body_max, body_max)
            lost = [p for p in [*self._under_way.values(), *self._waiting] if len(p.body) > body_max]
            self._under_way = {tag: p for tag, p in self._under_way.items() if p not in lost}
            self._waiting = deque(p for p in self._waiting if p not in lost)
            for parcel in lost:
                self._fail(parcel, f"it takes no bodies of {len(parcel.body)} bytes")
        for parcel in lost:
            parcel.outcome(False)

    def close(self, wait_s: float) -> bool:
        """Take no more; whether everything was confirmed within the time."""
        with self._room:
            self._closing = True
            self._room.notify_all()
            return self._room.wait_for(lambda: self.open_parcels() == 0, wait_s)

    def open_parcels(self) -> int:
        """How many are to be kept and are not confirmed, those counted for which there is only room yet."""
        with self._room:
            return self._count - sum(not p.kept for p in [*self._under_way.values(), *self._waiting])

    def _leave(self, parcel: Parcel) -> None:
        """Its sender has gone: one that is not kept is not begun."""
        with self._room:
            if not parcel.kept and parcel in self._waiting:
                self._waiting.remove(parcel)
                self._free(parcel.weight)

    def _refuse(self, key: str) -> None:
        """Raise when a parcel under this key is not to be taken, and waiting would not help."""
        why = "it is being left" if self._closing else self._standstill()
        if why is None and self._refusing.get(key):
            why = f"{REFUSED} before this one"
        if why is not None:
            raise QueueUnavailable(f"RabbitMQ: {why}")

    def _standstill(self) -> str | None:
        """Why nothing can be published at all."""
        if self._blocked is not None:
            return f"it takes no messages: {self._blocked}"
        silent_s = self._clock.monotonic() - self._moved
        if self._under_way and silent_s > limits.PUBLISH_STALL_S:
            return f"no confirm of anything for {silent_s:.1f} s"
        return None

    def _hindrance(self, weight: int, end: float, wait_s: float) -> tuple[str | None, float]:
        """What may pass, and how long to wait for that."""
        if self._down_since is not None:
            return self._why_down, min(end, self._down_since + wait_s)
        full = self._count >= limits.AMQP_UNCONFIRMED_MAX
        if self._count and (full or self._weight + weight > limits.AMQP_UNCONFIRMED_BYTES_MAX):
            return "no room for another message", end
        return None, end

    def _trouble(self, parcel: Parcel) -> str | None:
        """Why the sender of a parcel should wait no longer."""
        with self._room:
            down_s = 0.0 if self._down_since is None else self._clock.monotonic() - self._down_since
            if down_s > limits.PUBLISH_ROOM_WAIT_S:
                return self._why_down
            return parcel.trouble or self._standstill()

    def _refuse_parcel(self, parcel: Parcel, why: str) -> None:
        parcel.returned = None
        if not parcel.kept:
            self._fail(parcel, why)
            return
        parcel.trouble = why
        self._refusing[parcel.key] += not parcel.refused
        parcel.refused = True
        self._refused.append(parcel)

    def _fail(self, parcel: Parcel, why: str) -> None:
        """Forget a parcel."""
        parcel.trouble = why
        self._free(parcel.weight)
        parcel.done.set()

    def _free(self, weight: int) -> None:
        self._count, self._weight = self._count - 1, self._weight - weight
        self._room.notify_all()
