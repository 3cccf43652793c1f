"""Turns deliveries into items of a batch, and decides which of them the poison sandbox must try first.

Enter by ``DeliveryReader.read_many``. An envelope of ours is an item as it is, an agent's message after its acceptance;
the agents' messages among the deliveries at hand are accepted together. A delivery that was under way when workers
ended, several times, is tried in the poison sandbox first, and read alone. While the store or the database does not
answer, a message waits, and those behind it do: stamps follow the deliveries.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import groupby, takewhile

from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.worker.batch import Item
from ingest.worker.dead_letter_publisher import is_by_agent
from ingest.worker.interfaces import MessageAcceptor
from ingest.worker.retry import StoreRetry
from spm import limits
from spm.envelope_batch import count_samples
from spm.errors import CorruptBlock, Explained, StoreUnavailable
from spm.wire import Envelope

log = logging.getLogger(__name__)


class DeliveryReader:
    """Reads deliveries. ``sandbox`` returns why a delivery must not be handled in this process, else ``None``."""

    def __init__(
        self, acceptor: MessageAcceptor | None, sandbox: Callable[[Delivery], str | None] | None, retry: StoreRetry
    ) -> None:
        self._acceptor, self._sandbox, self._retry = acceptor, sandbox, retry

    @property
    def has_sandbox(self) -> bool:
        """Whether suspicious deliveries can be tried."""
        return self._sandbox is not None

    def read_many(self, deliveries: Sequence[Delivery]) -> list[Item | Exception | None]:
        """Return what is to be written of each delivery, ``None`` for nothing, or what is wrong with its body.

        The body of an envelope is checked with its batch. After ``StoreUnavailable`` none of them counts as read.
        """
        results: list[Item | Exception | None] = []
        try:
            for is_suspect, run in groupby(deliveries, lambda each: each.tries >= limits.CONSUME_SUSPECT_TRIES):
                if is_suspect:
                    for delivery in run:
                        results.append(self._suspect_result(delivery))
                else:
                    results += self._open_many(list(run))
        except BaseException:
            self.drop([result for result in results if isinstance(result, Item)])
            raise
        return results

    def read_suspect(self, delivery: Delivery) -> Item | None:
        """Read a delivery after the sandbox has tried it; ``CorruptBlock`` with the cause if that ended.

        Raises what is wrong with its body.
        """
        cause = None if self._sandbox is None else self._sandbox(delivery)
        if cause is not None:
            raise CorruptBlock(cause)
        [result] = self._open_many([delivery])
        if isinstance(result, Exception):
            raise result
        return result

    def confirm(self, items: Collection[Item]) -> None:
        """Confirm the stamps that were given here, once their messages are durable or dead letters."""
        for item in items:
            if item.accepted is not None and self._acceptor is not None:
                self._acceptor.confirm(item.accepted)

    def drop(self, items: Collection[Item]) -> None:
        """Give items up. They are delivered again and stamped by another process number: this one cannot confirm."""
        if self._acceptor is not None and any(item.accepted for item in items):
            self._acceptor.retire()

    def _suspect_result(self, delivery: Delivery) -> Item | Exception | None:
        try:
            return self.read_suspect(delivery)
        except StoreUnavailable:
            raise
        except Exception as error:  # of one delivery
            return error

    def _open_many(self, deliveries: Sequence[Delivery]) -> list[Item | Exception | None]:
        acceptor = self._acceptor
        if acceptor is None:
            return [_own_item(delivery) for delivery in deliveries]
        accepted = iter(self._accept(acceptor, [delivery for delivery in deliveries if is_by_agent(delivery)]))
        return [
            _accepted_item(acceptor, delivery, next(accepted)) if is_by_agent(delivery) else _own_item(delivery)
            for delivery in deliveries
        ]

    def _accept(self, acceptor: MessageAcceptor, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        """Accept agents' messages in their order; wait while the store keeps the next one from being accepted."""
        results: list[Envelope | Exception | None] = []
        while rest := deliveries[len(results) :]:
            end_ms = rest[0].arrived_ms + limits.CONSUME_RETRY_S * 1000
            try:
                results += self._retry.call(partial(_accept_some, acceptor, rest), [rest[0].ack_handle], end_ms)
            except BaseException as error:
                if results or not isinstance(error, StoreUnavailable):  # what is stamped is delivered again
                    acceptor.retire()
                raise
        return results


def _accept_some(acceptor: MessageAcceptor, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
    """Accept deliveries up to the first that must wait for the store; its ``StoreUnavailable`` if that is the first."""
    results = acceptor.accept_many(deliveries)
    if isinstance(results[0], StoreUnavailable):
        raise results[0]
    if not isinstance(results[-1], StoreUnavailable):
        return results
    return list(takewhile(lambda result: not isinstance(result, StoreUnavailable), results))


def _own_item(delivery: Delivery) -> Item | Exception:
    try:
        assert delivery.exchange != topology.AGENTS, "BUG: an agent's message is taken for our own"
        return Item(delivery, delivery.body, count_samples(delivery.body))
    except Exception as error:  # of one delivery
        return error


def _accepted_item(
    acceptor: MessageAcceptor, delivery: Delivery, accepted: Envelope | Exception | None
) -> Item | Exception | None:
    if accepted is None or isinstance(accepted, Exception):
        return accepted
    try:
        return Item(delivery, accepted.to_bytes(), len(accepted), accepted)
    except Exception as error:  # a fault of ours: nobody will confirm its stamp
        acceptor.retire()
        return error


def cause_of_error(error: Exception) -> str:
    """Return the cause for the dead letter of a body that cannot be read."""
    if isinstance(error, Explained):
        return str(error)
    log.error("a body cannot be read", exc_info=error)
    return f"cannot be read: {error!r}"
