"""Puts a backup back into an installation that is stopped, and makes sure that no number is given a second time.

1. All files are checked against the record before anything changes.
2. What is there already stays: a restore begins only where database and store are empty, or moves them aside.
3. After the backup was made, the lost installation went on to number processes, runs, retractions and apps, and
   messages that carry such numbers may still wait in queues and spools. So each counter advances by far more than can
   have been drawn since.

Enter by ``restore_backup``.
"""

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from spm.accounts.models import App
from spm.backup import databases, record, secrets
from spm.backup.backup import SETTINGS, STORE_FOLDER, fingerprint
from spm.backup.record import Record, Watch
from spm.clock import Clock
from spm.errors import Refused
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.ledger import counters

NUMBERS_SKIPPED = 1_000_000  # of processes, runs and retractions: a process a second for eleven days
APPS_SKIPPED = 10_000
_COUNTERS = (b"processes", b"runs", b"retractions")
_ASIDE = "before-restore-%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back. ``aside``: the folder with what was there before, if anything was."""

    record: Record
    aside: Path | None
    seconds: float


def restore_backup(folder: Path, clock: Clock, watch: Watch, *, replace: bool = False) -> Restored:
    """Put a backup back. Nothing of the product may run meanwhile; the caller has locked the data folder.

    Raises ``Refused`` for a backup that is not whole, one of another kind of database or store, other secrets than the
    backup's, and where something is there already and ``replace`` is not set.
    """
    begun_s = clock.monotonic()
    backup_record = record.read(folder)
    _check_kinds(backup_record)
    _check_secrets(backup_record)
    lmdb_folder = Path(urlsplit(settings.SPM_STORE_URL).path) if backup_record.store == "lmdb" else None
    has_store = lmdb_folder is not None and (lmdb_folder / "data.mdb").exists()
    is_empty = databases.is_empty() and not has_store
    if not (is_empty or replace):
        raise Refused(
            "there is an installation here already",
            got=f"a database with tables{' and a store' if has_store else ''} in {settings.SPM_DATA}",
            remedy="Set SPM_DATA to an empty folder, or give --replace: what is here is then moved aside, not deleted.",
        )
    record.check_files(folder, backup_record, watch)
    data = Path(settings.SPM_DATA)
    data.mkdir(parents=True, exist_ok=True)
    aside = None
    if not is_empty:
        aside = data / datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime(_ASIDE)
        aside.mkdir(mode=0o700)
    watch("putting files back", 0, backup_record.size_bytes)
    _put_secrets(folder, data, aside)
    if lmdb_folder is not None:
        _put_store(folder, lmdb_folder, aside)
    databases.put_back(folder, aside)
    watch("putting files back", backup_record.size_bytes, backup_record.size_bytes)
    skip_numbers(open_backend(settings.SPM_STORE_URL))
    return Restored(backup_record, aside, clock.monotonic() - begun_s)


def skip_numbers(store: Backend) -> None:
    """Give up the numbers that may have been drawn after the backup was made."""
    for name in _COUNTERS:
        counters.advance(store, name, NUMBERS_SKIPPED)
    newest = App.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    advance_apps(newest + APPS_SKIPPED)


def advance_apps(number: int) -> None:
    """Make the database give new apps numbers above this one, if it does not already."""
    table = App._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
            row = cursor.fetchone()
            if row is None:
                cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, number])
            else:
                cursor.execute("UPDATE sqlite_sequence SET seq = max(seq, %s) WHERE name = %s", [number, table])
        else:
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
            [sequence] = cursor.fetchone()
            cursor.execute(f"SELECT last_value FROM {sequence}")
            cursor.execute("SELECT setval(%s, %s)", [sequence, max(cursor.fetchone()[0], number)])


def _check_kinds(backup_record: Record) -> None:
    for what, setting, of_backup, here in (
        ("database", "DATABASE_URL", backup_record.database, databases.kind()),
        ("store", "SPM_STORE_URL", backup_record.store, urlsplit(settings.SPM_STORE_URL).scheme),
    ):
        if of_backup != here:
            raise Refused(
                f"the backup has another kind of {what} than this installation",
                got=of_backup,
                wanted=here,
                remedy=f"Set {setting} for one of the backup's kind.",
            )


def _check_secrets(backup_record: Record) -> None:
    """Tokens and sessions are valid only with the secrets of the backup."""
    for name, expected in backup_record.fingerprints.items():
        if fingerprint(str(getattr(settings, SETTINGS[name]))) != expected:
            variable = secrets.VARIABLES[name]
            raise Refused(
                f"{variable} is another one than when the backup was made, so no token and no login would be valid",
                remedy=f"Unset {variable} to use the backup's own, or set it to what it was then.",
            )


def _put_secrets(folder: Path, data: Path, aside: Path | None) -> None:
    for path in sorted((folder / secrets.FOLDER).glob("*")):
        if aside is not None and (data / path.name).exists():
            shutil.copy2(data / path.name, aside / path.name)
        draft = data / f"{path.name}.new"
        shutil.copyfile(path, draft)
        draft.chmod(0o600)
        os.replace(draft, data / path.name)


def _put_store(folder: Path, store: Path, aside: Path | None) -> None:
    if store.exists() and aside is not None:
        shutil.move(store, aside / STORE_FOLDER)
    store.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / STORE_FOLDER / "data.mdb", store / "data.mdb")
    record.sync(store / "data.mdb")
