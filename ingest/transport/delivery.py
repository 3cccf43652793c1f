"""One message as a queue delivered it (``Delivery``), and the handle that settles it (``AckHandle``).

No RabbitMQ library here. A delivery is a struct of msgspec, which is made five times as fast as a dataclass: there is
one per message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from spm import limits

_NO_HEADERS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AckHandle:
    """Names a delivery when it is settled. ``generation``: of the channel that brought it; only there it can be."""

    generation: int
    queue: str
    tag: int


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message as it was delivered. ``tries``: how often it was delivered before and not settled."""

    generation: int
    tag: int
    queue: str
    body: bytes
    message_id: str
    arrived_ms: int
    content_type: str = ""
    encoding: str = ""
    headers: Mapping[str, object] = _NO_HEADERS
    exchange: str = ""
    key: str = ""
    user_id: str = ""
    redelivered: bool = False
    tries: int = 0
    share: int = limits.CONSUME_UNACKED_MAX // 2  # its queue sends no more before so many of them are settled

    @property
    def ack_handle(self) -> AckHandle:
        """The handle that settles it."""
        return AckHandle(self.generation, self.queue, self.tag)
