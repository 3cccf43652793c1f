"""Passes messages on to other queues, so that none waits for what has nothing to do with it.

A message with samples of long ago may touch thousands of hours, each of them some rows: it goes to the queues of the
past. A sender of ours publishes it there itself; an agent's is told from others only once it is read, and one of an
older process came by another queue. A message of an app that cannot be written for now (``AppUnavailable``) goes to the
queue of waiting messages, which brings it back by its old key after a while. Each is published as it was stamped, and
settled once the queue has confirmed it. Enter by ``Forwarder``.
"""

from collections.abc import Collection, Sequence

import numpy as np

from ingest.transport import topology
from ingest.transport.limits import PASS_ON_S
from ingest.transport.past import PastLoad, are_past
from ingest.transport.topology import Address
from ingest.worker.batch import Item
from ingest.worker.interfaces import QueuePublisher
from spm.arrays import BOOL
from spm.clock import SystemClock
from spm.envelope_batch import Envelopes
from spm.wire import Envelope


class Forwarder:
    """Passes messages on by this publisher. ``passes_past``: also those of the past, which its consumer is not for."""

    def __init__(self, publisher: QueuePublisher, address: Address, *, passes_past: bool) -> None:
        self._publisher, self._address, self._passes_past = publisher, address, passes_past
        self._load = PastLoad(SystemClock())

    def are_past(self, envelopes: Envelopes) -> BOOL:
        """bool[M]: the messages that belong into the queues of the past."""
        if not self._passes_past:
            return np.zeros(len(envelopes), np.bool_)
        return np.array(are_past(envelopes.ts, envelopes.samples, envelopes.ms), np.bool_)

    def pass_on(self, items: Sequence[Item], envelopes: Envelopes, past: BOOL) -> BOOL:
        """Pass on these items to the queues of the past; return bool[M]: those that a queue has confirmed."""
        messages = [
            (topology.route_past(len(items[number].body), of_many=self._load.add(envelopes[number])), items[number])
            for number in np.flatnonzero(past).tolist()
        ]
        confirmed = np.zeros(len(items), np.bool_)
        confirmed[past] = self._publish(topology.EXCHANGE, messages)
        return confirmed

    def have_wait(self, items: Sequence[Item]) -> bool:
        """Have messages wait; return whether the queue has confirmed them all."""
        return all(self._publish(topology.WAITING, [(self._key(item), item) for item in items]))

    def _key(self, item: Item) -> str:
        if topology.is_work_key(item.delivery.key):
            return item.delivery.key
        envelope = Envelope.from_bytes(item.body)
        return self._address.route(envelope.app, envelope.source, len(item.body))

    def _publish(self, exchange: str, messages: Collection[tuple[str, Item]]) -> list[bool]:
        if not messages:
            return []
        named = [(key, item.body, _message_id(item)) for key, item in messages]
        return self._publisher.publish_all(exchange, named, timeout_s=PASS_ON_S)


def _message_id(item: Item) -> str:
    return item.delivery.message_id if item.accepted is None else item.accepted.message_id.hex()
