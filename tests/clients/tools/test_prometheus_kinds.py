"""Prometheus 2 of Debian with remote write 1.0, and Prometheus 3 with 2.0: as an agent, and with exemplars.

What an exemplar test expects is what the Prometheus that scraped the page answers itself. Prometheus 3 is a long form
(``bin/test --proof prometheus_kinds``): building it takes four minutes of CPU.
"""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients import prometheus3
from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.programs import Pages, Running, program
from tests.clients.test_prometheus import AHEAD_MS, REMOTE, SAMPLES, SCRAPE, scraped
from tests.servers.processes import wait_until
from tests.servers.product import Served, free_port

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
Exemplars = Mapping[str, list[tuple[Mapping[str, str], str, float]]]  # by series: labels, value, time
RunProgram = Callable[..., Running]


@dataclass(frozen=True, slots=True)
class Kind:
    """A version of Prometheus, with the options by which it is an agent, and its version of remote write."""

    version: int
    agent: str
    remote: str

    def program(self) -> Path | str:
        """The program; without it the test ends here."""
        return prometheus3.binary() if self.version == 3 else program("prometheus", "prometheus")

    def run(self, run: RunProgram, folder: Path, page: str, served: Served, *options: str) -> Running:
        """Let it scrape a page and send what it scrapes here."""
        job = f"kind{self.version}"
        remote = REMOTE.format(port=served.port, token=served.token) + f"  send_exemplars: true\n{self.remote}"
        (folder / "prometheus.yml").write_text(SCRAPE.format(job=job, target=page) + remote)
        config = f"--config.file={folder / 'prometheus.yml'}"
        return run(f"prometheus{self.version}", self.program(), config, *options)


NEWER = Kind(3, "--agent", "  protobuf_message: io.prometheus.write.v2.Request\n")
KINDS = [Kind(2, "--enable-feature=agent", ""), pytest.param(NEWER, marks=pytest.mark.proof)]


@pytest.fixture(params=KINDS, ids=lambda kind: f"Prometheus {kind.version}")
def kind(request: pytest.FixtureRequest) -> Kind:
    """A version of Prometheus."""
    chosen: Kind = request.param
    return chosen


def test_prometheus_kinds_deliver_every_sample_they_scrape_as_agents(
    kind: Kind, served: Served, run: RunProgram, tmp_path: Path
) -> None:
    known = Known.make(f"kind{kind.version}", hosts=250, steps=4, ahead_ms=AHEAD_MS)
    target = Pages([known.page(step) for step in range(known.steps)])
    try:
        running = kind.run(
            run,
            tmp_path,
            target.address,
            served,
            kind.agent,
            f"--storage.agent.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{free_port()}",
        )
        assert target.all_fetched(180), running.output()
        assert assert_same(wait_for(served, known.name, SAMPLES), known.samples(scraped)) == SAMPLES, running.output()
    finally:
        target.close()


def test_prometheus_kinds_send_exemplars_that_are_here_as_they_have_them(
    kind: Kind, served: Served, run: RunProgram, tmp_path: Path
) -> None:
    target, port = Pages([_page(kind.version, number) for number in range(4)], OPEN_METRICS), free_port()
    name = f"traced{kind.version}"
    expr = f"histogram_quantile(0.9, sum by (le) (rate({name}_bucket[5m]))) + on() {name}_calls_total"
    try:
        running = kind.run(
            run,
            tmp_path,
            target.address,
            served,
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        )
        assert target.all_fetched(180), running.output()
        assert wait_until(lambda: _here(served, expr) == _there(port, expr) != {}, 60), running.output()
    finally:
        target.close()
    shown = [labels["trace_id"] for series in _here(served, expr).values() for labels, _, _ in series]
    assert sorted(shown) == sorted(f"{kind}{number}" for kind in "abc" for number in range(4))


def _page(version: int, number: int) -> str:
    """A page of a histogram and a counter, with three exemplars that no other page has."""
    at_s, name = time.time() - 3 + number / 1_000, f"traced{version}"
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{le="0.5"}} {number} # {{trace_id="a{number}"}} 0.25 {at_s:.3f}\n'
        f'{name}_bucket{{le="+Inf"}} {2 * number} # {{trace_id="b{number}",span_id="x"}} 2.5 {at_s:.3f}\n'
        f"{name}_count {2 * number}\n{name}_sum {number}\n"
        f"# TYPE {name}_calls counter\n"
        f'{name}_calls_total {number} # {{trace_id="c{number}"}} 1 {at_s:.3f}\n'
        "# EOF\n"
    )


def _there(port: int, expr: str) -> Exemplars:
    """The exemplars that Prometheus itself has."""
    return _exemplars(urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/query_exemplars?{_span(expr)}"))


def _here(served: Served, expr: str) -> Exemplars:
    address = f"http://127.0.0.1:{served.port}/prometheus/api/v1/query_exemplars?{_span(expr)}"
    return _exemplars(urllib.request.Request(address, headers={"Authorization": f"Bearer {served.token}"}))


def _span(expr: str) -> str:
    return urllib.parse.urlencode({"query": expr, "start": time.time() - 600, "end": time.time() + 60})


def _exemplars(call: urllib.request.Request) -> Exemplars:
    with urllib.request.urlopen(call, timeout=30) as answer:
        data = json.load(answer)["data"]
    return {
        json.dumps(one["seriesLabels"], sort_keys=True): [
            (each["labels"], each["value"], each["timestamp"]) for each in one["exemplars"]
        ]
        for one in data
    }
