"""The documents are short, their links and paths exist, and one vocabulary holds in them and in the code."""

import re
from pathlib import Path

import pytest

from frontend.pages.registry import PAGES as SITE_PAGES
from spm.store import keys
from tests.tidy import documents
from tests.tidy.documents import DOCUMENTS, ROOT

PAGES = ROOT / "docs"
DECISIONS = sorted(path for path in (PAGES / "decisions").glob("*.md") if path.name != "README.md")
FOREIGN = frozenset({"SO_RCVLOWAT"})  # names in the documents that others define


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(("name", "most"), [("ARCHITECTURE.md", 200), ("README.md", 150)])
def test_front_pages_stay_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= most


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert documents.broken_links(path) == []


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=_name)
def test_every_code_path_in_a_document_exists(path: Path) -> None:
    assert documents.missing_code_paths(path.read_text()) == []


def test_every_document_that_code_cites_exists() -> None:
    cited = {
        name
        for room, path in documents.readable_files()
        if room != "documents" and path.parent.name != "tidy"
        for name in re.findall(r"(?<![\w/.])(?:docs/[\w/-]+|ARCHITECTURE|CHANGELOG|README)\.md", path.read_text())
    }
    assert len(cited) > 5
    assert [name for name in sorted(cited) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", [ROOT / "ARCHITECTURE.md", *DECISIONS], ids=_name)
def test_every_class_and_limit_that_is_explained_exists(path: Path) -> None:
    assert documents.unknown_names(path.read_text(), FOREIGN) == []


@pytest.mark.parametrize("path", DECISIONS, ids=_name)
def test_every_decision_answers_a_question_in_few_lines(path: Path) -> None:
    listed = documents.decisions(path.read_text())
    assert listed != []
    assert [heading for heading, lines in listed if not heading.endswith("?") or not 0 < lines <= 12] == []


@pytest.mark.parametrize("folder", [PAGES, PAGES / "decisions"], ids=_name)
def test_an_index_lists_every_page_below_its_folder(folder: Path) -> None:
    index = (folder / "README.md").read_text()
    pages = [path.relative_to(folder).as_posix() for path in folder.rglob("*.md") if path.name != "README.md"]
    assert [name for name in pages if f"]({name})" not in index and not name.startswith("decisions/")] == []


def test_every_management_command_is_documented() -> None:
    page = (PAGES / "reference" / "commands.md").read_text()
    rooms = (path for room in documents.PRODUCT for path in (ROOT / room).rglob("management/commands/*.py"))
    names = {path.stem for path in rooms if path.stem != "__init__"}
    assert sorted(name for name in names if not re.search(rf"`{name}[ `]", page)) == []


def test_every_setting_is_listed_once() -> None:
    listed = re.findall(r"`([A-Z]+_[A-Z_]+)`(?=,| \|)", (PAGES / "reference" / "settings.md").read_text())
    example = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(example)


def test_every_long_test_that_is_listed_exists() -> None:
    names = re.findall(r"^\| `(\w+)` \|", (PAGES / "proofs.md").read_text(), re.MULTILINE)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in names if not re.search(rf"def test_\w*{name}", tests)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_every_page_of_the_site_that_a_document_names_exists(path: Path) -> None:
    titles = {"Placements", *(page.title for page in SITE_PAGES), *(page.tab for page in SITE_PAGES)}
    named = re.findall(r'\bpages?\s+"([^"]+)"', path.read_text())
    assert [name for names in named for name in re.split(r"\s*›\s*", names) if name not in titles] == []


def test_every_glossary_term_is_a_name_of_the_code() -> None:
    rows = documents.read_glossary()
    tables = frozenset(keys.TABLES)
    assert len(rows) > 50
    assert {row.terms: gone for row in rows if (gone := documents.missing_places(row.where, tables))} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def weave_hours(): ...", ["weave*"]),
        ("class SheafOfPages: ...", ["sheaf"]),
        ("# Whoever asks gets\n# the answer in\n# words.", ["whoever", "in words."]),
        ("any(word in words for word in names)", []),
        ("a door, doors; no indoor", ["door", "doors"]),
        ("every flipped bit, a histogram's bucket, a hash slot", []),
    ],
)
def test_a_banned_word_is_found_in_names_and_prose(text: str, expected: list[str]) -> None:
    assert documents.banned(text) == expected


def test_no_banned_word_is_used() -> None:
    assert documents.banned_by_room() == {}
