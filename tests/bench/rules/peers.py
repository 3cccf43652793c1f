"""The same rules and data in Debian's Prometheus, and in vmalert over victoria-metrics: seconds and CPU a round.

Both scrape one page of a thousand series, which this process serves. Rules of one expression are one group, so that
both judge groups at once. Prometheus says how long each group took; of vmalert, as of Prometheus, CPU is that of its
process, with the store's for vmalert. Enter by ``measure``.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import psutil
import requests

from tests.bench import report
from tests.bench.rules import EXPRESSIONS, HOSTS, METRICS, expressions
from tests.servers.processes import free_ports

WARM_S, MEASURED_S, PERIOD_S = 45, 60, 10


class _Page(BaseHTTPRequestHandler):
    """Serves the series as Prometheus' text."""

    text = "".join(f'm{n}{{host="host_{h}"}} {50 + h % 3}\n' for n in range(METRICS) for h in range(HOSTS)).encode()

    def do_GET(self) -> None:
        """Answer with all series."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def write_files(folder: Path, count: int, page: int) -> None:
    """Write the rules and what is scraped, as both programs read them."""
    groups = [
        {
            "name": f"group {number}",
            "interval": f"{PERIOD_S}s",
            "rules": [
                {"alert": f"rule {rule}", "expr": f"({expr}) > {1_000 + rule}"}
                for rule in range(number, count, EXPRESSIONS)
            ],
        }
        for number, expr in enumerate(expressions())
    ]
    scraped = [{"job_name": "page", "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}]
    config = {"global": {"scrape_interval": f"{PERIOD_S}s"}, "scrape_configs": scraped}
    (folder / "rules.yml").write_bytes(orjson.dumps({"groups": groups}))  # JSON is YAML
    (folder / "scrape.yml").write_bytes(orjson.dumps(config))
    (folder / "prometheus.yml").write_bytes(orjson.dumps({**config, "rule_files": [str(folder / "rules.yml")]}))


def measure(folder: Path, count: int) -> None:
    """Print what a round of the rules costs each of them; one that is not installed is left out."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, name="page", daemon=True).start()
    write_files(folder, count, server.server_port)
    try:
        if shutil.which("prometheus"):
            _prometheus(folder, count)
        if shutil.which("vmalert") and shutil.which("victoria-metrics"):
            _vmalert(folder, count)
    finally:
        server.shutdown()


def _prometheus(folder: Path, count: int) -> None:
    [port] = free_ports(1)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with _running([*command, f"--web.listen-address=127.0.0.1:{port}"]) as process:
        cpu = _cpu_of(process)
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
        lines = [line for line in text.splitlines() if line.startswith("prometheus_rule_group_last_duration_seconds{")]
        report.line(
            f"{count} rules, prometheus",
            groups_s=sum(float(line.rsplit(" ", 1)[1]) for line in lines),
            cpu_ms_a_rule=cpu * 1e3 / count,
        )


def _vmalert(folder: Path, count: int) -> None:
    store, own, nobody = free_ports(3)
    storing = [f"-storageDataPath={folder}/vm", f"-promscrape.config={folder}/scrape.yml"]
    judging = [f"-rule={folder}/rules.yml", f"-datasource.url=http://127.0.0.1:{store}"]
    judging.append(f"-notifier.url=http://127.0.0.1:{nobody}")  # nothing fires
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_running([program, *options, f"-httpListenAddr=127.0.0.1:{at}", "-loggerLevel=ERROR"]))
            for program, options, at in (("victoria-metrics", storing, store), ("vmalert", judging, own))
        ]
        cpu = _cpu_of(*processes)
        report.line(f"{count} rules, vmalert with victoria-metrics", cpu_ms_a_rule=cpu * 1e3 / count)


@contextmanager
def _running(command: list[str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _cpu_of(*processes: psutil.Process) -> float:
    """Return the CPU seconds that processes spend in one round, once they are warm."""

    def spent() -> float:
        times = [process.cpu_times() for process in processes]
        return sum(each.user + each.system for each in times)

    time.sleep(WARM_S)
    before = spent()
    time.sleep(MEASURED_S)
    if any(process.status() == psutil.STATUS_ZOMBIE for process in processes):
        raise RuntimeError("a peer ended before it was measured")
    return (spent() - before) * PERIOD_S / MEASURED_S


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as name:
        measure(Path(name), int(sys.argv[1]))
