"""The comparison asks every store for the same points, and its experiments show what a store does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spm.limits import HOUR_MS
from tests.bench import bodies, tsbs
from tests.bench.comparison import QUERIES, claims, markdown, stores
from tests.bench.comparison.stores import STORES, Store
from tests.conftest import missing_service
from tests.servers.processes import wait_until
from tests.servers.product import Served, free_port
from tests.support.fleet import Fleet

pytestmark = [pytest.mark.real, pytest.mark.slow]
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
HOURS, HOSTS = 13, 9
BY_NAME = {store.name: store for store in STORES}


def test_stores_that_start_together_get_ports_of_their_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda _: free_port(), range(80)))
    assert len(set(ports)) == 80


def _running(store: Store, folder: Path) -> Iterator[Served]:
    served = store.start(folder)
    if served is None:
        missing_service(f"{store.name} is not installed")
    yield served
    served.stop()


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running InfluxDB without samples."""
    yield from _running(BY_NAME["InfluxDB"], tmp_path_factory.mktemp("influxdb"))


def test_influxql_asks_for_the_points_of_promql(influxdb: Served) -> None:
    store, moved = BY_NAME["InfluxDB"], Fleet.make(hosts=HOSTS, steps=HOURS * 360, start_ms=0)
    fleet = replace(moved, ts=moved.ts + START_MS)
    sent = list(bodies.bodies(fleet, bodies.lines, steps=100, hosts=HOSTS))
    assert set(store.push(influxdb, store.lines, sent)) == {204}
    random, connection = np.random.default_rng(5), influxdb.connection()
    for kind in QUERIES.values():
        for _ in range(3):
            ask = tsbs.types()[kind](random, HOSTS, HOURS * 3_600, 1.0)
            points = store.points(store.answer(influxdb, connection, START_MS, ask), START_MS, ask)
            assert tsbs.differing(points, ask.expected(moved)) == 0, (kind, ask)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[claims.Trial]:
    """A running Prometheus, to be tried."""
    with claims.trial(BY_NAME["Prometheus"], tmp_path_factory.mktemp("prometheus")) as tried:
        if tried is None:
            missing_service("prometheus is not installed")
        yield tried


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [(claims.once, True), (claims.late, False), (claims.taken_out, True), (claims.put_back, "no such call")],
    ids=["once", "late", "taken out", "put back"],
)
def test_an_experiment_shows_what_prometheus_does(
    claim: claims.Claim, outcome: claims.Outcome, prometheus: claims.Trial
) -> None:
    host = next(host for known, host in claims.CLAIMS.values() if known is claim)
    assert claim(prometheus, host) == outcome


def test_what_a_store_answers_before_all_is_there_is_waited_for(prometheus: claims.Trial) -> None:
    assert not wait_until(lambda: prometheus.count(7) > 0, 0.1)
    prometheus.send(prometheus.fleet, 7)
    assert prometheus.holds(7, claims.STEPS)


def test_the_version_of_a_store_is_its_own(influxdb: Served) -> None:
    assert stores.versions({"InfluxDB": influxdb})["InfluxDB"].startswith("1.")


def test_a_row_without_a_figure_says_that_its_store_is_not_installed() -> None:
    lines = list(markdown({"SPM": "SPM", "Prometheus": "Prometheus 2"}, {"disk": {"SPM": "0.52"}}))
    assert lines[0] == "| | SPM | Prometheus 2 |"
    assert "| bytes on disk a value | 0.52 | not installed |" in lines
