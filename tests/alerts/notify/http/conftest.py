"""A server on the loopback, which notifications may reach or not."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.alerts.notify.http.servers import HttpServer, http_server


@pytest.fixture
def hidden() -> Iterator[HttpServer]:
    """A server that no notification may reach."""
    with http_server() as server:
        yield server


@pytest.fixture
def server(hidden: HttpServer, settings: Any) -> HttpServer:
    """A server that notifications may reach."""
    settings.SPM_NOTIFY_NETWORKS = ["127.0.0.0/8"]
    return hidden
