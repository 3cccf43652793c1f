"""A real Prometheus that reads by remote read answers with the samples that are stored here, also as of a time."""

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spm import query
from tests.conftest import missing_service
from tests.model.world import START, World
from tests.servers.processes import Process, free_ports, wait_until
from tests.servers.prometheus import binary
from tests.support.people import Tenant

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.django_db(transaction=True)]
CONFIG = """\
remote_read:
- url: {site}/prometheus/api/v1/read{more}
  authorization: {{credentials: "{token}"}}
  read_recent: true
  remote_timeout: 10m
"""


class Reader:
    """A Prometheus without samples of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.process, self._url = Process("reader", folder), f"http://127.0.0.1:{port}"
        self._folder, self._port = folder, port

    def start(self, program: str, config: str) -> None:
        """Start it with a configuration."""
        (self._folder / "prometheus.yml").write_text(config)
        self.process.start(
            [
                program,
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
                "--query.timeout=10m",
            ],
            dict(os.environ),
        )
        assert wait_until(self._ready, 120), self.process.log.read_text()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def ask(self, expr: str, at_ms: int) -> dict[str, Any]:
        """Return its answer at a time."""
        parameters = urllib.parse.urlencode({"query": expr, "time": at_ms / 1000})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{parameters}", timeout=600) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, free_ports(1)[0])
    yield reader
    reader.process.stop()


@pytest.fixture
def world(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return nine series of three metrics on a grid of ten seconds for two hours; one of them is sent again later."""
    world = World()
    world.send(*((number, step * 10_000 + 1, float(number * step)) for number in range(9) for step in range(720)))
    world.clock.advance(3_600_000)
    world.send(*((0, step * 10_000 + 1, -1.0) for step in range(720)))
    monkeypatch.setattr(query, "storage_for", lambda app: world.fresh())
    return world


def values(answer: dict[str, Any]) -> dict[str, float]:
    return {one["metric"]["n"]: float(one["value"][1]) for one in answer["data"]["result"]}


@pytest.mark.parametrize("then", [False, True], ids=["now", "as of a time"])
def test_prometheus_answers_from_what_it_reads_here(
    reader: Reader, world: World, alpha: Tenant, live_server: Any, monkeypatch: pytest.MonkeyPatch, *, then: bool
) -> None:
    program = binary() or missing_service("no prometheus (Debian: apt install prometheus)")
    more = f"?asof={(world.clock.now_ms() - 1_800_000) / 1000}" if then else ""
    reader.start(program, CONFIG.format(site=live_server.url, more=more, token=alpha.token))
    end = START + 7_200_000
    sums = reader.ask("sum_over_time(m0[2h])", end)
    expected = {"0": 0.0 if then else -720.0, "3": 3.0 * sum(range(720)), "6": 6.0 * sum(range(720))}
    assert values(sums) == expected, sums
    counts = reader.ask('sum by (n) (count_over_time({__name__=~"m."}[1h]))', end)
    assert values(counts) == {str(number): 360.0 for number in range(9)}
    monkeypatch.setattr("spm.limits.QUERY_SERIES_MAX", 1)
    assert "narrow the selector" in json.dumps(reader.ask("m0", end)), "a reader is told why there is no answer"
