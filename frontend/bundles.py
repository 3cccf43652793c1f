"""Scripts and styles as they are served: bundled and minified by esbuild, then hashed and compressed.

``collectstatic`` builds, from the files that it finds and without a network: what several pages share becomes a chunk,
so that a page loads a few files and a browser keeps them. Development and most tests use the plain files, whose names
are the same; the tag ``script`` writes what a page loads of either. Enter by ``BundledStaticFiles``.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage, Storage

from spm.web.static_files import HashedStaticFiles

SCRIPTS = ("shell", "live", "panels", "explore", "dashboard", "dashboard_edit", "copy", "first_token", "text_file")
STYLES = ("css/site.css", "css/account.css", "css/help.css", "alerts/alerts.css")
_ENTRIES = (*(f"js/{name}.js" for name in SCRIPTS), *STYLES)
_NOTE = "bundles.json"  # beside the manifest: which files each script imports
_OPTIONS = (
    *("--bundle", "--minify", "--splitting", "--format=esm", "--target=es2022", "--charset=utf8"),
    *("--sourcemap=linked", "--legal-comments=eof", "--log-level=warning"),
    *("--outbase=source", "--outdir=made", "--metafile=made.json", "--chunk-names=js/[name]-[hash]"),
)

Paths = dict[str, tuple[Storage, str]]


class BundledStaticFiles(HashedStaticFiles):
    """Static files of which those that pages load are bundled; ``imports_of`` says what a script loads besides."""

    def post_process(self, paths: Paths, dry_run: bool = False, **options: Any) -> Iterator[Any]:
        """Build the bundles, and go on with them in the place of their sources."""
        if dry_run:
            return
        with tempfile.TemporaryDirectory() as work:
            built = build(paths, Path(work))
            for name in built.sources:
                paths.pop(name, None)
            for name in built.files:
                target = Path(self.path(name))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(built.folder / name, target)
                paths[name] = (FileSystemStorage(built.folder), name)
            Path(self.path(_NOTE)).write_bytes(orjson.dumps(built.imports, option=orjson.OPT_SORT_KEYS))
            yield from super().post_process(paths, dry_run, **options)

    def imports_of(self, name: str) -> Sequence[str]:
        """The files that a script imports, directly or by others, so that a page can ask for all at once."""
        if self._imports is None:
            self._imports = orjson.loads(Path(self.path(_NOTE)).read_bytes())
        return self._imports.get(name, ())

    _imports: Mapping[str, Sequence[str]] | None = None


class Built:
    """What one run of esbuild made: its files below ``folder``, and the sources that are in them."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "made"
        report = orjson.loads((work / "made.json").read_bytes())
        outputs = {name.removeprefix("made/"): output for name, output in report["outputs"].items()}
        self.files = sorted(outputs)
        self.sources = sorted(name.removeprefix("source/") for name in report["inputs"])
        direct = {
            name: [each["path"].removeprefix("made/") for each in output["imports"] if _is_at_once(each)]
            for name, output in outputs.items()
        }
        self.imports = {name: _reached(name, direct) for name in _ENTRIES if name.endswith(".js")}


def build(paths: Paths, work: Path) -> Built:
    """Bundle the entries among these files, in the empty folder ``work``; the same files give the same bytes.

    Raises ``ImproperlyConfigured`` when esbuild is not installed, or refuses a file.
    """
    for name, (storage, path) in paths.items():
        if name.endswith((".js", ".css")):
            target = work / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(storage.path(path), target)
    command = [str(_esbuild()), *_OPTIONS, *(f"source/{name}" for name in _ENTRIES)]
    done = subprocess.run(
        command, cwd=work, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ImproperlyConfigured(f"esbuild could not bundle the pages' files:\n{done.stderr}")
    return Built(work)


def _esbuild() -> Path:
    """The program of this platform: npm installs that alone, and it needs no Node."""
    folder = settings.SPM_ROOT / "node_modules" / "@esbuild"
    program = next(folder.glob("*/bin/esbuild"), None)
    if program is None:
        raise ImproperlyConfigured(f"{folder} has no esbuild. Run bin/manage once; it installs what is missing.")
    return program


def _is_at_once(imported: Mapping[str, Any]) -> bool:
    return imported["kind"] == "import-statement" and not imported.get("external", False)


def _reached(name: str, direct: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """All files that ``name`` imports, the nearest first."""
    imports: list[str] = []
    waiting = [name]
    while waiting:
        new = [each for each in direct.get(waiting.pop(0), ()) if each not in imports]
        imports += new
        waiting += new
    return imports
