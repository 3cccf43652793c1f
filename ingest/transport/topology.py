"""What exists in RabbitMQ: names, arguments, routing rules, and the prefetch of each queue by a worker's share.

What senders need stands in ``ingest.routing``.

One topic exchange. Messages of one source always go to one partition queue, so that they stay in order and one batch
holds few sources. Bodies over ``AMQP_PARTITION_BODY_BYTES_MAX`` go to a queue of their own, of which a worker holds
few at a time: that bounds a worker's memory. Messages with samples of long ago have queues of their own, by their size,
which a worker's second consumer reads: live messages wait for them only while these queues take nothing. Of an app that
sends many of them the further ones go to two more queues, so that those of other apps do not wait behind them.
Messages of an app that cannot be written for now wait in a queue without a consumer, which brings each back by its old
key after ``WAIT_MS``: nothing waits behind them, and no delivery of theirs is counted. What cannot be stored goes to
the dead-letter queue, at least once. All queues are quorum queues. Agents that the broker knows by their tokens
publish to an exchange of their own, behind which a consistent-hash ring spreads their keys over the same queues.
No RabbitMQ library here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ingest.routing import (
    AGENTS,
    AGENTS_OPTION,
    CA_OPTION,
    CALM_OPTION,
    EXCHANGE,
    key_of,
    option_of,
    partition_key,
    split_partitions,
)
from ingest.transport.limits import PAST_BULK_PREFETCH, PAST_PREFETCH, WAIT_MS
from spm import limits
from spm.errors import Refused

__all__ = [
    "AGENTS",
    "AGENTS_RING",
    "APP",
    "AT_MS",
    "BULK",
    "CAUSE",
    "CONTENT_TYPE",
    "DEAD",
    "DEAD_LETTER_QUEUE",
    "ENCODING",
    "EXCHANGE",
    "ORIGIN",
    "PAST",
    "PAST_BULK",
    "PAST_MANY",
    "PAST_MANY_BULK",
    "TYPE",
    "WAITING",
    "Address",
    "Queue",
]
DEAD = "spm.dead"  # the dead letters' exchange and their queue
WAITING = "spm.waiting"  # the exchange and the queue of messages that cannot be written for now
BULK = "bulk"
PAST, PAST_BULK = "past", "past.bulk"  # samples of long ago (``past``)
PAST_MANY, PAST_MANY_BULK = "past.many", "past.many.bulk"  # of apps that send many of them
AGENTS_RING = "spm.agents.ring"  # behind AGENTS: a key always goes to one and the same partition
CAUSE, ORIGIN, AT_MS = "x-spm-cause", "x-spm-queue", "x-spm-ms"  # headers of a dead letter
APP = "x-spm-app"  # header of a dead letter whose body has no stamp: its app, or 0
TYPE, ENCODING = "x-spm-type", "x-spm-encoding"  # headers of such a dead letter: what its sender said of the body
CONTENT_TYPE = "application/vnd.spm.envelope"


@dataclass(frozen=True, slots=True)
class Queue:
    """One work queue: its name, the routing key bound to it, and whether a worker may hold but few of its messages.

    ``past``: its messages have samples of long ago.
    """

    name: str
    key: str
    few: bool = False
    past: bool = False


DEAD_LETTER_QUEUE = Queue(DEAD, "", few=True)  # consumed by one worker, as work queues are
PAST_QUEUES = (
    Queue(f"{EXCHANGE}.{PAST}", PAST, past=True),
    Queue(f"{EXCHANGE}.{PAST_BULK}", PAST_BULK, few=True, past=True),
    Queue(f"{EXCHANGE}.{PAST_MANY}", PAST_MANY, past=True),
    Queue(f"{EXCHANGE}.{PAST_MANY_BULK}", PAST_MANY_BULK, few=True, past=True),
)
PAST_NAMES = frozenset(queue.name for queue in PAST_QUEUES)
_PAST_KEYS = {queue.key for queue in PAST_QUEUES}


def route_past(size: int, *, of_many: bool) -> str:
    """Return the routing key of a message with samples of long ago. ``of_many``: its app has sent many of them."""
    if size > limits.AMQP_PARTITION_BODY_BYTES_MAX:
        return PAST_MANY_BULK if of_many else PAST_BULK
    return PAST_MANY if of_many else PAST


@dataclass(frozen=True, slots=True)
class Address:
    """Where RabbitMQ is, and into how many partitions its messages go."""

    url: str
    partitions: int
    agents: bool = False  # whether agents publish by their tokens: needs RabbitMQ's consistent-hash exchange
    ca: str = ""  # file of the authority that signed the broker's certificate; "": the system's
    calm: int = limits.AMQP_CALM_WORKERS  # workers that consume while there is little to do

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse ``amqp[s]://user:password@host:port/vhost?partitions=N&agents=1&ca=FILE&calm=N``, or ``Refused``."""
        agents = option_of(url, AGENTS_OPTION) not in ("", "0", "no")
        calm = option_of(url, CALM_OPTION) or str(limits.AMQP_CALM_WORKERS)
        if not calm.isdecimal() or not 1 <= int(calm) <= SEATS:
            raise Refused("wrong number of workers that consume in calm", got=calm, wanted=f"1 to {SEATS}")
        return cls(*split_partitions(url), agents, option_of(url, CA_OPTION), int(calm))

    def queues(self) -> list[Queue]:
        """Return all work queues."""
        keys = [partition_key(i) for i in range(self.partitions)]
        partitions = [Queue(f"{EXCHANGE}.{key}", key) for key in keys]
        return [*partitions, Queue(f"{EXCHANGE}.{BULK}", BULK, few=True), *PAST_QUEUES]

    def route(self, app: int, source: str, size: int) -> str:
        """Return the routing key of a live message: one for all messages of a source, unless the body is large."""
        if size > limits.AMQP_PARTITION_BODY_BYTES_MAX:
            return BULK
        return key_of(app.to_bytes(4, "big") + source.encode(), self.partitions)


