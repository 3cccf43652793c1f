"""What all tests share: which real services must be there, and which are skipped loudly.

A test marked ``real`` calls ``missing_service(reason)`` when its server is missing: under ``SPM_REAL=1`` (continuous
integration) that fails, elsewhere it skips, and the summary of the run names every reason.
"""

import os
from typing import NoReturn

import pytest


def missing_service(reason: str) -> NoReturn:
    """Skip the test because a real service is missing, or fail it where all of them must be there."""
    if os.environ.get("SPM_REAL") == "1":
        pytest.fail(f"{reason} (SPM_REAL=1: it must be there)", pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long forms to ``bin/test --proof``: they run only when ``-m`` names their mark."""
    if "proof" in str(config.getoption("-m")):
        return
    kept = [item for item in items if item.get_closest_marker("proof") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
