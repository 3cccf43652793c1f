"""``bin/run`` becomes one program of the product, and systemd's units run each by it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spm.cli.console import welcome
from spm.cli.options import parse
from spm.cli.preflight import CannotStart
from spm.cli.run import choose, program_of
from spm.cli.supervisor import environment_of, programs
from spm.cli.units import Place, printed, units

ROOT = Path(__file__).resolve().parents[3]
PLACE = Place(ROOT, Path("/opt/environment"), Path("/var/lib/spm"), "root", "127.0.0.1", 8000)
UNITS = units(PLACE)
LOGIN = {"url": "http://localhost:8000", "login": "a@b.c", "password": None, "token": None}


def command_of(*arguments: str) -> tuple[str, ...]:
    return program_of(choose(arguments, {"SPM_DATA": "/data"}, ROOT), "spm_y").command


@pytest.mark.parametrize("name", ["web", "worker", "agent"])
def test_a_program_alone_has_the_command_that_bin_start_gives_it(name: str) -> None:
    of_start = {each.name: each.command for each in programs(parse([], {"SPM_DATA": "/data"}, ROOT), "spm_y")}
    assert command_of(name) == of_start[name]


def test_a_worker_without_beat_leaves_the_schedule_to_another() -> None:
    assert "--beat-thread" in command_of("worker")
    assert "--beat-thread" not in command_of("worker", "--no-beat")
    assert command_of("beat")[-1] == "--beat-only"


def test_an_agent_without_a_token_says_where_it_comes_from() -> None:
    with pytest.raises(CannotStart, match="Run bin/run prepare"):
        program_of(choose(["agent"], {"SPM_DATA": "/data"}, ROOT), None)


def test_a_program_that_there_is_not_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "bin" / "run", "scheduler"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    environ = {**os.environ, "SPM_ENVIRONMENT": str(tmp_path / "none")}
    done = subprocess.run([ROOT / "bin" / "run", "web"], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, "Run bin/manage once" in done.stderr) == (1, True)


def test_a_start_without_spark_says_so_and_tells_its_programs() -> None:
    for chosen in (parse(["--no-spark"], {}, ROOT), parse([], {"SPM_SPARK_MASTER": "none"}, ROOT)):
        assert environment_of(chosen)["SPM_SPARK_MASTER"] == "none"
        assert "without Spark" in welcome(LOGIN, chosen, shows_secrets=True)
    assert "SPM_SPARK_MASTER" not in environment_of(parse([], {}, ROOT))
    assert "Spark" not in welcome(LOGIN, parse([], {}, ROOT), shows_secrets=True)


@pytest.mark.parametrize(
    ("settings", "extras"),
    [
        ({"SPM_SPARK_MASTER": "none"}, "server agent"),
        ({}, "server agent spark"),
        ({"SPM_OTLP_GRPC_PORT": "0"}, "server agent spark"),
        ({"SPM_OTLP_GRPC_PORT": "4317"}, "server agent spark grpc"),
    ],
)
def test_packages_that_no_setting_asks_for_are_not_needed(settings: dict[str, str], extras: str) -> None:
    environ = {"PATH": os.environ["PATH"], **settings, "SPM_DOTENV": os.devnull}
    script = f"root={ROOT}; . bin/lib.sh; product_extras"
    done = subprocess.run(["sh", "-euc", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == extras


def test_every_unit_runs_a_program_that_exists() -> None:
    commands = {name: re.findall(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE) for name, text in UNITS.items()}
    services = {name: lines for name, lines in commands.items() if name.endswith(".service")}
    assert len(services) == 5
    for [(program, arguments)] in services.values():
        assert os.access(program, os.X_OK)
        choose(arguments.split(), {}, ROOT)  # it exits for an argument that it does not know
    assert all(f"# /etc/systemd/system/{name}\n{text}" in printed(UNITS, PLACE) for name, text in UNITS.items())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    for name, text in UNITS.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
