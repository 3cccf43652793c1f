"""The documents as a site of files: links lead to files, nothing comes from elsewhere, and faults stop the command."""

import json
import posixpath
import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from frontend.help.document_pages import library


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the documents as they are."""
    folder = tmp_path_factory.mktemp("site")
    call_command("docs", str(folder), verbosity=0)
    return folder


def test_every_link_of_every_page_leads_to_a_file_and_an_anchor(site: Path) -> None:
    pages = {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.html")}
    assert len(pages) == len(library().documents) + 1
    for address, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(address), path)) if path else address
            assert (site / target).is_file(), (address, link)
            assert not anchor or f'id="{anchor}"' in pages[target], (address, link)


def test_pages_load_nothing_from_elsewhere_and_hold_no_script(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//', text) == [], page
        assert re.findall(r"<style|<script>|\sstyle=", text) == [], page


def test_the_index_of_the_search_has_every_section(site: Path) -> None:
    text = (site / "search_index.js").read_text()
    rows = json.loads(text.removeprefix("globalThis.searchIndex = ").rstrip(";\n"))
    assert len(rows) == sum(len(document.sections) for document in library().documents.values())
    assert ["docs/store/protocol.html#17-retract", "The storage protocol › 17. Retract"] in [row[:2] for row in rows]


def test_a_link_that_leads_nowhere_stops_the_command(tmp_path: Path, settings: object) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Index\n\n[a](missing.md)\n")
    settings.SPM_ROOT = tmp_path  # type: ignore[attr-defined]  # pytest-django's own wrapper
    with pytest.raises(CommandError, match=r"docs/README\.md: missing\.md leads nowhere"):
        call_command("docs", str(tmp_path / "site"))
    assert not (tmp_path / "site").exists()
