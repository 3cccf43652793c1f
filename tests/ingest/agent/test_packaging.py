"""The agent as others install it: the wheel's extra in an empty environment, and what it costs at its usual period.

``bin/test --proof from_a_wheel`` prints sizes, memory and processor time (SPM_AGENT_PROOF_S, 300 by default).
"""

import os
import subprocess
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.ingest.agent.conftest import FakeServer

ROOT = Path(__file__).resolve().parents[3]
RSS_MAX = 40_000_000
CPU_MAX = 0.01  # of a core, at the usual period
pytestmark = pytest.mark.proof


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the agent, and its sizes before and after in bytes."""

    folder: Path
    wheel: int
    before: int
    after: int

    def say(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the agent's command elsewhere than in the sources."""
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment}
        program = self.folder / "bin" / "spm-agent"
        return subprocess.run(
            [program, *arguments], cwd="/", env=clean, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder, wheels = tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("wheels")
    venv.create(folder, with_pip=True)
    pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", ROOT, "-w", wheels], check=True)
    [wheel] = wheels.glob("*.whl")
    before = size_of(folder)
    subprocess.run([*pip, "install", f"{wheel}[agent]"], check=True)
    return Installed(folder, wheel.stat().st_size, before, size_of(folder))


def size_of(folder: Path) -> int:
    """Returns the size of all files of an environment."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def test_the_agent_from_a_wheel_needs_psutil_alone(installed: Installed) -> None:
    arguments: list[str | Path] = [
        installed.folder / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "list",
        "--format=freeze",
    ]
    listed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert {line.partition("==")[0] for line in listed} - {"pip", "setuptools", "wheel"} == {"psutil", "spm"}
    print(
        f"the wheel has {installed.wheel / 1e6:.1f} MB, installed {(installed.after - installed.before) / 1e6:.1f} MB"
    )


def test_each_command_of_the_agent_from_a_wheel_works(installed: Installed, server: FakeServer) -> None:
    once, unit = installed.say("once"), installed.say("install", "--print")
    assert (once.returncode, "mem,host=" in once.stdout, "load,host=" in once.stdout) == (0, True, True)
    assert (unit.returncode, f"ExecStart={installed.folder}" in unit.stdout) == (0, True)
    doctor = installed.say("doctor", SPM_AGENT_URL=server.url, SPM_AGENT_TOKEN="t")
    assert (doctor.returncode, "✓ memory" in doctor.stdout, "Traceback" in doctor.stderr) == (1, True, False)
    broker = installed.say("doctor", SPM_AGENT_URL="amqp://a:b@127.0.0.1:1/%2F", SPM_AGENT_TOKEN="t")
    assert (broker.returncode, "pip install pika" in broker.stdout) == (1, True)
    assert installed.say("discover").returncode == 0


@pytest.mark.timed
@pytest.mark.timeout(0)
def test_the_agent_from_a_wheel_costs_little_at_its_usual_period(installed: Installed, server: FakeServer) -> None:
    seconds = float(os.environ.get("SPM_AGENT_PROOF_S", "300"))
    variables = {
        "SPM_AGENT_URL": server.url,
        "SPM_AGENT_TOKEN": "t",
        "SPM_AGENT_SPOOL": str(installed.folder / "spool"),
    }
    clean = {"PATH": os.environ["PATH"], "HOME": str(installed.folder), **variables}
    process = psutil.Popen([installed.folder / "bin" / "spm-agent"], cwd="/", env=clean)
    try:
        until = time.monotonic() + 120
        while not server.requests:
            assert time.monotonic() < until
            time.sleep(0.1)
        before, sent = process.cpu_times(), len(server.requests)
        time.sleep(seconds)
        after, rss = process.cpu_times(), process.memory_info().rss
    finally:
        process.terminate()
        process.wait(30)
    used = after.user + after.system - before.user - before.system
    print(
        f"{rss / 1e6:.1f} MB, {used:.2f} s of processor time in {seconds:g} s: {100 * used / seconds:.2f} % of a core"
    )
    assert len(server.requests) > sent + seconds / 20, "a look every ten seconds"
    assert rss <= RSS_MAX
    assert used / seconds <= CPU_MAX
