"""Agrees with the other workers which of them consume: each worker holds a seat, and asks once a second who is there.

A seat is an exclusive consumer of an empty queue (``topology.seat``); it is free again the moment its connection ends.
Workers on the first seats consume; all do while any of them calls for help (``help_calls``). Enter by ``WorkerSeats``.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from ingest.transport import topology
from spm import limits

log = logging.getLogger(__name__)


class WorkerSeats:
    """The seat of this worker, and the seats of the others as last seen.

    ``should_call`` returns whether this worker calls for help; ``shared`` gets the seats whose workers consume, and our
    own; ``fail`` ends the connection.
    """

    def __init__(
        self,
        channel: Any,
        calm: int,
        should_call: Callable[[int], bool],
        shared: Callable[[Sequence[int], int], None],
        fail: Callable[[str], None],
    ) -> None:
        self.channel, self._calm = channel, calm
        self._should_call, self._shared, self._fail = should_call, shared, fail
        self._seat: int | None = None
        self._calling = False
        self._sharing = 1  # workers that consume, as last seen
        self._occupied: dict[int, bool] = {}  # of the seats that were asked about, in their order
        self._rounds = count()
        self._try_seat(0)

    def _try_seat(self, seat: int) -> None:
        """Try to take this seat; an occupied seat closes the channel, and the next one is tried."""
        if seat >= topology.SEATS:
            log.warning("RabbitMQ: all %d seats for workers are taken; this one waits for one", topology.SEATS)
            self._later(limits.AMQP_QUEUE_ANSWER_S, partial(self._try_seat, 0))
            return
        self.channel.connection.channel(on_open_callback=partial(self._claim, seat))

    def _claim(self, seat: int, channel: Any) -> None:
        def closed(_channel: Any, reason: Any) -> None:
            if not self.channel.connection.is_open:
                return
            if self._seat is None:
                self._try_seat(seat + 1)
            else:
                self._fail(f"the seat {seat} was lost: {reason}")

        channel.add_on_close_callback(closed)
        name = topology.seat(seat)
        channel.queue_declare(name, durable=True, callback=None)
        channel.basic_consume(
            name, lambda *_: None, auto_ack=True, exclusive=True, callback=lambda _frame: self._seated(seat)
        )

    def _seated(self, seat: int) -> None:
        self._seat = seat
        self._look()

    def _look(self) -> None:
        """Call for help or not, and ask about seats: workers take the lowest free one, so rarely about high ones."""
        if not self.channel.is_open:
            return
        every = next(self._rounds) % limits.AMQP_LOOKS_AT_ALL == 0
        highest = max((seat for seat, occupied in self._occupied.items() if occupied), default=0)
        self._ask(topology.SEATS if every else min(highest + 1 + limits.AMQP_SEATS_AHEAD, topology.SEATS))
        self._call(self._should_call(self._sharing))

    def _ask(self, seats: int) -> None:
        """Ask about the first so many seats, and last about calls; the broker answers in order."""
        self._occupied = {}
        for seat in range(seats):
            self.channel.queue_declare(topology.seat(seat), durable=True, callback=partial(self._seat_answered, seat))
        self.channel.queue_declare(topology.CALL, durable=True, callback=self._all_answered)

    def _seat_answered(self, seat: int, frame: Any) -> None:
        self._occupied[seat] = frame.method.consumer_count > 0 or seat == self._seat

    def _all_answered(self, frame: Any) -> None:
        assert self._seat is not None, "BUG: a question without a seat"
        if len(self._occupied) < topology.SEATS and self._occupied[len(self._occupied) - 1]:
            self._ask(topology.SEATS)  # many workers came at once
            return
        seats = [number for number, occupied in self._occupied.items() if occupied]
        sharing = topology.sharing(seats, called=frame.method.consumer_count > 0, calm=self._calm)
        self._sharing = len(sharing)
        self._shared(sharing, self._seat)
        self._later(limits.AMQP_LOOK_S, self._look)

    def _call(self, calling: bool) -> None:
        """Begin or end to consume from the queue of calls; every worker sees it when it asks next."""
        if calling and not self._calling:
            self.channel.basic_consume(topology.CALL, lambda *_: None, auto_ack=True, consumer_tag=topology.CALL)
        elif self._calling and not calling:
            self.channel.basic_cancel(topology.CALL)
        self._calling = calling

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.channel.connection.ioloop.call_later(seconds, act)
