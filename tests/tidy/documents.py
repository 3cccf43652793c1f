"""Reads the documents of the project: links, code paths, decisions, the glossary and the words that it bans.

Enter by ``read_glossary`` and ``banned``. Nothing here asserts; ``tests/tidy/test_documents.py`` does.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("spm", "ingest", "rollups", "alerts", "frontend")
DOCUMENTS = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
_TICKED = re.compile(r"`([^`\n]+)`")
_CODE_PATH = re.compile(
    r"(?:spm|ingest|rollups|alerts|frontend|tests|docs|bin|deploy|\.ci|requirements)(?:/[\w.-]+)+/?"
)
# Public names that keep an old word for a while or for good: they are no use of the banned word.
_PUBLIC = re.compile(
    r"manage(?:\.py)? (?:shred|tidy|erase)\b|`{1,2}(?:shred|tidy|erase)\b|commands\.shred"  # former commands
    r"|letterbox|letter_box|LetterBox|accountbook|AccountBook"  # former proxy models: migrations and admin addresses
    r"|spm_standing_\w+|\"turns\"|tests/tidy|tests\.tidy|\$environment/doors|doors/dev|``doors``"  # metric, files
)


@dataclass(frozen=True, slots=True)
class GlossaryRow:
    """One line of the glossary."""

    terms: str
    where: str
    banned: tuple[str, ...]


def read_glossary() -> list[GlossaryRow]:
    """Return the lines of the glossary in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Glossary", 1)[1]
    rows = []
    for line in text.splitlines():
        if line.startswith("| **"):
            terms, _, where, words = (cell.strip() for cell in line.strip().strip("|").split("|"))
            rows.append(GlossaryRow(terms, where, tuple(_TICKED.findall(words))))
    return rows


def banned_words() -> list[str]:
    """Return every banned word or phrase: those of the glossary's last column, and those of the line below it."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    prose = re.search(r"^Nowhere in prose: (.*?)\n(?:\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert prose is not None
    return [*(word for row in read_glossary() for word in row.banned), *_TICKED.findall(" ".join(prose[1].split()))]


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """One alternative per phrase. Words are whole words; ``*`` at the end of one stands for any ending."""
    phrases = [re.escape(word.lower()).replace(r"\*", r"\w*").replace(r"\ ", " ") for word in words]
    ends = [phrase if phrase.endswith((",", r"\.")) else phrase + r"(?!\w)" for phrase in phrases]
    return re.compile(r"(?<!\w)(?:" + "|".join(f"({phrase})" for phrase in ends) + ")")


def banned(text: str) -> list[str]:
    """Return the banned words that a text uses, once for each use; identifiers count as the words they are made of."""
    plain = _PUBLIC.sub(" ", text)
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", plain).replace("_", " ")
    plain = re.sub(r"\s+(?:# )?", " ", plain).lower()
    words = tuple(word for word, begin in _banned_begins() if begin in plain)  # a pattern of all would take far longer
    if not words:
        return []
    return [words[match.lastindex - 1] for match in _pattern(words).finditer(plain) if match.lastindex]


@cache
def _banned_begins() -> list[tuple[str, str]]:
    """Return every banned word or phrase, and what stands before its first ``*``."""
    return [(word, word.lower().partition("*")[0]) for word in banned_words()]


def readable_files() -> Iterator[tuple[str, Path]]:
    """Yield each file whose words count, with its room: code, templates, page scripts, documents, scripts."""
    for room in (*PRODUCT, "tests"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix not in (".py", ".html", ".js", ".md", ".test") or not path.is_file():
                continue
            if not {"migrations", "vendor", "__pycache__", "recorded"} & set(path.parts):
                yield _room(path.relative_to(ROOT)), path
    for path in DOCUMENTS:
        if path.name != "CHANGELOG.md":  # it names what was
            yield "documents", path
    for path in (ROOT / ".env.example", ROOT / "pyproject.toml", *sorted((ROOT / "bin").iterdir())):
        yield "scripts", path


def _room(path: Path) -> str:
    """``spm/store``, ``spm/query``, ``spm/accounts`` and ``ingest/agent`` are rooms of their own."""
    first, second = path.parts[0], path.parts[1]
    if (first, second) in {("spm", "store"), ("spm", "query"), ("spm", "accounts"), ("ingest", "agent")}:
        return f"{first}/{second}"
    return first


def banned_by_room() -> Counter[tuple[str, str]]:
    """Count each banned word in each room. What this file and ARCHITECTURE.md list is no use of them."""
    counts: Counter[tuple[str, str]] = Counter()
    for room, path in readable_files():
        text = path.read_text()
        if path.name == "ARCHITECTURE.md":
            text = text.split("## Glossary", 1)[0]
        if path.parent.name != "tidy" or not path.name.endswith("documents.py"):
            counts.update((word, room) for word in banned(text))
    return counts


@cache
def defined_names() -> frozenset[str]:
    """Return every name that the product defines: modules, classes, functions, constants, fields."""
    names: set[str] = set()
    for room in PRODUCT:
        for path in (ROOT / room).rglob("*.py"):
            names.add(path.stem)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    names.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
    return frozenset(names)


def missing_places(where: str, tables: frozenset[str]) -> list[str]:
    """Return what a glossary line names in its third column and the code does not have."""
    missing = []
    for table, name in re.findall(r"(table )?`([^`]+)`", where):
        if table:
            exists = name in tables
        elif "/" in name:
            exists = (ROOT / name).exists()
        else:
            exists = name in defined_names()
        if not exists:
            missing.append(name)
    return missing


def broken_links(path: Path) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
    return [target for target in targets if not (path.parent / target).exists()]


def missing_code_paths(text: str) -> list[str]:
    """Return the paths that a text names in ticks and that do not exist."""
    ticked = [name for name in _TICKED.findall(text) if _CODE_PATH.fullmatch(name)]
    return [name for name in ticked if not (ROOT / name).exists()]


def unknown_names(text: str, foreign: frozenset[str]) -> list[str]:
    """Return the class and constant names in ticks that the product does not define."""
    names = [n for n in _TICKED.findall(text) if re.fullmatch(r"(?:[A-Z][a-z0-9]+)+|[A-Z]+(?:_[A-Z]+)+", n)]
    return [n for n in names if n not in defined_names() and n not in foreign and not n.startswith("SPM_")]


def decisions(text: str) -> list[tuple[str, int]]:
    """Return each decision of a page: its heading, and how many lines stand below it."""
    parts = re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [(heading, sum(bool(line.strip()) for line in body.splitlines())) for heading, body in parts]
