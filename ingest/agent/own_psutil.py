"""Provides psutil to the agent of one file, where the host's Python has none. Enter by ``provide_psutil``.

pip puts it into a folder of its own beside the file, by the hashes of our lock file. That changes nothing of the host,
so no distribution refuses it (``externally-managed-environment``). A Python without pip makes an environment for a
moment that has one. Where it cannot do that either (Debian without ``python3-venv``), root installs the distribution's
package. Standard error says what is done before it is done. It needs the standard library alone, and no network if
psutil is there.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

_PACKAGES = {  # the commands that install the distribution's package, by their program
    "apt-get": ("apt-get -qq update", "apt-get -qq install -y --no-install-recommends python3-psutil"),
    "dnf": ("dnf -q install -y python3-psutil",),
    "zypper": ("zypper -q -n install python3-psutil",),
    "apk": ("apk add -q py3-psutil",),
}
_MISSING = "psutil is missing, and could not be installed: apt install python3-psutil, or pip install psutil"


def provide_psutil(file: Path, locked: bytes) -> str:
    """Makes ``import psutil`` possible, for the agent in ``file``. Returns what is wrong if it cannot, else nothing.

    ``locked`` is the lock file of the agent's extra.
    """
    folder = file.resolve().parent / "agent-psutil-{}.{}".format(*sys.version_info)
    sys.path.append(str(folder))  # behind the host's own
    if _is_there():
        return ""
    reason = ""
    for command in chain(_by_pip(folder, locked), _by_distribution()):
        reason = _run(command) or reason
        if _is_there():
            return ""
    return f"{_MISSING}. {reason}".strip()


def _is_there() -> bool:
    importlib.invalidate_caches()
    return find_spec("psutil") is not None


def _by_pip(folder: Path, locked: bytes) -> Iterator[Sequence[str]]:
    """Yields the command that installs it into ``folder``; none where there is no pip and no way to get one."""
    if not (find_spec("pip") or find_spec("ensurepip")):
        return
    _say(f"psutil is missing: installing it into {folder}, from the package index (0.2 MB)")
    with tempfile.TemporaryDirectory() as temporary:
        python = Path(sys.executable)
        if not find_spec("pip"):
            yield (sys.executable, "-m", "venv", temporary)
            python = Path(temporary) / "bin" / "python"
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_bytes(locked)
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
        into = ("--require-hashes", "--no-deps", "--target", str(folder), "-r", str(requirements))
        yield (str(python), "-m", "pip", "install", *quiet, *into)


def _by_distribution() -> Iterator[Sequence[str]]:
    """Yields the commands that install the distribution's package; none for users, and for other Pythons than its."""
    if os.geteuid() != 0 or sys.prefix != "/usr":
        return
    for program, commands in _PACKAGES.items():
        if shutil.which(program):
            _say(f"psutil is missing: installing this system's package of it, by {program}")
            for command in commands:
                yield command.split()


def _run(command: Sequence[str]) -> str:
    """Runs a command; returns the last line of its output if it fails."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "" if done.returncode == 0 else (lines or [f"{command[0]} failed"])[-1]


def _say(text: str) -> None:
    print(f"spm-agent: {text}", file=sys.stderr, flush=True)
