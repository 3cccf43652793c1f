"""A start goes on only with the store that belongs to the database, and says in one sentence what is wrong with it."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from spm.accounts.models import StoreBinding
from spm.cli.store_check import IDENTITY, StoreMismatch, check_store
from spm.errors import StoreDamaged, StoreFull, StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.check_and_put import COLUMN

pytestmark = pytest.mark.django_db


def check(store: Backend, *, accept: bool = False) -> None:
    check_store(store, "lmdb:///data/store", accept=accept)


def identity(store: Backend) -> bytes | None:
    [row] = store.get("config", [IDENTITY])
    return row[COLUMN] if row else None


@pytest.fixture
def store() -> Backend:
    """The store that belongs to the database."""
    store = MemoryBackend()
    check(store)
    return store


def test_the_first_start_gives_both_the_same_identity_and_later_ones_keep_it(store: Backend) -> None:
    first = identity(store)
    check(store)
    binding = StoreBinding.objects.get()
    assert (identity(store), bytes(binding.identity), binding.is_confirmed) == (first, first, True)


def test_an_emptied_store_is_refused_until_somebody_accepts_it(store: Backend) -> None:
    empty = MemoryBackend()
    with pytest.raises(StoreMismatch, match=r"lmdb:///data/store is empty, but .* --accept-store"):
        check(empty)
    assert identity(empty) is None
    check(empty, accept=True)
    check(empty)


def test_a_former_store_that_comes_back_is_not_taken_for_the_accepted_one(store: Backend) -> None:
    check(MemoryBackend(), accept=True)
    with pytest.raises(StoreMismatch, match="another database"):
        check(store)


def test_a_store_of_another_database_is_refused_until_somebody_accepts_it(store: Backend) -> None:
    StoreBinding.objects.all().delete()  # as in a new database beside a store that was there
    with pytest.raises(StoreMismatch, match="another database"):
        check(store)
    with pytest.raises(StoreMismatch, match="another database"):
        check(store)  # the second start does not take it either
    before = identity(store)
    check(store, accept=True)
    check(store)
    assert identity(store) == before


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_that_was_killed_is_completed_by_the_next(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryBackend()
    put: Callable[..., bool] = store.check_and_put

    def killed(*arguments: Any) -> bool:
        if moment == "after":
            put(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(store, "check_and_put", killed)
        with pytest.raises(Killed):
            check(store)
    check(store)
    assert identity(store) == bytes(StoreBinding.objects.get(is_confirmed=True).identity)


def test_a_store_that_does_not_answer_is_checked_by_the_next_start(
    store: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "get", away)
        check(store)
    with pytest.raises(StoreMismatch):
        check(MemoryBackend())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with 16 MB in it."""
    backend = LmdbBackend(str(tmp_path / "store"))
    backend.put([("config", [(b"%015d" % n, {b"v": b"x" * 100_000}) for n in range(160)])])
    backend.close()
    return tmp_path / "store" / "data.mdb"


def test_a_whole_file_is_opened(file: Path) -> None:
    LmdbBackend(str(file.parent)).close()


@pytest.mark.parametrize("part", [0.05, 0.5, 0.7])
def test_a_file_that_has_lost_its_end_is_refused_in_one_sentence(file: Path, part: float) -> None:
    with file.open("r+b") as handle:
        handle.truncate(int(file.stat().st_size * part))
    with pytest.raises(StoreDamaged, match=r"data\.mdb has lost its end: [\d,]+ bytes are there, [\d,]+ were written"):
        LmdbBackend(str(file.parent))


@pytest.mark.parametrize(
    ("pages", "reason"),
    [(range(2), "MDB_INVALID"), (range(2, 4_000), "MDB_CORRUPTED")],
    ids=["the first pages", "the pages with rows"],
)
def test_a_file_with_pages_of_zeros_is_refused_in_one_sentence(file: Path, pages: range, reason: str) -> None:
    with file.open("r+b") as handle:
        for page in pages:
            handle.seek(page * 4_096)
            handle.write(bytes(4_096))
    with pytest.raises(StoreDamaged, match=rf"^the store's file data\.mdb is damaged \(.*{reason}.*\)\. Put a copy"):
        check(LmdbBackend(str(file.parent)))


def test_what_a_client_reads_of_a_store_names_no_folder(file: Path) -> None:
    file.write_bytes(b"none")
    with pytest.raises(StoreUnavailable) as raised:
        LmdbBackend(str(file.parent))
    assert str(file.parent) not in str(raised.value)


@pytest.mark.parametrize(("blocks", "error"), [(0, StoreFull), (1 << 40, StoreUnavailable)], ids=["full", "room"])
def test_a_write_that_finds_no_room_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, error: type[StoreUnavailable]
) -> None:
    def fail(*_: object) -> None:
        raise import_module("lmdb").Error("mdb_txn_commit: Input/output error")

    backend = LmdbBackend(str(tmp_path))
    monkeypatch.setattr(backend, "_put", fail)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=blocks, f_frsize=4_096))
    with pytest.raises(StoreUnavailable) as raised:
        backend.put([("config", [(b"k", {b"v": b"x"})])])
    assert type(raised.value) is error
    assert ("Input/output error" in str(raised.value)) == (error is StoreUnavailable)


def test_prepare_says_what_is_wrong(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.management.commands.prepare.steps", list)
    settings.SPM_STORE_URL = f"lmdb://{tmp_path}/store"
    StoreBinding.objects.create(pk=1, identity=b"\1" * 16, is_confirmed=True)
    with pytest.raises(CommandError, match="is empty, but the database knows one"):
        call_command("prepare")
