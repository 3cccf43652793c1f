"""What all tests share: which real services must be there, and which are skipped loudly.

A test marked ``real`` calls ``missing_service(reason)`` when its server is missing: under ``SPM_REAL=1`` (continuous
integration) that fails, elsewhere it skips, and the summary of the run names every reason.
"""

import os
from typing import NoReturn

import pytest

pytest_plugins = ["tests.stack.fixtures", "tests.seeds.report"]


def missing_service(reason: str) -> NoReturn:
    """Skip the test because a real service is missing, or fail it where all of them must be there."""
    if os.environ.get("SPM_REAL") == "1":
        pytest.fail(f"{reason} (SPM_REAL=1: it must be there)", pytrace=False)
    pytest.skip(reason)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--database``: only the tests that touch the database, to run them again on another one."""
    parser.addoption("--database", action="store_true", help="only tests that touch the database")


HEAVY = ("serial", "real", "browser", "spark", "chaos")  # marks of tests that share the machine with short ones only


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long forms to ``bin/test --proof`` (they run only when ``-m`` names their mark); keep heavy tests together.

    Under pytest-xdist all heavy tests go to one worker, one after another, with one Spark session and one of each
    server; the other worker runs the rest meanwhile.
    """
    for item in items:
        if any(item.get_closest_marker(mark) for mark in HEAVY):
            item.add_marker(pytest.mark.xdist_group("heavy"))
    if "proof" in str(config.getoption("-m")):
        return
    kept = [item for item in items if item.get_closest_marker("proof") is None]
    if config.getoption("--database"):
        kept = [item for item in kept if _touches_database(item) and item.get_closest_marker("xdist_group") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _touches_database(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(item.get_closest_marker("django_db") or fixtures & {"db", "transactional_db"})
