"""The documents are a site without broken links and orphans, in four kinds, and are found by words."""

import re
from pathlib import Path

import pytest
from django.test import Client

from frontend.help.document_pages import library
from frontend.help.documents import read_library, search

FOLDER = "docs"
KINDS = ["Tutorial", "How-to guides", "Reference", "Explanation"]


def test_every_link_and_anchor_leads_somewhere_and_every_document_is_reached() -> None:
    assert library().problems == []
    assert [kind.title for kind in library().kinds] == KINDS
    assert len(library().documents) > 30


def test_every_page_answers_and_leads_only_to_pages_that_answer(desk: Client) -> None:
    pages = {"/help": desk.get("/help"), **{f"/help/docs/{name}": None for name in library().documents}}
    anchors: dict[str, set[str]] = {}
    links: set[str] = set()
    for address in pages:
        answer = desk.get(address)
        assert answer.status_code == 200, address
        text = answer.content.decode()
        assert "<script>" not in text
        assert "style=" not in text
        anchors[address] = set(re.findall(r'id="([^"]+)"', text))
        links |= set(re.findall(r'href="(/help[^"]*)"', text))
        links |= {f"{address}{each}" for each in re.findall(r'href="(#[^"]+)"', text)}
    for link in sorted(links):
        address, _, anchor = link.partition("#")
        assert desk.get(address).status_code == 200, link
        assert not anchor or anchor in anchors[address], link


def test_a_file_that_no_document_links_to_is_not_read(desk: Client) -> None:
    answer = desk.get("/help/files/docs/send/send.py")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    for name in ("pyproject.toml", "docs/send/../../pyproject.toml", "../../etc/passwd"):
        assert desk.get(f"/help/files/{name}").status_code == 404, name


def test_a_search_names_the_section_and_shows_the_words(desk: Client) -> None:
    hits = [(hit.document.name, hit.section.title) for hit in search(library(), "RETRACT", 40)]
    assert hits.index(("operations", "Take wrong data out, and put it back")) < hits.index(
        ("decisions/query", "Why does the look-back end at a retraction?")
    )
    page = desk.get("/help?q=percentiles").content.decode()
    assert "/help/docs/query-api" in page
    assert "/help/api/percentiles" in page
    assert "No document has these words" in desk.get("/help?q=%00nowhere").content.decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](missing.md)", "docs/README.md: missing.md leads nowhere"),
        ("[a](../../etc/passwd)", "docs/README.md: ../../etc/passwd leads nowhere"),
        ("[a](other.md#nothing)", "docs/README.md: other.md#nothing names no heading"),
        ("nothing", f"{FOLDER}/other.md: no document leads to it"),
    ],
)
def test_a_fault_of_the_documents_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text(f"# Index\n\n{text}\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## A heading\n")
    assert problem in read_library(tmp_path).problems


def test_equal_headings_have_anchors_of_their_own_and_no_html_is_taken(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Index\n\n[a](other.md#two-1)\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Two\n\n## Two\n\n<script>x</script>\n")
    library = read_library(tmp_path)
    assert library.problems == []
    html = library.documents["other"].html
    assert ('id="two"' in html, 'id="two-1"' in html, "<script>" in html) == (True, True, False)


def test_a_wheel_without_documents_still_has_the_operations(tmp_path: Path) -> None:
    assert read_library(tmp_path).documents == {}
