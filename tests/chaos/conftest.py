"""What tests of chaos share: a cluster that may be killed, the line on it, and sizes that the environment names."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import missing_service
from tests.servers.java.cluster import Cluster


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
        cluster.discard()


@pytest.fixture
def size() -> Callable[[str, int], int]:
    """A size that SPM_<name> changes; said, so that a log tells what was shown."""

    def size_setting(name: str, default: int) -> int:
        value = int(os.environ.get(f"SPM_{name}", default))
        print(f"\n  SPM_{name}={value:,}", flush=True)
        return value

    return size_setting
