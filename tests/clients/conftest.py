"""One running product for all clients, and the programs they run.

``served`` is bin/start on a folder of its own, with LMDB. ``brokered`` has a RabbitMQ in front of it, to which agents
publish with their tokens.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.clients.support.programs import Running
from tests.conftest import missing_service
from tests.servers.processes import free_ports
from tests.servers.product import Served, free_port, start_product
from tests.servers.rabbitmq import RabbitMQ

_SECRET = "between-broker-and-site"


@dataclass(frozen=True, slots=True)
class Brokered:
    """The product and the broker in front of it."""

    served: Served
    broker: RabbitMQ

    @property
    def port(self) -> int:
        """Where the broker listens."""
        return urlsplit(self.broker.url).port or 0

    @property
    def user(self) -> str:
        """The name under which the broker knows the product's first token."""
        return self.served.token.rpartition("_")[0]


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The embedded product, without this host's agent."""
    port, grpc_port = free_ports(2)  # asked for one by one, they may be one
    environment = {**os.environ, "SPM_OTLP_GRPC_PORT": str(grpc_port)}
    running = start_product(tmp_path_factory.mktemp("clients"), environment=environment, port=port)
    running.grpc_port = grpc_port
    yield running
    running.stop()


@pytest.fixture(scope="package")
def brokered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokered]:
    """The product with RabbitMQ before its store, and agents that push through it."""
    port = free_port()
    broker = RabbitMQ(tmp_path_factory.mktemp("broker"), site=f"http://127.0.0.1:{port}/broker/{_SECRET}")
    if reason := broker.missing():
        missing_service(reason)
    try:
        url = broker.start()
        settings = {
            "SPM_TRANSPORT": "amqp",
            "SPM_AMQP_URL": f"{url}?agents=1&partitions=4",
            "SPM_BROKER_SECRET": _SECRET,
        }
        folder = tmp_path_factory.mktemp("brokered")
        running = start_product(folder, environment={**os.environ, **settings}, port=port)
        yield Brokered(running, broker)
        running.stop()
    finally:
        broker.stop()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts programs: ``run("name", command)``; what still runs at the end is stopped, with all that it started."""
    started: list[Running] = []

    def start(name: str, *command: str | Path) -> Running:
        folder = tmp_path / name
        running = Running(name, folder)
        started.append(running)
        running.start(command)
        return running

    yield start
    for one in started:
        one.end()
