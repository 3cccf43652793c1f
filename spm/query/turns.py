"""Who may ask now: so many queries of one organisation run at once in this process, a few more wait for their turn.

Waiting costs a thread of the web server, so that the number of those who wait is bounded too; who comes after them is
told to come again. A turn ends with its `with` block, however that is left. Enter by `Turns.take`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from spm import limits
from spm.errors import QueryRefused
from spm.query.budget import Watch, nobody


class Turns:
    """The turns of all organisations in one process. Thread-safe."""

    def __init__(
        self,
        running_max: int = limits.QUERY_PARALLEL_MAX,
        waiting_max: int = limits.QUERY_WAITING_MAX,
        wait_s: float = limits.QUERY_WAIT_S,
    ) -> None:
        self._running_max, self._waiting_max, self._wait_s = running_max, waiting_max, wait_s
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()

    @contextmanager
    def take(self, organisation: int, watch: Watch = nobody) -> Iterator[None]:
        """A turn; raises `QueryRefused` when there is none in time, or what the watch raises while waiting."""
        self._enter(organisation, watch)
        try:
            yield
        finally:
            with self._changed:
                self._leave(self._running, organisation)
                self._changed.notify_all()

    def _enter(self, organisation: int, watch: Watch) -> None:
        with self._changed:
            if self._running[organisation] >= self._running_max:
                self._wait(organisation, watch)
            self._running[organisation] += 1

    def _wait(self, organisation: int, watch: Watch) -> None:
        if self._waiting[organisation] >= self._waiting_max:
            raise self._refusal(f"and {self._waiting_max} more wait")
        self._waiting[organisation] += 1
        try:
            looks = max(1, round(self._wait_s / limits.QUERY_LOOK_S))
            for _ in range(looks):
                if self._changed.wait_for(lambda: self._free(organisation), self._wait_s / looks):
                    return
                watch()
            raise self._refusal(f"for {self._wait_s:g} s already")
        finally:
            self._leave(self._waiting, organisation)

    def _free(self, organisation: int) -> bool:
        return self._running[organisation] < self._running_max

    def _refusal(self, more: str) -> QueryRefused:
        return QueryRefused(
            f"{self._running_max} queries of your organisation are running {more}: "
            "ask again in a few seconds, or ask for less at once"
        )

    @staticmethod
    def _leave(counted: Counter[int], organisation: int) -> None:
        counted[organisation] -= 1
        if not counted[organisation]:
            del counted[organisation]
