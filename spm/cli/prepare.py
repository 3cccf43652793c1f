"""What must be true of a data folder before the product's processes start, made true step by step.

Migrations, static files, compiled kernels. Each step is skipped when a stamp says that nothing it depends on has
changed, so that a later start takes a second or two. Enter by ``steps``; the command ``prepare`` runs them in order.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

Step = tuple[str, Callable[[], None]]
REHEARSED = ("way", "bodies")  # the parts of ``spm.cli.warm_kernels``, named here so that numba is not loaded for them


def steps() -> list[Step]:
    """What to do, each with the words that announce it."""
    found: list[Step] = [("migrating the database", migrate)]
    if _stale("static", _static_files()):
        found.append(("collecting static files", collect_static))
    if _stale("kernels", _sources()):
        found.append(("compiling kernels, once: about a minute", warm_kernels))
    return found


def migrate() -> None:
    """Bring the database's tables to what the models say."""
    call_command("migrate", interactive=False, verbosity=0)


def collect_static() -> None:
    """Gather, hash and compress the files that pages load."""
    call_command("collectstatic", interactive=False, verbosity=0, clear=True)
    _stamp("static", _static_files())


def warm_kernels() -> None:
    """Compile every numba kernel into the cache, so that no request waits for a compiler.

    In processes of their own, one for each part: later starts, which compile nothing, need not load numba for this.
    Raises ``CalledProcessError`` when one fails.
    """
    command = [sys.executable, "-m", "spm.cli.warm_kernels"]
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(subprocess.Popen([*command, part], cwd=settings.SPM_ROOT)) for part in REHEARSED]
    for process in begun:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    _stamp("kernels", _sources())


def _static_files() -> list[Path]:
    return [Path(storage.path(name)) for finder in get_finders() for name, storage in finder.list([])]


def _sources() -> list[Path]:
    rooms = ("spm/store", "spm/query", "ingest", "rollups", "requirements")
    return [path for room in rooms for path in (settings.SPM_ROOT / room).rglob("*") if path.suffix in (".py", ".txt")]


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of the files' names, sizes and times of change."""
    lines = sorted(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _note(name: str) -> Path:
    """Where the stamp ``name`` lies: beside what it speaks of, so that both are lost together."""
    if name == "kernels" and "NUMBA_CACHE_DIR" in os.environ:
        return Path(os.environ["NUMBA_CACHE_DIR"]) / "stamp"
    return Path(settings.SPM_DATA) / "stamps" / name


def _stale(name: str, files: Iterable[Path]) -> bool:
    note = _note(name)
    return not note.is_file() or note.read_text() != fingerprint(files)


def _stamp(name: str, files: Iterable[Path]) -> None:
    note = _note(name)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(fingerprint(files))
