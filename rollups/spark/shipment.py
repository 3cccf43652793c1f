"""Packs our sources and the packages they need into archives that a Spark cluster gets with a run.

Workers need Spark of this version and Python of this minor version, and nothing of ours: Spark unpacks both archives in
each executor's folder. If an operator has installed the packages on the workers (``SPM_SPARK_PYTHON`` names that
Python), only the sources travel, with the operator's modules of placement functions. Packages are taken from this
environment, which was installed from the lock files. Enter by ``sources`` and ``packages``; both sides compare
``versions``. Archives are named by their content.
"""

import hashlib
import importlib.metadata
import importlib.util
import platform
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyspark

from spm.errors import Refused
from spm.store import placement

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("spm", "rollups")
_EXTRAS = ("spark", "hbase")
_SPARKS = frozenset({"pyspark", "py4j"})  # a worker's own Spark brings them
_LEFT_OUT = frozenset({"tests", "include", "__pycache__"})  # of packages: a third of their bytes
_COMPARED = ("happybase", "lmdb", "msgspec", "numba", "numpy", "pandas", "pcodec", "pyarrow", "zstandard")


def sources(folder: Path) -> Path:
    """Our sources as an archive in ``folder``, with an operator's modules. Raises ``Refused``."""
    files = [(f.relative_to(ROOT), f) for room in _ROOMS for f in sorted((ROOT / room).rglob("*.py"))]
    files += [(f.relative_to(home), f) for home, files_of in placement_modules().items() for f in files_of]
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(f"{name} {file.stat().st_size} ".encode() + file.read_bytes())
    return _archive(folder, "sources", digest.hexdigest(), files)


def placement_modules() -> dict[Path, list[Path]]:
    """The operator's modules of placement functions: their import folders, and the files in each."""
    folders: dict[Path, list[Path]] = {}
    for top in dict.fromkeys(name.partition(".")[0] for name in placement.modules()):
        spec = importlib.util.find_spec(top)
        if spec is None or spec.origin is None:
            raise Refused(f"the module {top} has no source here", remedy=f"{placement.SETTING} names it.")
        origin = Path(spec.origin).resolve()
        is_package = spec.submodule_search_locations is not None
        home = origin.parents[1] if is_package else origin.parent
        folders.setdefault(home, []).extend(sorted(origin.parent.rglob("*.py")) if is_package else [origin])
    return folders


def packages(folder: Path) -> Path:
    """The packages of the extras that a task needs, as an archive in ``folder``. Raises ``Refused``."""
    names = sorted({name for extra in _EXTRAS for name in _locked(ROOT / "requirements" / f"{extra}.txt")} - _SPARKS)
    distributions, missing = [], []
    for name in names:
        try:
            distributions.append(importlib.metadata.distribution(name))
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise Refused(
            "packages that Spark's workers need are not installed here",
            got=missing,
            remedy="Install the extra `hbase`.",
        )
    text = f"{sys.version_info[:2]} {platform.machine()} " + " ".join(f"{d.name}=={d.version}" for d in distributions)
    return _archive(folder, "packages", hashlib.sha256(text.encode()).hexdigest(), _files(distributions))


def versions() -> dict[str, str]:
    """The versions that must be equal in the driver and in the workers."""
    versions_of = {"python": "{}.{}".format(*sys.version_info), "pyspark": pyspark.__version__}
    for name in _COMPARED:
        try:
            versions_of[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions_of[name] = "missing"
    return versions_of


def _locked(file: Path) -> Iterator[str]:
    """The package names in a lock file, without those of other platforms."""
    for line in file.read_text().splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==[^ ;]+ *(;.*(win32|emscripten).*)?", line)
        if match and not match[2]:
            yield match[1].lower()


def _files(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[tuple[Path, Path]]:
    """Yields (path in the archive, file) of every installed file that is needed to run."""
    for distribution in distributions:
        for name in distribution.files or ():
            if not _LEFT_OUT & set(name.parts) and ".." not in name.parts:
                yield Path(name), Path(str(distribution.locate_file(name)))


def _archive(folder: Path, kind: str, digest: str, files: Iterable[tuple[Path, Path]]) -> Path:
    """Writes the archive of this content if it is missing, and deletes older archives of its kind."""
    place = folder / f"{kind}-{digest[:16]}.zip"
    if place.exists():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(".draft")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, file in files:
            archive.write(file, name)
    draft.replace(place)
    for old in folder.glob(f"{kind}-*.zip"):
        if old != place:
            old.unlink(missing_ok=True)
    return place
