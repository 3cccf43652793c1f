"""What a notifier is, and its fake sibling that keeps what it is given."""

from collections.abc import Mapping
from typing import Any, Protocol

from spm.errors import SpmError


class DeliveryFailed(SpmError):
    """The message was not taken; ``permanent`` says that trying again cannot help."""

    def __init__(self, what: str, *, permanent: bool = False) -> None:
        self.permanent = permanent
        super().__init__(what)


class Notifier(Protocol):
    """One way to people."""

    def send(self, key: str, payload: Mapping[str, Any]) -> None:
        """Deliver the message, under an id made from ``key`` so that twice counts once; raises ``DeliveryFailed``."""


class RecordingNotifier:
    """Keeps messages instead of sending them; fails as often as told."""

    def __init__(self, failures: int = 0, *, permanent: bool = False) -> None:
        self.keys: list[str] = []
        self.failures, self._permanent = failures, permanent

    def send(self, key: str, payload: Mapping[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise DeliveryFailed("told to fail", permanent=self._permanent)
        self.keys.append(key)
