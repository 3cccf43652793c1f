"""One push from parsed to durable: its identity, its stamp, the transport, and what is noted about it.

Enter by ``front_door()``, the process' own, or build a ``FrontDoor`` over any transport. ``push`` keeps room before it
stamps, and returns only when the samples are durable; a stamped message goes on to become so without its sender. The
same message id makes a re-sent body recognisable: the sender's own (``X-Message-Id``), else a hash of token, path and
decoded body; random if a sample took its time from our clock: it is another each time.
"""

import atexit
import hashlib
import logging
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.db import DatabaseError

from ingest.accept import arrivals, descriptions, rejections
from ingest.accept.admission import Guard
from ingest.accept.announcer import Accepting
from ingest.transport import open_transport
from ingest.transport.base import Transport, weight_of
from spm import telemetry
from spm.accounts import sources
from spm.clock import Clock, SystemClock, random_bytes
from spm.errors import BadMessage, Explained, QueueUnavailable, Refused, StoreUnavailable
from spm.limits import (
    BODIES_AT_ONCE_MAX,
    MESSAGE_ID_CHARS_MAX,
    PUBLISH_TIMEOUT_S,
    SOURCE_BYTES_MAX,
    SOURCE_PERIOD_MAX_MS,
)
from spm.store.backends import open_backend
from spm.wire import Envelope, Parsed, Rejection

_LOG = logging.getLogger(__name__)
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Sender:
    """Who pushes: the token's app, the source it names, by which way (``arrivals``), how often if it says so."""

    app_id: int
    source: str
    way: str = ""
    period_ms: int = 0


