"""A server beside which kernels are compiled compiles none itself, and says how far it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core import event

from ingest.http.push_app import PushApplication
from spm.cli.preflight import COMPILING, announce_compilation, withdraw_compilation
from spm.clock import SystemClock
from spm.errors import StillCompiling
from spm.settings.compilation import Compilation
from tests.ingest.http.test_push_app import LINE, Site, known
from tests.support.event_loop import on_loop

__all__ = ["known"]  # a fixture


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a compilation of three kernels, of which one is done."""
    folder = tmp_path / "kernels"
    (folder / "formats").mkdir(parents=True)
    (folder / "formats" / "one.nbi").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    announce_compilation(tmp_path, kernels=3)
    return folder


def test_says_how_many_kernels_are_compiled_until_they_all_are(tmp_path: Path, kernels: Path) -> None:
    served = Compilation(tmp_path)
    with pytest.raises(StillCompiling, match=r"compiling its kernels, 1 of 3 are done"):
        served.check()
    (kernels / "formats" / "two.nbi").touch()
    with pytest.raises(StillCompiling, match="2 of 3 are done"):
        served.check()
    withdraw_compilation(tmp_path)
    served.check()


def test_never_says_that_more_are_done_than_there_are(tmp_path: Path, kernels: Path) -> None:
    for name in ("two", "three", "former"):
        (kernels / f"{name}.nbi").touch()
    with pytest.raises(StillCompiling, match="3 of 3 are done"):
        Compilation(tmp_path).check()


def test_a_start_that_was_killed_holds_nothing_up(tmp_path: Path, kernels: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    note = tmp_path / COMPILING
    note.write_text(json.dumps({**json.loads(note.read_text()), "pid": ended.pid}))
    Compilation(tmp_path).check()


def test_a_note_that_is_cut_off_holds_nothing_up(tmp_path: Path, kernels: Path) -> None:
    note = tmp_path / COMPILING
    note.write_text(note.read_text()[:10])
    Compilation(tmp_path).check()


def test_a_server_that_starts_later_asks_for_no_note(tmp_path: Path, kernels: Path) -> None:
    withdraw_compilation(tmp_path)
    served = Compilation(tmp_path)
    announce_compilation(tmp_path, kernels=3)
    served.check()


def test_a_server_asks_for_no_note_once_the_kernels_are_there(tmp_path: Path, kernels: Path) -> None:
    served = Compilation(tmp_path)
    withdraw_compilation(tmp_path)
    served.check()
    announce_compilation(tmp_path, kernels=3)  # of another start
    served.check()


def test_no_kernel_is_compiled_in_the_server_until_all_are(tmp_path: Path, kernels: Path) -> None:
    @njit
    def doubled(values: np.ndarray) -> np.ndarray:
        return values * 2

    before = list(event._registered["numba:compile"])
    try:
        Compilation(tmp_path).refuse_to_compile()
        for _ in range(2):
            with pytest.raises(StillCompiling, match="1 of 3"):
                doubled(np.arange(3))
        withdraw_compilation(tmp_path)
        assert doubled(np.arange(3)).tolist() == [0, 2, 4]
    finally:
        event._registered["numba:compile"][:] = before


def test_a_server_whose_kernels_are_there_hears_of_no_compilation(tmp_path: Path, kernels: Path) -> None:
    withdraw_compilation(tmp_path)
    before = list(event._registered["numba:compile"])
    Compilation(tmp_path).refuse_to_compile()
    assert event._registered["numba:compile"] == before


def test_the_note_names_the_process_that_lives_as_long_as_the_compilation(tmp_path: Path, kernels: Path) -> None:
    assert json.loads((tmp_path / COMPILING).read_text())["pid"] == os.getpid()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("path", ["/write", "/api/v1/import/prometheus", "/v1/metrics"])
def test_nothing_of_a_push_is_read_meanwhile(path: str, tmp_path: Path, kernels: Path) -> None:
    async def act() -> None:
        site = Site()
        check_ready = Compilation(tmp_path).check
        site.app = PushApplication(lambda: site.acceptor, site.pool, SystemClock(), check_ready=check_ready)
        answer = await site.ask(path, LINE, authorization="Bearer one")
        assert (answer.status, answer.headers["retry-after"], site.pieces_read) == (503, "2", 0)
        assert b"compiling its kernels, 1 of 3 are done" in answer.body
        withdraw_compilation(tmp_path)
        assert (await site.ask("/write", LINE, authorization="Bearer one")).status == 204

    on_loop(act())
