"""The texts to copy on the page "Send data" work: each program gets its text unmodified.

The page is that of a new app, for a user who is logged in and has just created a token there. Each test adds what its
program needs besides the text (data to send, a port). Then the data is stored, and the page shows it.
"""

import html
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.clients import collector, telegraf
from tests.clients.support.apps import new_apps
from tests.clients.support.collectd import Collectd, by_plugin
from tests.clients.support.known import Known, Naming, Samples, assert_same, by_field, read, wait_for
from tests.clients.support.otlp import Noting, observe, provider, without_resource
from tests.clients.support.programs import Pages, Running, program
from tests.clients.test_prometheus import AHEAD_MS, SCRAPE, scraped
from tests.servers.processes import wait_until
from tests.servers.product import Served, free_port
from tests.support.people import Person

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
WITHIN_S = 240
RunProgram = Callable[..., Running]
# A program as ``opentelemetry-instrument`` starts it: the SDK sets itself up by its environment alone.
MEASURED = """
from opentelemetry import metrics
from opentelemetry.sdk._configuration import _OTelSDKConfigurator
_OTelSDKConfigurator().configure()
metrics.get_meter("shop").create_gauge("queue_length").set(7, {"queue": "mail"})
metrics.get_meter_provider().shutdown()
"""


@dataclass(frozen=True, slots=True)
class Desk:
    """A new app, a user of its page, and the texts of the page by their places."""

    app: Served
    person: Person
    texts: Mapping[str, str]

    def command(self, place: str) -> str:
        """A text for a shell, for the Python that runs the tests."""
        return self.texts[place].replace("python3 ", f"{sys.executable} ")

    def there(self, selector: str) -> Samples:
        """What came of the last day."""
        return read(self.app, f"{selector}[1d]")

    def assert_arrived(self, known: Known, naming: Naming = by_field) -> None:
        """All of these samples are there, and no others of their names."""
        assert assert_same(wait_for(self.app, known.name, len(known)), known.samples(naming)) == len(known)

    def shows_arrival(self, place: str) -> bool:
        """Whether the page shows, within 30 s, that data has arrived for a place."""
        badge = f'<span id="arrival-{place}" hx-swap-oob="true" class="badge done">first data received ✓</span>'
        return wait_until(lambda: badge in self.person.read(f"/apps/{self.app.app}/add-data/arrivals"), 30)


@pytest.fixture(scope="module")
def desk(served: Served) -> Desk:
    """The page, with a token made a moment ago and the key of a job."""
    [app] = new_apps(served)
    person = Person(f"http://127.0.0.1:{served.port}", served.login, served.password)
    person.submit(f"/apps/{app.app}/heartbeats", name="nightly")
    page = person.submit(f"/apps/{app.app}/add-data", name="To be copied", use="ingest")
    assert "first data received ✓" not in page
    texts = re.findall(r'<code id="([\w-]+)">(.*?)</code>', page, re.DOTALL)
    return Desk(app, person, {place: html.unescape(text) for place, text in texts})


