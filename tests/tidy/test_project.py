"""What a repository's host and its contributors rely on: licence, workflows, hooks, and the commands that they name."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = ("bin", ".ci")
OF_THE_MACHINE = frozenset({"apt-get"})  # programs of a fresh runner
SUBJECTS_SINCE = "54e71440"  # some before it are longer
HOOKS = ROOT / ".pre-commit-config.yaml"
COMMANDED = [HOOKS, *(path for path in WORKFLOWS if "run:" in path.read_text())]


def _name(path: Path) -> str:
    return path.name


def _loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _commands(path: Path) -> Iterator[list[str]]:
    """Yield the words of each line that a workflow runs, or of each hook."""
    if path == HOOKS:
        yield from (shlex.split(hook["entry"]) for repo in _loaded(path)["repos"] for hook in repo["hooks"])
        return
    for job in _loaded(path)["jobs"].values():
        for step in job["steps"]:
            yield from (shlex.split(line) for line in step.get("run", "").splitlines())


def _faults(words: list[str]) -> list[str]:
    """Return the words of a command that name no program, option, module or test of this project."""
    program, arguments = words[0], words[1:]
    if program == "docker":
        return [name for flag, name in pairwise(arguments) if flag == "-f" and not (ROOT / name).is_file()]
    if program in OF_THE_MACHINE:
        return []
    if program == ".venv/bin/python":
        locked = (ROOT / "requirements" / "dev.txt").read_text()
        faults = [] if re.search(rf"^{arguments[1]}==", locked, re.MULTILINE) else [arguments[1]]
    else:
        script = ROOT / program
        if script.parent.name not in SCRIPTS or not script.is_file() or not script.stat().st_mode & 0o111:
            return [program]
        faults = [word for word in arguments if word.startswith("-") and f"{word})" not in script.read_text()]
    return faults + [word for word in arguments if word.startswith("tests/") and not (ROOT / word).exists()]


def test_every_place_that_names_the_licence_names_the_same_one() -> None:
    places = [PROJECT["license"], json.loads((ROOT / "package.json").read_text())["license"]]
    assert places == ["Apache-2.0"] * 2
    assert "SPDX-License-Identifier: Apache-2.0\n" in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=_name)
def test_a_workflow_is_valid_by_the_schema_of_workflows(path: Path) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", COMMANDED, ids=_name)
def test_every_command_that_is_named_exists(path: Path) -> None:
    commands = list(_commands(path))
    assert commands != []
    assert [(words, faults) for words in commands if (faults := _faults(words))] == []


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        ("bin/tests --fast", ["bin/tests"]),
        ("bin/test --quick", ["--quick"]),
        ("bin/test tests/nowhere", ["tests/nowhere"]),
        (".venv/bin/python -m black", ["black"]),
        ("curl -fsS", ["curl"]),
        ("docker build -f deploy/Dockerfile .", ["deploy/Dockerfile"]),
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str, faults: list[str]) -> None:
    assert _faults(shlex.split(command)) == faults


def test_fast_tests_run_on_every_python_that_is_supported() -> None:
    lowest, end = (int(minor) for minor in re.findall(r"3\.(\d+)", PROJECT["requires-python"]))
    matrix = _loaded(ROOT / ".github" / "workflows" / "fast.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == [f"3.{minor}" for minor in range(lowest, end)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=_name)
def test_a_workflow_may_only_read_and_ends_in_time(path: Path) -> None:
    workflow = _loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    rights = {right for job in workflow["jobs"].values() for right in job.get("permissions", {}).items()}
    assert rights <= {("contents", "read"), ("security-events", "write")}
    assert [name for name, job in workflow["jobs"].items() if not 0 < job.get("timeout-minutes", 0) <= 180] == []


def test_subjects_of_commits_have_at_most_72_signs() -> None:
    """Where the history is not there, there is nothing to look at."""
    history = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", f"{SUBJECTS_SINCE}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [subject for subject in history.stdout.splitlines() if len(subject) > 72] == []
