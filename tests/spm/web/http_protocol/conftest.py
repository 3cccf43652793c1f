"""One server for all tests that do not change it."""

from collections.abc import Iterator

import pytest

from tests.spm.web.http_protocol.serving import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with bounds of less than a second."""
    with serving() as running:
        yield running
