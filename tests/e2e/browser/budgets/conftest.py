"""The server of these tests has bundled files, as the product has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler

from tests.e2e.browser.conftest import serving
from tests.frontend.bundles import built_files


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of static files as they are served."""
    return built_files.collect(tmp_path_factory.mktemp("static"))


@pytest.fixture
def server(transactional_db: None, own_store: str, built: Path) -> Iterator[str]:
    """The address of the running product; its own middleware serves the files."""
    with built_files.settings_of(built), serving(Unchanged) as address:
        yield address


class Unchanged(WSGIHandler):
    """The product's own handler, wrapped in nothing."""

    def __new__(cls, handler: WSGIHandler) -> Any:
        """Return what is given."""
        return handler
