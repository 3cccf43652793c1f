"""A cardinality attack by one app, in a process of its own: its memory, its old series, and another app's pushes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

ATTACK = """
import os, sys, time
import django
django.setup()
from ingest.accept.stamper import Stamper
from ingest.accept.admission import Admission
from ingest.protocols.influx import reader as influx_reader
from ingest.writer import Writer
from spm.accounts.quotas import Quota
from spm.clock import SystemClock
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable

store, clock, waves, size = open_backend(sys.argv[1]), SystemClock(), int(sys.argv[2]), 10_000
admission = Admission(store, clock, lambda app: Quota(series=10_000 if app == 1 else 500_000, samples_per_s=10**9))
writer, stamper = Writer(store, PlacementTable()), Stamper(1, clock)

def anonymous_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous"))

def push(app, lines):
    over_quota = admission.is_over_quota(app)
    parsed = influx_reader.parse("\\n".join(lines).encode(), now_ms=clock.now_ms(), over_quota=over_quota)
    admitted = admission.admit(app, parsed, "ns")
    if len(admitted.ts):
        writer.write([stamper.stamp_message(app=app, source="s", parsed=admitted, message_id=os.urandom(16))])
    return admitted

old, theirs = ([f"cpu,host={name}{n} usage=1.5" for n in range(5_000)] for name in "ho")
for _ in range(2):
    push(1, old), push(2, theirs)
before, most, worst, begun = anonymous_kb(), 0, 0.0, time.process_time()
push(2, theirs)
calm = time.process_time() - begun
for wave in range(waves):
    push(1, [f"attack,id={wave}-{n},path=/a/path/that/is/long/{n} v=1" for n in range(size)])
    assert push(1, old).rejected == 0, "an old series was refused"
    begun = time.process_time()
    assert push(2, theirs).rejected == 0, "another app was refused something"
    worst = max(worst, time.process_time() - begun)
    most = max(most, anonymous_kb() - before)
series = sum(1 for _ in store.scan("series", b"", b"\\xff" * 40))
print(series, most // 1_000, round(1_000 * calm, 1), round(1_000 * worst, 1))
"""


def attack(folder: Path, waves: int) -> tuple[int, int]:
    """Series in the store, and MB of memory that the attack took."""
    command = [sys.executable, "-c", ATTACK, f"lmdb://{folder}/store", str(waves)]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    series, grown, calm, worst = done.stdout.split()
    print(f"{waves * 10_000:,} new series tried: +{grown} MB; another app's 5,000 samples took {calm} ms, then {worst}")
    return int(series), int(grown)


@pytest.mark.slow
def test_attack_costs_little_memory_and_its_victims_nothing(tmp_path: Path) -> None:
    series, grown = attack(tmp_path, 3)
    assert series <= 15_000
    assert grown <= 100


@pytest.mark.proof
def test_proof_a_million_new_series_cost_little_memory_and_their_victims_nothing(tmp_path: Path) -> None:
    series, grown = attack(tmp_path, int(os.environ.get("SPM_ATTACK_SERIES", "1000000")) // 10_000)
    assert series <= 15_000
    assert grown <= 100
