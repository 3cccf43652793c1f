"""The worst queries that the limits allow take no more memory than the limit says, in a process of their own.

A share of all limits at once: what a query takes grows with its values, so that all limits hold if the share does.
As a proof, at full size: `bin/test --proof memory`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spm.limits import QUERY_BYTES_MAX

ROOT = Path(__file__).resolve().parents[4]
BESIDE = 12_000_000  # code that is loaded at first use, pieces that the allocator keeps


def worst(share: float) -> list[dict[str, Any]]:
    """Run each of them in a process of their own; returns a result for each."""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.spm.query.request.worst", str(share)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1_800)
def test_worst_queries_of_a_part_of_the_limits_stay_within_that_part() -> None:
    results = worst(0.05)
    assert [each for each in results if each["grown"] > QUERY_BYTES_MAX * 0.05 + BESIDE] == []
    assert any(not each["refused"] for each in results)
    assert any("MB" in each["refused"] for each in results)


@pytest.mark.proof
def test_memory_of_the_worst_queries_is_bounded() -> None:
    results = worst(1.0)
    for each in results:
        print(f"{each['grown'] / 1e6:7.0f} MB {each['expr']} {each['refused'][:60]}")
    assert [each for each in results if each["grown"] > QUERY_BYTES_MAX + BESIDE] == []
