"""From the queue of dead letters into the store's table of them, with the account of every stamp among them.

Enter by ``DeadQueue.keep``, with deliveries of `spm.dead` and their causes; when it returns, they may be acknowledged.
It gives none up: what is no envelope becomes a letter as it came. Doing it twice writes the same rows.

Whose a letter is, is never taken from what an agent could have written:

1. A worker that publishes a dead letter says in a header whose body it is, if an agent sent it; without that header
   it is an envelope of our own, which names its app.
2. The broker itself moves messages here with all headers of their senders, adding `x-death`. Then only the routing key
   counts: the broker lets an agent use no other than its token's, and those of our own messages look different.
3. What nobody vouches for belongs to app 0, which is nobody's: only those who run the site see it.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

import msgspec

from ingest.routing import LINES_TYPE, SOURCE_HEADER, split_agent_key
from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.writer import burial
from spm import limits
from spm.clock import Clock
from spm.errors import CorruptBlock
from spm.store.backends.base import Backend, RowPut, Step
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import BODY, NOBODY, TORN, BodyDescription, DeadLetter
from spm.wire import Envelope

Whose = Callable[[Delivery], int | None]
Dead = tuple[Delivery, str]  # and its cause
MOVED = "x-death"  # what the broker adds to a message that it moves here


class DeadQueue:
    """Keeps dead letters. ``whose`` says which app an agent's delivery is proven to be of."""

    def __init__(self, store: Backend, whose: Whose, clock: Clock) -> None:
        self._store, self._whose, self._clock = store, whose, clock

    def keep(self, letters: Collection[Dead]) -> None:
        """Make them durable; raises ``StoreUnavailable`` when that is not sure."""
        rows: dict[str, list[RowPut]] = {"dead": [], "ledger": []}
        for delivery, cause in letters:
            for table, puts in self._steps(delivery, cause):
                rows[table] += puts
        self._store.put([(table, puts) for table, puts in rows.items() if puts])

    def _steps(self, delivery: Delivery, cause: str) -> list[Step]:
        if by_agent(delivery):
            return [self._letter(delivery, BODY, cause, self._app(delivery))]
        try:
            return burial(Envelope.from_bytes(delivery.body), cause)
        except CorruptBlock:
            return [self._letter(delivery, TORN, cause, NOBODY)]

    def _app(self, delivery: Delivery) -> int:
        """Whose an agent's body is, or ``NOBODY``."""
        if MOVED not in delivery.headers:
            told = str(delivery.headers.get(topology.APP))
            return int(told) if told.isascii() and told.isdecimal() and int(told) <= limits.APP_MAX else NOBODY
        by_key = not topology.is_work_key(delivery.key)
        exchange = topology.AGENTS if by_key else topology.EXCHANGE
        return self._whose(msgspec.structs.replace(delivery, exchange=exchange)) or NOBODY

    def _letter(self, delivery: Delivery, kind: int, cause: str, app: int) -> Step:
        """A letter of the body as it came, or of its beginning."""
        headers, moved = delivery.headers, MOVED in delivery.headers
        about = BodyDescription(
            source=_text(headers, SOURCE_HEADER) or split_agent_key(delivery.key)[1],
            media=delivery.content_type if moved else _text(headers, topology.TYPE),
            encoding=delivery.encoding if moved else _text(headers, topology.ENCODING),
            message_id=delivery.message_id[: limits.MESSAGE_ID_CHARS_MAX],
            size=len(delivery.body),
        )
        letter = DeadLetter(kind, cause, delivery.body[: limits.DEAD_BODY_BYTES_MAX], key=about.to_bytes())
        at_ms = died_ms(delivery)
        return dead_letters.step(
            app, self._clock.now_ms() if at_ms is None else at_ms, dead_letters.body_name(letter), letter
        )


def too_often(delivery: Delivery) -> Delivery | None:
    """A letter as its work queue delivered it, if the broker gave it up for the number of its deliveries alone.

    That says nothing of the message: while the store is away and workers come and go, each of them counts. A letter
    that nobody settles either, as often again, stays one: it may end its worker as no trial shows.
    """
    if MOVED not in delivery.headers or _death(delivery).get("reason") != "delivery_limit":
        return None
    if delivery.tries >= limits.AMQP_DELIVERY_LIMIT:
        return None
    exchange = topology.EXCHANGE if topology.is_work_key(delivery.key) else topology.AGENTS
    return msgspec.structs.replace(delivery, exchange=exchange, tries=limits.AMQP_DELIVERY_LIMIT)


def by_agent(delivery: Delivery) -> bool:
    """Whether a dead letter is what an agent sent, which nobody has stamped."""
    if MOVED not in delivery.headers:
        return topology.APP in delivery.headers
    return delivery.content_type == LINES_TYPE or not topology.is_work_key(delivery.key)


def cause_of(delivery: Delivery) -> str:
    """Why it died, in words."""
    if MOVED not in delivery.headers:
        return _text(delivery.headers, topology.CAUSE) or "nobody said why"
    reason = str(_death(delivery).get("reason", ""))[:40]
    if reason == "delivery_limit":
        return "it was delivered too often without being settled"
    if reason == "rejected" and len(delivery.body) > limits.AMQP_PARTITION_BODY_BYTES_MAX:
        return f"too large: {len(delivery.body):,} bytes, wanted at most {limits.AMQP_PARTITION_BODY_BYTES_MAX:,}"
    return "a worker refused it, and could not say why" if reason == "rejected" else f"its queue gave it up: {reason}"


def died_ms(delivery: Delivery) -> int | None:
    """When: by the worker or the broker that put it here; the same at every delivery."""
    if MOVED in delivery.headers:
        time = _death(delivery).get("time")
        return round(time.timestamp() * 1000) if isinstance(time, datetime) else None
    told = _text(delivery.headers, topology.AT_MS)
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 15 else None


def _death(delivery: Delivery) -> Mapping[str, object]:
    """The broker's newest word about it."""
    told = delivery.headers[MOVED]
    first = told[0] if isinstance(told, list) and told else {}
    return first if isinstance(first, Mapping) else {}


def _text(headers: Mapping[str, object], name: str) -> str:
    return str(headers.get(name) or "")[:1000]
