"""Clients of Prometheus' protocols: Prometheus itself, vmagent, Telegraf by remote write; prometheus-client's push.

What Prometheus sends has to be younger than its start, so the known samples lie some minutes ahead.
"""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.exposition import basic_auth_handler

from tests.clients import telegraf
from tests.clients.support.known import Known, Samples, assert_same, by_field, labels_of, read, wait_for
from tests.clients.support.programs import Pages, Running, program
from tests.servers.processes import wait_until
from tests.servers.product import Served, free_port

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000
AHEAD_MS = 120_000
SCRAPE = """\
global:
  scrape_interval: 1s
scrape_configs:
- job_name: {job}
  static_configs:
  - targets: ["{target}"]
    labels: {{instance: known}}
"""
REMOTE = """\
remote_write:
- url: http://127.0.0.1:{port}/api/v1/write
  authorization: {{credentials: "{token}"}}
  queue_config: {{batch_send_deadline: 1s}}
"""


def scraped(name: str, field: str, host: str) -> Mapping[str, str]:
    """How a scraped sample is read back: a job has the name of its samples, and shares no series with another test."""
    return {**by_field(name, field, host), "job": name, "instance": "known"}


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Iterator[tuple[Known, Pages]]:
    """Four pages of 2,500 known samples, for the scraper that the test is named after."""
    name = str(request.param)
    # vmagent reads texts of many digits with an error of the last bit
    known = Known.make(name, hosts=250, steps=4, ahead_ms=AHEAD_MS, plain=name == "vmagent")
    served = Pages([known.page(step) for step in range(known.steps)])
    yield known, served
    served.close()


@pytest.mark.parametrize("pages", ["prometheus"], indirect=True)
def test_prometheus_delivers_every_sample_it_scrapes(
    served: Served, run: Callable[..., Running], pages: tuple[Known, Pages], tmp_path: Path
) -> None:
    known, target = pages
    remote = REMOTE.format(port=served.port, token=served.token)
    (tmp_path / "prometheus.yml").write_text(SCRAPE.format(job=known.name, target=target.address) + remote)
    port = free_port()
    running = run(
        "prometheus",
        program("prometheus", "prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    assert target.all_fetched(180), running.output()
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples(scraped)) == SAMPLES, running.output()
    own = f'{{job="{known.name}",__name__!~"{known.name}_.*"}}[2h]'
    theirs = _query(port, own)
    last_ms = _newest(theirs)

    def all_later() -> bool:
        """Whether each of its own series has a newer sample here: they arrive one after the other."""
        newest = [max(column) for column in read(served, own).values()]
        return len(newest) >= len(theirs) and min(newest) > last_ms

    assert wait_until(all_later, 180), running.output()
    ours = read(served, own)
    assert assert_same({k: {t: v for t, v in c.items() if t <= last_ms} for k, c in ours.items()}, theirs) > 0


@pytest.mark.parametrize("pages", ["vmagent"], indirect=True)
def test_vmagent_delivers_every_sample_it_scrapes(
    served: Served, run: Callable[..., Running], pages: tuple[Known, Pages], tmp_path: Path
) -> None:
    known, target = pages
    (tmp_path / "scrape.yml").write_text(SCRAPE.format(job=known.name, target=target.address))
    running = run(
        "vmagent",
        program("vmagent", "victoria-metrics"),
        f"-promscrape.config={tmp_path / 'scrape.yml'}",
        f"-remoteWrite.url=http://127.0.0.1:{served.port}/api/v1/write",
        f"-remoteWrite.bearerToken={served.token}",
        f"-remoteWrite.tmpDataPath={tmp_path / 'queue'}",
        f"-httpListenAddr=127.0.0.1:{free_port()}",
        "-promscrape.noStaleMarkers",  # after a visit that failed they come under the times of the page before
    )
    assert target.all_fetched(180), running.output()
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples(scraped)) == SAMPLES, running.output()


@pytest.mark.timeout(1200)  # the first run builds Telegraf
def test_telegraf_delivers_every_sample_by_remote_write(
    served: Served, run: Callable[..., Running], tmp_path: Path
) -> None:
    known = Known.make("telegraf_remote", hosts=1_000, steps=1)  # of a series in one batch it sends the newest alone
    (tmp_path / "lines").write_text(known.lines())
    (tmp_path / "telegraf.conf").write_text(telegraf.config(tmp_path / "lines", [telegraf.remote_write(served)]))
    running = run("telegraf", telegraf.binary(), "--config", tmp_path / "telegraf.conf")
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples()) == SAMPLES, running.output()


def test_prometheus_client_pushes_every_sample(served: Served) -> None:
    registry = prometheus_client.CollectorRegistry()
    known = Known.make("pushed", hosts=1_000, steps=1)
    for field in range(10):
        gauge = prometheus_client.Gauge(f"pushed_f{field}", "Known", ["host"], registry=registry)
        for host, value in enumerate(known.values[0, :, field].tolist()):
            gauge.labels(f"h{host}").set(value)

    def handler(url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes) -> object:
        return basic_auth_handler(url, method, timeout, headers, data, "anybody", served.token)

    before_ms = time.time() * 1000
    prometheus_client.push_to_gateway(
        f"127.0.0.1:{served.port}", "night", registry, {"zone": "a/b"}, timeout=120, handler=handler
    )
    stored = wait_for(served, "pushed", SAMPLES)
    after_ms = time.time() * 1000
    assert all(before_ms - 1 <= ms <= after_ms for column in stored.values() for ms in column)
    expected = known.samples(lambda *names: {**by_field(*names), "job": "night", "zone": "a/b"})
    assert assert_same(_timeless(stored), _timeless(expected)) == SAMPLES


def _timeless(samples: Samples) -> Samples:
    """All times of a series numbered from 0."""
    return {labels: dict(enumerate(column.values())) for labels, column in samples.items()}


def _newest(samples: Samples) -> int:
    return max((ms for column in samples.values() for ms in column), default=0)


def _query(port: int, selector: str) -> Samples:
    """What Prometheus itself holds."""
    query = urllib.parse.urlencode({"query": selector})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return {labels_of(s["metric"]): {round(t * 1000): float(v) for t, v in s["values"]} for s in result}
