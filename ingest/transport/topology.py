"""What stands in RabbitMQ: every name, argument and routing rule, in one place (what senders need: ``ingest.routing``).

One topic exchange. Messages of one source always go to the same partition queue, so that its messages stay in order and
one batch holds few sources; bodies over ``AMQP_PARTITION_BODY_BYTES_MAX`` go to a queue of their own, of which a worker
holds few at a time: that bounds a worker's memory. What cannot be stored goes to the dead-letter queue, at least once.
All queues are quorum queues. Agents that the broker knows by their tokens publish to an exchange of their own, behind
which a ring spreads their keys over the same queues. No RabbitMQ library here.
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
    "ENCODING",
    "EXCHANGE",
    "LETTERS",
    "ORIGIN",
    "TYPE",
    "Address",
    "Queue",
]
DEAD = "spm.dead"  # the dead letters' exchange and their queue
BULK = "bulk"
AGENTS_RING = "spm.agents.ring"  # behind AGENTS: the same key always goes to the same partition
CAUSE, ORIGIN, AT_MS = "x-spm-cause", "x-spm-queue", "x-spm-ms"  # headers of a dead letter
APP = "x-spm-app"  # likewise of a body that nobody has stamped: whose it is, or 0
TYPE, ENCODING = "x-spm-type", "x-spm-encoding"  # and what its sender said of it
CONTENT_TYPE = "application/vnd.spm.envelope"


@dataclass(frozen=True, slots=True)
class Queue:
    """One work queue: its name, the routing key bound to it, and whether a worker may hold but few of its messages."""

    name: str
    key: str
    few: bool = False


LETTERS = Queue(DEAD, "", few=True)  # consumed by one worker, as work queues are


@dataclass(frozen=True, slots=True)
class Address:
    """Where RabbitMQ is, and into how many partitions its messages go."""

    url: str
    partitions: int
    agents: bool = False  # whether agents publish by their tokens: needs RabbitMQ's consistent-hash exchange
    ca: str = ""  # file of the authority that signed the broker's certificate; "": the system's
    calm: int = limits.AMQP_CALM_WORKERS  # that consume while there is little to do

    @classmethod
    def parse(cls, url: str) -> "Address":
        """``amqp[s]://user:password@host:port/vhost?partitions=N&agents=1&ca=FILE&calm=N``; ``Refused``: wrong."""
        agents = option_of(url, AGENTS_OPTION) not in ("", "0", "no")
        calm = option_of(url, CALM_OPTION) or str(limits.AMQP_CALM_WORKERS)
        if not calm.isdecimal() or not 1 <= int(calm) <= SEATS:
            raise Refused("wrong number of workers that consume in calm", got=calm, wanted=f"1 to {SEATS}")
        return cls(*split_partitions(url), agents, option_of(url, CA_OPTION), int(calm))

    def queues(self) -> list[Queue]:
        """All work queues."""
        keys = [partition_key(i) for i in range(self.partitions)]
        partitions = [Queue(f"{EXCHANGE}.{key}", key) for key in keys]
        return [*partitions, Queue(f"{EXCHANGE}.{BULK}", BULK, few=True)]

    def route(self, app: int, source: str, size: int) -> str:
        """The routing key of a message: the same for all of one source, unless its body is large."""
        if size > limits.AMQP_PARTITION_BODY_BYTES_MAX:
            return BULK
        return key_of(app.to_bytes(4, "big") + source.encode(), self.partitions)


def work_arguments() -> Mapping[str, object]:
    """Of a work queue. A delivery limit without a dead-letter exchange would delete in silence; dead-lettering is
    at-most-once by default, and its safe form needs an overflow that refuses instead of dropping the oldest."""
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
    return key == BULK or (len(key) == 3 and key.isdecimal())


SEATS = 32  # workers that may consume at a time; each has an exclusive queue for as long as it lives


def seat(number: int) -> str:
    """The queue, always empty, whose one consumer holds this seat."""
    return f"spm.worker.{number:02d}"


CALL = "spm.worker.call"  # a queue, always empty, with a consumer for each worker that has enough to do


def sharing(seats: Sequence[int], *, called: bool, calm: int = limits.AMQP_CALM_WORKERS) -> list[int]:
    """The seats among ``seats`` whose workers consume: all of them when anybody calls, else the first few. Pure."""
    return sorted(seats) if called else sorted(seats)[:calm]


def share(queues: Sequence[Queue], seats: Sequence[int], own: int) -> frozenset[str]:
    """The names of the queues that the worker on seat ``own`` consumes while those on ``seats`` do. Pure.

    Every queue belongs to exactly one of the seats, and no seat has two more than another.
    """
    if own not in seats:
        return frozenset()
    place = sorted(seats).index(own)
    return frozenset(queue.name for number, queue in enumerate(queues) if number % len(seats) == place)


def prefetch(queues: Iterable[Queue]) -> dict[str, int]:
    """By name: how many unacknowledged messages of each of its queues a worker may hold that has these. Pure.

    Together it is the same for few queues as for many: the first queue to run dry ends a batch, so with less from each
    the batches of a worker among many would be small, and a value dearer (measured: a fifth, of four workers). Powers
    of two, as each change gives back what is held.
    """
    queues = list(queues)
    full = sum(not queue.few for queue in queues)
    each = limits.CONSUME_HELD >> max(full - 1, 0).bit_length()
    of_full = max(each, limits.CONSUME_PREFETCH_MIN)
    return {queue.name: limits.CONSUME_PREFETCH_BULK if queue.few else of_full for queue in queues}


RING_WEIGHT = "1"  # each partition takes an equal part of the ring; it never changes, so keys never move


def dead_arguments() -> Mapping[str, object]:
    """Of the dead letters' queue: they stay until a worker has put them into the store's table of them, however often
    one is kept from it. Nothing is behind this queue: what a limit took out of it would be gone."""
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": limits.AMQP_DEAD_DELIVERY_LIMIT,
        "x-overflow": "reject-publish",
        "x-max-length-bytes": limits.AMQP_QUEUE_BYTES_MAX,
    }
