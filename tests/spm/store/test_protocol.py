"""Claims about spm/store/PROTOCOL.md: each rule has its tests, and every citation names a rule that exists.

A rule is a heading ``## 14. Publish``. Its text ends with ``Tests:``, the tests that fail without it, and often with
``Off:``, the switches of tests/model that break it. Code cites a rule as ``PROTOCOL 14``, a step of it as
``PROTOCOL 22b``, several rules as ``PROTOCOL 14, 16`` or ``PROTOCOL 9–11``.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("spm", "ingest", "rollups", "alerts", "frontend", "tests", "bin")
KINDS = {".py", ".sh", ".md", ".html", ".js", ".txt", ""}
SWITCHES = ("tests/model/rules_off", "tests/model/accept")  # folders with the tables of ``Rule`` and ``Off``

_HEADING = re.compile(r"^## (\d+)\. .+$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[^`]+\.py)::(\w+)`")
_CITATION = re.compile(r"\bPROTOCOL[\s#]+(\d+[a-z]?(?:(?:, ?|–)\d+[a-z]?)*)")
_OLD_CITATION = re.compile(r"\b[Rr]ules? (?:of DESIGN|\d+)")


@dataclass(frozen=True, slots=True)
class ProtocolRule:
    """One rule: its number, its text, the tests that prove it and the switches that break it."""

    number: int
    text: str
    tests: tuple[tuple[str, str], ...]
    switches: tuple[str, ...]


@cache
def protocol() -> str:
    return (ROOT / "spm/store/PROTOCOL.md").read_text()


def read_rules(text: str) -> dict[int, ProtocolRule]:
    parts = _HEADING.split(text.partition("\n# What follows")[0])[1:]
    rules = {}
    for number, body in zip(parts[::2], parts[1::2], strict=True):
        text, _, lists = body.partition("\nTests:")
        tests, _, switches = lists.partition("\nOff:")
        rules[int(number)] = ProtocolRule(
            int(number), text, tuple(_TEST.findall(tests)), tuple(re.findall(r"`([^`]+)`", switches))
        )
    return rules


RULES = read_rules(protocol())


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of all product and test code."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.is_file() and path.suffix in KINDS and path != Path(__file__) and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def cited(text: str) -> Iterator[str]:
    """Every rule or step that a text cites; a range yields each of its rules."""
    for numbers in _CITATION.findall(text):
        for part in re.split(r", ?", numbers):
            first, _, last = part.partition("–")
            yield from map(str, range(int(first), int(last) + 1)) if last else (first,)


def exists(citation: str) -> bool:
    number, step = re.fullmatch(r"(\d+)([a-z]?)", citation).groups()  # type: ignore[union-attr]
    return int(number) in RULES and (not step or f"({step})" in RULES[int(number)].text)


@cache
def functions(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.exists():
        return frozenset()
    return frozenset(node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))


@cache
def switches() -> frozenset[str]:
    """The names in the tables: the first argument of every ``Rule(…)`` and ``Off(…)``."""
    calls = (
        node
        for folder in SWITCHES
        for path in (ROOT / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Rule", "Off"}
    )
    return frozenset(str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant))


def test_the_rules_are_numbered_from_1_to_26() -> None:
    assert list(RULES) == list(range(1, 27))


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: str(rule.number))
def test_a_rule_names_at_least_one_test(rule: ProtocolRule) -> None:
    assert rule.tests


@pytest.mark.parametrize(("path", "name"), sorted(set(_TEST.findall(protocol()))))
def test_a_test_that_the_protocol_names_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_every_switch_that_the_protocol_names_exists() -> None:
    assert {name for rule in RULES.values() for name in rule.switches} - switches() == set()


def test_every_cited_rule_exists() -> None:
    assert [(path, c) for path, text in sources() for c in cited(text) if not exists(c)] == []


def test_no_rule_is_cited_by_its_bare_number() -> None:
    assert [(path, m[0]) for path, text in sources() for m in _OLD_CITATION.finditer(text)] == []


@pytest.mark.parametrize(
    ("text", "citations"),
    [
        ("as PROTOCOL 14 says", ["14"]),
        ("(PROTOCOL 9–11, 22b)", ["9", "10", "11", "22b"]),
        ("# moved, PROTOCOL\n# 16", ["16"]),
        ("the protocol of 14 rules", []),
    ],
)
def test_citations_are_found_in_any_form(text: str, citations: list[str]) -> None:
    assert list(cited(text)) == citations


@pytest.mark.parametrize(
    ("citation", "there"), [("22b", True), ("26", True), ("0", False), ("27", False), ("1b", False)]
)
def test_a_citation_of_no_rule_is_not_taken_for_one(citation: str, there: bool) -> None:
    assert exists(citation) is there
