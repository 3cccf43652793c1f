"""Claims about giving the free space of a store's file back: no row is lost, nobody writes to the former file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from spm import limits
from spm.cli import prepare
from spm.errors import Refused
from spm.store.backends import lmdb_file
from spm.store.backends.base import Row
from spm.store.backends.lmdb import LmdbBackend, open_url
from spm.store.backends.lmdb_file import FileSpace, compact_file, measure

KEYS = [number.to_bytes(21, "big") for number in range(60)]
ROOT = Path(__file__).resolve().parents[4]


def rows(folder: Path) -> list[Row]:
    store = LmdbBackend(str(folder))
    try:
        return list(store.scan("pending", b"", b"\xff" * 30))
    finally:
        store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of which nearly all is free: three rows of sixty are left."""
    store = LmdbBackend(str(tmp_path / "store"))
    for key in KEYS:
        store.put([("pending", [(key, {b"v": os.urandom(20_000)})]), ("config", [(b"name", {b"v": b"kept"})])])
    store.delete("pending", [(key, None) for key in KEYS[3:]])
    store.close()
    return tmp_path / "store"


def run(code: str, *arguments: object) -> "subprocess.Popen[bytes]":
    head = "import os, signal, sys\nfrom pathlib import Path\nfrom spm.store.backends.lmdb_file import compact_file\n"
    head += "from spm.store.backends.lmdb import LmdbBackend\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0)  # a line read leaves the rest unread


@pytest.fixture
def other(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that has the store open."""
    process = run("store = LmdbBackend(sys.argv[1]); print('open', flush=True); sys.stdin.read()", folder)
    yield process
    process.kill()
    process.communicate()


def test_a_compact_file_has_the_rows_and_not_the_free_space(folder: Path) -> None:
    expected = rows(folder)
    (folder / "data.mdb").chmod(0o640)
    before, after = compact_file(folder)
    assert before.free_bytes > 1_000_000 > 200_000 > after.file_bytes
    assert after == measure(folder)
    assert (folder / "data.mdb").stat().st_mode & 0o777 == 0o640
    assert rows(folder) == expected
    assert sorted(path.name for path in folder.iterdir()) == ["data.mdb", "lock.mdb"]


def test_a_compact_store_is_written_and_compacted_again(folder: Path) -> None:
    for number in range(3, 6):
        compact_file(folder)
        store = LmdbBackend(str(folder))
        store.put([("pending", [(KEYS[number], {b"v": b"new"})])])
        store.close()
    assert [key for key, _ in rows(folder)] == KEYS[:6]


KILLED = """
def kill(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
compact_file(Path(sys.argv[1]), at=kill)
"""


@pytest.mark.parametrize("step", lmdb_file.STEPS)
def test_a_compaction_killed_anywhere_loses_no_row(folder: Path, step: str) -> None:
    expected = rows(folder)
    process = run(KILLED, folder, step)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert rows(folder) == expected
    assert compact_file(folder)[1].file_bytes < 200_000
    assert rows(folder) == expected
    assert not (folder / "compacting").exists()


WAITS = """
print("opening", flush=True)
try:
    store = LmdbBackend(sys.argv[1])
except Exception as error:
    print("refused", error)
else:
    print(len(list(store.scan("pending", b"", b"\\xff" * 30))))
"""


@pytest.mark.parametrize("transactions", [0, 1], ids=["even", "odd"])  # the number says which of two states is newer
@pytest.mark.parametrize("step", lmdb_file.STEPS)
def test_a_process_that_waited_for_a_killed_compaction_never_sees_an_older_store(
    folder: Path, step: str, transactions: int
) -> None:
    store = LmdbBackend(str(folder))
    store.put([("config", [(b"more", {b"v": b"1"})])] * transactions)
    store.close()
    hangs = f"compact_file(Path(sys.argv[1]), at=lambda s: s == {step!r} and (print(s, flush=True), sys.stdin.read()))"
    killed = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys\nfrom pathlib import Path\nfrom {lmdb_file.__name__} import *\n{hangs}",
            folder,
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == step.encode() + b"\n"
    waiting = run(WAITS, folder)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"opening\n"
    time.sleep(0.3)
    killed.kill()
    killed.communicate()
    answer = waiting.communicate(timeout=60)[0]
    assert answer == b"3\n" or answer.startswith(b"refused")
    assert len(rows(folder)) == 3


def test_a_store_that_another_process_has_open_is_left_alone(folder: Path, other: "subprocess.Popen[bytes]") -> None:
    assert other.stdout is not None
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(Refused, match=r"another process has the store .* open\. Stop the product"):
        compact_file(folder)


def test_a_store_that_this_process_has_open_is_left_alone(folder: Path) -> None:
    store = open_url(f"lmdb://{folder}")
    with pytest.raises(Refused, match="this process has the store open"):
        compact_file(folder)
    store.close()
    compact_file(folder)


def test_a_copy_that_has_no_room_is_not_begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "START_FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(Refused, match="no room for a compact copy"):
        compact_file(folder)
    assert measure(folder).free_bytes > 1_000_000


def test_a_folder_without_a_store_gets_none(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no store"):
        compact_file(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file_mb", "live_mb", "worth"),
    [(200, 90, True), (200, 110, False), (100, 40, False), (1_000, 400, True), (130, 65, False)],
)
def test_a_start_compacts_a_file_of_which_most_is_free(file_mb: int, live_mb: int, worth: bool) -> None:
    assert FileSpace(file_mb * 1_000_000, live_mb * 1_000_000).is_worth_compacting == worth


def test_a_start_gives_the_space_back_once(folder: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SPM_STORE_URL = f"lmdb://{folder}"
    monkeypatch.setattr(lmdb_file, "FREE_BYTES_MAX", 1_000_000)
    expected = rows(folder)
    due = [step for title, step in prepare.steps() if title.startswith("giving free space")]
    assert len(due) == 1
    due[0]()
    assert rows(folder) == expected
    assert not [title for title, _ in prepare.steps() if title.startswith("giving free space")]


def test_maintain_compacts_the_file_of_a_stopped_site(
    folder: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.SPM_STORE_URL = f"lmdb://{folder}"
    call_command("tidy", "--compact")
    assert "data.mdb: 1.3 MB before, 81.9 kB now" in capsys.readouterr().out
    settings.SPM_STORE_URL = "memory://new"
    with pytest.raises(CommandError, match="has no file"):
        call_command("maintain", "--compact")
