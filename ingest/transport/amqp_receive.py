"""RabbitMQ: receiving with acknowledgements, each queue by one worker at a time.

``Receiver`` hands deliveries to a callback and takes settlements back. Every worker may consume from every queue, but a
source must stay in order, so each queue gives its messages to a single active consumer; which worker that is, workers
settle by the *lobby*: each sits on a seat of its own (an exclusive consumer of an empty queue), sees once a second
which seats are taken and whether anybody calls for help (``calling``), and consumes from its share of the queues alone.
Seats are free again the moment a connection ends. A worker that comes or goes moves consumers, never bindings: a queue
that is moved is given up with all that was not settled, which its next consumer gets first and in order. Messages are
given back in the same way, with all that came after them. Nothing is published here: a broker that is short of memory
stops reading from publishers, and acknowledgements must still reach it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from ingest.transport import topology
from ingest.transport.amqp import Link
from ingest.transport.delivery import Delivery, Mark
from ingest.transport.help_calls import Calling
from ingest.transport.topology import Address
from spm import limits
from spm.clock import Clock, SystemClock

__all__ = ["Delivery", "Mark", "Receiver"]
log = logging.getLogger(__name__)
TRIES = "x-delivery-count"  # a quorum queue says in this header how often it delivered a message before


class Receiver(Link):
    """Receives from this worker's share of the queues. ``deliver`` is called in the connection's thread: do not block.

    Each queue has a channel of its own: one without a leader (its broker was killed seconds after it was made) never
    answers, and the broker keeps everything else of that channel from being answered. ``letters``: the queue of dead
    letters is one of those that are shared out. Without ``calling`` it takes part in any share, and never calls.
    """

    def __init__(
        self,
        address: Address,
        deliver: Callable[[Delivery], None],
        clock: Clock | None = None,
        *,
        letters: bool = False,
        calling: Calling | None = None,
    ) -> None:
        super().__init__(address, "amqp-receiver", clock or SystemClock())
        self._deliver, self._calling = deliver, calling
        self._queues = [*address.queues(), *([topology.LETTERS] if letters else [])]
        self._given_back: set[int] = set()  # generations
        self._channels: dict[str, _Held] = {}  # of each queue; changed by our thread only
        self._generations = count(1)
        self._wanted: dict[str, int] = {}  # queue → prefetch, by the newest share
        self._settled = 0  # looks that have found the same share
        self._lobby: _Lobby | None = None
        self.depths: dict[str, int] = {}  # queue → messages that wait in it, as last seen

    def queues(self) -> set[str]:
        """The queues that are ours now."""
        return {name for name, held in self._channels.items() if held.channel.is_open}

    def holds(self, mark: Mark) -> bool:
        """Whether this delivery can still be settled; else it comes again, here or elsewhere."""
        return self._generation(mark.queue) == mark.generation and mark.generation not in self._given_back

    def acknowledge(self, mark: Mark, *, multiple: bool = True) -> None:
        """This message (and all before it from its queue) is stored."""
        self._settle(mark, lambda channel: channel.basic_ack(mark.tag, multiple=multiple))

    def give_back(self, mark: Mark) -> None:
        """This message and all else of its queue that is not settled shall be delivered again, in order.

        The queue is given up for a moment: were these alone refused, what came after them would be stored before them.
        """
        self._given_back.add(mark.generation)
        self._ask(lambda: self._give_up(mark.queue, mark.generation))

    def reject(self, mark: Mark) -> None:
        """This message is a dead letter; the broker moves it there by itself, without a cause."""
        self._settle(mark, lambda channel: channel.basic_nack(mark.tag, multiple=False, requeue=False))

    def renew(self, why: str) -> None:
        """Give up this connection and all deliveries of it; another one brings them again."""
        self._ask(lambda: self._fail(why))

    def _settle(self, mark: Mark, action: Callable[[Any], None]) -> None:
        def act() -> None:
            held = self._channels.get(mark.queue)
            if held is not None and held.generation == mark.generation and held.channel.is_open:
                action(held.channel)

        self._ask(act)  # of a channel that is gone: the broker delivers again, as if we had never answered

    def _ready(self, channel: Any) -> None:
        self._up.set()
        channel.connection.channel(on_open_callback=self._measure)
        self._lobby = _Lobby(channel, self._address.calm, self._calls, self._shared, self._fail)

    def _calls(self, sharing: int) -> bool:
        return self._calling is None or self._calling.look(sharing, self.depths)

    def _shared(self, seats: Sequence[int], own: int) -> None:
        """Consume from our share of the queues, and from no others; as much of each as the share allows.

        A quorum queue cannot be told another prefetch of a consumer that it has: it gets a new one, on another channel,
        and gives again what was held. So a queue that stays keeps its consumer until the share has stayed, too: a
        worker that is started again moves a few queues, and no others. Until then we may hold twice as much.
        """
        mine = topology.share(self._queues, seats, own)
        wanted = topology.prefetch(queue for queue in self._queues if queue.name in mine)
        self._settled = self._settled + 1 if wanted == self._wanted else 0
        self._wanted = wanted
        for name, held in list(self._channels.items()):
            stays = name in wanted and self._settled < limits.AMQP_LOOKS_SETTLED
            if wanted.get(name) != held.prefetch and not stays:
                self._give_up(name, held.generation)
        for name, prefetch in wanted.items():
            if name not in self._channels:
                generation = next(self._generations)
                self._channels[name] = _Held(generation, _NoChannel, prefetch)
                opened = partial(self._consume, name, generation)
                self._lobby_channel.connection.channel(on_open_callback=opened)

    def _give_up(self, queue: str, generation: int) -> None:
        """Close the queue's channel; if it is still ours, the next look at the seats opens another one."""
        if self._generation(queue) == generation:
            _leave(self._channels.pop(queue).channel)

    def _generation(self, queue: str) -> int:
        held = self._channels.get(queue)
        return 0 if held is None else held.generation

    def _end(self) -> None:
        while self._channels:
            _leave(self._channels.popitem()[1].channel)
        super()._end()

    def _measure(self, channel: Any) -> None:
        """Ask how much waits in our queues, on a channel of its own: one queue that does not answer silences it."""

        def seen(queue: str, frame: Any) -> None:
            self.depths[queue] = frame.method.message_count

        if channel.is_open:
            self.depths = {name: depth for name, depth in self.depths.items() if name in self._channels}
            for name in self._channels:
                channel.queue_declare(name, passive=True, callback=partial(seen, name))
            channel.connection.ioloop.call_later(limits.AMQP_DEPTHS_S, partial(self._measure, channel))

    @property
    def _lobby_channel(self) -> Any:
        assert self._lobby is not None, "BUG: a share without a lobby"
        return self._lobby.channel

    def _consume(self, queue: str, generation: int, channel: Any) -> None:
        assert self._loop is not None, "BUG: a channel without its loop"
        if self._generation(queue) != generation:  # it was moved while the channel was opened
            channel.close()
            return
        prefetch = self._channels[queue].prefetch
        loop, self._channels[queue] = self._loop, _Held(generation, channel, prefetch)
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
            channel.basic_nack(
                method.delivery_tag, requeue=False
            )  # a worker's memory is counted in bodies of that size
        else:
            came_ms = round(self._clock.monotonic() * 1000)
            self._deliver(_delivery(method, properties, body, generation, queue, share, came_ms))

    def _lost(self) -> None:
        self._channels.clear()
        self._given_back.clear()
        self.depths = {}
        self._lobby = None


