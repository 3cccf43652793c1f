"""Lets only one run at a time work at a site, on however many machines. Correctness never depends on it (PROTOCOL 14).

The lease is a cell of `config` that names its holder and the time until which it is held; a thread of the holder renews
it. The holder also has the operating system's lock on a file in its data folder, which is released when its process
ends, however it ends: the next process of this folder then takes over at once, those of other machines when the lease
is over. A holder that stalled longer than that asks again before its next step, and ends with ``LeaseLost`` where
another has taken over. Enter by ``hold_lease``, and by ``is_free`` to look only.
"""

import contextlib
import fcntl
import logging
import os
import platform
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import msgspec

from rollups.crash_points import Hook
from rollups.limits import LEASE_MS, LEASE_RENEW_S, LEASE_SKEW_MS
from spm.clock import Clock, random_u64
from spm.errors import CellContended, Refused, StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.check_and_put import COLUMN, replace_cell

KEY = b"run/lease"
_LOG = logging.getLogger(__name__)
_RETRY_S = 0.2
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class LeaseLost(Refused):
    """This process stalled for so long that another has taken over its work."""


class _LeaseCell(msgspec.Struct, frozen=True, array_like=True):
    """The cell: 0 ms when it was given back."""

    until_ms: int
    folder: str  # of the holder: machine and data folder
    process: str  # for people: machine and process
    nonce: int


class Lease:
    """The lease of one holder. A run asks for it by its hook (``checked``); a thread renews it."""

    def __init__(self, store: Backend, clock: Clock, folder: str) -> None:
        self._store, self._clock, self._folder = store, clock, folder
        self._nonce = random_u64()
        self._renewed_at = clock.monotonic()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def take(self) -> str:
        """Take the lease; return the name of its holder if it is another's."""

        def taken(row: Mapping[bytes, bytes]) -> tuple[bytes | None, str]:
            cell, now_ms = _decoded(row), self._clock.now_ms()
            if cell is not None and cell.folder != self._folder and _is_held(cell, now_ms):
                return None, cell.process
            return self._encoded(now_ms + LEASE_MS), ""

        try:
            return replace_cell(self._store, "config", KEY, taken, error="many want the lease of runs")
        except CellContended:
            return "another process"

    def check(self) -> None:
        """Raise ``LeaseLost`` if another process has taken over after this one had not renewed its lease in time."""
        if self._clock.monotonic() - self._renewed_at >= LEASE_MS / 1000:
            self.renew()

    def renew(self) -> None:
        """Hold the lease for longer. Raises ``LeaseLost``, ``StoreUnavailable``."""
        with self._lock:
            asked_at = self._clock.monotonic()
            if not self._replace(self._clock.now_ms() + LEASE_MS):
                raise LeaseLost("another process has taken over the work of this one, which stood still for too long")
            self._renewed_at = asked_at

    def checked(self, hook: Hook) -> Hook:
        """Return this hook with a check of the lease before it."""

        def ask_first(point: str) -> None:
            self.check()
            hook(point)

        return ask_first

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease during the body, and give it back after it."""
        thread = threading.Thread(target=self._renew_until_stopped, daemon=True, name="run lease")
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            with contextlib.suppress(StoreUnavailable), self._lock:  # it ends by itself
                self._replace(0)

    def _renew_until_stopped(self) -> None:
        while not self._stopped.wait(LEASE_RENEW_S):
            try:
                self.renew()
            except LeaseLost:
                return  # ``check`` says so to the run
            except StoreUnavailable as error:
                _LOG.warning("the lease of runs is not renewed: %s", error)

    def _replace(self, until_ms: int) -> bool:
        """Put this time into the cell if it is still ours; return whether it is."""

        def later(row: Mapping[bytes, bytes]) -> tuple[bytes | None, bool]:
            cell = _decoded(row)
            ours = cell is not None and cell.nonce == self._nonce
            return (self._encoded(until_ms), True) if ours else (None, False)

        return replace_cell(self._store, "config", KEY, later, error="the lease of runs kept changing")

    def _encoded(self, until_ms: int) -> bytes:
        process = f"process {os.getpid()} on {platform.node()}"
        return msgspec.msgpack.encode(_LeaseCell(until_ms, self._folder, process, self._nonce))


@contextmanager
def hold_lease(store: Backend, folder: Path, clock: Clock, *, wait_s: float = 0.0) -> Iterator[Lease]:
    """Take the lease for the body; raise ``Refused`` if another process holds it for longer than ``wait_s``."""
    until = clock.monotonic() + wait_s
    with _folder_lock(folder) as file:
        while True:
            holder = "another process on this machine"
            if _try_lock(file):
                lease = Lease(store, clock, _name_of(file))
                holder = lease.take()
                if not holder:
                    break
            if clock.monotonic() >= until:
                raise Refused("another run is in progress", got=holder, remedy="Wait for it to end.")
            clock.sleep(_RETRY_S)
        with lease.renewed():
            yield lease


def is_free(store: Backend, folder: Path, clock: Clock) -> bool:
    """Whether nobody holds the lease now."""
    with _folder_lock(folder) as file:
        if not _try_lock(file):
            return False
        [row] = store.get("config", [KEY], [COLUMN])
        cell = _decoded(row or {})
        return cell is None or cell.folder == _name_of(file) or not _is_held(cell, clock.now_ms())


def _is_held(cell: _LeaseCell, now_ms: int) -> bool:
    """Whether the lease is not over; one far ahead was written by a clock that was wrong."""
    return now_ms < cell.until_ms <= now_ms + LEASE_MS + LEASE_SKEW_MS


def _decoded(row: Mapping[bytes, bytes]) -> _LeaseCell | None:
    """The cell of a row; ``None`` if there is none. A damaged one is free: no run rests on it."""
    try:
        return msgspec.msgpack.decode(row[COLUMN], type=_LeaseCell) if COLUMN in row else None
    except msgspec.MsgspecError:
        return None


@contextmanager
def _folder_lock(folder: Path) -> Iterator[TextIO]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "roll.lock").open("w") as file:
        yield file


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_of(file: TextIO) -> str:
    """Name the file that is locked: two processes with one name use one lock, also in different containers."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else platform.node()
    status = os.fstat(file.fileno())
    return f"{boot} {status.st_dev} {status.st_ino}"