class FrontDoor:
    """Accepts parsed messages in the name of one process. Thread-safe."""

    def __init__(self, accepting: Accepting, transport: Transport, clock: Clock, guard: Guard | None = None) -> None:
        self._accepting, self._transport, self.clock, self._guard = accepting, transport, clock, guard
        self._room = threading.BoundedSemaphore(BODIES_AT_ONCE_MAX)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for bodies in work; raises ``QueueUnavailable`` when all are taken."""
        if not self._room.acquire(blocking=False):
            raise QueueUnavailable(f"{BODIES_AT_ONCE_MAX} bodies are in work already")
        try:
            yield
        finally:
            self._room.release()

    def pace(self, app_id: int) -> None:
        """Raise ``TooFast`` for an app that has used up its rate: its body need not be read."""
        if self._guard is not None:
            self._guard.pace(app_id)

    def crowded(self, app_id: int) -> bool:
        """Whether the app brought series over its quota lately."""
        return self._guard is not None and self._guard.crowded(app_id)

    def push(self, parsed: Parsed, *, sender: Sender, message_id: bytes, unit: str = "ms") -> Parsed:
        """Make the message durable; what of it came in, since quotas may leave something out.

        Raises ``QueueUnavailable`` or ``StoreUnavailable`` when that is not sure yet. ``unit``: that of times as sent.
        """
        if self._guard is not None:
            parsed = self._guard.admit(sender.app_id, parsed, unit)
        if len(parsed.ts):
            self._send(parsed, sender, message_id)
        note(parsed, sender, self.clock.now_ms())
        return parsed

    def close(self) -> None:
        """Give what is under way a bounded time, and say what was accepted in all."""
        self._transport.close()
        self._accepting.close()

    def _send(self, parsed: Parsed, sender: Sender, message_id: bytes) -> None:
        weight = weight_of(parsed)
        self._transport.reserve(sender.app_id, sender.source, weight)
        try:
            envelope = self._accepting.accept(
                app=sender.app_id, source=sender.source, parsed=parsed, message_id=message_id
            )
        except BaseException:
            self._transport.release(weight)
            raise

        def outcome(stored: bool) -> None:
            if stored:
                self._accepting.settled(envelope)
            else:
                self._accepting.retire()

        telemetry.ACCEPTED_MESSAGES.inc()
        telemetry.ACCEPTED_SAMPLES.inc(len(envelope))
        try:
            with telemetry.timed(telemetry.PUBLISH_S, clock=self.clock):
                self._transport.send(envelope, weight, PUBLISH_TIMEOUT_S, outcome)
        except (QueueUnavailable, StoreUnavailable):
            raise
        except BaseException:  # nobody knows what became of it
            self._accepting.retire()
            raise


def note(parsed: Parsed, sender: Sender, now_ms: int) -> None:
    """Tell people; a database in trouble must not make a durable message look lost."""
    telemetry.REJECTED_LINES.inc(parsed.rejected)
    try:
        if len(parsed.ts):
            sources.seen(sender.app_id, sender.source, now_ms, period_ms=sender.period_ms)
            arrivals.noted(sender.app_id, sender.way, sender.source, now_ms)
        rejections.note(sender.app_id, sender.source, parsed.rejections, now_ms, sender.way)
        descriptions.note(sender.app_id, parsed.metadata)
    except DatabaseError:
        _LOG.exception("could not note a message of app %s", sender.app_id)


def note_refused(error: Explained, sender: Sender, now_ms: int) -> None:
    """A body that was refused as a whole stands among the rejections, too."""
    telemetry.REJECTED_LINES.inc()
    try:
        rejections.note(sender.app_id, sender.source, [Rejection(0, str(error)[:300], "")], now_ms, sender.way)
    except DatabaseError:
        _LOG.exception("could not note a refused body of app %s", sender.app_id)


def message_id_of(parsed: Parsed, *, given: str | None, token_id: int, path: str, body: bytes) -> bytes:
    """The message's id, 128 bits; ``BadMessage`` for a sender's id that is too long."""
    if given:
        return _given_id(given)
    if parsed.timeless:
        return random_bytes(_ID_BYTES)
    return _digest(f"{token_id}\n{path}\n".encode(), body)


def source_of(given: str | None, token_id: int) -> str:
    """The source a sender names, else one named after its token."""
    if not given:
        return f"token-{token_id}"
    if len(given.encode("utf-8", "replace")) > SOURCE_BYTES_MAX or not given.isprintable():
        raise BadMessage(
            "the source's name cannot be used", got=given[:80], wanted=f"{SOURCE_BYTES_MAX} printable bytes"
        )
    return given


def period_of(given: str | None) -> int:
    """How often a sender says that it sends (seconds, ``X-SPM-Period``), in ms; 0 for none or nonsense."""
    text = (given or "").strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or len(text) > 12:
        return 0
    period_ms = round(float(text) * 1_000)
    return period_ms if 0 < period_ms <= SOURCE_PERIOD_MAX_MS else 0


@lru_cache(maxsize=1)
def _only_door() -> FrontDoor:
    clock = SystemClock()
    store = open_backend(settings.SPM_STORE_URL)
    accepting = Accepting(store, clock)
    transport = open_transport(settings.SPM_TRANSPORT, store_url=settings.SPM_STORE_URL, amqp_url=settings.SPM_AMQP_URL)
    door = FrontDoor(accepting, transport, clock, Guard(store, clock))
    atexit.register(door.close)
    return door


_opening = threading.Lock()


def front_door() -> FrontDoor:
    """This process' door, opened at its first message."""
    with _opening:
        return _only_door()


def close_front_door() -> None:
    """Have this process' door say its last word now, if there is one; the next message opens another."""
    with _opening:
        door = _only_door() if _only_door.cache_info().currsize else None
        _only_door.cache_clear()
    if door is not None:
        atexit.unregister(door.close)
        door.close()


def accept_anew(envelope: Envelope) -> None:
    """Push a message again that was accepted before and died: a new stamp under its old id.

    ``Refused`` when not all of it came in, so that nobody takes it for settled; what came in may come again.
    """
    again = Parsed(envelope.series, envelope.series_index, envelope.ts, envelope.values)
    came = front_door().push(again, sender=Sender(envelope.app, envelope.source), message_id=envelope.message_id)
    if left := len(again.ts) - len(came.ts):
        raise Refused(f"{left:,} of its {len(again.ts):,} samples were not taken: {came.rejections[0].reason}")


def _given_id(given: str) -> bytes:
    if len(given) > MESSAGE_ID_CHARS_MAX:
        raise BadMessage(
            "the message id is too long", got=f"{len(given)} characters", wanted=f"at most {MESSAGE_ID_CHARS_MAX}"
        )
    if len(given) == 2 * _ID_BYTES and set(given) <= set(string.hexdigits):
        return bytes.fromhex(given)
    return _digest(given.encode("utf-8", "replace"), b"")


def _digest(head: bytes, body: bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=_ID_BYTES, usedforsecurity=False)
    digest.update(body)
    return digest.digest()
