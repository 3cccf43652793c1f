"""A backup is whole or is none; numbers are never given twice after a restore; the schedule misses no backup."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frontend.site_metrics import read_figures
from spm.accounts.models import App, Organisation
from spm.backup import backup, record, restore, secrets
from spm.backup.schedule import is_due
from spm.errors import Refused
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import counters

DAY_MS = 86_400_000
NOON_MS = 1_764_072_000_000  # 2025-11-25 12:00 UTC


def no_watch(step: str, done: int, total: int) -> None:
    pass


def write_backup(folder: Path, complete_to_ms: int = NOON_MS, **changes: Any) -> Path:
    """A folder with one file and its record."""
    folder.mkdir(parents=True)
    (folder / "database.sqlite3").write_bytes(b"rows")
    written = record.Record(
        **{
            "product": "1.0.0",
            "begun_ms": complete_to_ms,
            "complete_to_ms": complete_to_ms,
            "ended_ms": complete_to_ms,
            "database": "sqlite",
            "store": "lmdb",
            "fingerprints": {},
            "files": record.describe(folder, no_watch),
            **changes,
        }
    )
    record.write(folder, written)
    return folder


def test_what_was_written_is_read_and_checked(tmp_path: Path) -> None:
    folder = write_backup(tmp_path / "b")
    read_back = record.read(folder)
    assert read_back.files == {"database.sqlite3": record.File(4, hashlib.sha256(b"rows").hexdigest())}
    record.check_files(folder, read_back, no_watch)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda b: (b / "database.sqlite3").write_bytes(b"r0ws"), "not what was written"),
        (lambda b: (b / "database.sqlite3").write_bytes(b"row"), "not what was written"),
        (lambda b: (b / "database.sqlite3").unlink(), "is missing"),
        (lambda b: (b / record.NAME).unlink(), "no whole backup"),
        (lambda b: (b / record.NAME).write_text("{"), "cannot be read"),
        (lambda b: (b / record.NAME).write_text('{"version": 1}'), "cannot be read"),
        (lambda b: change_record(b, version=2), "does not know"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused(tmp_path: Path, damage: Callable[[Path], object], says: str) -> None:
    folder = write_backup(tmp_path / "b")
    damage(folder)
    with pytest.raises(Refused, match=says):
        record.check_files(folder, record.read(folder), no_watch)


def change_record(folder: Path, **values: object) -> None:
    path = folder / record.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_only_the_newest_whole_backups_are_kept_and_never_none(tmp_path: Path) -> None:
    names = [f"backup-2026010{day}T000000Z" for day in range(1, 5)]
    for name in names:
        write_backup(tmp_path / name)
    (tmp_path / "backup-20270101T000000Z").mkdir()  # not whole: it counts for nothing
    (tmp_path / "other").mkdir()
    assert [path.name for path in backup.delete_old(tmp_path, 2)] == names[1::-1]
    backup.delete_old(tmp_path, 0)
    assert [path.name for path in backup.list_backups(tmp_path)] == names[:2:-1]
    assert {path.name for path in tmp_path.iterdir()} == {names[3], "backup-20270101T000000Z", "other"}


def test_a_disk_with_too_little_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(Refused, match="too little room; got 10 bytes free"):
        backup._check_room(tmp_path, 11)
    backup._check_room(tmp_path, 10)


def test_one_backup_at_a_time_is_made_in_a_folder(tmp_path: Path) -> None:
    refused = pytest.raises(Refused, match="another backup is being made")
    with backup._locked(tmp_path), refused, backup._locked(tmp_path):
        pass
    with backup._locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("newest_ms", "due"),
    [
        (None, True),
        (NOON_MS - 2 * DAY_MS, True),  # two were missed: one is made
        (NOON_MS - 10 * 3_600_000, True),  # from 02:00, before 02:30
        (NOON_MS - 9 * 3_600_000, False),
        (NOON_MS, False),
    ],
)
def test_a_backup_is_due_after_each_time_that_none_has_followed(
    tmp_path: Path, newest_ms: int | None, due: bool
) -> None:
    if newest_ms is not None:
        write_backup(tmp_path / "backup-20251124T000000Z", newest_ms)
    (tmp_path / "backup-20251125T110000Z").mkdir()  # without a record
    assert is_due(tmp_path, "30 2 * * *", NOON_MS) is due


def test_a_restored_counter_gives_numbers_far_above_the_former_ones() -> None:
    store = MemoryBackend()
    assert counters.take(store, b"processes", below=1 << 40) == 1
    assert counters.advance(store, b"processes", 1_000_000) == 1_000_001
    assert counters.take(store, b"processes", below=1 << 40) == 1_000_002
    assert counters.advance(store, b"runs", 5) == 5


@pytest.mark.django_db
def test_a_restored_database_gives_new_apps_numbers_above_the_former_ones() -> None:
    store, organisation = MemoryBackend(), Organisation.objects.create(name="Alpha")
    app = App.objects.create(organisation=organisation, name="old")
    restore.skip_numbers(store)
    first = App.objects.create(organisation=organisation, name="new")
    assert first.pk > app.pk + restore.APPS_SKIPPED
    restore.advance_apps(1)  # never back
    second = App.objects.create(organisation=organisation, name="newer")
    assert second.pk == first.pk + 1
    assert counters.take(store, b"processes", below=1 << 40) == restore.NUMBERS_SKIPPED + 1


def test_secrets_of_a_backup_stand_in_only_where_the_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b" / secrets.FOLDER).mkdir(parents=True)
    for name in secrets.VARIABLES:
        (tmp_path / "b" / secrets.FOLDER / name).write_text(f"of the backup {name}\n")
    monkeypatch.setenv("SPM_PEPPER", "own")
    monkeypatch.delenv("SPM_SECRET_KEY", raising=False)
    secrets.use_secrets_of(["--replace", str(tmp_path / "b")])
    assert (os.environ["SPM_PEPPER"], os.environ["SPM_SECRET_KEY"]) == ("own", "of the backup secret-key")
    monkeypatch.delenv("SPM_SECRET_KEY")


def test_a_backup_made_with_other_secrets_or_another_kind_of_store_is_refused(tmp_path: Path, settings: Any) -> None:
    own = backup.fingerprint(settings.SPM_PEPPER)
    good = record.read(write_backup(tmp_path / "good", fingerprints={"pepper": own}))
    restore._check_secrets(good)
    other = record.read(write_backup(tmp_path / "other", fingerprints={"pepper": backup.fingerprint("x")}))
    with pytest.raises(Refused, match="SPM_PEPPER is another one"):
        restore._check_secrets(other)
    settings.SPM_STORE_URL = "hbase://localhost:9090/spm"
    with pytest.raises(Refused, match="another kind of store"):
        restore._check_kinds(good)


def test_a_copy_of_the_store_is_one_moment_and_small(tmp_path: Path) -> None:
    store, copy = LmdbBackend(str(tmp_path / "store")), tmp_path / "copy"
    rows = [(b"%06d" % number, {b"v": bytes(500)}) for number in range(4_000)]
    store.put([("config", rows)])
    store.delete("config", [(key, None) for key, _ in rows[100:]])
    copy.mkdir()
    store.copy_to(str(copy), lambda done: None)
    store.put([("config", [(b"later", {b"v": b"1"})])])
    copied = LmdbBackend(str(copy))
    assert [key for key, _ in copied.scan("config", b"", b"\xff")] == [key for key, _ in rows[:100]]
    assert (copy / "data.mdb").stat().st_size < 300_000 < store.used_bytes()
    copied.close()
    store.close()


@pytest.mark.django_db
def test_the_site_tells_how_old_its_newest_scheduled_backup_is(tmp_path: Path, settings: Any) -> None:
    def ages() -> list[float]:
        figures = read_figures(MemoryBackend(), NOON_MS)
        return [each.value for each in figures if each.name == "spm_backup_last_timestamp_seconds"]

    assert ages() == []
    settings.SPM_BACKUP_DIR = str(tmp_path)
    assert ages() == [0]
    write_backup(tmp_path / "backup-20251125T120000Z")
    assert ages() == [NOON_MS / 1000]
