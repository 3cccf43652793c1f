"""RabbitMQ: receiving with acknowledgements, each queue by one worker at a time.

``Receiver`` hands deliveries to a callback and takes settlements back. Every worker may consume from every queue, but a
source must stay in order, so each queue gives its messages to a single active consumer. Workers agree by their seats
(``worker_seats``) which of them consume, and each consumes from its share of the queues alone. A worker that comes or
goes moves consumers, never bindings: a queue that moves is given up with all its unsettled messages, which its next
consumer gets first and in order. Messages are given back in the same way, with all that came after them. Nothing is
published here: a broker that is short of memory stops reading from publishers, and acknowledgements must still reach
it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from ingest.transport import topology
from ingest.transport.amqp import Link
from ingest.transport.delivery import AckHandle, Delivery
from ingest.transport.help_calls import HelpSignal
from ingest.transport.topology import Address
from ingest.transport.worker_seats import WorkerSeats
from spm import limits
from spm.clock import Clock, SystemClock

log = logging.getLogger(__name__)
TRIES = "x-delivery-count"  # a quorum queue says in this header how often it delivered a message before


class Receiver(Link):
    """Receives from this worker's share of the queues. ``deliver`` is called in the connection's thread: do not block.

    Each queue has a channel of its own: one without a leader (its broker was killed seconds after it was made) never
    answers, and the broker keeps everything else of that channel from being answered. ``dead_letters``: the queue of
    dead letters is one of those that are shared out. Without ``help_signal`` it takes part in any share, and never
    calls for help.
    """

    def __init__(
        self,
        address: Address,
        deliver: Callable[[Delivery], None],
        clock: Clock | None = None,
        *,
        dead_letters: bool = False,
        help_signal: HelpSignal | None = None,
        unacked_max: int = limits.CONSUME_UNACKED_MAX,
    ) -> None:
        super().__init__(address, "amqp-receiver", clock or SystemClock())
        self._deliver, self._help_signal, self._unacked_max = deliver, help_signal, unacked_max
        self._queues = [*address.queues(), *([topology.DEAD_LETTER_QUEUE] if dead_letters else [])]
        self._given_back: set[int] = set()  # generations
        self._channels: dict[str, _QueueChannel] = {}  # of each queue; changed by our thread only
        self._generations = count(1)
        self._prefetch: dict[str, int] = {}  # by queue, of the newest share
        self._unchanged_rounds = 0  # in which the share stayed
        self._seats: WorkerSeats | None = None
        self.depths: dict[str, int] = {}  # queue → messages that wait in it, as last seen

    def queues(self) -> set[str]:
        """Return the queues from which this worker consumes now."""
        return {name for name, opened in self._channels.items() if opened.channel.is_open}

    def holds(self, handle: AckHandle) -> bool:
        """Whether this delivery can still be settled; else it is delivered again, here or elsewhere."""
        return self._generation(handle.queue) == handle.generation and handle.generation not in self._given_back

    def acknowledge(self, handle: AckHandle, *, multiple: bool = True) -> None:
        """Acknowledge this message, with ``multiple`` also all before it from its queue: they are stored."""
        self._settle(handle, lambda channel: channel.basic_ack(handle.tag, multiple=multiple))

    def give_back(self, handle: AckHandle) -> None:
        """Have this message and all other unsettled ones of its queue delivered again, in order.

        The queue is given up for a moment: if this message alone were refused, later ones would be stored before it.
        """
        self._given_back.add(handle.generation)
        self._call_in_loop(lambda: self._give_up(handle.queue, handle.generation))

    def reject(self, handle: AckHandle) -> None:
        """Make this message a dead letter; the broker moves it by itself, without a cause."""
        self._settle(handle, lambda channel: channel.basic_nack(handle.tag, multiple=False, requeue=False))

    def renew(self, why: str) -> None:
        """Give up this connection and all its deliveries; another one brings them again."""
        self._call_in_loop(lambda: self._fail(why))

    def _settle(self, handle: AckHandle, action: Callable[[Any], None]) -> None:
        def act() -> None:
            opened = self._channels.get(handle.queue)
            if opened is not None and opened.generation == handle.generation and opened.channel.is_open:
                action(opened.channel)

        self._call_in_loop(act)  # of a closed channel: the broker delivers again, as if we had never answered

    def _ready(self, channel: Any) -> None:
        self._up.set()
        channel.connection.channel(on_open_callback=self._measure)
        self._seats = WorkerSeats(channel, self._address.calm, self._should_call, self._shared, self._fail)

    def _should_call(self, sharing: int) -> bool:
        live = {name: depth for name, depth in self.depths.items() if name not in topology.PAST_NAMES}
        return self._help_signal is None or self._help_signal.should_call(sharing, live)

    def _shared(self, seats: Sequence[int], own: int) -> None:
        """Consume from our share of the queues, and from no others; as much of each as the share allows.

        A quorum queue cannot change the prefetch of an existing consumer: it gets a new one on another channel, and
        delivers unsettled messages again. So a queue that stays ours keeps its consumer until the share has stayed for
        some rounds, too: a restarted worker moves a few queues, and no others. Until then we may hold twice as much.
        """
        mine = topology.share(self._queues, seats, own)
        prefetch = topology.prefetch((queue for queue in self._queues if queue.name in mine), self._unacked_max)
        self._unchanged_rounds = self._unchanged_rounds + 1 if prefetch == self._prefetch else 0
        self._prefetch = prefetch
        for name, opened in list(self._channels.items()):
            stays = name in prefetch and self._unchanged_rounds < limits.AMQP_LOOKS_SETTLED
            if prefetch.get(name) != opened.prefetch and not stays:
                self._give_up(name, opened.generation)
        for name, size in prefetch.items():
            if name not in self._channels:
                generation = next(self._generations)
                self._channels[name] = _QueueChannel(generation, _OpeningChannel, size)
                on_open = partial(self._consume, name, generation)
                self._seats_channel.connection.channel(on_open_callback=on_open)

    def _give_up(self, queue: str, generation: int) -> None:
        """Close the queue's channel; if the queue is still in our share, the next round opens another channel."""
        if self._generation(queue) == generation:
            _close_at_once(self._channels.pop(queue).channel)

    def _generation(self, queue: str) -> int:
        opened = self._channels.get(queue)
        return 0 if opened is None else opened.generation

    def _end(self) -> None:
        while self._channels:
            _close_at_once(self._channels.popitem()[1].channel)
        super()._end()

    def _measure(self, channel: Any) -> None:
        """Ask for the depths of our queues, on a channel of its own: one queue that does not answer silences it."""

        def answered(queue: str, frame: Any) -> None:
            self.depths[queue] = frame.method.message_count

        if channel.is_open:
            self.depths = {name: depth for name, depth in self.depths.items() if name in self._channels}
            for name in self._channels:
                channel.queue_declare(name, passive=True, callback=partial(answered, name))
            channel.connection.ioloop.call_later(limits.AMQP_DEPTHS_S, partial(self._measure, channel))

    @property
    def _seats_channel(self) -> Any:
        assert self._seats is not None, "BUG: a share without seats"
        return self._seats.channel

    def _consume(self, queue: str, generation: int, channel: Any) -> None:
        assert self._loop is not None, "BUG: a channel without its loop"
        if self._generation(queue) != generation:  # it was moved while the channel was opened
            channel.close()
            return
        prefetch = self._channels[queue].prefetch
        loop, self._channels[queue] = self._loop, _QueueChannel(generation, channel, prefetch)
        silence = "RabbitMQ: queue %s does not answer; the others are consumed. A restart of the broker helps."
        timer = loop.call_later(limits.AMQP_QUEUE_ANSWER_S, partial(log.error, silence, queue))
        channel.add_on_close_callback(lambda _channel, reason: self._closed(queue, generation, str(reason)))
        channel.add_on_cancel_callback(lambda _frame: self._fail(f"{queue} was taken away"))
        channel.basic_qos(prefetch_count=prefetch)
        received = partial(self._received, queue, generation, prefetch // 2)
        channel.basic_consume(queue, received, callback=lambda _frame: loop.remove_timeout(timer))

    def _closed(self, queue: str, generation: int, reason: str) -> None:
        if self._generation(queue) == generation:  # not by us
            self._fail(f"{queue}: channel closed: {reason}")

    def _received(
        self, queue: str, generation: int, share: int, channel: Any, method: Any, properties: Any, body: bytes
    ) -> None:
        if method.exchange == topology.AGENTS and len(body) > limits.AMQP_PARTITION_BODY_BYTES_MAX:
            # A worker's memory is bounded in bodies of that size.
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            arrived_ms = round(self._clock.monotonic() * 1000)
            self._deliver(_delivery(method, properties, body, generation, queue, share, arrived_ms))

    def _disconnected(self) -> None:
        self._channels.clear()
        self._given_back.clear()
        self.depths = {}
        self._seats = None


def _close_at_once(channel: Any) -> None:
    """Close a channel so that its queue's next consumer gets first what was not settled here.

    pika would cancel the channel's consumers before, one round trip earlier: the queue's next consumer would then get
    what comes after the messages that this channel still holds.
    """
    if channel.is_open:
        channel._consumers.clear()  # there is no public way
        channel.close()


class _OpeningChannel:
    """Stands for a channel that is being opened."""

    is_open = False


@dataclass(frozen=True, slots=True)
class _QueueChannel:
    """The channel of a queue that is ours, of this generation; ``prefetch``: unacknowledged messages it may bring."""

    generation: int
    channel: Any
    prefetch: int


def _delivery(
    method: Any, properties: Any, body: bytes, generation: int, queue: str, share: int, now_ms: int
) -> Delivery:
    headers = properties.headers or {}
    tries = headers.get(TRIES) if method.redelivered else 0  # on a first delivery the sender could have written it
    return Delivery(
        generation,
        method.delivery_tag,
        queue,
        body,
        properties.message_id or "",
        now_ms,
        properties.content_type or "",
        properties.content_encoding or "",
        headers,
        method.exchange,
        method.routing_key,
        properties.user_id or "",
        bool(method.redelivered),
        tries if isinstance(tries, int) else 0,
        share,
    )
