"""An event loop for one test, also where Playwright has left a running one in the test's thread."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class OwnLoop:
    """Runs one coroutine after another: in this thread, which may hold the test's transaction, or else in its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1, "event-loop") if _is_loop_running() else None

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result."""
        return self._call(lambda: self._runner.run(act))

    def close(self) -> None:
        """End the loop and its thread."""
        self._call(self._runner.close)
        if self._thread:
            self._thread.shutdown()

    def _call(self, act: Callable[[], T]) -> T:
        return self._thread.submit(act).result() if self._thread else act()


def on_loop(act: Coroutine[Any, Any, T], seconds: float = 60) -> T:
    """The coroutine's result, if it comes within ``seconds``."""
    loop = OwnLoop()
    try:
        return loop.run(_in_time(act, seconds))
    finally:
        loop.close()


async def _in_time(act: Coroutine[Any, Any, T], seconds: float) -> T:
    return await asyncio.wait_for(act, seconds)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