@pytest.mark.parametrize(
    ("place", "metric"), [("curl", "room_temperature"), ("curl-2", "room_humidity"), ("text", "backup_bytes")]
)
def test_lines_for_a_shell_send_their_samples(desk: Desk, tmp_path: Path, place: str, metric: str) -> None:
    arguments = ["sh", "-ec", desk.command(place)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HTTP/1.1 2"), done.stdout
    assert wait_until(lambda: len(desk.there(metric)) == 1, WITHIN_S), done.stdout
    assert desk.shows_arrival(place.partition("-")[0])


def test_lines_for_the_agent_watch_this_host(desk: Desk, run: RunProgram) -> None:
    host = "by-the-snippet"
    exports = f"export SPM_AGENT_HOST={host} SPM_AGENT_SPOOL=$PWD/spool SPM_AGENT_PERIOD_S=1 SPM_AGENT_DISCOVER=no\n"
    running = run("agent", "sh", "-c", exports + desk.command("agent"))
    assert wait_until(lambda: len(desk.there(f'load_load1{{host="{host}"}}')) == 1, WITHIN_S), running.output()
    assert desk.shows_arrival("agent")
    arguments = ["sh", "-ec", desk.command("agent-2")]  # in the same folder, as the page has it
    done = subprocess.run(arguments, cwd=running.folder, capture_output=True, text=True, check=True, timeout=60)
    assert f"ExecStart={sys.executable} {running.folder / 'agent.pyz'}" in done.stdout
    assert f'url = "http://127.0.0.1:{desk.app.port}"' in done.stdout


@pytest.mark.timeout(1200)  # the first run on a machine builds Telegraf
def test_an_output_for_telegraf_delivers_what_its_inputs_read(desk: Desk, run: RunProgram, tmp_path: Path) -> None:
    known = Known.make("copied_telegraf", hosts=3, fields=4, steps=5)
    text = 'copied_system,host=h0 uptime=5i,uptime_format="1 day"\n'  # as its input "system" gives it
    (tmp_path / "lines").write_text(text + known.lines())
    (tmp_path / "telegraf.conf").write_text(telegraf.config(tmp_path / "lines", [desk.texts["telegraf"]]))
    running = run("telegraf", telegraf.binary(), "--config", tmp_path / "telegraf.conf")
    desk.assert_arrived(known)
    assert " E! " not in running.output()
    assert desk.shows_arrival("telegraf")


def test_lines_for_prometheus_forward_its_scrapes(desk: Desk, run: RunProgram, tmp_path: Path) -> None:
    known = Known.make("copied_prometheus", hosts=3, fields=4, steps=1, ahead_ms=AHEAD_MS)
    pages = Pages([known.page(0)])
    scrape = SCRAPE.format(job=known.name, target=pages.address)
    (tmp_path / "prometheus.yml").write_text(scrape + desk.texts["prometheus"])
    run(
        "prometheus",
        program("prometheus", "prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
    )
    desk.assert_arrived(known, scraped)
    pages.close()
    assert desk.shows_arrival("prometheus")


def test_a_command_for_vmagent_forwards_its_scrapes(desk: Desk, run: RunProgram, tmp_path: Path) -> None:
    known = Known.make("copied_vmagent", hosts=3, fields=4, steps=1, ahead_ms=AHEAD_MS, plain=True)
    pages = Pages([known.page(0)])
    (tmp_path / "vmagent").mkdir()
    (tmp_path / "vmagent" / "scrape.yml").write_text(SCRAPE.format(job=known.name, target=pages.address))
    program("vmagent", "victoria-metrics")
    run("vmagent", "sh", "-c", f"exec {desk.command('prometheus-2')} -httpListenAddr=127.0.0.1:{free_port()}")
    desk.assert_arrived(known, scraped)
    pages.close()
    assert desk.shows_arrival("prometheus")


def test_an_environment_for_opentelemetry_is_enough_for_its_sdk(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "measured.py").write_text(MEASURED)
    arguments = ["sh", "-ec", f"{desk.command('otlp')}\nexec {sys.executable} measured.py"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert wait_until(lambda: len(desk.there('queue_length{queue="mail"}')) == 1, WITHIN_S)
    assert [set(one.values()) for one in desk.there("queue_length").values()] == [{7.0}]
    assert desk.shows_arrival("otlp")


@pytest.mark.proof  # its collector is built for three minutes where that was not done before
def test_a_configuration_for_the_collector_forwards_its_metrics(desk: Desk, run: RunProgram, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(desk.texts["otlp-2"])
    port = free_port()
    running = run(
        "collector",
        collector.build(),
        f"--config={tmp_path / 'config.yaml'}",
        f"--set=receivers.otlp.protocols.http.endpoint=127.0.0.1:{port}",
        "--set=service.telemetry.metrics.level=none",
    )
    assert wait_until(lambda: "Everything is ready" in running.output(), WITHIN_S), running.output()
    known, step = Known.make("copied_collector", hosts=3, fields=4, steps=5), [0]
    exporter = Noting(replace(desk.app, port=port, token=""))  # to the collector, which alone has the token
    meters = provider(exporter)
    observe(meters, known, step)
    for number in range(known.steps):
        step[0] = number
        assert meters.force_flush(60_000)
    stored = wait_for(desk.app, known.name, len(known))
    by_sdk = {without_resource(labels): column for labels, column in stored.items()}
    assert assert_same(by_sdk, exporter.points()) == len(known), running.output()
    meters.shutdown()
    assert "\terror\t" not in running.output()
    assert desk.shows_arrival("otlp")


def test_a_plugin_for_collectd_writes_what_others_read(desk: Desk, run: RunProgram, tmp_path: Path) -> None:
    known = Known.make("copiedcollectd", hosts=3, fields=4, steps=5, digits=True)
    sender = Collectd.start(run, tmp_path, f"{desk.texts['collectd']}\n")
    sender.put(known)

    def all_there() -> bool:
        sender.flush()
        return sum(map(len, desk.there("copiedcollectd_gauge").values())) >= len(known)

    wait_until(all_there, WITHIN_S)
    desk.assert_arrived(known, by_plugin)
    assert desk.shows_arrival("collectd")


def test_a_line_of_a_crontab_reports_how_its_job_ended(desk: Desk) -> None:
    schedule, command = desk.texts["ping"].split("  ", 1)
    assert len(schedule.split()) == 5
    subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=120)
    expected = {"heartbeat_start": 1.0, "heartbeat_success": 0.0, "heartbeat_exit_code": 127.0}  # there is no such job
    assert wait_until(lambda: len(desk.there('{monitor="nightly"}')) == 4, WITHIN_S)
    stored = {dict(of)["__name__"]: set(column.values()) for of, column in desk.there('{monitor="nightly"}').items()}
    assert stored.pop("heartbeat_duration_seconds")
    assert stored == {name: {value} for name, value in expected.items()}
    assert desk.shows_arrival("ping")


@pytest.mark.parametrize(
    ("place", "line", "selector"),
    [
        ("statsd", b"copied_jobs:3|g|#kind:night", "copied_jobs"),
        ("statsd-2", b"copied_rows;kind=night 4", "copied_rows"),
    ],
)
def test_a_sidecar_forwards_its_metrics(
    desk: Desk, run: RunProgram, tmp_path: Path, place: str, line: bytes, selector: str
) -> None:
    port = free_port()
    exports = "export SPM_AGENT_SPOOL=$PWD/spool SPM_AGENT_PERIOD_S=1\n"
    running = run(f"car-{place}", "sh", "-c", f"{exports}{desk.command(place)} --port {port}")

    def heard() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
            to.sendto(line, ("127.0.0.1", port))
        return len(desk.there(f'{selector}{{kind="night"}}')) == 1

    assert wait_until(heard, WITHIN_S), running.output()
    assert desk.shows_arrival("statsd")
