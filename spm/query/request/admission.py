"""Admits queries: so many of one organisation run at once on this machine, and a few more wait in each process.

A query that waits occupies a thread of the web server, so waiting is bounded too: queries beyond that bound are refused
and may be sent again later. A query holds its slot until its `with` block ends, also by an error. With `MachineSlots`
the bound holds for all processes of the machine together, without them for each process alone.

A streamed answer is computed while it is sent. It holds a slot only while it computes, so that no other query waits for
a slow reader. Streams occupy threads as well: they are bounded in each process, and count as waiting queries. Enter by
`QueryAdmission.admit`, for streams by `QueryAdmission.admit_stream`, of the object that a whole process shares:
`shared_admission`.
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
from spm.clock import Clock, SystemClock
from spm.errors import QueryRefused, QueryTimeout
from spm.query.request.budget import Cancellation, never_cancelled

Attempt = Callable[[], tuple[bool, int | None]]  # (whether the query is admitted now, its slot of the machine)


class MachineSlots:
    """Slots that the processes of one machine share: each is a byte of one file, locked by the process that holds it.

    The operating system releases a lock when its process ends, for whatever reason. Locks belong to processes, so each
    process opens the file once and never closes it; `QueryAdmission` knows which of its queries hold a slot.
    """

    def __init__(self, path: Path, per_organisation: int = limits.QUERY_PARALLEL_MAX) -> None:
        self._path, self._per_organisation = path, per_organisation
        self._descriptor: int | None = None
        self._own: set[int] = set()

    def acquire(self, organisation: int) -> int | None:
        """Lock a free slot of the organisation; ``None`` if there is none."""
        first = organisation * self._per_organisation
        for slot in range(first, first + self._per_organisation):
            if slot not in self._own and self._lock(slot):
                self._own.add(slot)
                return slot
        return None

    def release(self, slot: int) -> None:
        """Unlock a slot of this process."""
        self._own.discard(slot)
        fcntl.lockf(self._file(), fcntl.LOCK_UN, 1, slot)

    def _lock(self, slot: int) -> bool:
        try:
            fcntl.lockf(self._file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _file(self) -> int:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor


class QueryAdmission:
    """Admits the queries of all organisations in one process. Thread-safe."""

    def __init__(
        self,
        running_max: int = limits.QUERY_PARALLEL_MAX,
        waiting_max: int = limits.QUERY_WAITING_MAX,
        wait_s: float = limits.QUERY_WAIT_S,
        machine_slots: MachineSlots | None = None,
        streams_max: int = limits.STREAMS_PARALLEL_MAX,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._running_max, self._waiting_max, self._wait_s = running_max, waiting_max, wait_s
        self._streams_max, self._machine_slots = streams_max, machine_slots
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()
        self._streams: Counter[int] = Counter()

    def admit(
        self,
        organisation: int,
        cancellation: Cancellation = never_cancelled,
        *,
        patient: bool = False,
        waits: bool = True,
    ) -> _Admitted:
        """Hold a slot for a query; raises `QueryRefused` if none is free in time, or what ``cancellation`` raises.

        A ``patient`` query waits until ``cancellation`` raises: it belongs to a stream, which is counted already. One
        that does not wait is refused at once.
        """
        return _Admitted(self, organisation, cancellation, patient, waits)

    @contextmanager
    def admit_stream(self, organisation: int, cancellation: Cancellation = never_cancelled) -> Iterator[None]:
        """Count a streamed answer while it is sent; this takes no slot. Raises as `admit` does."""
        with self._changed:
            if self._streams[organisation] >= self._streams_max:
                reason = f"{self._streams_max} exports or remote reads of your organisation are being sent"
                self._wait_briefly(organisation, partial(self._try_stream, organisation), cancellation, reason)
            self._streams[organisation] += 1
        try:
            yield
        finally:
            with self._changed:
                self._decrement(self._streams, organisation)
                self._changed.notify_all()

    def enter(self, organisation: int, cancellation: Cancellation, patient: bool, waits: bool) -> int | None:
        """Take a slot, as ``admit`` says; returns its number on this machine."""
        with self._changed:
            admitted, slot = self._try_query(organisation)
            if not admitted:
                reason = f"{self._running_max} queries of your organisation are running"
                if not waits:
                    raise _refusal(reason, "and this one does not wait")
                wait = self._wait_patiently if patient else self._wait_briefly
                slot = wait(organisation, partial(self._try_query, organisation), cancellation, reason)
            self._running[organisation] += 1
            return slot

    def leave(self, organisation: int, slot: int | None) -> None:
        """Give back what ``enter`` has taken."""
        with self._changed:
            self._decrement(self._running, organisation)
            if self._machine_slots is not None and slot is not None:
                self._machine_slots.release(slot)
            self._changed.notify_all()

    def _try_query(self, organisation: int) -> tuple[bool, int | None]:
        if self._running[organisation] >= self._running_max:
            return False, None
        if self._machine_slots is None:
            return True, None
        slot = self._machine_slots.acquire(organisation)
        return slot is not None, slot

    def _try_stream(self, organisation: int) -> tuple[bool, None]:
        return self._streams[organisation] < self._streams_max, None

    def _wait_briefly(self, organisation: int, attempt: Attempt, cancellation: Cancellation, reason: str) -> int | None:
        """Wait for at most ``wait_s``; returns the slot."""
        if self._waiting[organisation] + self._streams[organisation] >= self._waiting_max:
            raise _refusal(reason, f"and {self._waiting_max} more wait")
        self._waiting[organisation] += 1
        try:
            end_s = self._clock.monotonic() + self._wait_s
            while (remaining_s := end_s - self._clock.monotonic()) > 0:
                pause_s = min(remaining_s, limits.QUERY_CLIENT_CHECK_S)
                admitted, slot = self._pause_and_try(pause_s, attempt, cancellation, reason)
                if admitted:
                    return slot
            raise _refusal(reason, f"for {self._wait_s:g} s already")
        finally:
            self._decrement(self._waiting, organisation)

    def _wait_patiently(
        self, organisation: int, attempt: Attempt, cancellation: Cancellation, reason: str
    ) -> int | None:
        """Wait until ``cancellation`` raises; the waiting stream is counted as a stream, not once more."""
        while True:
            admitted, slot = self._pause_and_try(limits.QUERY_CLIENT_CHECK_S, attempt, cancellation, reason)
            if admitted:
                return slot

    def _pause_and_try(
        self, pause_s: float, attempt: Attempt, cancellation: Cancellation, reason: str
    ) -> tuple[bool, int | None]:
        # A query that ends in this process notifies the condition; one of another process shows at the next attempt.
        self._changed.wait(pause_s)
        admitted, slot = attempt()
        if not admitted:
            _check_cancellation(cancellation, reason)
        return admitted, slot

    @staticmethod
    def _decrement(counts: Counter[int], organisation: int) -> None:
        counts[organisation] -= 1
        if not counts[organisation]:
            del counts[organisation]


class _Admitted:
    """Holds the slot of a query while the context lasts."""

    __slots__ = ("_admission", "_cancellation", "_organisation", "_patient", "_slot", "_waits")
    _slot: int | None

    def __init__(
        self, admission: QueryAdmission, organisation: int, cancellation: Cancellation, patient: bool, waits: bool
    ) -> None:
        self._admission, self._organisation = admission, organisation
        self._cancellation, self._patient, self._waits = cancellation, patient, waits

    def __enter__(self) -> None:
        self._slot = self._admission.enter(self._organisation, self._cancellation, self._patient, self._waits)

    def __exit__(self, *_: object) -> None:
        self._admission.leave(self._organisation, self._slot)


def _check_cancellation(cancellation: Cancellation, reason: str) -> None:
    try:
        cancellation()
    except QueryTimeout as error:
        raise QueryTimeout(
            f"query timed out while it waited to start: {reason}; ask again in a few seconds, or give it more time"
        ) from error


def _refusal(reason: str, detail: str) -> QueryRefused:
    where = "QUERY_PARALLEL_MAX, QUERY_WAITING_MAX, QUERY_WAIT_S and STREAMS_PARALLEL_MAX in spm/limits.py"
    return QueryRefused(f"{reason} {detail} (bounds: {where}): ask again in a few seconds, or ask for less at once")


@lru_cache(maxsize=8)
def shared_admission(path: Path) -> QueryAdmission:
    """Return the admission whose slots are bytes of this file: one object per process, as locks belong to processes."""
    return QueryAdmission(machine_slots=MachineSlots(path))
