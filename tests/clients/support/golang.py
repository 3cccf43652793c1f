"""Builds programs in Go, with the machine's Go or, if that is too old, a newer one from the Go module proxy.

The newer one is a module (golang.org/toolchain), which Go itself fetches and checks by its hash. Enter by ``build``, or
by ``cached_build`` for programs that are built once per machine.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import missing_service

_BUILD_S = 1_500
_TRIES, _PAUSE_S = 3, 5  # of what may fetch modules: what has come is kept, and a proxy breaks off at times
_UNREACHED = ("dial tcp", "i/o timeout", "no such host", "connection refused", "Forbidden", "proxyconnect")


def build(folder: Path, target: Path, package: str, *, tags: Sequence[str] = (), at_least: str = "1.21") -> None:
    """A program from a package or file, seen from ``folder``; without any Go the test ends here."""
    command = ["build", "-trimpath", "-ldflags", "-s -w", "-tags", ",".join(tags), "-o", str(target), package]
    flags = "-mod=readonly -buildvcs=false" if (folder / "go.mod").exists() else "-buildvcs=false"
    done = _run([_go(at_least), *command], folder, {"GOFLAGS": flags, "CGO_ENABLED": "0"})
    _reached(done.stderr)
    assert done.returncode == 0, f"{package} could not be built: {done.stderr[-3000:]}"


def cached_build(name: str, sources: bytes, make: Callable[[Path], None]) -> Path:
    """A program of the user's cache folder, under a number of everything it is made of; ``make`` writes it there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "spm-clients" / hashlib.sha256(sources).hexdigest()[:16] / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"draft-{os.getpid()}")
        make(draft)
        draft.rename(target)
    return target


def _go(at_least: str) -> str:
    here = shutil.which("go")
    if here is None:
        missing_service("Go is not installed (Debian: apt-get install golang-go)")
    version = subprocess.run([here, "env", "GOVERSION"], capture_output=True, text=True, check=True, cwd="/").stdout
    return here if _version(version) >= _version(at_least) else _newer(here, at_least)


def _newer(go: str, version: str) -> str:
    command = ["mod", "download", "-json", f"golang.org/toolchain@v0.0.1-go{version}.linux-amd64"]
    done = _run([go, *command], Path("/"), {})
    _reached(done.stdout + done.stderr)
    if done.returncode:
        pytest.skip(f"no newer Go could be had: {done.stdout[-500:]}{done.stderr[-500:]}")
    program = Path(json.loads(done.stdout)["Dir"]) / "bin" / "go"
    for tool in (program, *program.parents[1].glob("pkg/tool/*/*")):  # files of modules carry no mode
        tool.chmod(0o755)
    return str(program)


def _run(command: Sequence[str], folder: Path, more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    for left in reversed(range(_TRIES)):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_BUILD_S, env=environment
        )
        if done.returncode == 0:
            break
        time.sleep(_PAUSE_S if left else 0)
    return done


def _reached(version: str) -> None:
    """Without the module proxy nothing can be built, also where everything else must be there: apt does not have it."""
    for line in version.splitlines():
        if any(part in line for part in _UNREACHED):
            pytest.skip(f"Go's module proxy does not answer: {line[-300:]}")


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
