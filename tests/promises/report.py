"""The option ``--seeds``: runs the tests that show a row of the seed systems, and prints a table of them, row by row.

``@pytest.mark.seed(row, compares=…)`` puts a test under a row; the fixture ``figure`` records a number that it
measured. A row without a test is listed as such. Long forms (mark ``proof``) do not run with the others: ``bin/test
--proof`` writes the last figures of each into ``long_forms.json`` beside this file, and the table shows those of its
rows with the day.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.promises.rows import ROWS

LONG_FORMS = Path(__file__).with_name("long_forms.json")
_FIGURE = "figure"


@dataclass(slots=True)
class SeedTest:
    """One test under one row: what it compares, the outcome of each case, what it measured."""

    row: str
    test: str
    compares: str
    cases: dict[str, str] = field(default_factory=dict)  # node id -> outcome
    figures: list[str] = field(default_factory=list)
    long_cases: list[str] = field(default_factory=list)  # node ids of its long forms

    @property
    def outcome(self) -> str:
        """The worst outcome of its cases."""
        outcomes = set(self.cases.values())
        return next((o for o in ("failed", "skipped", "passed") if o in outcomes), "did not run")


_TESTS = pytest.StashKey[dict[tuple[str, str], SeedTest]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", metavar="ROWS", help="only tests of these rows (A12,A13 or all), with a table of them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "seed(row, *, compares): shows a row of tests/promises/rows.py, by comparing this"
    )
    config.stash[_TESTS] = {}


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records what a test measured, for the table of ``--seeds``."""
    return lambda text: request.node.user_properties.append((_FIGURE, text))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Notes each case under its rows, before another plugin deselects the long forms."""
    tests = item.config.stash[_TESTS]
    for mark in item.iter_markers("seed"):
        test = SeedTest(mark.args[0], item.nodeid.partition("[")[0], mark.kwargs["compares"])
        test = tests.setdefault((test.row, test.test), test)
        if item.get_closest_marker("proof"):
            test.long_cases.append(item.nodeid)
        else:
            test.cases[item.nodeid] = ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rows = wanted_rows(config.getoption("--seeds"))
    if rows is None:
        return
    chosen = {case for test in config.stash[_TESTS].values() if test.row in rows for case in test.cases}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def wanted_rows(option: str | None) -> list[str] | None:
    """The rows that ``--seeds`` names; ``None`` without the option. Raises ``UsageError`` for an unknown row."""
    if option is None:
        return None
    names = list(ROWS) if option == "all" else option.upper().split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise pytest.UsageError(
            f"no such rows: {', '.join(unknown)}; there are A1 to A38, A41 to A43, HUT1 to HUT13 and WD1 to WD7"
        )
    return names


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [
        (outcome, report)
        for outcome in ("passed", "skipped", "failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    tests = list(config.stash[_TESTS].values())
    write_long_forms([report for _, report in reports if "proof" in report.keywords], today=_today())
    rows = wanted_rows(config.getoption("--seeds"))
    if rows is None:
        return
    for outcome, report in reports:
        for test in tests:
            if report.nodeid in test.cases:
                test.cases[report.nodeid] = "failed" if outcome == "error" else outcome
                test.figures += _figures(report)
    terminalreporter.section("seeds")
    for line in table(rows, tests, read_long_forms()):
        terminalreporter.write_line(line)


def read_long_forms(path: Path = LONG_FORMS) -> dict[str, dict[str, Any]]:
    """The last run of each long form: node id → day, outcome, minutes, figures."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_long_forms(reports: list[pytest.TestReport], *, today: str, path: Path = LONG_FORMS) -> None:
    """Replaces the entries of the long forms that ran now; the others stay."""
    entries = read_long_forms(path)
    for report in reports:
        if report.when == "call" and not report.skipped:
            entries[report.nodeid] = {
                "day": today,
                "outcome": report.outcome,
                "minutes": round(report.duration / 60, 1),
                "figures": _figures(report),
            }
    if reports:
        path.write_text(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def table(
    rows: list[str], tests: list[SeedTest], long_forms: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[str]:
    """The lines of the report."""
    for row in rows:
        yield f"{row:6} {ROWS[row]}"
        of_row = [test for test in tests if test.row == row]
        if not of_row:
            yield "         no test yet"
        for test in of_row:
            cases = f" × {len(test.cases)}" if len(test.cases) > 1 else ""
            if test.cases:
                yield f"         {test.outcome:7} {test.test}{cases}"
            else:
                yield f"                 {test.test}"
            yield f"                 compares {test.compares}"
            if test.figures:
                yield f"                 {'; '.join(dict.fromkeys(test.figures))}"
            for case in test.long_cases:
                yield f"         long    {_long_form(case, (long_forms or {}).get(case))}"
    with_test = {test.row for test in tests if test.row in rows}
    failed = [
        test.row for test in tests if test.row in rows and test.cases and test.outcome in ("failed", "did not run")
    ]
    yield f"{len(with_test)} of {len(rows)} rows have a test; failing: {', '.join(failed) or 'none'}"


def _long_form(case: str, last: Mapping[str, Any] | None) -> str:
    name = case.rpartition("::")[2]
    if last is None:
        return f"{name}: no run is on record"
    figures = "; ".join(last["figures"]) or "no figure"
    return f"{name}: {last['outcome']} on {last['day']} in {last['minutes']} minutes: {figures}"


def _figures(report: pytest.TestReport) -> list[str]:
    return [str(value) for name, value in report.user_properties if name == _FIGURE]


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
