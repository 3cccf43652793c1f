"""What a notifier is, and a fake notifier that records messages instead of sending them.

A notifier delivers messages to one kind of receiver. It says which receivers it accepts, shows a message as its
receivers will see it, and sends it. Add one by a class in a file of this folder and a line in ``registry``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spm.errors import SpmError

FIRING, RESOLVED = "firing", "resolved"  # what a message says of an episode


class DeliveryFailed(SpmError):
    """The receiver's service did not take the message.

    ``permanent``: trying again cannot help. ``perhaps``: the message may have arrived all the same, as its answer was
    lost; without it the message surely did not arrive.
    """

    def __init__(self, reason: str, *, permanent: bool = False, perhaps: bool = False) -> None:
        self.permanent, self.perhaps = permanent, perhaps
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """A message as its receivers see it; ``headers`` are names and values shown above the text."""

    subject: str
    receivers: Sequence[str]
    headers: Sequence[tuple[str, str]]
    body: str


class Notifier(Protocol):
    """A way to deliver messages to people."""

    @property
    def receiver_hint(self) -> str:
        """What a receiver looks like, for the rule's form: ``mail address``."""

    def accepts(self, receiver: str) -> bool:
        """Whether this notifier can deliver to the receiver."""

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        """Return the message as it would be sent; raises ``DeliveryFailed`` if no receiver can get it."""

    def shown(self, receiver: str) -> str:
        """Return the receiver as pages show it, without what is secret of it."""

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        """Deliver under an id derived from ``key``, so that twice counts once; returns the answer of the other side.

        Raises ``DeliveryFailed``.
        """


class RecordingNotifier:
    """Records the keys of messages instead of sending them; fails as many times as the constructor says."""

    receiver_hint = "anything"

    def __init__(self, failures: int = 0, *, permanent: bool = False) -> None:
        self.keys: list[str] = []
        self.failures, self._permanent = failures, permanent

    def accepts(self, receiver: str) -> bool:
        return True

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return RenderedMessage(key, payload.get("receivers", ()), (), "")

    def shown(self, receiver: str) -> str:
        return receiver

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        if self.failures:
            self.failures -= 1
            raise DeliveryFailed("this notifier was asked to fail", permanent=self._permanent)
        self.keys.append(key)
        return "recorded"
