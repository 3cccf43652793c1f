"""The parent of Spark's Python workers: it loads what tasks need before it forks them, and finds its own sources.

PySpark's own daemon forks bare processes, each of which imports pandas, pyarrow and numba and reads compiled kernels:
4 s of CPU for every worker, here 2.5 s for all of them. What is loaded starts no threads that a fork would miss.

On other machines (``SPM_SHIPPED``: the sources' name, see ``rollups.spark.shipment``) the sources lie in a folder that
is new with every run, and compiled kernels are found by the path of their source: so they are first copied to a folder
of their own in the user's cache. Named in ``spark.python.daemon.module``; run by Spark as ``python -m``.
"""

import fcntl
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

KEPT = 4  # versions of sources and kernels in the cache: about 15 MB each
# What PySpark's workers load for tasks in Arrow, and what ours do: loaded by name, since the path comes first.
_LOADED = (
    "pyspark.worker",
    "pandas",
    "pyarrow",
    "rollups.spark.job",
    "rollups.spark.frames",
    "rollups.run.warm_kernels",
)


def settled(environ: Mapping[str, str], sources: Path) -> dict[str, str] | None:
    """The environment to start again with, sources copied to a lasting folder; ``None``: they lie well as they are."""
    name = environ.get("SPM_SHIPPED")
    if name is None or environ.get("SPM_SETTLED") == name:
        return None
    home = _home(environ, name)
    if home is None:  # nowhere to keep anything: kernels are compiled for this run alone
        return {**environ, "SPM_SETTLED": name, "NUMBA_CACHE_DIR": str(Path.cwd() / "kernels")}
    place = home / "sources"
    if not place.is_dir():
        _copy(sources, place)
        _forget_old(home)
    path = os.pathsep.join([str(place), environ.get("PYTHONPATH", "")])
    return {**environ, "SPM_SETTLED": name, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(home / "kernels")}


def _home(environ: Mapping[str, str], name: str) -> Path | None:
    """The folder of this version in the cache, made if need be; ``None`` where the user has none of its own."""
    try:
        cache = Path(environ["SPM_CACHE"]) if "SPM_CACHE" in environ else Path.home() / ".cache" / "spm"
        home = cache / "spark" / name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home if os.access(home, os.W_OK) and home.stat().st_uid == os.getuid() else None
    except (OSError, RuntimeError):
        return None


def _copy(sources: Path, place: Path) -> None:
    """Copy under another name, then rename: a folder that is there is whole, whoever else makes it too."""
    draft = Path(tempfile.mkdtemp(dir=place.parent))
    shutil.copytree(sources, draft / "sources")
    try:
        (draft / "sources").rename(place)
    except OSError:  # another executor was first
        pass
    finally:
        shutil.rmtree(draft)


def _forget_old(home: Path) -> None:
    """Keep the newest versions only."""
    versions = sorted(home.parent.iterdir(), key=lambda v: v.stat().st_mtime, reverse=True)
    for version in versions[KEPT:]:
        shutil.rmtree(version, ignore_errors=True)


@contextmanager
def _one_at_a_time(kernels: str | None) -> Iterator[None]:
    """Of several executors on one machine one compiles, and the others find what it has compiled."""
    if kernels is None:
        yield
        return
    Path(kernels).mkdir(parents=True, exist_ok=True)
    with (Path(kernels) / "compiling").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Settle, load, and be PySpark's daemon."""
    environment = settled(os.environ, Path(__file__).resolve().parents[2])
    if environment is not None:
        os.execve(sys.executable, [sys.executable, "-m", "rollups.spark.daemon", *sys.argv[1:]], environment)
    for name in _LOADED:
        importlib.import_module(name)
    with _one_at_a_time(os.environ.get("NUMBA_CACHE_DIR")):
        sys.modules["rollups.run.warm_kernels"].rehearse()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
