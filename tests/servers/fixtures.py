"""Fixtures of the real servers: ``hbase`` and ``hbase_url``, ``rabbitmq``, ``amqp_url`` and ``amqp_vhost``.

One instance of each serves a whole test run (all tests marked ``real`` run in one worker). Where a server cannot run,
its tests are skipped with the reason, or fail under SPM_REAL=1. A test that kills or blocks a server takes
``own_hbase`` or ``own_rabbitmq`` instead: these belong to one module.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.conftest import missing_service
from tests.servers.java.hbase import HBase
from tests.servers.java.spark import SparkCluster
from tests.servers.rabbitmq import RabbitMQ


class Server(Protocol):
    """What a starter offers."""

    def missing(self) -> str | None: ...
    def start(self) -> str: ...
    def discard(self) -> None: ...


ServerT = TypeVar("ServerT", bound=Server)
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """The run's HBase."""
    with _running(HBase, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def hbase_url(hbase: HBase) -> str:
    """Where it answers; a test adds a table prefix of its own."""
    return hbase.url


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """The run's RabbitMQ."""
    with _running(RabbitMQ, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def amqp_url(rabbitmq: RabbitMQ) -> str:
    """Where it answers."""
    return rabbitmq.url


@pytest.fixture
def amqp_vhost(rabbitmq: RabbitMQ) -> str:
    """The address of a virtual host of the run's RabbitMQ that is this test's alone."""
    return rabbitmq.new_vhost(f"test-{next(_NUMBERS)}") + "?partitions=4"


@pytest.fixture(scope="module")
def own_hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """An HBase that the tests of one module may kill."""
    with _running(HBase, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="module")
def own_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ that the tests of one module may kill or block."""
    with _running(RabbitMQ, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A Spark master with two workers."""
    with _running(SparkCluster, tmp_path_factory) as server:
        yield server


@contextmanager
def _running(kind: Callable[[Path], ServerT], folders: pytest.TempPathFactory) -> Iterator[ServerT]:
    server = kind(folders.mktemp("server"))
    reason = server.missing()
    if reason:
        missing_service(reason)
    try:
        server.start()
        yield server
    finally:
        server.discard()
