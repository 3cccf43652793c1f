"""Claims about runs killed by SIGKILL, as real processes on LMDB: the old or the new run is visible, never a mix."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from tests.rollups.world import World, days_in_force, whole_day

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys
from rollups import points
from rollups.local import LocalExecutor
from rollups.run import Driver
from spm.clock import SystemClock
from spm.store.backends import open_backend
from tests.rollups.world import APP, NEXT_DAY, SPREAD
store, at = open_backend(sys.argv[1]), points.from_environment(os.environ)
print(Driver(store, SystemClock(), SPREAD.all, at=at).roll(LocalExecutor(store, at), [APP], now_ms=NEXT_DAY).run)
"""


def roll(url: str, crash_at: str = "") -> int:
    """A run as a process; its exit code."""
    environment = {**os.environ, "SPM_CRASH_AT": crash_at, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, url]
    return subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=120).returncode


@pytest.mark.seed("A19", compares="answers after SIGKILL of a run's process, and after the next run, with the model")
@pytest.mark.parametrize("point", ["pages written:2", "compacted", "flipped", "ledger written"])
def test_a_killed_run_changes_no_answer_and_the_next_one_does_its_work(tmp_path: Path, point: str) -> None:
    url = f"lmdb://{tmp_path}"
    world = World(open_backend(url))
    for i in range(12):
        world.send(*((s, i * HOUR_MS // 3 + 1 + s, float(i * s)) for s in range(4)))
    assert roll(url, point) == -signal.SIGKILL
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert roll(url) == 0
    assert world.pending_rows() == 0
    assert days_in_force(world) == whole_day(world)
