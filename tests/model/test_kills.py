"""Claims about acts that are ended by SIGKILL, as real processes on LMDB: the old or the new answer, never a mix.

Whatever point a driver is killed at, a reader beside it gets the answer from before or the answer from after. If the
act is done again, its answers and bytes are those of an undisturbed act.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rollups.crash_points import POINTS
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from tests.model.kills import ACTS, Case, Killer, faults
from tests.model.world import World, days_in_force, whole_day

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
KILLS_PER_POINT = 50
LANES = 3  # kills at the same time in the long form: each waits for disk and for its processes


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    """One server of processes for all tests here."""
    return Killer(tmp_path_factory.mktemp("kills"))


@pytest.mark.seed("A19", compares="answers after SIGKILL of a process in each act, and after it was done again")
@pytest.mark.parametrize("act", ACTS)
def test_killed_at_its_points_an_act_is_old_or_new_and_done_again_it_is_whole(killer: Killer, act: str) -> None:
    case = killer.case(act, seed=1)
    assert case.visits, "an act that comes to no point"
    wrong = {}
    for point, times in case.visits.items():
        differences = faults(case, killer.kill(case, point, 1 + zlib.crc32(act.encode()) % times))
        if differences:
            wrong[point] = differences
    assert wrong == {}


@pytest.mark.proof
def test_kill_fifty_times_at_every_point(killer: Killer) -> None:
    """The long form: every point that any act comes to, each at many visits, on stores of several seeds."""
    began = time.monotonic()
    with ThreadPoolExecutor(LANES) as pool:
        cases = list(pool.map(lambda args: killer.case(*args), itertools.product(ACTS, range(3))))
        plan = list(_plan(cases))
        outcomes = []
        for job, differences in zip(plan, pool.map(lambda job: faults(job[0], killer.kill(*job)), plan), strict=True):
            outcomes.append((job, differences))
            if len(outcomes) % 100 == 0:
                print(f"{len(outcomes)} kills after {time.monotonic() - began:.0f} s", flush=True)
    counts = Counter(point for (_, point, _), _ in outcomes)
    wrong = [(case.act, point, visit, differences) for (case, point, visit), differences in outcomes if differences]
    for point, count in sorted(counts.items()):
        print(f"{point:<20} {count:4} kills, {sum(p == point for _, p, _, _ in wrong)} faults")
    print(f"{len(plan)} kills at {len(counts)} points of {len(POINTS)} in {time.monotonic() - began:.0f} s")
    assert wrong == []
    assert len(counts) >= 20
    assert len(plan) >= 1_000


def _plan(cases: list[Case]) -> Iterator[tuple[Case, str, int]]:
    """``KILLS_PER_POINT`` kills at each point, over the cases and visits that come to it."""
    for point in POINTS:
        places = [(case, point, n) for case in cases for n in range(1, case.visits.get(point, 0) + 1)]
        step = max(1, len(places) // KILLS_PER_POINT)
        if places:
            yield from itertools.islice(itertools.cycle(places[::step]), KILLS_PER_POINT)


PROGRAM = """
import os, sys
from pathlib import Path
from rollups import crash_points as points
from rollups.spark.executors import open_executor
from rollups.run.driver import Driver
from spm.clock import SystemClock
from spm.store.backends import open_backend
from tests.model.world import APP, NEXT_DAY
url, folder = sys.argv[1], Path(sys.argv[2])
store, at = open_backend(url), points.from_environment(os.environ)
os.environ.pop("SPM_CRASH_AT", None)  # this process is to die, not its workers
with open_executor("spark", store, url=url, master="local[2]", folder=folder, at=at) as executor:
    Driver(store, SystemClock(), at=at).roll(executor, [APP], now_ms=NEXT_DAY)
"""


@pytest.mark.spark
def test_a_spark_driver_that_is_killed_takes_its_jvm_along_and_changes_no_answer(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'store'}"
    world = World(open_backend(url))
    for i in range(12):
        world.send(*((s, i * HOUR_MS // 3 + 1 + s, float(i * s)) for s in range(4)))
    command = [sys.executable, "-c", PROGRAM, url, str(tmp_path / "spark")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPM_CRASH_AT": "compacted"}
    driver = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=240)
    assert driver.returncode == -signal.SIGKILL
    assert _ended(str(tmp_path / "spark")), "the JVM of a killed driver lives on"
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    world.roll()
    assert world.pending_rows() == 0
    assert days_in_force(world) == whole_day(world)


def _ended(word: str) -> bool:
    """Whether no process has ``word`` in its command line, after a while."""
    until = time.monotonic() + 120
    while any(word in line for line in _command_lines()):
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def _command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
