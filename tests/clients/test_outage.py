"""Server or broker are killed for a while under every client that retries: no sample is lost or stored twice.

All clients send at the same time, before, during and after the outage: 20 s in continuous integration, five minutes as
a proof. Queries return all samples of the clients. OpenTelemetry's SDK gives up after a time: of it, they return at
least the acknowledged points and at most the sent ones. After compaction the hours count the same number of samples.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import WriteOptions

from tests.clients import telegraf
from tests.clients.conftest import Brokered
from tests.clients.support.known import Known, Samples, assert_same, wait_for
from tests.clients.support.otlp import Noting, observe, provider, without_resource
from tests.clients.support.programs import VISITS, Pages, Running, program
from tests.clients.test_prometheus import REMOTE, SCRAPE, scraped
from tests.servers.product import ROOT, Served, processes

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1_800)]
SAMPLES = 10_000
AHEAD_MS, AHEAD_SPAN_MS = 120_000, 400_000  # Prometheus takes nothing that is ten minutes ahead
QUIET_S = 10  # of sending before the outage, and after it
Outage = Callable[[float], None]


@pytest.fixture(params=["the server killed", "the broker killed"])
def broken(request: pytest.FixtureRequest) -> tuple[str, Served, Outage]:
    """A short name, a product, and how to break it for so many seconds."""
    if request.param == "the server killed":
        served: Served = request.getfixturevalue("served")
        return "killed", served, lambda seconds: kill_server(served, seconds)
    brokered: Brokered = request.getfixturevalue("brokered")
    return "brokerless", brokered.served, lambda seconds: kill_broker(brokered, seconds)


def kill_server(served: Served, seconds: float) -> None:
    """Kill -9 of web server and worker; the one that would start them again is frozen meanwhile."""
    supervisor = psutil.Process(served.process.pid)
    supervisor.suspend()
    try:
        for process, line in processes(served.process.pid):
            if any(word in line for word in ("gunicorn", "spm.worker")):
                process.send_signal(signal.SIGKILL)
        time.sleep(seconds)
    finally:
        supervisor.resume()


def kill_broker(brokered: Brokered, seconds: float) -> None:
    """Kill -9 of RabbitMQ."""
    brokered.broker.kill()
    time.sleep(seconds)
    brokered.broker.start()


class Senders:
    """All clients that try again, each with known samples of its own, sent over so many seconds."""

    def __init__(self, served: Served, run: Callable[..., Running], folder: Path, name: str, seconds: float) -> None:
        self._served, self._run, self._folder, self._name = served, run, folder, name
        self._seconds, self.patience_s = seconds, 2 * seconds + 120
        self.begun = time.monotonic()
        self.programs: list[Running] = []
        self._pages: list[Pages] = []

    def pace(self, known: Known) -> Iterator[int]:
        """The steps of known samples, spread over the time."""
        for step in range(known.steps):
            time.sleep(max(0.0, self.begun + self._seconds * step / known.steps - time.monotonic()))
            yield step

    def telegraf(self) -> tuple[str, Samples]:
        """Lines are added to a file that it follows."""
        known = Known.make(f"{self._name}_telegraf")
        lines = self._folder / "lines"
        lines.touch()
        configured = telegraf.config(lines, [telegraf.influxdb_v2(self._served, known.name)])
        (self._folder / "telegraf.conf").write_text(configured)
        self._start("telegraf", telegraf.binary(), "--config", self._folder / "telegraf.conf")
        for step in self.pace(known):
            with lines.open("a") as file:
                file.write(known.report(step))
        return known.name, known.samples()

    def prometheus(self) -> tuple[str, Samples]:
        """It scrapes one page after the other."""
        remote = REMOTE.format(port=self._served.port, token=self._served.token)
        return self._scraper(
            "prometheus",
            remote,
            "prometheus",
            "--config.file={config}",
            "--storage.tsdb.path={folder}",
            "--web.listen-address=127.0.0.1:0",
        )

    def vmagent(self) -> tuple[str, Samples]:
        """It scrapes one page after the other. After a failed scrape it would send stale markers at earlier times."""
        return self._scraper(
            "vmagent",
            "",
            "victoria-metrics",
            "-promscrape.config={config}",
            "-remoteWrite.tmpDataPath={folder}",
            f"-remoteWrite.url=http://127.0.0.1:{self._served.port}/api/v1/write",
            "-httpListenAddr=127.0.0.1:0",
            f"-remoteWrite.bearerToken={self._served.token}",
            "-promscrape.noStaleMarkers",
        )

    def influxdb_client(self) -> tuple[str, Samples]:
        """It sends in the background, and retries for a configured time."""
        known = Known.make(f"{self._name}_influx")
        options = WriteOptions(
            batch_size=100,
            flush_interval=500,
            retry_interval=1_000,
            max_retries=1_000,
            max_retry_delay=5_000,
            max_retry_time=round(1_000 * self.patience_s),
            max_close_wait=round(1_000 * self.patience_s),
        )
        url = f"http://127.0.0.1:{self._served.port}"
        with (
            InfluxDBClient(url, self._served.token, org="any", timeout=10_000) as client,
            client.write_api(write_options=options) as api,
        ):
            for step in self.pace(known):
                api.write("any", record=known.report(step).splitlines())
        return known.name, known.samples()

    def curl(self) -> tuple[str, Samples]:
        """One file, sent again and again, from the middle of the time on."""
        known = Known.make(f"{self._name}_curl")
        (self._folder / "body").write_text(known.lines())
        time.sleep(self._seconds / 2)
        done = subprocess.run(
            [
                program("curl", "curl"),
                "-sS",
                "--retry",
                "1000",
                "--retry-delay",
                "1",
                "--retry-all-errors",
                "--retry-max-time",
                str(round(self.patience_s)),
                "--data-binary",
                f"@{self._folder / 'body'}",
                "-H",
                f"Authorization: Token {self._served.token}",
                f"http://127.0.0.1:{self._served.port}/write",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * self.patience_s,
        )
        assert done.returncode == 0, done.stderr
        return known.name, known.samples()

    def opentelemetry(self) -> tuple[Noting, str]:
        """The SDK exports at every step; its patience is a setting of its own."""
        known, step = Known.make(f"{self._name}_otlp", steps=20), [0]
        exporter = Noting(self._served, timeout_s=self.patience_s)
        meters = provider(exporter)
        observe(meters, known, step)
        for step[0] in self.pace(known):
            meters.force_flush(1_000 * self.patience_s)
        meters.shutdown()
        return exporter, known.name

    def close(self) -> None:
        """Serve no more pages."""
        for pages in self._pages:
            pages.close()

    def output(self) -> str:
        """The end of what each program printed."""
        return "\n".join(f"{one.name}: {one.output()}" for one in self.programs)

    def _start(self, name: str, *command: str | Path) -> Running:
        self.programs.append(self._run(name, *command))
        return self.programs[-1]

    def _scraper(self, tool: str, remote: str, package: str, *words: str) -> tuple[str, Samples]:
        steps = round(self._seconds / VISITS)
        known = Known.make(
            f"{self._name}_{tool}",
            hosts=SAMPLES // 10 // steps,
            steps=steps,
            plain=True,
            ahead_ms=AHEAD_MS,
            step_ms=AHEAD_SPAN_MS // steps,
        )
        pages = Pages([known.page(step) for step in range(steps)])
        self._pages.append(pages)
        config = self._folder / f"{tool}.yml"
        config.write_text(SCRAPE.format(job=known.name, target=pages.address) + remote)
        filled = [word.format(config=config, folder=self._folder / f"{tool}-data") for word in words]
        running = self._start(tool, program(tool, package), *filled)
        assert pages.all_fetched(self.patience_s), running.output()
        return known.name, known.samples(scraped)


@contextmanager
def breaking(outage: Outage, seconds: float) -> Iterator[None]:
    """The outage begins a little later, and is over at the end."""

    def after_a_while() -> None:
        time.sleep(QUIET_S)
        outage(seconds)

    with ThreadPoolExecutor(1) as pool:
        broken = pool.submit(after_a_while)
        yield
        broken.result()


def through(broken: tuple[str, Served, Outage], run: Callable[..., Running], folder: Path, outage_s: float) -> None:
    """Run all clients over an outage of so many seconds, and compare what is stored."""
    how, served, outage = broken
    name = f"{how}{round(outage_s)}"  # the longer form has the same product: no name is given twice
    telegraf.binary()  # built before the clock starts
    with closing(Senders(served, run, folder, name, outage_s + 2 * QUIET_S)) as senders:
        acts = (senders.telegraf, senders.prometheus, senders.vmagent, senders.influxdb_client, senders.curl)
        with ThreadPoolExecutor(len(acts) + 1) as pool, breaking(outage, outage_s):
            exported: Future[tuple[Noting, str]] = pool.submit(senders.opentelemetry)
            metrics = [pool.submit(act) for act in acts]
        for one in metrics:
            metric, expected = one.result()
            count = sum(map(len, expected.values()))
            stored = wait_for(served, metric, count, senders.patience_s)
            assert stored == expected, f"{metric}: {sum(map(len, stored.values()))} of {count}; {senders.output()}"
            assert assert_same(stored, expected) == count
        _assert_exported(served, *exported.result(), senders.patience_s)
        _assert_counted_once(served, [one.result() for one in metrics])


def _assert_exported(served: Served, exporter: Noting, metric: str, patience_s: float) -> None:
    """acknowledged ⊆ stored ⊆ given to the exporter."""
    acked, given = exporter.points(), exporter.points(exporter.given)
    read = wait_for(served, metric, sum(map(len, acked.values())), patience_s)
    stored = {without_resource(labels): column for labels, column in read.items()}
    assert_same({k: {t: v for t, v in c.items() if t in acked.get(k, {})} for k, c in stored.items()}, acked)
    assert all(given[k].get(t) == v for k, c in stored.items() for t, v in c.items())


def _assert_counted_once(served: Served, metrics: list[tuple[str, Samples]]) -> None:
    """Compact, with repeated messages; check that the hours hold as many samples as were sent."""
    environment = {**os.environ, "SPM_DATA": str(served.data), "DJANGO_SETTINGS_MODULE": "spm.settings"}
    subprocess.run([ROOT / "bin/manage", "roll", "--local"], env=environment, check=True, capture_output=True)
    connection = served.connection()
    for metric, samples in metrics:
        expression = f'sum(count_over_time({{__name__=~"{metric}_.+"}}[2d]))'
        result = served.ask(connection, "query", query=expression, time=time.time() + 3_600)["result"]
        assert isinstance(result, list)
        assert [float(one["value"][1]) for one in result] == [sum(map(len, samples.values()))], metric
    connection.close()


def test_clients_that_try_again_lose_nothing_and_double_nothing_over_an_outage_of_twenty_seconds(
    broken: tuple[str, Served, Outage], run: Callable[..., Running], tmp_path: Path
) -> None:
    through(broken, run, tmp_path, 20)


@pytest.mark.proof
def test_clients_that_try_again_lose_nothing_and_double_nothing_over_an_outage_of_minutes(
    broken: tuple[str, Served, Outage], run: Callable[..., Running], tmp_path: Path
) -> None:
    through(broken, run, tmp_path, float(os.environ.get("SPM_CLIENTS_OUTAGE_S", "300")))
