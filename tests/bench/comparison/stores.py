"""The four stores of the comparison: how each is started, what it is sent, and what it is asked.

``STORES`` lists them. The product starts by ``bin/start``, the others as Debian installs them, with the options that a
comparison needs: any age of data, remote write, no statistics about themselves. InfluxDB compacts what rests for ten
seconds instead of four hours, so that its bytes on disk are those of compacted files.
"""

import http.client
import json
import os
import re
import resource
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.comparison.influxql import statement, table
from tests.bench.tsbs import Ask, Points, call_of, points_of
from tests.servers.processes import answers, free_ports, wait_until
from tests.servers.product import ROOT, Served, disk_bytes, free_port, start_peer, start_product

DATABASE = "telegraf"
_READY_S, _STILL_S, _SETTLED_S = 60, 2.0, 60
_BUSY_S = 0.1  # of CPU in ``_STILL_S``: a process that spends less has nothing left to do
_INFLUXDB = """\
reporting-disabled = true
bind-address = "127.0.0.1:{other}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/store/data"
wal-dir = "{folder}/store/wal"
query-log-enabled = false
cache-snapshot-write-cold-duration = "5s"
compact-full-write-cold-duration = "10s"
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
"""


@dataclass(frozen=True, slots=True)
class Store:
    """One store: its name, how it is started, where its two protocols go (``""``: it does not read this one)."""

    name: str
    start: Callable[[Path], Served | None]
    lines: str
    remote_write: str
    answer: Callable[[Served, http.client.HTTPConnection, int, Ask], bytes]
    points: Callable[[bytes, int, Ask], Points]
    stored_bytes: Callable[[Served], int]

    def push(self, served: Served, path: str, bodies: Iterable[bytes]) -> list[int]:
        """Post bodies over one connection, and return the status of each."""
        connection, statuses = served.connection(), []
        headers = dict(served.headers)
        if path == self.remote_write:
            headers |= {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
            headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
        for body in bodies:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        return statuses


def fetch(served: Served, path: str, form: dict[str, object] | None = None, *, post: bool = False) -> bytes:
    """Return the body of an answer; raises for a status of 400 or more."""
    connection = served.connection()
    target = f"{path}?{urllib.parse.urlencode(form or {})}"
    connection.request("POST" if post else "GET", target, headers=dict(served.headers))
    answer = connection.getresponse()
    body = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{path}: {answer.status} {body[:300]!r}")
    return body


def manage(served: Served, *arguments: str) -> float:
    """Run ``bin/manage`` on the product's data, and return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["env", f"SPM_DATA={served.data}", str(ROOT / "bin/manage"), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def settle(served: Served) -> None:
    """Wait until a server has nothing left to do in the background, or for a minute."""
    until = time.monotonic() + _SETTLED_S
    while time.monotonic() < until:
        before = sum(served.cpu().values())
        time.sleep(_STILL_S)
        if sum(served.cpu().values()) - before < _BUSY_S:
            return


def influxql(served: Served, text: str, *, post: bool = False) -> list[dict[str, object]]:
    """Return the series that InfluxDB answers to one statement."""
    result = json.loads(fetch(served, "/query", {"db": DATABASE, "epoch": "ms", "q": text}, post=post))["results"][0]
    if "error" in result:
        raise RuntimeError(f"{text}: {result['error']}")
    series: list[dict[str, object]] = result.get("series", [])
    return series


def versions(started: dict[str, Served]) -> dict[str, str]:
    """Return the version of each store that says one."""
    by_name = {}
    for name, served in started.items():
        text = ""
        if name == "VictoriaMetrics":
            text = fetch(served, "/metrics").decode()
        elif name == "InfluxDB":
            text = subprocess.run(["influxd", "version"], capture_output=True, text=True, check=True).stdout
        elif name == "Prometheus":
            text = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r'short_version="v?([\d.]+)|InfluxDB v([\d.]+)|prometheus, version ([\d.]+)', text)
        by_name[name] = next(filter(None, version.groups())) if version else ""
    return by_name


def _start_product(folder: Path) -> Served:
    """Start the product so that only ``roll`` compacts: what this costs is a row of its own."""
    put_off = {"SPM_RUN_ROWS": "5000", "SPM_RUN_SAMPLES": "5000000", "SPM_RUN_AGE_S": "21600"}
    return start_product(folder, "--no-spark", environment={**os.environ, **put_off})


def start_influxdb(folder: Path) -> Served | None:
    """Start Debian's InfluxDB 1 on a folder, with the database; ``None`` where it is not installed."""
    program, (port, other) = shutil.which("influxd"), free_ports(2)
    if program is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "influx.conf").write_text(_INFLUXDB.format(folder=folder, port=port, other=other))
    served = _started([program, "-config", str(folder / "influx.conf")], port, folder)
    influxql(served, f"CREATE DATABASE {DATABASE}", post=True)
    return served


