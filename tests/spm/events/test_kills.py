"""Kill -9 anywhere in writing, relaying, reading and consuming: no event is lost, skipped, or twice in the stream."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.django_db, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[3]
ROLES = ("write", "write", "write", "relay", "relay", "read", "consume", "consume")
SECONDS, KILLS_MIN = 6, 20
WAIT_S = 180


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Settings of an empty database of this test's own: SQLite in a file, or the PostgreSQL of the run."""
    url = os.environ.get("DATABASE_URL", "")
    is_real = url.startswith("postgres")
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    environ["DATABASE_URL"] = url if is_real else f"sqlite:///{tmp_path}/events.sqlite3"
    for room in ("contenttypes", "events"):
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0", room], cwd=ROOT, env=environ, check=True)
    if is_real:
        subprocess.run([sys.executable, "manage.py", "flush", "--no-input", "-v0"], cwd=ROOT, env=environ, check=True)
    return environ


def run(environ: dict[str, str], role: str, folder: Path) -> str:
    """Run a role to its end."""
    command = [sys.executable, "-m", "tests.spm.events.kill_world", role, "0", str(folder)]
    return subprocess.run(command, cwd=ROOT, env=environ, text=True, capture_output=True, check=True).stdout


def start(environ: dict[str, str], role: str, seed: int, folder: Path) -> subprocess.Popen[str]:
    """Start a role."""
    command = [sys.executable, "-m", "tests.spm.events.kill_world", role, str(seed), str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdin=pipe, stdout=pipe)


def stop(processes: list[subprocess.Popen[str]]) -> int:
    """Stop roles; return how many kills there were."""
    return sum(int(process.communicate("stop\n", timeout=120)[0]) for process in processes)


def wait_until(is_done: Callable[[], bool]) -> None:
    """Wait for at most ``WAIT_S``; the claims say what is wrong if it was not enough."""
    until = time.monotonic() + WAIT_S
    while not is_done() and time.monotonic() < until:
        time.sleep(0.1)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def consumed_keys(folder: Path) -> dict[str, list[int]]:
    """What was consumed of each key, in the order of the first time."""
    first = defaultdict[str, dict[int, None]](dict)
    for _, key, number in map(json.loads, lines(folder / "consumed")):
        first[key][number] = None
    return {key: [*numbers] for key, numbers in first.items()}


@pytest.mark.seed("A17", compares="what readers got under kill -9 of writers, relays and readers, with what is stored")
@pytest.mark.seed("A37", compares="what consumers got of each key under kill -9 of all of them, with what was written")
def test_a17_a37_no_event_is_lost_skipped_or_doubled_under_kills(
    environ: dict[str, str], tmp_path: Path, figure: "pytest.FixtureRequest"
) -> None:
    run(environ, "found", tmp_path)
    working = [start(environ, role, seed, tmp_path) for seed, role in enumerate(ROLES)]
    time.sleep(SECONDS)
    wait_until(lambda: len(lines(tmp_path / "kills")) >= KILLS_MIN)  # a busy machine starts them slowly
    kills = stop(working)
    rows, head = json.loads(run(environ, "rows", tmp_path))
    draining = [start(environ, role, seed, tmp_path) for seed, role in enumerate(ROLES) if role in ("read", "consume")]
    wait_until(lambda: sum(map(len, consumed_keys(tmp_path).values())) >= len(rows))
    wait_until(lambda: len({*lines(tmp_path / "read-5")}) >= len(rows))
    kills += stop(draining)
    figure(f"{len(rows):,} events, {kills} kills")  # type: ignore[operator]

    assert kills >= KILLS_MIN
    assert [position for position, _ in rows] == [*range(1, len(rows) + 1)]
    assert head == len(rows)
    written = {f"{seed}-{number}" for seed in range(3) for number in lines(tmp_path / f"written-{seed}")}
    assert written <= {name for _, name in rows}
    read = [tuple(json.loads(line)) for line in lines(tmp_path / "read-5")]
    assert [*dict.fromkeys(read)] == [tuple(row) for row in rows]
    per_key = defaultdict[str, list[int]](list)
    for _, name in rows:
        seed, _, number = name.partition("-")
        per_key[f"{seed}-{int(number) % 7}"].append(int(number))
    assert consumed_keys(tmp_path) == per_key
