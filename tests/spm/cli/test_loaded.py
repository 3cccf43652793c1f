"""What the parent of web server and worker loads, and the children it forks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spm.cli.loaded import Forked, fork

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import json, os, signal, sys
own = {"arguments": sys.argv[1:], "folder": os.getcwd(), "leads its session": os.getsid(0) == os.getpid()}
own["open"] = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
own["signals"] = [signal.getsignal(each) == signal.SIG_DFL for each in (signal.SIGTERM, signal.SIGHUP)]
print(json.dumps(own), file=sys.stderr if "stderr" in sys.argv else sys.stdout)
sys.exit(int(sys.argv[1]))
"""
SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
PARENT = """
import os, sys
from pathlib import Path
from spm.cli.loaded import fork
child = fork([sys.executable, "-m", "sleeper"], Path.cwd())
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
LOADER = """
import json, os, sys, threading
from pathlib import Path
from spm.cli.loaded import fork, load
load({"DJANGO_SETTINGS_MODULE": "spm.settings", "SPM_DATA": sys.argv[1]})
files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name != "3"]
child = fork([sys.executable, "-m", "memory"], Path.cwd())
child.wait()
threads = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
print(json.dumps({"files": files, "threads": threads, "child": json.loads(child.stdout.read())}))
"""
MEMORY = """
import json, spm.web.asgi, spm.celery
rows = [line.split() for line in open("/proc/self/smaps_rollup").readlines()[1:]]
print(json.dumps({row[0].rstrip(":"): int(row[1]) // 1024 for row in rows}))
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that children find."""
    for name, text in {"child": CHILD, "sleeper": SLEEPER, "memory": MEMORY}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _ended(child: Forked) -> tuple[bytes, int | None]:
    output = child.stdout.read()
    child.wait()
    child.stdout.close()
    return output, child.poll()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_child_runs_its_module_in_a_session_of_its_own_and_has_no_file_of_its_parent(
    modules: Path, stream: str
) -> None:
    with (modules / "of the parent").open("w"):
        output, status = _ended(fork([sys.executable, "-m", "child", "3", stream], modules))
    assert status == 3
    assert json.loads(output) == {
        "arguments": ["3", stream],
        "folder": str(modules),
        "leads its session": True,
        "open": ["0", "1", "2"],
        "signals": [True, True],
    }


def test_a_child_that_is_killed_has_the_signal_as_its_status(modules: Path) -> None:
    child = fork([sys.executable, "-m", "sleeper"], modules)
    assert child.stdout.readline() == b"here\n"
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert _ended(child) == (b"", -signal.SIGTERM)
    child.send_signal(signal.SIGTERM)  # it has gone: nothing happens


def test_a_module_that_fails_leaves_its_traceback_in_the_output(modules: Path) -> None:
    (modules / "wrong.py").write_text("raise ValueError('what is wrong')\n")
    output, status = _ended(fork([sys.executable, "-m", "wrong"], modules))
    assert status == 1
    assert b"ValueError: what is wrong" in output


def test_children_end_with_their_parent(modules: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{modules}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", PARENT], cwd=modules, env=environ, stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGKILL
    child = Path(f"/proc/{int(done.stdout)}/stat")
    assert _within(10, lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.slow
def test_loading_opens_nothing_and_children_share_its_memory(modules: Path) -> None:
    data = modules / "data"
    data.mkdir()
    environ = {**os.environ, "PYTHONPATH": f"{modules}:{ROOT}", "SPM_PEPPER": "p", "SPM_SECRET_KEY": "s"}
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(data)], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    state = json.loads(done.stdout)
    assert [name for name in state["files"] if name.startswith(str(data))] == []
    assert state["threads"] == []
    assert state["child"]["Private_Dirty"] < 0.25 * state["child"]["Anonymous"]


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
