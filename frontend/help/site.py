"""The documents as a site of files that any web server, or a folder opened by a browser, can show.

Links are relative, styles are the product's own, nothing comes from another host, and no script or style stands in a
page. The search reads an index that lies beside the pages. Enter by ``write_site``.
"""

import posixpath
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

from frontend.help.documents import Library

_STATIC = (
    *("css/site.css", "css/help.css", "js/help_search.js", "img/mark.svg"),
    "vendor/pico/pico.css",
)
_INDEX = "search_index.js"


def write_site(library: Library, folder: Path) -> Sequence[str]:
    """Write all pages into a folder, which is made if it is not there; return their paths in it."""
    for name in _STATIC:
        _copy(Path(str(finders.find(name))), folder / "static" / name)
    for name, path in library.files.items():
        _copy(path, folder / "files" / f"{name}.txt")
    pages: dict[str, Mapping[str, Any]] = {"index.html": {"kinds": library.kinds}}
    for name, document in library.documents.items():
        pages[f"docs/{name}.html"] = {"kinds": library.kinds, "document": document}
    for address, context in pages.items():
        target = folder / address
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_page(address, context))
    (folder / _INDEX).write_text(_search_index(library))
    return list(pages)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _page(address: str, context: Mapping[str, Any]) -> str:
    root = posixpath.relpath(".", posixpath.dirname(address) or ".")
    html = render_to_string("frontend/help/site.html", {**context, "root": root, "index": _INDEX})
    return re.sub(r'(href|src)="/help([^"]*)"', lambda match: f'{match[1]}="{root}/{_file(match[2])}"', html)


def _file(address: str) -> str:
    """Return the file that has what the product answers at an address below ``/help``."""
    path, mark, anchor = address.strip("/").partition("#")
    ending = ".txt" if path.startswith("files/") else ".html"
    return f"{path or 'index'}{ending}{mark}{anchor}"


def _search_index(library: Library) -> str:
    """Return a script that sets the index: of each section its file, title and text."""
    rows = [
        (
            _file(f"docs/{document.name}#{section.anchor}").rstrip("#"),
            _title(document.title, section.title),
            section.text,
        )
        for document in library.documents.values()
        for section in document.sections
    ]
    return f"globalThis.searchIndex = {orjson.dumps(rows).decode()};\n"


def _title(document: str, section: str) -> str:
    return document if document == section else f"{document} › {section}"
