"""Who may ask now: so many queries of one organisation run at once on this machine, a few more wait for their turn.

Waiting costs a thread of the web server, so that the number of those who wait is bounded too, in each process; who
comes after them is told to come again. A turn ends with its `with` block, however that is left. With `Places` the bound
holds for all processes together, without them it is each process' own.

An answer that is made while it is sent takes a turn for what it makes and has none while that is sent, so that nobody
waits for a slow reader. Such answers cost a thread too: they are bounded in each process, and count among those who
wait. Enter by `Turns.take`, for such answers by `Turns.stream`, of the turns that all who ask in a process share:
`shared`.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

from spm import limits
from spm.errors import QueryRefused, QueryTimeout
from spm.query.request.budget import Watch, nobody

Try = Callable[[], tuple[bool, int | None]]  # whether there is a turn now, and its place


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
        streams_max: int = limits.STREAMS_PARALLEL_MAX,
    ) -> None:
        self._running_max, self._waiting_max, self._wait_s = running_max, waiting_max, wait_s
        self._streams_max, self._places = streams_max, places
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()
        self._streams: Counter[int] = Counter()

    @contextmanager
    def take(self, organisation: int, watch: Watch = nobody, *, patient: bool = False) -> Iterator[None]:
        """A turn; raises `QueryRefused` when there is none in time, or what the watch raises while waiting.

        Who is ``patient`` waits until the watch raises: a stream that has begun, and is counted as one.
        """
        place = self._enter(organisation, watch, patient)
        try:
            yield
        finally:
            with self._changed:
                self._leave(self._running, organisation)
                if self._places is not None and place is not None:
                    self._places.give(place)
                self._changed.notify_all()

    @contextmanager
    def stream(self, organisation: int, watch: Watch = nobody) -> Iterator[None]:
        """A place among the answers that are made while they are sent; it is no turn. Raises as `take` does."""
        with self._changed:
            if self._streams[organisation] >= self._streams_max:
                who = f"{self._streams_max} exports or remote reads of your organisation are being sent"
                self._waited(organisation, partial(self._may_stream, organisation), watch, who)
            self._streams[organisation] += 1
        try:
            yield
        finally:
            with self._changed:
                self._leave(self._streams, organisation)
                self._changed.notify_all()

    def _enter(self, organisation: int, watch: Watch, patient: bool) -> int | None:
        with self._changed:
            free, place = self._tried(organisation)
            if not free:
                who = f"{self._running_max} queries of your organisation are running"
                wait = self._waited_on if patient else self._waited
                place = wait(organisation, partial(self._tried, organisation), watch, who)
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

    def _may_stream(self, organisation: int) -> tuple[bool, None]:
        return self._streams[organisation] < self._streams_max, None

    def _waited(self, organisation: int, tried: Try, watch: Watch, who: str) -> int | None:
        """What was tried, once it is free."""
        if self._waiting[organisation] + self._streams[organisation] >= self._waiting_max:
            raise _refusal(who, f"and {self._waiting_max} more wait")
        self._waiting[organisation] += 1
        try:
            looks = max(1, round(self._wait_s / limits.QUERY_LOOK_S))
            for _ in range(looks):
                free, place = self._next(self._wait_s / looks, tried, watch, who)
                if free:
                    return place
            raise _refusal(who, f"for {self._wait_s:g} s already")
        finally:
            self._leave(self._waiting, organisation)

    def _waited_on(self, organisation: int, tried: Try, watch: Watch, who: str) -> int | None:
        """The same for as long as the watch allows; a stream is counted already."""
        while True:
            free, place = self._next(limits.QUERY_LOOK_S, tried, watch, who)
            if free:
                return place

    def _next(self, pause_s: float, tried: Try, watch: Watch, who: str) -> tuple[bool, int | None]:
        # A turn that ends here wakes us; one that ends in another process is seen at the next look.
        self._changed.wait(pause_s)
        free, place = tried()
        if not free:
            _look(watch, who)
        return free, place

    @staticmethod
    def _leave(counted: Counter[int], organisation: int) -> None:
        counted[organisation] -= 1
        if not counted[organisation]:
            del counted[organisation]


def _look(watch: Watch, who: str) -> None:
    try:
        watch()
    except QueryTimeout as error:
        raise QueryTimeout(
            f"query timed out while it waited for its turn: {who}; ask again in a few seconds, or give it more time"
        ) from error


def _refusal(who: str, more: str) -> QueryRefused:
    return QueryRefused(f"{who} {more}: ask again in a few seconds, or ask for less at once")


@lru_cache(maxsize=8)
def shared(path: Path) -> Turns:
    """The turns by the places of a file: one object in a process, since its locks are the process'."""
    return Turns(places=Places(path))
