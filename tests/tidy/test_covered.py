"""The table of coverage adds up by room, and a room below its floor fails the run that measured it."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy import covered
from tests.tidy.covered import FLOORS, ROOMS, Coverage, cover, room_of, table
from tests.tidy.documents import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]


def _file(statements: int, lines: int, branches: int = 0, covered_branches: int = 0) -> dict[str, Any]:
    counts = {"num_statements": statements, "covered_lines": lines}
    return {"summary": {**counts, "num_branches": branches, "covered_branches": covered_branches}}


def test_every_room_exists_and_every_floor_is_of_a_room() -> None:
    assert [room for room in ROOMS if not (ROOT / room).is_dir()] == []
    assert set(FLOORS) <= set(ROOMS)


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("spm/store/keys.py", "spm/store"),
        ("spm/store/ledger/outcomes.py", "spm/store"),
        ("spm/storeroom.py", "spm"),
        ("rollups/decide/plan.py", "rollups/decide"),
        ("rollups/run/driver.py", "rollups"),
    ],
)
def test_a_file_counts_in_its_innermost_room(path: str, room: str) -> None:
    assert room_of(path) == room


def test_files_of_a_room_add_up_in_statements_and_branches() -> None:
    rooms = {each.room: each for each in cover({"alerts/a.py": _file(10, 5, 6, 3), "alerts/telling/b.py": _file(4, 4)})}
    assert rooms["alerts"] == Coverage("alerts", 14, 6, 12)
    assert rooms["alerts"].share == 60


@pytest.mark.parametrize(("missed", "failed"), [(0, 0), (100, 1)])
def test_a_room_below_its_floor_fails_and_is_named(
    missed: int, failed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"{room}/a.py": _file(100, 100) for room in FLOORS} | {
        "spm/store/keys.py": _file(1_000, 1_000 - missed * 9)
    }
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": files}))
    assert covered.main(report) == failed
    below = re.findall(r"^(\S+) .*BELOW ITS FLOOR$", capsys.readouterr().out, re.MULTILINE)
    assert below == ["spm/store"] * failed


def test_a_room_without_a_floor_is_never_below_it() -> None:
    assert "BELOW" not in table([Coverage("frontend", 10, 0, 0)])


@pytest.mark.parametrize(
    ("failing", "status"),
    [("nothing", 0), ("coverage run", 1), ("tests.tidy.covered", 1)],
    ids=["all is well", "a test fails", "a room is below its floor"],
)
def test_the_command_measures_reports_and_fails_in_this_order(failing: str, status: int, tmp_path: Path) -> None:
    for folder in ("bin", "requirements"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncase "$*" in *"{failing}"*) exit 1 ;; esac\n')
    python.chmod(0o755)
    environ = {**os.environ, "SPM_ENVIRONMENT": str(python.parents[1]), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([tmp_path / "bin" / "test", "--coverage"], env=environ, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
    calls = re.findall(r"^-m (?:coverage (\w+)|(tests\.\S+) (\S+))", (tmp_path / "calls").read_text(), re.MULTILINE)
    measured = (ROOT / SETTINGS["json"]["output"]).relative_to(ROOT)
    assert calls == [(step, "", "") for step in ("run", "combine", "html", "json")] + [
        ("", "tests.tidy.covered", str(measured))
    ]


def test_the_nightly_run_keeps_the_pages_of_the_report() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]["coverage"]["steps"]
    [at] = [number for number, step in enumerate(steps) if step.get("run") == "bin/test --coverage"]
    upload = steps[at + 1]
    assert (upload["uses"].partition("@")[0], upload["if"]) == ("actions/upload-artifact", "always()")
    assert upload["with"]["path"] == SETTINGS["html"]["directory"]


def test_all_rooms_of_the_product_are_measured_and_compiled_kernels_are_not() -> None:
    assert set(SETTINGS["run"]["source_pkgs"]) == {room for room in ROOMS if "/" not in room}
    [pattern] = SETTINGS["report"]["exclude_also"]
    assert re.search(pattern, "@njit(nogil=True, cache=True)")
    assert not re.search(pattern, "    from numba import njit")
