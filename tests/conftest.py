"""What all tests share: which real services must be there, and which are skipped loudly.

A test marked ``real`` calls ``missing_service(reason)`` when its server is missing: under ``SPM_REAL=1`` (continuous
integration) that fails, elsewhere it skips, and the summary of the run names every reason. There too properties are
tried with the same examples each time, and what a busy machine may disturb gets a second try.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from _pytest.nodeid import NodeId

from spm import limits
from spm.accounts.note_writer import process_writer
from tests.support import notes

pytest_plugins = ["tests.servers.fixtures", "tests.promises.report"]

# Continuous integration tries the same examples each time, so that a red one is always the fault of the change it is
# about; new ones are looked for by everybody else, and in the long forms by the hundred thousand.
# No example has a deadline: the first one may load compiled kernels, and the machine may be busy with others.
hypothesis.settings.register_profile("integration", derandomize=True, deadline=None)
hypothesis.settings.register_profile("patient", deadline=None)


def missing_service(reason: str) -> NoReturn:
    """Skip the test because a real service is missing, or fail it where all of them must be there."""
    if os.environ.get("SPM_REAL") == "1":
        pytest.fail(f"{reason} (SPM_REAL=1: it must be there)", pytrace=False)
    pytest.skip(reason)


# No test begins so shortly before an hour, or a day, is over: it would write into one and ask in the next. What happens
# there is the claim of tests with a clock of their own.
HOUR_END_S = 10


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Wait for the next hour in the last seconds of this one."""
    left_s = 3_600 - time.time() % 3_600
    if left_s < HOUR_END_S:
        time.sleep(left_s)


@pytest.fixture(scope="session", autouse=True)
def notes_written_at_once() -> Iterator[None]:
    """What a message leaves to be shown is in the database right after it, without a thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_writer, "wake", notes.write_at_once)
        yield


@pytest.fixture(autouse=True)
def nothing_noted_before() -> None:
    """What this process noted about messages does not outlive a test."""
    notes.forget_notes()


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is read: the address space of a store, the examples of properties, who gives way to others."""
    limits.LMDB_MAP_BYTES = 1 << 36  # of address space: a process of tests opens over a hundred stores
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) >= len(GROUPS):
        os.nice(SHORT_TESTS_NICENESS)
    integration = os.environ.get("SPM_REAL") == "1" and "proof" not in str(config.getoption("-m"))
    hypothesis.settings.load_profile("integration" if integration else "patient")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Name what failed once more at the very end, a short line each: a long message may push all else out of sight."""
    yield
    for report in [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]:
        terminalreporter.write_line(f"FAILED {report.nodeid} ({report.when}, {getattr(report, 'duration', 0.0):.0f} s)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which tests run: those that touch the database, and of tables of cases the first; dashboards to import."""
    parser.addoption("--database", action="store_true", help="only tests that touch the database")
    parser.addoption("--first-cases", action="store_true", help="of a test with a table of cases only the first one")
    parser.addoption("--grafana", type=Path, metavar="FOLDER", help="dashboards of Grafana's, as JSON, to import")


# Marks of heavy tests, in two groups: pytest-xdist gives each group to one of its workers, so that every server and the
# session of Spark are there once, and two heavy tests of one kind never contend. Other people's programs and Chromium
# are of the servers: beside a cluster that starts, a product may stall for seconds.
GROUPS = {"clusters": ("chaos", "spark"), "servers": ("serial", "real", "browser")}
SHORT_TESTS_NICENESS = 5  # of the workers without a group: heavy tests often wait, and are judged by clocks


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long forms to ``bin/test --proof``: they run when ``-m`` names their mark. Keep heavy tests together."""
    for item in items:
        if group := _group_of(item):
            _put_in(item, group, config)
    items.sort(key=lambda item: item.get_closest_marker("late") is not None)
    if "proof" in str(config.getoption("-m")):
        for item in items:  # they take as long as they take, whatever their module allows its short forms
            item.add_marker(pytest.mark.timeout(0), append=False)
        return
    if os.environ.get("SPM_REAL") == "1":
        _give_second_tries(items)
    database_alone = bool(config.getoption("--database"))
    selected = [item for item in items if _is_selected(item, database_alone)]
    if config.getoption("--first-cases"):
        selected = [*{_claim(item): item for item in reversed(selected)}.values()][::-1]
    selected_ids = {*map(id, selected)}
    left_out = [item for item in items if id(item) not in selected_ids]
    config.hook.pytest_deselected(items=left_out)
    items[:] = selected


def _is_selected(item: pytest.Item, database_alone: bool) -> bool:
    if item.get_closest_marker("proof") is not None:
        return False
    return not database_alone or (_touches_database(item) and item.get_closest_marker("xdist_group") is None)


def _claim(item: pytest.Item) -> str:
    """A test without the case that it is tried with."""
    return item.nodeid.partition("[")[0]


def _group_of(item: pytest.Item) -> str:
    """The name of its group; empty for a test that either worker may run."""
    return next((name for name, marks in GROUPS.items() if any(map(item.get_closest_marker, marks))), "")


def _give_second_tries(items: list[pytest.Item]) -> None:
    """Let tests that a busy machine may disturb fail once; the summary names them. No test about data is among them."""
    for item in items:
        if any(item.get_closest_marker(mark) for mark in ("timed", "browser")):
            item.add_marker(pytest.mark.flaky(reruns=1))


def _put_in(item: pytest.Item, group: str, config: pytest.Config) -> None:
    """Mark an item's group. pytest-xdist 3.8 tells its scheduler by an attribute that pytest 9 reads no more."""
    item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput") and getattr(config.option, "loadgroup", False):
        item._id = NodeId.parse(f"{item.nodeid}@{group}")


def _touches_database(item: pytest.Item) -> bool:
    if item.get_closest_marker("one_database"):
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(item.get_closest_marker("django_db") or fixtures & {"db", "transactional_db"})
