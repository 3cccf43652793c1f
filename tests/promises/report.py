"""The option ``--seeds``: runs the tests that show a row of the seed systems, and prints row by row what they found.

``@pytest.mark.seed(row, compares=…)`` puts a test under a row; the fixture ``figure`` notes the number it found. A
row without a test is listed as such. Without the option nothing here changes a run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.promises.rows import ROWS

_FIGURE = "figure"


@dataclass(slots=True)
class Shown:
    """One test under one row: what it compares, how it went, what it measured."""

    row: str
    test: str
    compares: str
    cases: dict[str, str] = field(default_factory=dict)  # node id -> outcome
    figures: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """Of all its cases together."""
        found = set(self.cases.values())
        return next((o for o in ("failed", "skipped", "passed") if o in found), "did not run")


_SHOWN = pytest.StashKey[dict[tuple[str, str], Shown]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", metavar="ROWS", help="only tests of these rows (A12,A13 or all), with a table of them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "seed(row, *, compares): shows a row of tests/promises/rows.py, by comparing this"
    )
    config.stash[_SHOWN] = {}


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes what a test measured, for the table of ``--seeds``."""
    return lambda text: request.node.user_properties.append((_FIGURE, text))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = wanted_rows(config.getoption("--seeds"))
    if wanted is None:
        return
    kept = []
    for item in items:
        found = [mark for mark in item.iter_markers("seed") if mark.args[0] in wanted]
        for mark in found:
            shown = Shown(mark.args[0], item.nodeid.partition("[")[0], mark.kwargs["compares"])
            config.stash[_SHOWN].setdefault((shown.row, shown.test), shown).cases[item.nodeid] = ""
        if found:
            kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def wanted_rows(option: str | None) -> list[str] | None:
    """The rows that ``--seeds`` names; ``None``: it was not given. Raises ``UsageError`` for a row that is none."""
    if option is None:
        return None
    names = list(ROWS) if option == "all" else option.upper().split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise pytest.UsageError(
            f"no such rows: {', '.join(unknown)}; there are A1 to A35, HUT1 to HUT13 and WD1 to WD7"
        )
    return names


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    wanted = wanted_rows(config.getoption("--seeds"))
    if wanted is None:
        return
    shown = config.stash[_SHOWN]
    for outcome in ("passed", "skipped", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            for item in shown.values():
                if isinstance(report, pytest.TestReport) and report.nodeid in item.cases:
                    item.cases[report.nodeid] = "failed" if outcome == "error" else outcome
                    item.figures += [str(value) for name, value in report.user_properties if name == _FIGURE]
    terminalreporter.section("seeds")
    for line in table(wanted, list(shown.values())):
        terminalreporter.write_line(line)


def table(wanted: list[str], shown: list[Shown]) -> Iterator[str]:
    """The lines of the report."""
    for row in wanted:
        yield f"{row:6} {ROWS[row]}"
        mine = [item for item in shown if item.row == row]
        if not mine:
            yield "         no test yet"
        for item in mine:
            cases = f" × {len(item.cases)}" if len(item.cases) > 1 else ""
            yield f"         {item.outcome:7} {item.test}{cases}"
            yield f"                 compares {item.compares}"
            if item.figures:
                yield f"                 {'; '.join(dict.fromkeys(item.figures))}"
    with_test = {item.row for item in shown}
    failed = [item.row for item in shown if item.outcome in ("failed", "did not run")]
    yield f"{len(with_test)} of {len(wanted)} rows have a test; failing: {', '.join(failed) or 'none'}"
