"""Who may ask now: so many queries of one organisation run at once on this machine, a few more wait for their turn.

Waiting costs a thread of the web server, so that the number of those who wait is bounded too, in each process; who
comes after them is told to come again. A turn ends with its `with` block, however that is left. With `Places` the bound
holds for all processes together, without them it is each process' own. Enter by `Turns.take`, of the turns that all
who ask in a process share: `shared`.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from spm import limits
from spm.errors import QueryRefused, QueryTimeout
from spm.query.budget import Watch, nobody


class Places:
    """Places that the processes of one machine share: a byte of one file for each, locked by the process that has it.

    The system gives a lock back when its process ends, however it ends. Locks belong to processes, so the file is
    opened once in each and never closed; who of a process has a place is known to its `Turns`.
    """

    def __init__(self, path: Path, per_organisation: int = limits.QUERY_PARALLEL_MAX) -> None:
        self._path, self._per_organisation = path, per_organisation
        self._file: int | None = None
        self._taken: set[int] = set()

    def take(self, organisation: int) -> int | None:
        """A place that no process has, or none."""
        first = organisation * self._per_organisation
        for place in range(first, first + self._per_organisation):
            if place not in self._taken and self._lock(place):
                self._taken.add(place)
                return place
        return None

    def give(self, place: int) -> None:
        """The place is free again."""
        self._taken.discard(place)
        fcntl.lockf(self._opened(), fcntl.LOCK_UN, 1, place)

    def _lock(self, place: int) -> bool:
        try:
            fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _opened(self) -> int:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


class Turns:
    """The turns of all organisations in one process. Thread-safe."""

    def __init__(
        self,
        running_max: int = limits.QUERY_PARALLEL_MAX,
        waiting_max: int = limits.QUERY_WAITING_MAX,
        wait_s: float = limits.QUERY_WAIT_S,
        places: Places | None = None,
    ) -> None:
        self._running_max, self._waiting_max, self._wait_s = running_max, waiting_max, wait_s
        self._places = places
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()

    @contextmanager
    def take(self, organisation: int, watch: Watch = nobody) -> Iterator[None]:
        """A turn; raises `QueryRefused` when there is none in time, or what the watch raises while waiting."""
        place = self._enter(organisation, watch)
        try:
            yield
        finally:
            with self._changed:
                self._leave(self._running, organisation)
                if self._places is not None and place is not None:
                    self._places.give(place)
                self._changed.notify_all()

    def _enter(self, organisation: int, watch: Watch) -> int | None:
        with self._changed:
            free, place = self._tried(organisation)
            if not free:
                place = self._waited(organisation, watch)
            self._running[organisation] += 1
            return place

    def _tried(self, organisation: int) -> tuple[bool, int | None]:
        """Whether there is a turn now, and its place."""
        if self._running[organisation] >= self._running_max:
            return False, None
        if self._places is None:
            return True, None
        place = self._places.take(organisation)
        return place is not None, place

    def _waited(self, organisation: int, watch: Watch) -> int | None:
        if self._waiting[organisation] >= self._waiting_max:
            raise self._refusal(f"and {self._waiting_max} more wait")
        self._waiting[organisation] += 1
        try:
            looks = max(1, round(self._wait_s / limits.QUERY_LOOK_S))
            for _ in range(looks):
                # A turn that ends here wakes us; one that ends in another process is seen at the next look.
                self._changed.wait(self._wait_s / looks)
                free, place = self._tried(organisation)
                if free:
                    return place
                self._look(watch)
            raise self._refusal(f"for {self._wait_s:g} s already")
        finally:
            self._leave(self._waiting, organisation)

    def _look(self, watch: Watch) -> None:
        try:
            watch()
        except QueryTimeout as error:
            raise QueryTimeout(
                f"query timed out while it waited for its turn: {self._running_max} queries of your organisation are "
                "running; ask again in a few seconds, or give it more time"
            ) from error

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


@lru_cache(maxsize=8)
def shared(path: Path) -> Turns:
    """The turns by the places of a file: one object in a process, since its locks are the process'."""
    return Turns(places=Places(path))