def _leave(channel: Any) -> None:
    """Close a channel at once: its queue's next consumer gets first what was not settled here.

    pika would cancel the channel's consumers before, one round trip earlier: the queue's next consumer would then get
    what comes after the messages that this channel still holds.
    """
    if channel.is_open:
        channel._consumers.clear()  # there is no public way
        channel.close()


class _NoChannel:
    """Stands where a channel is being opened."""

    is_open = False


@dataclass(frozen=True, slots=True)
class _Held:
    """A queue that is ours: its channel, of this generation, and how many unacknowledged messages it may bring."""

    generation: int
    channel: Any
    prefetch: int


class _Lobby:
    """Which seats are taken, and which of their workers share the queues; asked once a second."""

    def __init__(
        self,
        channel: Any,
        calm: int,
        calls: Callable[[int], bool],
        shared: Callable[[Sequence[int], int], None],
        fail: Callable[[str], None],
    ) -> None:
        self.channel, self._calm = channel, calm
        self._calls, self._shared, self._fail = calls, shared, fail
        self._seat: int | None = None
        self._calling = False
        self._sharing = 1  # workers that consume, as last seen
        self._taken: dict[int, bool] = {}  # of the seats that were asked about, in their order
        self._looks = count()
        self._sit(0)

    def _sit(self, seat: int) -> None:
        """Try to sit there; a taken seat closes the channel, and the next one is tried."""
        if seat >= topology.SEATS:
            log.warning("RabbitMQ: all %d seats for workers are taken; this one waits for one", topology.SEATS)
            self._later(limits.AMQP_QUEUE_ANSWER_S, partial(self._sit, 0))
            return
        self.channel.connection.channel(on_open_callback=partial(self._claim, seat))

    def _claim(self, seat: int, channel: Any) -> None:
        def gone(_channel: Any, reason: Any) -> None:
            if not self.channel.connection.is_open:
                return
            if self._seat is None:
                self._sit(seat + 1)
            else:
                self._fail(f"the seat {seat} was lost: {reason}")

        channel.add_on_close_callback(gone)
        name = topology.seat(seat)
        channel.queue_declare(name, durable=True, callback=None)
        channel.basic_consume(
            name, lambda *_: None, auto_ack=True, exclusive=True, callback=lambda _frame: self._seated(seat)
        )

    def _seated(self, seat: int) -> None:
        self._seat = seat
        self._look()

    def _look(self) -> None:
        """Call or do not, and ask about seats: workers take the lowest free one, so rarely about those far above."""
        if not self.channel.is_open:
            return
        every = next(self._looks) % limits.AMQP_LOOKS_AT_ALL == 0
        highest = max((seat for seat, taken in self._taken.items() if taken), default=0)
        self._ask(topology.SEATS if every else min(highest + 1 + limits.AMQP_SEATS_AHEAD, topology.SEATS))
        self._call(self._calls(self._sharing))

    def _ask(self, seats: int) -> None:
        """About the first so many seats, and at last about calls; the broker answers in order."""
        self._taken = {}
        for seat in range(seats):
            self.channel.queue_declare(topology.seat(seat), durable=True, callback=partial(self._seen, seat))
        self.channel.queue_declare(topology.CALL, durable=True, callback=self._heard)

    def _seen(self, seat: int, frame: Any) -> None:
        self._taken[seat] = frame.method.consumer_count > 0 or seat == self._seat

    def _heard(self, frame: Any) -> None:
        assert self._seat is not None, "BUG: a look from nowhere"
        if len(self._taken) < topology.SEATS and self._taken[len(self._taken) - 1]:
            self._ask(topology.SEATS)  # many came at once
            return
        seats = [number for number, taken in self._taken.items() if taken]
        sharing = topology.sharing(seats, called=frame.method.consumer_count > 0, calm=self._calm)
        self._sharing = len(sharing)
        self._shared(sharing, self._seat)
        self._later(limits.AMQP_LOOK_S, self._look)

    def _call(self, calling: bool) -> None:
        """Consume from the queue of calls, or do so no more; the next look sees it, ours as well as the others'."""
        if calling and not self._calling:
            self.channel.basic_consume(topology.CALL, lambda *_: None, auto_ack=True, consumer_tag=topology.CALL)
        elif self._calling and not calling:
            self.channel.basic_cancel(topology.CALL)
        self._calling = calling

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.channel.connection.ioloop.call_later(seconds, act)


def _delivery(
    method: Any, properties: Any, body: bytes, generation: int, queue: str, share: int, now_ms: int
) -> Delivery:
    headers = properties.headers or {}
    tries = headers.get(TRIES) if method.redelivered else 0  # on a first delivery it would be the sender's own word
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
