"""What tests of chaos share: a cluster that may be killed, the line on it, and sizes that the environment names."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.kills.storm import Storm
from tests.chaos.line.thin_line import Line
from tests.conftest import missing_service
from tests.servers.java.cluster import Cluster
from tests.servers.rabbitmq import RabbitMQ

OPTIONS = "?partitions=4&calm=32"  # every worker has its share, so that every kill hits one that holds messages


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """HBase on HDFS with two region servers, one module's alone."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    if reason := cluster.missing():
        missing_service(reason)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def storm_on(folder: Path, cluster: Cluster, rabbitmq: RabbitMQ, *, cut: bool = False) -> Iterator[Storm]:
    """The whole line on a cluster, with tables and queues of its own; tables may be cut at every shard beforehand."""
    if cut:
        cluster.make_tables(folder.name, ["series", "log", "pending", "ledger", "chunks", "manifest"])
    line = Line(folder, f"{cluster.url}/{folder.name}", rabbitmq.new_vhost(folder.name) + OPTIONS)
    try:
        storm = Storm(line, cluster, rabbitmq)
        with storm.watch_kept():
            yield storm
    finally:
        line.close()


@pytest.fixture
def size() -> Callable[[str, int], int]:
    """A size that SPM_<name> changes; said, so that a log tells what was shown."""

    def size_setting(name: str, default: int) -> int:
        value = int(os.environ.get(f"SPM_{name}", default))
        print(f"\n  SPM_{name}={value:,}", flush=True)
        return value

    return size_setting