def start_prometheus(folder: Path) -> Served | None:
    """Start Debian's Prometheus on a folder; ``None`` where it is not installed."""
    program, port = shutil.which("prometheus"), free_port()
    if program is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    options = [
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/store",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--web.enable-admin-api",
        "--storage.tsdb.retention.time=100y",
        "--log.level=error",
    ]
    return _started([program, *options], port, folder)


def _started(command: list[str], port: int, folder: Path) -> Served:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    served = Served(process, port, folder, "", {})
    if not wait_until(lambda: answers(port), _READY_S):
        served.stop()
        raise RuntimeError(f"{command[0]} did not start")
    if "prometheus" in command[0] and not wait_until(lambda: _is_ready(served), _READY_S):
        raise RuntimeError("prometheus is not ready")
    return served


def _is_ready(served: Served) -> bool:
    try:
        return bool(fetch(served, "/-/ready"))
    except (RuntimeError, OSError):  # it listens before it answers
        return False


def _ask_promql(served: Served, connection: http.client.HTTPConnection, start_ms: int, ask: Ask) -> bytes:
    call, parameters = call_of(start_ms, ask)
    target = f"{served.prefix}/api/v1/{call}?{urllib.parse.urlencode(parameters)}"
    connection.request("GET", target, headers=dict(served.headers))
    return connection.getresponse().read()


def _promql_points(body: bytes, start_ms: int, _: Ask) -> Points:
    answer = json.loads(body)
    if answer.get("status") != "success":
        raise RuntimeError(f"a query was answered {body[:300]!r}")
    return points_of(answer["data"], start_ms)


def _ask_influxql(_: Served, connection: http.client.HTTPConnection, start_ms: int, ask: Ask) -> bytes:
    form = urllib.parse.urlencode({"db": DATABASE, "epoch": "ms", "q": statement(ask, start_ms)})
    connection.request("GET", f"/query?{form}")
    return connection.getresponse().read()


def _product_bytes(served: Served) -> int:
    """Bytes after a run, with what it superseded deleted, as the daily maintenance does."""
    manage(served, "purge", "--keep", "0")
    served.stop()
    return disk_bytes(served.data / "store")


def _peer_bytes(served: Served) -> int:
    """Bytes once the server has written what it held in memory."""
    settle(served)
    served.stop()
    return disk_bytes(served.data / "store" if (served.data / "store").exists() else served.data)


def _prometheus_bytes(served: Served) -> int:
    """Bytes of a snapshot: all samples in blocks, without the log of those in memory."""
    snapshot = json.loads(fetch(served, "/api/v1/admin/tsdb/snapshot", post=True))["data"]["name"]
    served.stop()
    return disk_bytes(served.data / "store/snapshots" / snapshot)


_PROM = "/api/v1/write"
_DB = f"db={DATABASE}"
STORES = (
    Store("SPM", _start_product, "/write?precision=ms", _PROM, _ask_promql, _promql_points, _product_bytes),
    Store("VictoriaMetrics", start_peer, "/write?precision=ms", _PROM, _ask_promql, _promql_points, _peer_bytes),
    Store(
        "InfluxDB",
        start_influxdb,
        f"/write?{_DB}&precision=ms",
        f"/api/v1/prom/write?{_DB}",
        _ask_influxql,
        table,
        _peer_bytes,
    ),
    Store("Prometheus", start_prometheus, "", _PROM, _ask_promql, _promql_points, _prometheus_bytes),
)
