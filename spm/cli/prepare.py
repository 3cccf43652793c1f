"""Prepares a data folder before the product's processes start: migrations, static files, compiled kernels, and a
store's file without much free space.

A step is skipped when its stamp file says that none of its inputs has changed, so that a later start takes a second or
two. Kernels take longest; a start serves while they are compiled (``spm.settings.compilation``). Enter by ``steps`` and
``warm_kernels``; the command ``prepare`` runs them in order.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

from spm.cli.console import say
from spm.errors import Refused, SpmError, StoreUnavailable
from spm.store.backends import lmdb_file

Step = tuple[str, Callable[[], None]]
_KERNEL = re.compile(r"^@njit\(", re.MULTILINE)
KERNEL_PARTS = ("pipeline", "bodies")  # of ``spm.cli.warm_kernels``, named here so that numba is not loaded


def steps() -> list[Step]:
    """The steps that are due, each with its title."""
    due: list[Step] = [("migrating the database", migrate)]
    if _stale("static", _static_files()):
        due.append(("collecting static files", collect_static))
    folder = lmdb_file.folder_of(settings.SPM_STORE_URL)
    if folder is not None and _has_much_free(folder):
        due.append(("giving free space of the store back to the disk", lambda: compact_store(folder)))
    return due


def kernels_are_stale() -> bool:
    """Whether some kernel may have to be compiled."""
    return _stale("kernels", _sources())


def count_kernels() -> int:
    """Return how many kernels there are."""
    return sum(len(_KERNEL.findall(path.read_text())) for path in _sources() if path.suffix == ".py")


def migrate() -> None:
    """Migrate the database to the models."""
    call_command("migrate", interactive=False, verbosity=0)


def collect_static() -> None:
    """Collect, hash and compress the files that pages load."""
    call_command("collectstatic", interactive=False, verbosity=0, clear=True)
    _stamp("static", _static_files())


def warm_kernels() -> None:
    """Compile every numba kernel into the cache, so that no request waits for a compiler.

    Each part runs in a process of its own, so that later starts, which compile nothing, need not load numba. Raises
    ``CalledProcessError`` when a process fails.
    """
    command = [sys.executable, "-m", "spm.cli.warm_kernels"]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([*command, part], cwd=settings.SPM_ROOT)) for part in KERNEL_PARTS
        ]
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    _stamp("kernels", _sources())


def _has_much_free(folder: Path) -> bool:
    """Whether most of the store's file is free; a file that cannot be looked at is left to those who open it."""
    try:
        return lmdb_file.has_file(folder) and lmdb_file.measure(folder).is_worth_compacting
    except (SpmError, OSError):
        return False


def compact_store(folder: Path) -> None:
    """Put a compact copy of the store's file in its place; a start goes on where that is refused."""
    try:
        lmdb_file.compact_file(folder)
    except (Refused, StoreUnavailable, OSError) as error:
        say(f"the store's file stays as it is: {error}")


def _static_files() -> list[Path]:
    collected = [Path(storage.path(name)) for finder in get_finders() for name, storage in finder.list([])]
    return [*collected, settings.SPM_ROOT / "frontend" / "bundles.py"]  # which says how they are bundled


def _sources() -> list[Path]:
    rooms = ("spm/store", "spm/query", "ingest", "rollups", "requirements")
    return [path for room in rooms for path in (settings.SPM_ROOT / room).rglob("*") if path.suffix in (".py", ".txt")]


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of the files' names, sizes and times of change."""
    lines = sorted(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _stamp_file(name: str) -> Path:
    """The path of the stamp ``name``: beside the files that it describes, so that both are lost together."""
    if name == "kernels" and "NUMBA_CACHE_DIR" in os.environ:
        return Path(os.environ["NUMBA_CACHE_DIR"]) / "stamp"
    return Path(settings.SPM_DATA) / "stamps" / name


def _stale(name: str, files: Iterable[Path]) -> bool:
    note = _stamp_file(name)
    return not note.is_file() or note.read_text() != fingerprint(files)


def _stamp(name: str, files: Iterable[Path]) -> None:
    note = _stamp_file(name)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(fingerprint(files))
