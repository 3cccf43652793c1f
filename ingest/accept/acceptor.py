"""Makes a parsed message durable: admission, room in the transport, stamp, transport, record of it.

Enter by ``Acceptor.accept``, or by ``accept_many`` for the messages of many senders at once; a process has one
(``process_acceptor``). It reserves room in the transport before it stamps a message. ``accept`` returns only when the
samples are durable; ``accept_many`` returns before, and says so by a callback. A stamped message whose sender gives up
is still published until it is durable.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ingest.accept.activity import record_accepted
from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import Sender
from ingest.transport.base import Submission, Transport, Trouble, weight_of
from spm import telemetry
from spm.clock import Clock
from spm.errors import QueueUnavailable, SpmError, StoreUnavailable
from spm.limits import BODIES_AT_ONCE_MAX, PUBLISH_ROOM_WAIT_S, PUBLISH_TIMEOUT_S
from spm.wire import Envelope, Parsed

log = logging.getLogger(__name__)
Submit = Callable[[Sequence[Submission], Callable[[list[Trouble]], None]], None]


@dataclass(slots=True)
class Acceptance:
    """One of many messages to accept, and what became of it.

    ``unit`` is the unit of the times as they were sent. ``settled`` is called once, in any thread, when the message is
    durable (``None``) or when that cannot be known any more. ``accepted`` is its admitted part;
    ``stamp_ms`` is of its stamp, if it has one; ``trouble`` says why its sender should wait no longer. With ``error``
    nothing of it was stamped. ``is_apart``: it takes long to write, and those accepted with it are durable before.
    """

    parsed: Parsed
    sender: Sender
    message_id: bytes
    unit: str
    settled: Callable[[SpmError | None], None]
    accepted: Parsed | None = None
    stamp_ms: int | None = None
    trouble: Trouble | None = None
    error: Exception | None = None
    is_apart: bool = False


class Acceptor:
    """Accepts parsed messages for one process. Thread-safe."""

    def __init__(
        self, announcer: StampAnnouncer, transport: Transport, clock: Clock, admission: Admission | None = None
    ) -> None:
        self._announcer, self._transport, self.clock, self._admission = announcer, transport, clock, admission
        self._bodies = threading.BoundedSemaphore(BODIES_AT_ONCE_MAX)

    @contextmanager
    def reserve_body(self) -> Iterator[None]:
        """Hold one of the places for bodies in work; raise ``QueueUnavailable`` when all are taken."""
        if not self._bodies.acquire(blocking=False):
            raise QueueUnavailable(f"{BODIES_AT_ONCE_MAX} bodies are in work already")
        try:
            yield
        finally:
            self._bodies.release()

    def check_rate(self, app_id: int) -> None:
        """Raise ``TooFast`` for an app that has used up its rate, before its body is read."""
        if self._admission is not None:
            self._admission.check_rate(app_id)

    def is_over_quota(self, app_id: int) -> bool:
        """Whether the app recently sent series over its quota."""
        return self._admission is not None and self._admission.is_over_quota(app_id)

    def accept(self, parsed: Parsed, *, sender: Sender, message_id: bytes, unit: str = "ms") -> Parsed:
        """Make the message durable and return the admitted part of it; quotas may reject some samples.

        ``unit`` is the unit of the times as they were sent. Raises ``QueueUnavailable`` or ``StoreUnavailable`` when it
        is not certain yet that the message is durable.
        """
        if self._admission is not None:
            parsed = self._admission.admit(sender.app_id, parsed, unit)
        stamp_ms = self._send(parsed, sender, message_id) if len(parsed.ts) else None
        record_accepted(parsed, sender, self.clock.now_ms(), stamp_ms)
        return parsed

    def is_slow(self, app_id: int) -> bool:
        """Whether the app recently sent what takes long, for which no other app should wait."""
        return self._admission is not None and self._admission.is_slow(app_id)

    def sends_past(self, app_id: int) -> bool:
        """Whether the app recently sent samples of long ago, whose commit may wait behind others of these."""
        return self._admission is not None and self._admission.sends_past(app_id)

    def accept_many(self, messages: Sequence[Acceptance]) -> None:
        """Accept messages of any apps together. An error of one is set on it and never touches another.

        Those that are apart, of themselves or since their app is slow, are submitted apart.
        """
        soon: list[tuple[Acceptance, Submission]] = []
        apart: list[tuple[Acceptance, Submission]] = []
        until = self.clock.monotonic() + PUBLISH_ROOM_WAIT_S
        for message, admitted in zip(messages, self._admitted(messages), strict=True):
            try:
                submission = self._prepare(message, admitted, max(0.0, until - self.clock.monotonic()))
            except Exception as error:
                message.error = error
                continue
            if submission is None:
                message.settled(None)
                continue
            message.is_apart = message.is_apart or self.is_slow(message.sender.app_id)
            (apart if message.is_apart else soon).append((message, submission))
        if stamped := apart + soon:
            telemetry.ACCEPTED_MESSAGES.inc(len(stamped))
            telemetry.ACCEPTED_SAMPLES.inc(sum([len(submission.envelope) for _, submission in stamped]))
            try:
                _submit(self._transport.submit_apart, apart)
                _submit(self._transport.submit_here, soon)
            except BaseException:  # the outcome of the messages is unknown
                self._announcer.retire()
                _note_troubles([message for message, _ in stamped], [_unknown_outcome] * len(stamped))
                raise

    def standstill(self) -> str | None:
        """Why no message becomes durable at present, if that is known."""
        return self._transport.standstill()

    def has_allowance(self, app_id: int) -> bool:
        """Whether ``check_rate`` lets the app's next body in without asking the store."""
        return self._admission is None or self._admission.has_allowance(app_id)

    def close(self) -> None:
        """Wait a bounded time for unconfirmed messages, then announce the final counts."""
        self._transport.close()
        self._announcer.close()

    def _admitted(self, messages: Sequence[Acceptance]) -> Sequence[Parsed | Exception]:
        if self._admission is None:
            return [message.parsed for message in messages]
        bodies = [(each.sender.app_id, each.parsed, each.unit) for each in messages]
        try:
            return self._admission.admit_many(bodies)
        except Exception:  # a fault of ours: the bodies that did not cause it are accepted
            log.exception("%d bodies cannot be admitted together", len(bodies))
        return [_result_of(partial(self._admission.admit, *body)) for body in bodies]

    def _prepare(self, message: Acceptance, admitted: Parsed | Exception, wait_s: float) -> Submission | None:
        """Reserve room for the admitted part and stamp it; return ``None`` if nothing of it is to be stored."""
        if isinstance(admitted, Exception):
            raise admitted
        message.accepted = admitted
        if not len(admitted.ts):
            return None
        envelope, weight = self._stamp(admitted, message.sender, message.message_id, wait_s)
        message.stamp_ms = envelope.stamp.ms

        def outcome(stored: bool) -> None:
            if stored:
                self._announcer.confirm(envelope)
                message.settled(None)
            else:
                self._announcer.retire()
                message.settled(StoreUnavailable("the message can neither be stored nor become a dead letter"))

        return Submission(envelope, weight, outcome)

    def _stamp(self, parsed: Parsed, sender: Sender, message_id: bytes, wait_s: float) -> tuple[Envelope, int]:
        """Reserve room for samples, then stamp them; return the envelope and its weight, for which room is reserved."""
        weight = weight_of(parsed)
        self._transport.reserve(sender.app_id, sender.source, weight, wait_s)
        try:
            envelope = self._announcer.stamp_message(
                app=sender.app_id, source=sender.source, parsed=parsed, message_id=message_id
            )
        except BaseException:
            self._transport.release(sender.app_id, weight)
            raise
        return envelope, weight

    def _send(self, parsed: Parsed, sender: Sender, message_id: bytes) -> int:
        """Stamp a message and wait until it is durable; return the ms of its stamp."""
        envelope, weight = self._stamp(parsed, sender, message_id, PUBLISH_ROOM_WAIT_S)

        def outcome(stored: bool) -> None:
            if stored:
                self._announcer.confirm(envelope)
            else:
                self._announcer.retire()

        telemetry.ACCEPTED_MESSAGES.inc()
        telemetry.ACCEPTED_SAMPLES.inc(len(envelope))
        try:
            with telemetry.timed(telemetry.PUBLISH_S, clock=self.clock):
                self._transport.send(envelope, weight, PUBLISH_TIMEOUT_S, outcome)
        except (QueueUnavailable, StoreUnavailable):
            raise
        except BaseException:  # the outcome of the message is unknown
            self._announcer.retire()
            raise
        return envelope.stamp.ms


def _result_of(admit: Callable[[], Parsed]) -> Parsed | Exception:
    try:
        return admit()
    except Exception as error:
        return error


def _submit(submit: Submit, messages: Sequence[tuple[Acceptance, Submission]]) -> None:
    if messages:
        stamped, submissions = zip(*messages, strict=True)
        submit(submissions, partial(_note_troubles, stamped))


def _note_troubles(messages: Sequence[Acceptance], troubles: Sequence[Trouble]) -> None:
    for message, trouble in zip(messages, troubles, strict=True):
        message.trouble = trouble


def _unknown_outcome() -> str:
    return "a failure here, after which nobody knows whether the message is stored"
