"""Makes a parsed message durable: admission, room in the transport, stamp, transport, record of it.

Enter by ``Acceptor.accept``; a process has one (``process_acceptor``). It reserves room in the transport before it
stamps the message, and returns only when the samples are durable. A stamped message whose sender gives up is still
published until it is durable.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.accept.activity import record_accepted
from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import Sender
from ingest.transport.base import Transport, weight_of
from spm import telemetry
from spm.clock import Clock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.limits import BODIES_AT_ONCE_MAX, PUBLISH_TIMEOUT_S
from spm.wire import Parsed


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
        if len(parsed.ts):
            self._send(parsed, sender, message_id)
        record_accepted(parsed, sender, self.clock.now_ms())
        return parsed

    def close(self) -> None:
        """Wait a bounded time for unconfirmed messages, then announce the final counts."""
        self._transport.close()
        self._announcer.close()

    def _send(self, parsed: Parsed, sender: Sender, message_id: bytes) -> None:
        weight = weight_of(parsed)
        self._transport.reserve(sender.app_id, sender.source, weight)
        try:
            envelope = self._announcer.stamp_message(
                app=sender.app_id, source=sender.source, parsed=parsed, message_id=message_id
            )
        except BaseException:
            self._transport.release(weight)
            raise

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
