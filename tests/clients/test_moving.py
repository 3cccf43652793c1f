"""The commands of docs/how-to/moving.md, run as printed, with the other store's own program where it is installed.

Only ports, folders, names and the token are the test's own. ``test_vmctl`` moves what a running InfluxDB and a snapshot
of Prometheus hold.
"""

import http.client
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import influx_inspect
from tests.clients.support import influxdb
from tests.clients.support.apps import new_apps
from tests.clients.support.known import Known, assert_same, by_field, read, wait_for
from tests.clients.support.programs import Running, find
from tests.servers.java.hbase import HBase
from tests.servers.java.opentsdb import OpenTSDB
from tests.servers.processes import kept_ports, wait_until
from tests.servers.product import ROOT, Served, start_peer

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = (ROOT / "docs" / "how-to" / "moving.md").read_text()


def printed(heading: str, begin: str) -> str:
    """The command below a heading of the page that begins so, with all of its lines."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", part, re.MULTILINE)
    [block] = [block for block in blocks if block.startswith(f"    {begin}")]
    return "\n".join(line[4:] for line in block.splitlines())


def shell(command: str, app: Served, folder: Path) -> str:
    """Run a command of the page, with programs of the folder before others; what it prints."""
    own = command.replace("localhost:8000", f"127.0.0.1:{app.port}")
    environment = {**os.environ, "TOKEN": app.token, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", own], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def app(served: Served) -> Served:
    """A new app."""
    [app] = new_apps(served)
    return app


def test_what_victoriametrics_holds_is_moved_bit_by_bit(app: Served, tmp_path: Path) -> None:
    peer = start_peer(tmp_path / "peer")
    if peer is None:
        pytest.skip("victoria-metrics is not installed")
    known = Known.make("moved", plain=True)  # VictoriaMetrics rounds what needs more digits
    try:
        connection = peer.connection()
        assert peer.push(connection, known.lines("").encode()) == 204
        command = printed("VictoriaMetrics", "curl").replace("localhost:8428", f"127.0.0.1:{peer.port}")
        connection.request("GET", "/internal/force_flush")
        connection.getresponse().read()
        assert shell(command, app, tmp_path) == ""
    finally:
        peer.stop()
    assert assert_same(wait_for(app, known.name, len(known)), known.samples()) == len(known)


def test_what_influx_inspect_exports_is_moved_by_parts(
    app: Served, run: Callable[..., Running], tmp_path: Path
) -> None:
    (tmp_path / "influx_inspect").symlink_to(influx_inspect.binary())
    known = Known.make("inspected", hosts=250, fields=4, steps=100)  # more lines than one part has
    server, _ = influxdb.filled(known, run, tmp_path)
    server.stop()
    export = printed("InfluxDB", "influx_inspect").replace("/var/lib/influxdb", str(tmp_path))
    shell(export, app, tmp_path)
    assert shell(printed("InfluxDB", "split"), app, tmp_path) == ""
    assert assert_same(wait_for(app, known.name, len(known)), known.samples()) == len(known)


def test_what_opentsdb_holds_is_moved_with_its_tags(app: Served, hbase: HBase, tmp_path: Path) -> None:
    known = Known.make("tsdb.moved", fields=1, steps=1_000)
    peer = OpenTSDB(tmp_path / "opentsdb", hbase.url, kept_ports(hbase.folder, ["zookeeper"])["zookeeper"])
    try:
        peer.start()
        for step in range(0, known.steps, 100):
            points = [
                {"metric": f"{known.name}_{field}", "timestamp": ms, "value": value, "tags": {"host": host, "cpu": "0"}}
                for one in range(step, step + 100)
                for host, ms, fields in known.reports(one)
                for field, value in fields.items()
            ]
            assert _post(peer.port, "/api/put?sync", json.dumps(points).encode()) in (200, 204)
        peer.write_scan_program(tmp_path / "tsdb")
        command = printed("OpenTSDB", "tsdb scan").replace("sys.cpu.user", f"{known.name}_f0")
        assert shell(command, app, tmp_path) == ""
    finally:
        peer.stop()
    stored = wait_for(app, known.name, len(known))
    assert assert_same(stored, known.samples(lambda *names: {**by_field(*names), "cpu": "0"})) == len(known)


def test_files_of_whisper_are_moved_with_their_names(app: Served, tmp_path: Path) -> None:
    create, update = find("whisper-create.py"), find("whisper-update.py")
    if create is None or update is None:
        pytest.skip("whisper is not installed (pip install whisper)")
    file, now_s = tmp_path / "servers" / "web-1" / "load.wsp", int(time.time())
    file.parent.mkdir(parents=True)
    subprocess.run([create, str(file), "10:360"], check=True, capture_output=True)
    points = [f"{now_s - 10 * n}:{n}.25" for n in range(1, 21)]
    subprocess.run([update, str(file), *points], check=True, capture_output=True)
    assert shell(printed("Graphite", "find"), app, tmp_path) == ""
    assert wait_until(lambda: _count(app, '{"servers.web-1.load"}') == 20, 60)


def _post(port: int, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


def _count(app: Served, selector: str) -> int:
    return sum(len(samples) for samples in read(app, f"{selector}[1d]").values())
