"""An event loop in a thread of its own: it also runs where Playwright has left a running loop in the test's thread."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class OwnLoop:
    """Runs one coroutine after another."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1, "event-loop")

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result."""
        return self._thread.submit(self._runner.run, act).result()

    def close(self) -> None:
        """End the loop and its thread."""
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


def on_loop(act: Coroutine[Any, Any, T], seconds: float = 60) -> T:
    """The coroutine's result, if it comes within ``seconds``."""
    loop = OwnLoop()
    try:
        return loop.run(asyncio.wait_for(act, seconds))
    finally:
        loop.close()
