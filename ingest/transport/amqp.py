"""RabbitMQ: a connection that is renewed whenever it ends, and publishing with confirms. ``amqp_receive`` receives.

``AmqpTransport`` takes a message over and publishes it until the broker confirms that a quorum queue holds it, whatever
happens to the connection meanwhile; a sender that waits too long gets ``QueueUnavailable``. A ``Link`` owns one
connection, served by a thread of its own (pika's objects belong to one thread, and a connection that nobody serves
sends no heartbeats), and connects again for as long as it lives. Names and arguments are in ``topology``. Enter by
``open_url``.
"""

import logging
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPConnectionError, AMQPError

from ingest.transport import topology
from ingest.transport.base import OutcomeCallback, Submission, Transport, Trouble
from ingest.transport.past import PastLoad, are_envelopes_past
from ingest.transport.publish_buffer import OutgoingMessage, PublishBuffer
from ingest.transport.topology import Address
from spm import clock, limits
from spm.clock import Clock, SystemClock
from spm.errors import LimitExceeded, QueueUnavailable
from spm.wire import Envelope

log = logging.getLogger(__name__)
# pika logs twenty lines per connection; what matters reaches us by callbacks.
logging.getLogger("pika").setLevel(logging.CRITICAL)

PERSISTENT = 2
_TOO_LARGE = re.compile(r"larger than configured max size (\d+)")


def open_url(url: str) -> "AmqpTransport":
    """Return the transport to the broker at ``url``, an AMQP address.

    ``?partitions=N`` sets another number of work queues.
    """
    return AmqpTransport(Address.parse(url))


