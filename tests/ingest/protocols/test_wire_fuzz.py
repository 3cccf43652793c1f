"""Mutated bodies are read or rejected with a known error, and nothing else: 10,000 here, 10⁶ per reader as proof."""

import os
import subprocess
import sys

import pytest

from tests.ingest.protocols.wire_fuzz import SECONDS_MAX, fuzz

READERS = ("v1", "v2", "otlp", "json")


@pytest.mark.parametrize("reader", READERS)
def test_mutated_bodies_are_read_or_rejected(reader: str) -> None:
    accepted, slowest = fuzz(reader, 2_500, seed=11)
    assert 100 < accepted < 2_400, "mutations that are all refused, or none, try nothing"
    assert slowest < SECONDS_MAX


@pytest.mark.proof
@pytest.mark.parametrize("reader", READERS)
def test_many_mutated_bodies_are_read_or_rejected_within_bounds(reader: str) -> None:
    """SPM_WIRE_FUZZ: how many per reader. NUMBA_BOUNDSCHECK=1 with a cache of its own looks at every index, too."""
    count, seed = os.environ.get("SPM_WIRE_FUZZ", "1000000"), os.environ.get("SPM_WIRE_SEED", "1")
    command = [sys.executable, "-m", "tests.ingest.protocols.wire_fuzz", reader, count, seed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
    assert process.returncode == 0
