"""One running product for the end-to-end tests that do not break it."""

from collections.abc import Iterator

import pytest

from tests.servers.product import Served, start_product


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The embedded product, without this host's agent."""
    running = start_product(tmp_path_factory.mktemp("product"))
    yield running
    running.stop()
