"""Programs that read from the product, or ask before they write: vmalert, Home Assistant, a full dashboard."""

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients.support.apps import new_apps
from tests.clients.support.known import Known, read, wait_for
from tests.clients.support.programs import Running, program
from tests.servers.processes import answers, wait_until
from tests.servers.product import Served, free_port

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
PANELS, VIEWERS = 40, 5
RULES = """\
groups:
- name: known
  interval: 1s
  rules:
  - record: vmalert_sum
    expr: sum by (host) (last_over_time(vmalert_known_f0[1h]))
  - alert: HostIsThere
    expr: last_over_time(vmalert_known_f0{host="h3"}[1h]) == last_over_time(vmalert_known_f0{host="h3"}[1h])
    labels: {severity: page}
"""


@pytest.fixture
def app(served: Served) -> Served:
    """A new app."""
    [app] = new_apps(served)
    return app


def test_vmalert_evaluates_rules_here_and_its_alerts_reach_an_alertmanager(
    app: Served, run: Callable[..., Running], tmp_path: Path
) -> None:
    known = Known.make("vmalert_known", fields=1)
    assert app.push(app.connection(), known.lines("").encode()) == 204
    wait_for(app, known.name, len(known))
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    here, manager = f"http://127.0.0.1:{app.port}", free_port()
    run(
        "alertmanager",
        program("prometheus-alertmanager", "prometheus-alertmanager"),
        f"--config.file={tmp_path / 'alertmanager.yml'}",
        f"--storage.path={tmp_path / 'alerts'}",
        f"--web.listen-address=127.0.0.1:{manager}",
        "--cluster.listen-address=",
    )
    assert wait_until(lambda: answers(manager), 60)
    judging = run(
        "vmalert",
        program("vmalert", "victoria-metrics"),
        f"-rule={tmp_path / 'rules.yml'}",
        f"-datasource.url={here}/prometheus",
        f"-datasource.bearerToken={app.token}",
        f"-remoteWrite.url={here}",
        f"-remoteWrite.bearerToken={app.token}",
        f"-remoteRead.url={here}/prometheus",
        f"-remoteRead.bearerToken={app.token}",
        f"-notifier.url=http://127.0.0.1:{manager}",
        f"-httpListenAddr=127.0.0.1:{free_port()}",
    )
    last = {f"h{host}": float(known.values[-1, host, 0]) for host in range(known.values.shape[1])}

    def written() -> dict[str, float]:
        """The newest value that its recording rule wrote for each host."""
        columns = {dict(labels)["host"]: column for labels, column in read(app, "vmalert_sum[2h]").items()}
        return {host: column[max(column)] for host, column in columns.items()}

    assert wait_until(lambda: written() == last, 120), judging.output()
    amtool = [program("amtool", "prometheus-alertmanager"), f"--alertmanager.url=http://127.0.0.1:{manager}"]
    query = run("amtool", "sh", "-c", "until " + " ".join(amtool) + " alert query | grep HostIsThere; do sleep 1; done")
    assert query.ended(180), judging.output()
    assert wait_until(lambda: bool(read(app, 'ALERTS{alertname="HostIsThere",host="h3"}[2h]')), 60), judging.output()


def test_home_assistants_probe_of_one_newline_is_answered_as_influxdb_does(app: Served) -> None:
    connection = app.connection()
    for path in ("/write?db=home_assistant", "/api/v2/write?org=o&bucket=home_assistant"):
        connection.request("POST", path, b"\n", dict(app.headers))
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (204, b"")


def test_forty_panels_of_five_viewers_at_once_are_all_answered(app: Served) -> None:
    known = Known.make("panels", steps=200)
    assert app.push(app.connection(), known.lines("").encode()) == 204
    wait_for(app, known.name, len(known))
    end_s = int(known.ts.max()) // 1_000
    gate = threading.Barrier(PANELS * VIEWERS)

    def ask(number: int) -> int:
        """One panel: all at the same moment, each on a connection of its own."""
        expr = f'sum by (host) (rate(panels_f{number % 10}{{host!="h{number // 10 % 10}"}}[{1 + number % PANELS}m]))'
        query = {"query": expr, "start": end_s - 1_800, "end": end_s, "step": 15}
        connection = http.client.HTTPConnection("127.0.0.1", app.port, timeout=60)
        gate.wait(60)
        connection.request(
            "GET", f"{app.prefix}/api/v1/query_range?{urllib.parse.urlencode(query)}", headers=app.headers
        )
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status != 200 or len(body["data"]["result"]) == 9
        return answer.status

    with ThreadPoolExecutor(PANELS * VIEWERS) as pool:
        assert list(pool.map(ask, range(PANELS * VIEWERS))) == [200] * (PANELS * VIEWERS)
