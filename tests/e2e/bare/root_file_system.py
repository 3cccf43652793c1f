"""Bare systems as ``debootstrap`` makes them, and programs inside them that see none but their own processes.

``bare`` returns the folder of one (Debian 12, Ubuntu 24.04), made once and kept in the tests' data folder; tests take a
copy (``copied``).
``Inside`` is a command in one: ``unshare`` gives it mounts and processes of its own, so that the kernel ends and
unmounts all of it with its first process, however a test ends. The network is this machine's. Settings by which this
machine reaches package registries go along; everything else is what the system has.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import missing_service

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(sys.prefix) / "test-data"
_SCRIPTS = Path("/usr/share/debootstrap")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_OWN_AUTHORITIES = Path("usr/local/share/ca-certificates")
_APT = Path("etc/apt/apt.conf.d")
_PIP = (Path("/etc/pip.conf"), Path.home() / ".pip/pip.conf", Path.home() / ".config/pip/pip.conf")
_NPM = Path.home() / ".npmrc"
_OF_THIS_MACHINE = ("PIP_FIND_LINKS", "PIP_CACHE_DIR", "NPM_CONFIG_CACHE", "NPM_CONFIG_PREFIX")
_MOUNTS = """\
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs shm "$root/dev/shm"
"""
_READ_ONLY = """\
mount -t tmpfs tmp "$root/tmp"
mount --bind {volume} "$root{place}"
mount -o remount,bind,ro "$root"
"""
_FIRST = """\
shift
exec "$@"
"""
_BELOW = """\
shift
trap : INT  # Ctrl-C is the command's
status=0
"$@" || status=$?
for process in "$root"/proc/[0-9]*; do
  line=$(tr '\\0' ' ' 2>/dev/null <"$process/cmdline") || continue
  [ -z "$line" ] || [ "$process" = "$root/proc/1" ] || echo "still runs: $line"
done
exit "$status"
"""


@dataclass(frozen=True, slots=True)
class System:
    """A system that debootstrap makes; ``like`` is an older one whose script it uses if it has none for this one."""

    name: str
    suite: str
    components: str = "main"
    like: str = ""
    keyring: str = ""


DEBIAN = System("Debian 12", "bookworm")
UBUNTU = System("Ubuntu 24.04", "noble", "main,universe", "gutsy", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")


def bare(system: System) -> Path:
    """Returns the folder of a system's smallest root file system. The test ends here where none can be made."""
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if os.geteuid() != 0:
        missing_service("only root makes a root file system")
    if program is None:
        missing_service("debootstrap is not installed (Debian: apt-get install debootstrap)")
    folder = DATA / f"bare-{system.suite}"
    if not folder.is_dir():
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_suffix(".log")
        with log.open("wb") as out, tempfile.TemporaryDirectory() as scripts:
            words: list[str | Path] = [program, "--variant=minbase", *_options(system), system.suite, draft]
            environ = {**os.environ, "DEBOOTSTRAP_DIR": _with_script(system, Path(scripts))}
            done = subprocess.run(words, env=environ, stdout=out, stderr=out, check=False)
        if done.returncode != 0:
            pytest.skip(f"{system.name} cannot be had here; the log is {log}")
        _admit_registries(draft)
        draft.rename(folder)
    return folder


def _options(system: System) -> list[str]:
    signed = not system.keyring or Path(system.keyring).is_file()
    return [f"--components={system.components}", *([] if signed else ["--no-check-gpg"])]


def _with_script(system: System, folder: Path) -> str:
    """Returns debootstrap's own folder, or a copy that has a script for a system newer than it."""
    if not system.like or (_SCRIPTS / "scripts" / system.suite).exists():
        return str(_SCRIPTS)
    shutil.copytree(_SCRIPTS, folder, dirs_exist_ok=True, symlinks=True)
    (folder / "scripts" / system.suite).symlink_to(system.like)
    return str(folder)


def copied(source: Path, target: Path) -> Path:
    """Copies a root file system with owners, rights and devices."""
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)
    return target


def _admit_registries(root: Path) -> None:
    """Copies the settings of this machine by which apt, pip and npm reach their registries: proxies and authorities."""
    for file in sorted(Path("/", _APT).iterdir()):
        if "proxy" in file.read_text(errors="replace").lower():
            shutil.copy(file, root / _APT / file.name)
    for file in (file for file in _PIP if file.is_file()):
        shutil.copy(file, root / "etc/pip.conf")
    if _NPM.is_file():
        for home in ("root", "etc/skel"):
            shutil.copy(_NPM, root / home / ".npmrc")
    if Path("/", _OWN_AUTHORITIES).is_dir():
        shutil.copytree(Path("/", _OWN_AUTHORITIES), root / _OWN_AUTHORITIES, dirs_exist_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")


def registry_variables() -> dict[str, str]:
    """Returns the variables by which pip, npm and TLS reach the registries from this machine."""
    chosen = {}
    for name, value in os.environ.items():
        upper = name.upper()
        of_clients = upper.startswith(("PIP_", "NPM_CONFIG_")) and upper not in _OF_THIS_MACHINE
        if of_clients or upper.endswith("_PROXY") or value == _AUTHORITIES:
            chosen[name] = value
    return chosen


@dataclass(frozen=True, slots=True)
class Inside:
    """How a command runs inside a root file system.

    ``read_only``: all of it is, but ``/tmp`` and the folder ``volume`` of this machine at this place. ``first``: the
    command is the first process, as in a container; else it is below one that says on standard output what still runs
    when the command has ended.
    """

    root: Path
    user: str = "root"
    folder: str = "/root"
    environ: Mapping[str, str] = field(default_factory=dict)
    first: bool = False
    volume: Path | None = None
    place: str = ""

    def command(self, *words: str) -> list[str]:
        """Returns the command for this machine."""
        script = _MOUNTS + (_READ_ONLY.format(volume=self.volume, place=self.place) if self.volume else "")
        script += _FIRST if self.first else _BELOW
        variables = {"PATH": _PATH, **registry_variables(), **self.environ}
        assigned = [f"{name}={value}" for name, value in variables.items()]
        change = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", self.folder]
        inside = ["chroot", f"--userspec={self.user}", str(self.root), "env", "-i", *assigned, *change, *words]
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
        return [*unshared, "sh", "-ec", script, "sh", str(self.root), *inside]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; output and errors are both in ``stdout``."""
        return subprocess.run(
            self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def must(self, *words: str) -> str:
        """Runs a command that has to succeed; returns its output."""
        done = self.run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-3000:]}"
        return done.stdout


def check_out(target: Path) -> Path:
    """Copies the files of this checkout that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def install(root: Path, packages: Sequence[str]) -> None:
    """Installs Debian's packages, and the authorities that this machine trusts where there are any."""
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # installers and container engines write it
    inside = Inside(root, environ={"DEBIAN_FRONTEND": "noninteractive"})
    inside.must("apt-get", "update")
    inside.must("apt-get", "install", "-y", "--no-install-recommends", *packages)
    if (root / "usr/sbin/update-ca-certificates").exists():
        inside.must("update-ca-certificates")
