"""Gives the free space of an LMDB file back to the disk, while nobody has it open (PROTOCOL 25).

LMDB uses freed pages for new rows, so that its file stays as large as it has ever been. ``compact_file`` puts a compact
copy in its place: lock the file, copy, compare, sync, rename. If it is killed at any moment, the old file or the new
one is there, whole. It is refused while a process has the store open, which would go on writing to the old file.
``measure`` says how much is free, and ``is_worth_compacting`` from when on a start does it.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from spm import limits
from spm.errors import IntegrityError, Refused
from spm.store.backends.lmdb import LmdbBackend, is_open_here

_DATA, _LOCK_FILE, _DRAFT = "data.mdb", "lock.mdb", "compacting"
STEPS = ("locked", "copied", "synced", "lock file voided", "replaced", "lock file renewed")

FREE_BYTES_MAX = 64_000_000  # in a file of which most is free: with more, a start puts a compact copy in its place

Hook = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FileSpace:
    """The bytes of a store's file, and how many of them hold rows."""

    file_bytes: int
    live_bytes: int

    @property
    def free_bytes(self) -> int:
        """What a compact copy would give back, nearly."""
        return self.file_bytes - self.live_bytes

    @property
    def is_worth_compacting(self) -> bool:
        """Whether a start gives the free space back: copying takes a second per gigabyte or less of what is live."""
        return self.free_bytes > max(self.live_bytes, FREE_BYTES_MAX)


def folder_of(url: str) -> Path | None:
    """The folder of the store at ``url``; ``None`` for one that is no file."""
    parts = urlsplit(url)
    return Path(parts.path) if parts.scheme == "lmdb" else None


def has_file(folder: Path) -> bool:
    """Whether there is a store in the folder."""
    return (folder / _DATA).is_file()


def measure(folder: Path) -> FileSpace:
    """Measure the file of a store that nobody has open; raise ``Refused`` if somebody has."""
    with _lock(folder):
        return _measure(folder)


def compact_file(folder: Path, *, at: Hook = lambda step: None) -> tuple[FileSpace, FileSpace]:
    """Replace the store's file by a compact copy; return its space before and after. It may be repeated.

    Raises ``Refused`` while a process has the store open or the disk has no room for the copy.
    """
    with _lock(folder) as handle:
        draft = folder / _DRAFT
        shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed: the lock is ours
        at("locked")
        before = _measure(folder)
        _check_room(folder, before)
        try:
            draft.mkdir(mode=0o700)
            _copy(folder, draft)
            at("copied")
            _copy_owner(folder / _DATA, draft / _DATA)
            _sync(draft / _DATA)
            _sync(draft)
            at("synced")
            _void_lock_file(handle)
            at("lock file voided")
            os.replace(draft / _DATA, folder / _DATA)
            _sync(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        at("replaced")
        LmdbBackend(str(folder)).close()  # alone with the file, it renews the lock file: others wait for it
        at("lock file renewed")
    return before, measure(folder)


@contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """Hold LMDB's own lock, which each process has shared while it has the file open; one that opens it now waits.

    It belongs to the process, and any close of the lock file ends it: only the last step opens the store by it.
    """
    if not has_file(folder):
        raise Refused("there is no store", got=folder, wanted="a folder with data.mdb")
    if is_open_here(folder):
        raise Refused("this process has the store open", got=folder)
    handle = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        yield handle
    except BlockingIOError as error:
        raise Refused(
            f"another process has the store {folder} open",
            remedy="Stop the product, its workers and commands, and try again.",
        ) from error
    finally:
        os.close(handle)


def _measure(folder: Path) -> FileSpace:
    store = LmdbBackend(str(folder), alone=True)
    try:
        return FileSpace((folder / _DATA).stat().st_size, store.live_bytes())
    finally:
        store.close()


def _check_room(folder: Path, space: FileSpace) -> None:
    free = shutil.disk_usage(folder).free
    needed = space.live_bytes + limits.START_FREE_BYTES_MIN
    if free < needed:
        raise Refused(
            "the disk has no room for a compact copy of the store",
            got=f"{free // 1_000_000} MB free",
            wanted=f"{needed // 1_000_000} MB",
        )


def _copy(folder: Path, draft: Path) -> None:
    """Copy the live pages, and check that the copy has as many cells in each table."""
    store = LmdbBackend(str(folder), alone=True)
    try:
        cells = store.cell_counts()
        store.copy_to(str(draft), lambda _bytes: None)
    finally:
        store.close()
    copy = LmdbBackend(str(draft), alone=True)
    try:
        copied = copy.cell_counts()
    finally:
        copy.close()
    if copied != cells:
        raise IntegrityError(f"the copy of {folder} has other cells than the store: {copied}, not {cells}")


def _copy_owner(old: Path, new: Path) -> None:
    """Give the new file the mode and the owner of the old one, which another user may have to open."""
    status = old.stat()
    os.chmod(new, status.st_mode)
    os.chown(new, status.st_uid, status.st_gid)


def _void_lock_file(handle: int) -> None:
    """Make the lock file unreadable to LMDB until it is renewed.

    It names the last transaction of the file that goes. A process that waits for our lock, and gets it because we were
    killed after the rename, would take that for one of the new file, and may see its older state. So it gets an error,
    and the next one, which is alone again, renews the lock file.
    """
    os.pwrite(handle, bytes(4), 0)  # in place of its magic number
    os.fsync(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