def work_arguments() -> Mapping[str, object]:
    """Return the arguments of a work queue.

    A delivery limit without a dead-letter exchange would delete silently. Dead-lettering is at-most-once by default;
    its safe form needs an overflow that refuses instead of dropping the oldest.
    """
    return {
        "x-queue-type": "quorum",
        "x-single-active-consumer": True,
        "x-delivery-limit": limits.AMQP_DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-max-length-bytes": limits.AMQP_QUEUE_BYTES_MAX,
    }


def is_work_key(key: str) -> bool:
    """Whether a message came by the exchange of our own messages: agents may only use keys that begin with a token."""
    return key == BULK or key in _PAST_KEYS or (len(key) == 3 and key.isdecimal())


SEATS = 32  # workers that may consume at a time; each holds one seat, an exclusive queue, for as long as it lives


def seat(number: int) -> str:
    """Return the name of the queue, always empty, whose one consumer holds this seat."""
    return f"spm.worker.{number:02d}"


CALL = "spm.worker.call"  # a queue, always empty, with a consumer for each worker that calls for help


def sharing(seats: Sequence[int], *, called: bool, calm: int = limits.AMQP_CALM_WORKERS) -> list[int]:
    """Return the seats whose workers consume: all of them when any worker calls, else the first few. Pure."""
    return sorted(seats) if called else sorted(seats)[:calm]


def share(queues: Sequence[Queue], seats: Sequence[int], own: int) -> frozenset[str]:
    """Return the names of the queues that the worker on seat ``own`` consumes while those on ``seats`` do. Pure.

    Every queue belongs to exactly one of the seats, and no seat has two more than another.
    """
    if own not in seats:
        return frozenset()
    place = sorted(seats).index(own)
    return frozenset(queue.name for number, queue in enumerate(queues) if number % len(seats) == place)


def prefetch(queues: Iterable[Queue], most: int = limits.CONSUME_UNACKED_MAX) -> dict[str, int]:
    """Return by name how many unacknowledged messages of each of its queues a worker may hold. Pure.

    ``most``: of its partition queues together.

    The sum is equal for few queues and for many: the first queue to run dry ends a batch, so with less from each the
    batches of a worker among many would be small, and a value dearer (measured: a fifth, of four workers). Powers of
    two, since each change gives back what is held.
    """
    queues = list(queues)
    full = sum(not queue.few and not queue.past for queue in queues)
    each = most >> max(full - 1, 0).bit_length()
    of_full = max(each, limits.CONSUME_PREFETCH_MIN)
    return {queue.name: _PREFETCH.get((queue.few, queue.past), of_full) for queue in queues}


_PREFETCH = {
    (True, False): limits.CONSUME_PREFETCH_BULK,
    (False, True): PAST_PREFETCH,
    (True, True): PAST_BULK_PREFETCH,
}  # by (few, past): unacknowledged messages of such a queue that a worker may hold


def waiting_arguments() -> Mapping[str, object]:
    """Return the arguments of the queue of waiting messages: each goes back to its work queue, at least once."""
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": WAIT_MS,
        "x-dead-letter-exchange": EXCHANGE,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-max-length-bytes": limits.AMQP_QUEUE_BYTES_MAX,
    }


RING_WEIGHT = "1"  # each partition takes an equal part of the ring; it never changes, so keys never move


def dead_arguments() -> Mapping[str, object]:
    """Return the arguments of the dead letters' queue.

    They stay until a worker has stored them, however often one is delivered: nothing is behind this queue, so a
    delivery limit would delete them.
    """
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": limits.AMQP_DEAD_DELIVERY_LIMIT,
        "x-overflow": "reject-publish",
        "x-max-length-bytes": limits.AMQP_QUEUE_BYTES_MAX,
    }
