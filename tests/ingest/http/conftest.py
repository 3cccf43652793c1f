"""What the tests of pushes share."""

import pytest

from ingest import protocols


@pytest.fixture(scope="session", autouse=True)
def kernels_compiled() -> None:
    """The parsers' kernels are compiled: where their cache is empty, that takes longer than a sender waits."""
    protocols.warm()
