"""RabbitMQ: a connection that lives, and publishing with confirms. Receiving is next door, in ``amqp_receive``.

``AmqpTransport.publish`` returns when the broker has confirmed that a quorum queue holds the message; whatever else
happens is ``QueueUnavailable``. A ``Link`` owns one connection, served by a thread of its own (pika's objects belong to
one thread, and a connection that nobody serves sends no heartbeats), and connects again for as long as it lives. Names
and arguments are in ``topology``.
"""

import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPConnectionError, AMQPError

from ingest.transport import topology
from ingest.transport.topology import Address
from spm import clock, limits
from spm.clock import Clock, SystemClock
from spm.errors import LimitExceeded, QueueUnavailable
from spm.wire import Envelope

log = logging.getLogger(__name__)
logging.getLogger("pika").setLevel(
    logging.CRITICAL
)  # twenty lines per connection; what matters reaches us as callbacks

PERSISTENT = 2


def open_url(url: str) -> "AmqpTransport":
    """The transport to the broker at ``url`` (an AMQP address; ``?partitions=N`` for another number of work queues)."""
    return AmqpTransport(Address.parse(url))


class AmqpTransport:
    """Envelopes to the work queues. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._publisher = Publisher(address)

    def publish(self, envelope: Envelope, timeout_s: float) -> None:
        """Return when the broker has confirmed the message."""
        body = envelope.to_bytes()
        key = self._address.route(envelope.app, envelope.source, len(body))
        message_id = envelope.message_id.hex()
        self._publisher.publish(topology.EXCHANGE, key, body, timeout_s=timeout_s, message_id=message_id)

    def close(self) -> None:
        """End the connection; what is not confirmed fails."""
        self._publisher.close()


class Link:
    """One connection with one channel and the thread that serves them; made again whenever it ends."""

    def __init__(self, address: Address, name: str, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self._loop: IOLoop | None = None
        self._connection: SelectConnection | None = None
        self._gate = threading.Lock()  # a loop that is closed cannot be asked any more
        self._stopping = threading.Event()
        self._up = threading.Event()
        self._given_up: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.why_down = "not connected yet"

    def open(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self) -> None:
        """End for good, after what was asked of the loop before."""
        self._stopping.set()
        self._ask(self._end)
        self._thread.join(timeout=10)

    def _ask(self, action: Callable[[], None]) -> None:
        """Have the connection's thread do something, if there is a connection."""
        with self._gate:
            if self._loop is not None:
                self._loop.add_callback_threadsafe(action)

    def _run(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            self._serve()
            tries = 0 if self._up.is_set() else tries + 1
            self._up.clear()
            self._lost()
            if not self._stopping.is_set():
                log.warning("RabbitMQ: %s", self.why_down)
            self._stopping.wait(clock.jitter(min(limits.AMQP_BACK_OFF_S, 0.1 * 2 ** min(tries, 10)), 0.2))

    def _serve(self) -> None:
        """One connection from beginning to end."""
        loop = self._loop = IOLoop()
        self._given_up = None
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
            with self._gate:
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
        self.why_down = self._given_up or f"connection ended: {reason!r}"
        assert self._loop is not None, "BUG: a connection without its loop"
        self._loop.stop()

    def _fail(self, why: str) -> None:
        """Give the connection up; another one will be made."""
        self._given_up = self._given_up or why
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
        """Close the socket without a farewell, as pika itself does without heartbeats; the loop ends by that."""
        if self._connection is not None:
            self._connection._terminate_stream(AMQPConnectionError("no answer"))  # there is no public way

    def _ready(self, channel: Any) -> None:
        """The channel is open and everything is declared."""

    def _lost(self) -> None:
        """The connection is gone."""


@dataclass(slots=True)
class _Message:
    """One message on its way, and what became of it."""

    exchange: str
    key: str
    body: bytes
    properties: Any
    settled: threading.Event = field(default_factory=threading.Event)
    error: str | None = None

    def settle(self, error: str | None) -> None:
        """Say what became of it; the first word counts."""
        if not self.settled.is_set():
            self.error = error
            self.settled.set()


class Publisher(Link):
    """Publishes with confirms, many messages under way at once. Thread-safe."""

    def __init__(self, address: Address, clock: Clock | None = None) -> None:
        super().__init__(address, "amqp-publisher", clock or SystemClock())
        self._channel: Any = None
        self._room = threading.Condition()
        self._waiting: deque[_Message] = deque()
        self._unconfirmed: dict[int, _Message] = {}  # by delivery tag; only the connection's thread touches it
        self._count = self._bytes = self._tag = 0
        self._asked = False
        self._blocked: str | None = None
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
        """Return when the message is confirmed; else raise ``QueueUnavailable``: it may be there or not."""
        if len(body) > limits.AMQP_BODY_BYTES_MAX:
            raise LimitExceeded("a message is too large", got=len(body), wanted=limits.AMQP_BODY_BYTES_MAX)
        properties = pika.BasicProperties(
            delivery_mode=PERSISTENT,
            content_type=topology.CONTENT_TYPE,
            message_id=message_id,
            headers=dict(headers) if headers else None,
        )
        message = _Message(exchange, key, body, properties)
        end = self._clock.monotonic() + timeout_s
        self._send(message, timeout_s)
        if not message.settled.wait(end - self._clock.monotonic()):
            message.settle(f"no confirm within {timeout_s} s")
        if message.error is not None:
            raise QueueUnavailable(f"RabbitMQ: {message.error}")

    def _send(self, message: _Message, timeout_s: float) -> None:
        if not self._up.wait(min(timeout_s, limits.AMQP_CONNECT_GRACE_S)):
            raise QueueUnavailable(f"RabbitMQ: {self.why_down}")
        with self._room:
            if not self._room.wait_for(lambda: self._fits(message) or self._blocked is not None, timeout_s):
                raise QueueUnavailable(f"RabbitMQ: no room for another message within {timeout_s} s")
            if self._blocked is not None:
                raise QueueUnavailable(f"RabbitMQ takes no messages: {self._blocked}")
            self._count, self._bytes = self._count + 1, self._bytes + len(message.body)
            self._waiting.append(message)
            ask, self._asked = not self._asked, True
        if ask:  # one wake-up of the thread takes all that waits by then
            self._ask(self._write)

    def _fits(self, message: _Message) -> bool:
        if self._count == 0:
            return True
        size = self._bytes + len(message.body)
        return self._count < limits.AMQP_UNCONFIRMED_MAX and size <= limits.AMQP_UNCONFIRMED_BYTES_MAX

    def _write(self) -> None:
        with self._room:
            self._asked = False
            messages = list(self._waiting)
            self._waiting.clear()
        for message in messages:
            if message.settled.is_set():  # its sender has given up
                self._release(message)
                continue
            self._tag += 1
            message.properties.correlation_id = str(self._tag)  # a returned message carries no delivery tag
            self._unconfirmed[self._tag] = message
            self._channel.basic_publish(message.exchange, message.key, message.body, message.properties, mandatory=True)

    def _ready(self, channel: Any) -> None:
        self._channel, self._tag = channel, 0
        channel.add_on_return_callback(self._returned)
        connection = channel.connection
        connection.add_on_connection_blocked_callback(lambda _c, frame: self._block(str(frame.method.reason)))
        connection.add_on_connection_unblocked_callback(lambda _c, _frame: self._block(None))
        channel.confirm_delivery(self._confirmed, callback=lambda _frame: self._begin())

    def _begin(self) -> None:
        self._up.set()
        self._write()  # what came while the connection went and another one was made

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        error = None if isinstance(method, pika.spec.Basic.Ack) else "the queue refused the message"
        tags = [method.delivery_tag]
        if method.multiple:  # tags grow, and a dict keeps their order
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        for tag in tags:
            message = self._unconfirmed.pop(tag)
            message.settle(error)
            self._release(message)

    def _returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """No queue takes the message. Its confirm follows, and must not be taken for a success."""
        self._unconfirmed[int(properties.correlation_id)].settle(f"no queue for it: {method.reply_text}")

    def _block(self, reason: str | None) -> None:
        """The broker is out of memory or disk: it reads no more from us, so nothing will be confirmed soon."""
        with self._room:
            self._blocked = reason
            waiting = list(self._waiting)
            self._room.notify_all()
        if reason is not None:
            for message in [*self._unconfirmed.values(), *waiting]:
                message.settle(f"it takes no messages: {reason}")

    def _lost(self) -> None:
        with self._room:
            messages = [*self._unconfirmed.values(), *self._waiting]
            self._unconfirmed.clear()
            self._waiting.clear()
            self._count = self._bytes = 0
            self._asked, self._blocked = False, None
            self._room.notify_all()
        for message in messages:
            message.settle(self.why_down)

    def _release(self, message: _Message) -> None:
        with self._room:
            self._count, self._bytes = self._count - 1, self._bytes - len(message.body)
            self._room.notify()


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
    """Make what is not there. The broker works in order and answers the last request; a conflict closes the channel."""
    channel.exchange_declare(topology.EXCHANGE, "topic", durable=True, callback=None)
    channel.exchange_declare(topology.DEAD, "fanout", durable=True, callback=None)
    channel.queue_declare(topology.DEAD, durable=True, arguments=dict(topology.dead_arguments()), callback=None)
    channel.queue_bind(topology.DEAD, topology.DEAD, callback=None)
    queues = address.queues()
    if address.agents:
        channel.exchange_declare(topology.AGENTS, "topic", durable=True, callback=None)
        channel.exchange_declare(topology.AGENTS_RING, "x-consistent-hash", durable=True, callback=None)
        channel.exchange_bind(topology.AGENTS_RING, topology.AGENTS, "#", callback=None)
    for queue in queues:
        channel.queue_declare(queue.name, durable=True, arguments=dict(topology.work_arguments()), callback=None)
        if address.agents and queue.key != topology.BULK:
            channel.queue_bind(queue.name, topology.AGENTS_RING, topology.RING_WEIGHT, callback=None)
        last = queue is queues[-1]
        channel.queue_bind(queue.name, topology.EXCHANGE, queue.key, callback=done if last else None)
