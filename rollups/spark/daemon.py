"""The parent process of Spark's Python workers: it imports what tasks need before it forks them.

PySpark's own daemon forks bare processes, each of which imports pandas, pyarrow and numba and reads compiled kernels:
4 s of CPU for every worker, here 2.5 s for all of them. The imports start no threads, which a fork would not copy.

On other machines (``SPM_SHIPPED``: the sources' name, see ``rollups.spark.shipment``) the sources are in a folder that
is new with every run, but numba finds compiled kernels by the path of their source: so the sources are first copied to
a lasting folder in the user's cache. Named in ``spark.python.daemon.module``; Spark runs it as ``python -m``.
"""

import fcntl
import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

VERSIONS_KEPT = 4  # versions of sources and kernels in the cache: about 15 MB each
# The modules that PySpark's workers and our tasks import: by name, because the path must be set before.
_MODULES = (
    "pyspark.worker",
    "pandas",
    "pyarrow",
    "rollups.spark.job",
    "rollups.spark.frames",
    "rollups.run.warm_kernels",
)


def lasting_environment(environ: Mapping[str, str], sources: Path) -> dict[str, str] | None:
    """Copies the sources to a lasting folder; returns the environment to start again with, ``None`` if not needed."""
    name = environ.get("SPM_SHIPPED")
    if name is None or environ.get("SPM_SETTLED") == name:
        return None
    home = _home(environ, name)
    if home is None:  # there is no cache: kernels are compiled for this run alone
        return {**environ, "SPM_SETTLED": name, "NUMBA_CACHE_DIR": str(Path.cwd() / "kernels")}
    place = home / "sources"
    if not place.is_dir():
        _copy(sources, place)
        _forget_old(home)
    path = os.pathsep.join([str(place), environ.get("PYTHONPATH", "")])
    return {**environ, "SPM_SETTLED": name, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(home / "kernels")}


def _home(environ: Mapping[str, str], name: str) -> Path | None:
    """The folder of this version in the cache, created if missing; ``None`` if the user has no cache of its own."""
    try:
        cache = Path(environ["SPM_CACHE"]) if "SPM_CACHE" in environ else Path.home() / ".cache" / "spm"
        home = cache / "spark" / name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home if os.access(home, os.W_OK) and home.stat().st_uid == os.getuid() else None
    except (OSError, RuntimeError):
        return None


def _copy(sources: Path, place: Path) -> None:
    """Copies under another name, then renames: a folder that exists is complete, even if two processes create it."""
    draft = Path(tempfile.mkdtemp(dir=place.parent))
    shutil.copytree(sources, draft / "sources")
    try:
        (draft / "sources").rename(place)
    except OSError:  # another executor was first
        pass
    finally:
        shutil.rmtree(draft)


def _forget_old(home: Path) -> None:
    """Deletes all but the newest versions."""
    versions = sorted(home.parent.iterdir(), key=lambda v: v.stat().st_mtime, reverse=True)
    for version in versions[VERSIONS_KEPT:]:
        shutil.rmtree(version, ignore_errors=True)


@contextmanager
def _one_at_a_time(kernels: str | None) -> Iterator[None]:
    """Lets one of several executors on a machine compile, so that the others find the compiled kernels."""
    if kernels is None:
        yield
        return
    Path(kernels).mkdir(parents=True, exist_ok=True)
    with (Path(kernels) / "compiling").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Copies the sources if needed, imports the modules, and runs PySpark's daemon."""
    environment = lasting_environment(os.environ, Path(__file__).resolve().parents[2])
    if environment is not None:
        os.execve(sys.executable, [sys.executable, "-m", "rollups.spark.daemon", *sys.argv[1:]], environment)
    for name in _MODULES:
        importlib.import_module(name)
    with _one_at_a_time(os.environ.get("NUMBA_CACHE_DIR")):
        sys.modules["rollups.run.warm_kernels"].warm_up()
    gc.collect()
    gc.freeze()  # the collector of no worker copies a page only to look at it
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
