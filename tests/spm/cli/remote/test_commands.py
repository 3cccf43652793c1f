"""The command line ``spm`` against a running product: queries, corrections, rules as code, lists, failures."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.product import Served, start_product

ROOT = Path(__file__).resolve().parents[4]
pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(600)]
ISSUE = """
import django; django.setup()
from spm.accounts import tokens
from spm.accounts.models import App
print(tokens.issue(App.objects.get(pk=int(__import__("sys").argv[1])), name="admin", scopes=("admin",))[1])
"""
RULES = """
groups:
  - name: rooms
    rules:
      - alert: Hot
        expr: room_temperature > 30
        for: 5m
"""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The program ``spm`` with the settings of one user."""

    environ: dict[str, str]

    def run(self, *arguments: str, status: int = 0) -> str:
        """Its output, on the screen and of errors; the status must be this one."""
        command = [sys.executable, "-m", "spm.cli.remote", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run("--json", *arguments, status=status))


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start_product(tmp_path_factory.mktemp("product") / "data")
    now_ms = round(time.time() * 1_000)
    lines = [
        f"room,floor={floor} temperature={20 + floor} {now_ms - 60_000 * ago}" for floor in (1, 2) for ago in range(10)
    ]
    assert served.push(served.connection(), "\n".join(lines).encode()) == 204
    yield served
    served.stop()


@pytest.fixture(scope="module")
def spm(product: Served) -> Terminal:
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "spm.settings", "SPM_DATA": str(product.data)}
    token = subprocess.run(
        [sys.executable, "-c", ISSUE, str(product.app)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return Terminal({**os.environ, "SPM_URL": f"http://127.0.0.1:{product.port}", "SPM_TOKEN": token, "COLUMNS": "80"})


def temperatures(spm: Terminal) -> set[str]:
    return {each["metric"]["floor"] for each in spm.json("query", "room_temperature", "--instant")["result"]}


def test_a_query_is_drawn_with_its_extremes_and_names_its_series(spm: Terminal) -> None:
    rows = spm.run("query", "room_temperature", "--from", "10m").splitlines()
    assert (rows[0].split("┤")[0].strip(), rows[11].split("┤")[0].strip()) == ("22", "21")
    assert any(sign > "⠀" for sign in rows[0])
    assert '⣿ room_temperature{floor="2"}  last 22' in rows


def test_json_of_a_query_has_every_sample(spm: Terminal) -> None:
    answer = spm.json("query", "max(room_temperature)", "--from", "8m", "--step", "60")
    [series] = answer["result"]
    assert {value for _, value in series["values"]} == {"22"}
    assert len(series["values"]) == 9


def test_tail_prints_a_value_once_until_it_changes(spm: Terminal) -> None:
    lines = spm.run("tail", "max(room_temperature)", "--every", "1", "--count", "3").splitlines()
    assert lines == ["{} 22"]


def test_a_retraction_is_previewed_made_and_undone(spm: Terminal) -> None:
    what = ["--series", 'room_temperature{floor="2"}', "--reason", "its clock was off"]
    preview = spm.json("retract", *what, "--dry-run")
    assert (preview["samples"], preview["series"], temperatures(spm)) == (10, 1, {"1", "2"})
    assert "Nobody can answer here" in spm.run("retract", *what, status=2)
    assert temperatures(spm) == {"1", "2"}
    retraction = spm.json("retract", *what, "--yes")
    assert temperatures(spm) == {"1"}
    assert "hid 10 samples of 1 series" in spm.run("undo", str(retraction["number"]), "--dry-run")
    assert temperatures(spm) == {"1"}
    spm.run("undo", str(retraction["number"]), "--yes")
    assert temperatures(spm) == {"1", "2"}
    [listed] = [each for each in spm.json("retractions") if each["number"] == retraction["number"]]
    assert (listed["reason"], listed["state"]) == ("its clock was off", "undone")


def test_rules_are_compared_applied_once_and_pruned(spm: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "rooms.yaml"
    file.write_text(RULES)
    assert "2 new" in spm.run("rules", "diff", str(file), status=1)
    assert spm.json("rules", "list") == []
    spm.run("rules", "apply", str(file))
    assert spm.json("rules", "list") == ["rooms.yaml"]
    assert "no change" in spm.run("rules", "diff", str(file))
    assert "room_temperature > 30" in spm.run("rules", "show", "rooms.yaml")
    other = tmp_path / "other.yaml"
    other.write_text(RULES.replace("Hot", "Warm"))
    spm.run("rules", "apply", "--prune", str(other))
    assert spm.json("rules", "list") == ["other.yaml"]


def test_no_file_is_applied_if_one_of_them_is_wrong(spm: Terminal, tmp_path: Path) -> None:
    before = spm.json("rules", "list")
    (tmp_path / "a.yaml").write_text(RULES.replace("Hot", "First"))
    (tmp_path / "b.yaml").write_text(RULES.replace("room_temperature > 30", "room_temperature >"))
    assert "b.yaml" in spm.run("rules", "apply", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), status=2)
    assert spm.json("rules", "list") == before


def test_apps_agents_and_tokens_are_listed_without_secrets(spm: Terminal, product: Served) -> None:
    assert [each["id"] for each in spm.json("apps")] == [product.app]
    assert isinstance(spm.json("agents"), list)
    listed = spm.run("tokens")
    assert "First token" in listed
    assert spm.environ["SPM_TOKEN"] not in listed


@pytest.mark.parametrize(
    ("environ", "arguments", "text"),
    [
        pytest.param({"SPM_TOKEN": ""}, ["apps"], "There is no token", id="no token"),
        pytest.param({"SPM_TOKEN": "spm_x"}, ["apps"], "answered 401", id="wrong token"),
        pytest.param({"SPM_URL": "http://127.0.0.1:9"}, ["apps"], "cannot be asked: Connection refused", id="nobody"),
        pytest.param({"SPM_APP": "999"}, ["tokens"], "answered 404", id="no such app"),
        pytest.param({}, ["query", "sum("], "answered 400", id="bad expression"),
        pytest.param({}, ["query", "up", "--from", "soon"], "is no time", id="bad time"),
        pytest.param({}, ["undo", "999"], "There is no retraction 999", id="no such retraction"),
    ],
)
def test_a_failure_is_one_sentence(spm: Terminal, environ: dict[str, str], arguments: list[str], text: str) -> None:
    output = Terminal({**spm.environ, **environ}).run(*arguments, status=2)
    assert text in output
    assert output.count("\n") == 1


def test_shells_complete_its_commands(spm: Terminal) -> None:
    words = {**spm.environ, "_SPM_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv[0] = 'spm'; from spm.cli.remote.commands import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**words, "COMP_WORDS": "spm ret", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split()) == ["retract", "retractions"]