class AmqpTransport(Transport):
    """Publishes envelopes to the work queues until they are confirmed. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._publisher = Publisher(address)
        self._past_load = PastLoad(SystemClock())

    def reserve(self, app: int, source: str, weight: int, wait_s: float = limits.PUBLISH_ROOM_WAIT_S) -> None:
        self._publisher.buffer.reserve(self._address.route(app, source, weight), weight, wait_s)

    def release(self, app: int, weight: int) -> None:
        self._publisher.buffer.release(weight)

    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        return self._publisher.submit(self._outgoing(messages))

    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: OutcomeCallback) -> None:
        [message] = self._outgoing([Submission(envelope, weight, outcome)])
        self._publisher.send(message, timeout_s)

    def _outgoing(self, messages: Sequence[Submission]) -> list[OutgoingMessage]:
        if not messages:
            return []
        past = are_envelopes_past([message.envelope for message in messages])
        return [self._outgoing_message(message, is_past) for message, is_past in zip(messages, past, strict=True)]

    def _outgoing_message(self, message: Submission, is_past: bool) -> OutgoingMessage:
        """Return a message for its queue; one of the past, whose queue is full, goes to that of its source."""
        envelope, weight = message.envelope, message.weight
        key = self._address.route(envelope.app, envelope.source, weight)
        past_key = topology.route_past(weight, of_many=self._past_load.add(envelope)) if is_past else None
        return OutgoingMessage(
            topology.EXCHANGE,
            past_key or key,
            envelope.to_bytes(),
            envelope.message_id.hex(),
            weight,
            until_confirmed=True,
            other_key=key if is_past else None,
            outcome=message.outcome,
        )

    def close(self) -> None:
        self._publisher.close()


class Link:
    """One connection with one channel and the thread that serves them, renewed whenever it ends."""

    def __init__(self, address: Address, name: str, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self._loop: IOLoop | None = None
        self._connection: SelectConnection | None = None
        self._loop_lock = threading.Lock()  # a closed loop takes no callbacks any more
        self._stopping = threading.Event()
        self._up = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.why_down = "not connected yet"

    def open(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self) -> None:
        """End for good, after the callbacks that were given to the loop before."""
        self._stopping.set()
        self._call_in_loop(self._end)
        self._thread.join(timeout=10)

    def _call_in_loop(self, action: Callable[[], None]) -> None:
        """Call something in the connection's thread, if there is a connection."""
        with self._loop_lock:
            if self._loop is not None:
                self._loop.add_callback_threadsafe(action)

    def _run(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            self._serve()
            tries = 0 if self._up.is_set() else tries + 1
            self._up.clear()
            self._disconnected()
            if not self._stopping.is_set():
                log.warning("RabbitMQ: %s", self.why_down)
            self._stopping.wait(clock.jitter(min(limits.AMQP_BACK_OFF_S, 0.1 * 2 ** min(tries, 10)), 0.2))

    def _serve(self) -> None:
        """Serve one connection from beginning to end."""
        loop = self._loop = IOLoop()
        self._failure = None
        try:
            self._connection = SelectConnection(
                _parameters(self._address),
                on_open_callback=self._connected,
                on_open_error_callback=self._ended,
                on_close_callback=self._ended,
                custom_ioloop=loop,
            )
            loop.start()
        except (AMQPError, OSError) as error:
            self.why_down = f"connection failed: {error!r}"
        except Exception as error:
            log.exception("RabbitMQ: the connection's thread failed")
            self.why_down = f"a failure of ours: {error!r}"
        finally:
            with self._loop_lock:
                self._loop = self._connection = None
            loop.close()

    def _connected(self, connection: SelectConnection) -> None:
        if self._stopping.is_set():
            connection.close()
        else:
            connection.channel(on_open_callback=self._channel_open)

    def _channel_open(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda _channel, reason: self._fail(f"channel closed: {reason}"))
        _declare(channel, self._address, lambda _frame: self._ready(channel))

    def _ended(self, _connection: SelectConnection, reason: BaseException) -> None:
        self.why_down = self._failure or f"connection ended: {reason!r}"
        assert self._loop is not None, "BUG: a connection without its loop"
        self._loop.stop()

    def _fail(self, why: str) -> None:
        """Give the connection up; another one follows."""
        self._failure = self._failure or why
        self._end()

    def _end(self) -> None:
        connection = self._connection
        if connection is None or connection.is_closed:
            if self._loop is not None:
                self._loop.stop()
        elif connection.is_open and self._loop is not None:
            connection.close()
            self._loop.call_later(limits.AMQP_CLOSE_S, self._drop)  # a stuck channel is never closed by the broker

    def _drop(self) -> None:
        """Close the socket without the closing handshake, as pika does without heartbeats; the loop ends by that."""
        if self._connection is not None:
            self._connection._terminate_stream(AMQPConnectionError("no answer"))  # there is no public way

    def _ready(self, channel: Any) -> None:
        """Called when the channel is open and everything is declared."""

    def _disconnected(self) -> None:
        """Called when the connection has ended."""


class Publisher(Link):
    """Publishes with confirms, many messages in flight at once; ``PublishBuffer`` has their state. Thread-safe."""

    def __init__(self, address: Address, clock: Clock | None = None) -> None:
        super().__init__(address, "amqp-publisher", clock or SystemClock())
        self.buffer = PublishBuffer(self._clock)
        self._channel: Any = None
        self._retry_due = False
        self.open()

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        *,
        timeout_s: float,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Return when the message is confirmed; ``QueueUnavailable``: it may be there or not, and is given up."""
        self.buffer.reserve(key, len(body))
        message = OutgoingMessage(exchange, key, body, message_id, len(body), until_confirmed=False, headers=headers)
        self.send(message, timeout_s)

    def send(self, message: OutgoingMessage, timeout_s: float) -> None:
        """Publish a message that has its room, and wait for its confirm."""
        if self.buffer.add(message):  # one wake-up of the thread takes all messages that wait by then
            self._call_in_loop(self._write)
        self.buffer.wait(message, timeout_s)

    def submit(self, messages: Sequence[OutgoingMessage]) -> list[Trouble]:
        """Publish messages that have their room; return what tells why each is not confirmed."""
        wakes = [self.buffer.add(message) for message in messages]
        if any(wakes):
            self._call_in_loop(self._write)
        return [partial(self.buffer.trouble, message) for message in messages]

    def publish_all(self, exchange: str, messages: Sequence[tuple[str, bytes, str]], *, timeout_s: float) -> list[bool]:
        """Publish (key, body, message id) all at once; return of each whether it is confirmed. Others are given up."""
        end = self._clock.monotonic() + timeout_s
        sent: list[OutgoingMessage] = []
        with suppress(QueueUnavailable, LimitExceeded):
            for key, body, message_id in messages:
                self.buffer.reserve(key, len(body))
                sent.append(OutgoingMessage(exchange, key, body, message_id, len(body), until_confirmed=False))
                if self.buffer.add(sent[-1]):
                    self._call_in_loop(self._write)
        confirmed = [self._is_confirmed(message, end) for message in sent]
        return confirmed + [False] * (len(messages) - len(sent))

    def _is_confirmed(self, message: OutgoingMessage, end: float) -> bool:
        try:
            self.buffer.wait(message, max(0.0, end - self._clock.monotonic()))
        except QueueUnavailable:
            return False
        return True

    def close(self, wait_s: float = limits.PUBLISH_CLOSE_S) -> None:
        """End for good; unconfirmed messages get ``wait_s``."""
        if not self.buffer.close(wait_s):
            log.error("RabbitMQ: %d messages were not confirmed before the end", self.buffer.unconfirmed_count())
        super().close()

    def _write(self) -> None:
        for tag, message in self.buffer.take():
            properties = pika.BasicProperties(
                delivery_mode=PERSISTENT,
                content_type=topology.CONTENT_TYPE,
                message_id=message.message_id,
                headers=dict(message.headers) if message.headers else None,
                correlation_id=str(tag),  # a returned message carries no delivery tag
            )
            self._channel.basic_publish(message.exchange, message.key, message.body, properties, mandatory=True)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(self._returned)
        channel.add_on_close_callback(lambda _channel, reason: self._closed(str(reason)))
        connection = channel.connection
        connection.add_on_connection_blocked_callback(lambda _c, frame: self.buffer.block(str(frame.method.reason)))
        connection.add_on_connection_unblocked_callback(lambda _c, _frame: self._unblocked())
        channel.confirm_delivery(self._confirmed, callback=lambda _frame: self._begin())

    def _begin(self) -> None:
        self._up.set()
        self.buffer.connected()
        self._write()  # unconfirmed messages of the connection before this one, and new ones

    def _unblocked(self) -> None:
        self.buffer.block(None)
        self._write()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        taken = isinstance(method, pika.spec.Basic.Ack)
        refused = self.buffer.confirm(method.delivery_tag, multiple=method.multiple, taken=taken)
        if refused and not self._retry_due and self._loop is not None:
            self._retry_due = True
            self._loop.call_later(limits.PUBLISH_AGAIN_S, self._retry)

    def _closed(self, reason: str) -> None:
        """Learn the broker's limit if it closed the channel for a large body, which would close every other one."""
        match = _TOO_LARGE.search(reason)
        if match is not None:
            self.buffer.limit_body_size(int(match[1]))

    def _retry(self) -> None:
        self._retry_due = False
        self.buffer.retry_refused()
        self._write()

    def _returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        self.buffer.returned(int(properties.correlation_id), method.reply_text)

    def _disconnected(self) -> None:
        self._retry_due = False
        self.buffer.disconnected("it is not connected")  # senders read this; the log has why, and where


def _parameters(address: Address) -> pika.URLParameters:
    parameters = pika.URLParameters(address.url)
    if address.url.startswith("amqps:"):
        context = ssl.create_default_context(cafile=address.ca or None)
        parameters.ssl_options = pika.SSLOptions(context, parameters.host)
    parameters.heartbeat = limits.AMQP_HEARTBEAT_S
    parameters.connection_attempts = 1
    parameters.socket_timeout = parameters.stack_timeout = 5
    return parameters


def _declare(channel: Any, address: Address, done: Callable[[Any], None]) -> None:
    """Declare what is missing. The broker works in order, and answers the last request.

    A conflict closes the channel.
    """
    channel.exchange_declare(topology.EXCHANGE, "topic", durable=True, callback=None)
    channel.exchange_declare(topology.DEAD, "fanout", durable=True, callback=None)
    channel.queue_declare(topology.DEAD, durable=True, arguments=dict(topology.dead_arguments()), callback=None)
    channel.queue_bind(topology.DEAD, topology.DEAD, callback=None)
    channel.exchange_declare(topology.WAITING, "fanout", durable=True, callback=None)
    channel.queue_declare(topology.WAITING, durable=True, arguments=dict(topology.waiting_arguments()), callback=None)
    channel.queue_bind(topology.WAITING, topology.WAITING, callback=None)
    queues = address.queues()
    if address.agents:
        channel.exchange_declare(topology.AGENTS, "topic", durable=True, callback=None)
        channel.exchange_declare(topology.AGENTS_RING, "x-consistent-hash", durable=True, callback=None)
        channel.exchange_bind(topology.AGENTS_RING, topology.AGENTS, "#", callback=None)
    for queue in queues:
        channel.queue_declare(queue.name, durable=True, arguments=dict(topology.work_arguments()), callback=None)
        if address.agents and not queue.few and not queue.past:
            channel.queue_bind(queue.name, topology.AGENTS_RING, topology.RING_WEIGHT, callback=None)
        last = queue is queues[-1]
        channel.queue_bind(queue.name, topology.EXCHANGE, queue.key, callback=done if last else None)
