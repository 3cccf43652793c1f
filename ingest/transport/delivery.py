"""One message as a queue delivered it, and the name under which it is settled. No RabbitMQ library here.

They are structs of msgspec, which are made five times as fast as dataclasses: there is one per message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from spm import limits

_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mark:
    """What names a delivery when it is settled: the channel that brought it (only there it can be), queue, tag."""

    generation: int
    queue: str
    tag: int


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message as it came. ``tries``: how often it was delivered before and not settled."""

    generation: int
    tag: int
    queue: str
    body: bytes
    message_id: str
    came_ms: int
    content_type: str = ""
    encoding: str = ""
    headers: Mapping[str, object] = _NONE
    exchange: str = ""
    key: str = ""
    user_id: str = ""
    redelivered: bool = False
    tries: int = 0
    share: int = limits.CONSUME_HELD // 2  # its queue sends no more before so many of them are settled

    @property
    def mark(self) -> Mark:
        """How it is settled."""
        return Mark(self.generation, self.queue, self.tag)
