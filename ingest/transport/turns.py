"""Lines of messages by app and by source, from which each takes its turn. Pure.

Of an app with a thousand messages only one comes before the next message of another app; within an app, the same is
true of its sources.
Enter by ``Turns``.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Messages that wait. The next one is that of the app, and in it of the source, whose turn was longest ago."""

    def __init__(self) -> None:
        self._apps: dict[int, dict[str, deque[T]]] = {}  # whose turn comes first is first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, app: int, source: str, message: T) -> None:
        """Add a message behind those of its source."""
        self._apps.setdefault(app, {}).setdefault(source, deque()).append(message)
        self._count += 1

    def next(self) -> T:
        """Return the message that ``take`` takes; there must be one."""
        sources = next(iter(self._apps.values()))
        return next(iter(sources.values()))[0]

    def take(self) -> T:
        """Take the next message; its app and its source then wait for another turn."""
        app = next(iter(self._apps))
        sources = self._apps.pop(app)
        source = next(iter(sources))
        line = sources.pop(source)
        message = line.popleft()
        self._count -= 1
        if line:
            sources[source] = line
        if sources:
            self._apps[app] = sources
        return message
