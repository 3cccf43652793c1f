"""Makes a backup of the running product: the database, the store, the secrets, in a folder of its own with a record.

1. The database is copied, then the store. So the store's copy is never older, and no row of the database names samples
   that are not there. What people deleted in between is gone from the store's copy.
2. Each copy is the state of one moment, and writers go on. All that was acknowledged before the first copy began is in
   both; with RabbitMQ, what waited in its queues is not.
3. The folder gets its name when all is on the disk. A folder with another name is a try that ended early.

HBase keeps snapshots of its own (docs/how-to/backup.md): the backup is the database and the secrets then.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from ingest.agent.version import VERSION
from spm.backup import databases, record, secrets
from spm.backup.record import Record, Watch
from spm.clock import Clock
from spm.errors import Refused
from spm.store.backends import open_backend
from spm.store.backends.base import CopyableBackend

SETTINGS = {"pepper": "SPM_PEPPER", "secret-key": "SECRET_KEY"}  # file in the data folder → setting
STORE_FOLDER = "store"
_KEPT_FILES = (*SETTINGS, "agent-token", "first-login.json")
_NAME = "backup-%Y%m%dT%H%M%SZ"
_DRAFT, _LOCK = ".unfinished-", ".lock"
_ROOM_FACTOR = 1.05


@dataclass(frozen=True, slots=True)
class FinishedBackup:
    """A finished backup, and the older ones that were deleted after it."""

    folder: Path
    record: Record
    deleted: list[Path]


def make_backup(target: Path, clock: Clock, watch: Watch, *, keep: int | None = None) -> FinishedBackup:
    """Make a backup in a new folder inside ``target``; then delete all but the newest ``keep`` there.

    Raises ``Refused`` for a target that cannot hold it, ``StoreUnavailable`` and ``DumpFailed``.
    """
    target.mkdir(parents=True, exist_ok=True)
    with _locked(target):
        return _make(target, clock, watch, keep)


def _make(target: Path, clock: Clock, watch: Watch, keep: int | None) -> FinishedBackup:
    for unfinished in target.glob(f"{_DRAFT}*"):  # of a process that was killed: the lock is ours
        shutil.rmtree(unfinished, ignore_errors=True)
    store = open_backend(settings.SPM_STORE_URL)
    store_bytes = store.used_bytes() if isinstance(store, CopyableBackend) else 0
    _check_room(target, round(_ROOM_FACTOR * (databases.size_bytes() + store_bytes)))
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target))
    try:
        begun_ms = clock.now_ms()
        databases.copy_database(draft, watch)
        if isinstance(store, CopyableBackend):
            (draft / STORE_FOLDER).mkdir()
            store.copy_to(str(draft / STORE_FOLDER), lambda done: watch("copying the store", done, store_bytes))
        _copy_secrets(draft / secrets.FOLDER)
        written = Record(
            product=VERSION,
            begun_ms=begun_ms,
            complete_to_ms=begun_ms,
            ended_ms=clock.now_ms(),
            database=databases.kind(),
            store=urlsplit(settings.SPM_STORE_URL).scheme,
            fingerprints={name: fingerprint(str(getattr(settings, setting))) for name, setting in SETTINGS.items()},
            files=record.describe(draft, watch),
        )
        record.write(draft, written)
        folder = _give_name(draft, datetime.fromtimestamp(begun_ms / 1000, UTC).strftime(_NAME))
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    deleted = delete_old(target, keep) if keep is not None else []
    return FinishedBackup(folder, written, deleted)


def list_backups(target: Path) -> list[Path]:
    """List the whole backups in a folder, the newest first."""
    names = sorted((path.parent for path in target.glob(f"backup-*/{record.NAME}")), key=lambda path: path.name)
    return names[::-1]


def delete_old(target: Path, keep: int) -> list[Path]:
    """Delete all backups in a folder but the newest ones; at least one is kept. Returns what was deleted."""
    old = list_backups(target)[max(keep, 1) :]
    for folder in old:
        (folder / record.NAME).unlink()  # from here on it is no backup
        shutil.rmtree(folder)
    return old


def fingerprint(secret: str) -> str:
    """Return a text by which a secret is recognised and not found."""
    return hashlib.blake2b(secret.encode(), digest_size=8, person=b"spm backup").hexdigest()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the folder of the backups; raises ``Refused`` while another process does."""
    handle = os.open(target / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Refused(f"another backup is being made in {target}", remedy="Wait until it has ended.") from error
    finally:
        os.close(handle)


def _check_room(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target).free
    if free < needed:
        raise Refused(
            f"the disk of {target} has too little room",
            got=f"{free:,} bytes free",
            wanted=f"about {needed:,} bytes",
            remedy="Free some, keep fewer backups (--keep), or choose another disk.",
        )


def _copy_secrets(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name in _KEPT_FILES:
        path = Path(settings.SPM_DATA) / name
        if path.is_file():
            shutil.copyfile(path, folder / name)
            (folder / name).chmod(0o600)


def _give_name(draft: Path, name: str) -> Path:
    """Rename a draft; a second backup of the same second gets a number."""
    draft.chmod(0o700)
    names: list[str] = [name, *(f"{name}-{number}" for number in range(2, 100))]
    folder = next(draft.parent / each for each in names if not (draft.parent / each).exists())
    draft.rename(folder)
    record.sync(folder.parent)
    return folder
