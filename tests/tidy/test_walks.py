"""One sample and one chart pass through few files, so that a reader can follow them from their request to the store."""

import json
import subprocess
import sys

import pytest

from tests.tidy.walks import BESIDE, ROOT, why_beside

FILES_MAX = 35
ALL_MAX = {"sample": 50, "chart": 65}  # with all that runs beside: 48 and 63 were measured


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timed  # on a busy machine a sample may pass through the code that waits
@pytest.mark.timeout(600)
def test_a_sample_and_a_chart_pass_through_few_files() -> None:
    command = [sys.executable, "-m", "tests.tidy.walks", "--json"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert printed.returncode == 0, printed.stderr
    walks = json.loads(printed.stdout)
    assert {name: len(files) for name, files in walks.items() if len(files) > ALL_MAX[name]} == {}
    ways = {name: [each for each in files if not why_beside(each)] for name, files in walks.items()}
    assert {name: len(files) for name, files in ways.items() if len(files) > FILES_MAX} == {}
    assert min(map(len, ways.values())) > FILES_MAX // 2, f"a part of the way was not seen: {ways}"


def test_what_runs_beside_the_way_exists() -> None:
    assert [path for path in BESIDE if not (ROOT / path).exists()] == []
