"""What is not checked is not style: the rules of ``tests/tidy`` over the whole tree, the linters, the lock files."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.rules import ALL, Rule, Source
from tests.tidy.shelves import SKIPS_MAX, circles, overfull_folders

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("spm", "ingest", "rollups", "alerts", "frontend", "tests")
REQUIREMENTS = (
    "server",
    "agent",
    "spark",
    "hbase",
    "amqp",
    "postgres",
    "cli",
    "dev",
    "clients",
    "release",
    "java",
    "node",
)

BAD = {
    "short_files": ("spm/x.py", "x = 1\n" * 501),
    "short_functions": ("spm/x.py", "def f():\n" + "    x = 1\n" * 60),
    "module_docstrings": ("spm/x.py", "x = 1\n"),
    "libraries_are_imported_in_one_place": ("ingest/x.py", "from lmdb import Environment\n"),
    "one_clock": ("alerts/x.py", "from django.utils import timezone\nnow = timezone.now()\n"),
    "no_import_in_functions": ("spm/x.py", "def f():\n    import os\n"),
    "pure_files": ("rollups/decide/plan.py", "from django.db import models\n"),
    "entry_points_do_not_decide": ("alerts/tasks.py", "def f(a):\n" + "    if a:\n        pass\n" * 3),
    "no_signals_no_save": ("ingest/models.py", "class M:\n    def save(self): ...\n"),
    "frozen_values": ("spm/x.py", "@dataclass(frozen=True)\nclass A: ...\n"),
    "claims": ("tests/x.py", "def test_it_works(): ...\n"),
    "loops_of_tests": ("tests/x.py", "import asyncio\nasyncio.run(act())\n"),
    "names_of_values": ("spm/x.py", "def f(rows):\n    found = list(rows)\n    return found\n"),
    "plain_patterns": ("spm/x.py", 'import re\nX = re.compile(rb"(?:a|b)*+c")\n'),
    "rights_and_not_roles": ("alerts/x.py", "from spm.accounts.models import Role\n"),
    "finished": ("spm/x.py", "# TO" + "DO later\n"),
}


def _files() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def _tree() -> Iterator[Source]:
    for path, text in _files():
        yield Source(path, text, ast.parse(text))


@cache
def _complaints() -> dict[Rule, list[str]]:
    """Return what each rule complains about in the tree; a file is parsed once for all of them."""
    complaints: dict[Rule, list[str]] = {rule: [] for rule in ALL}
    for source in _tree():
        for rule in ALL:
            complaints[rule] += rule(source)
    return complaints


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule.__name__))
def test_tree_keeps_every_rule_of_the_house(rule: Rule) -> None:
    assert _complaints()[rule] == []


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: str(rule.__name__))
def test_rule_complains_about_a_bad_example(rule: Rule) -> None:
    path, text = BAD[rule.__name__]
    assert list(rule(Source(path, text, ast.parse(text)))) != []


def test_no_folder_holds_more_files_than_a_reader_takes_in() -> None:
    paths = (path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    assert overfull_folders(paths) == {}
    assert overfull_folders([f"spm/x{n}.py" for n in range(15)] + ["spm/__init__.py", "spm/y/z.py"]) == {"spm": 15}


def test_no_siblings_of_a_folder_import_each_other_in_a_circle() -> None:
    assert circles(_tree()) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a/b.py": "import a.c", "a/c.py": "from a.b import x"}, ["a: b → c → b", "a: c → b → c"]),
        (
            {"a/b/d.py": "from a.c import e", "a/c/e.py": "", "a/c/f.py": "from a.b import d"},
            ["a: b → c → b", "a: c → b → c"],
        ),
    ],
    ids=["of files", "of packages, though no two files do"],
)
def test_a_circle_of_siblings_is_found(files: dict[str, str], expected: list[str]) -> None:
    complaints = circles(Source(path, text, ast.parse(text)) for path, text in files.items())
    assert len(complaints) == 1
    assert complaints[0] in expected


def test_few_lines_are_kept_from_the_formatter() -> None:
    mark = "fmt: " + "skip"
    assert sum(text.count(mark) for _, text in _files()) <= SKIPS_MAX


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("spm.store.backends", "django celery pyspark"),
        ("spm.query.promql.engine", "django celery pyspark"),
        ("spm.query.view.view", "django celery pyspark"),
        ("ingest.protocols", "django celery pyspark"),
        ("ingest.accept.stamper", "django celery pyspark"),
        ("rollups.compute.task", "django celery pyspark"),
        ("rollups.decide.plan", "django celery pyspark"),
        ("ingest.agent", "django celery numpy pyspark"),
    ],
)
def test_module_loads_without_what_must_be_absent(module: str, absent: str) -> None:
    code = f"import sys, {module}; print([n for n in {absent.split()} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_locked_requirements_name_hashes_and_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pinned = re.findall(r"^[\w.\[\]-]+==\S+(?: ;[^\\]*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^\w", text, re.MULTILINE)) > 0
    assert "://" not in text


def test_locked_requirements_agree_on_every_version() -> None:
    versions: dict[str, set[str]] = {}
    for file in REQUIREMENTS:
        text = (ROOT / "requirements" / f"{file}.txt").read_text()
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE):
            versions.setdefault(name, set()).add(version)
    assert {name: pins for name, pins in versions.items() if len(pins) > 1} == {}


def test_page_libraries_are_locked_by_hash_without_host() -> None:
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    entries = [entry for name, entry in locked.items() if name]
    assert all("integrity" in entry and "resolved" not in entry for entry in entries)


def test_example_environment_documents_every_setting() -> None:
    code = "".join(path.read_text() for path in (ROOT / "spm" / "settings").glob("*.py"))
    read = {"SPM_BIND", "SPM_WEB_PROCESSES"} | set(re.findall(r'(?:env\.\w+|secret)\(\s*"([A-Z_]+)"', code)) - {
        "SPM_DOTENV"
    }
    documented = set(re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert read == documented


def test_limits_each_give_their_reason() -> None:
    text = (ROOT / "spm" / "limits.py").read_text()
    lines = text.splitlines()
    spans = [(n.lineno, n.end_lineno) for n in ast.parse(text).body if isinstance(n, ast.Assign)]
    assert [lines[first - 1] for first, last in spans if "# " not in "".join(lines[first - 1 : last])] == []


def _clean(*command: str) -> str:
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    program = [sys.executable, "-m", *command]
    done = subprocess.run(program, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff_finds_nothing_to_change() -> None:
    assert _clean("ruff", "check", "--quiet", ".") == ""


def test_import_contracts_hold_between_rooms() -> None:
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_types_are_right_under_strict_mypy() -> None:
    assert _clean("mypy", "--no-error-summary") == ""
