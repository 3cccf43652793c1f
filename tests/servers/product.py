"""The product and its peer as processes to be measured: start, push, ask, CPU time, bytes on disk.

CPU is that of the whole process tree, from the operating system's accounts, in seconds of user and system time;
processes that ended are counted by their parents. Start-up and compilation are apart: take ``cpu`` before and after.
"""

import contextlib
import http.client
import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.servers.processes import free_ports

ROOT = Path(__file__).resolve().parents[2]
_READY_S = 240
_ANSWERING = ("gunicorn", "victoria-metrics", "influxd", "prometheus")  # the processes that answer requests


def free_port() -> int:
    """A port that nobody uses now, and that the kernel gives to no client while a server is away from it."""
    return free_ports(1)[0]


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take on disk (blocks, so that sparse files count by what is written)."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())


@dataclass(slots=True)
class Served:
    """A running server that takes line protocol and answers PromQL."""

    process: subprocess.Popen[str]
    port: int
    data: Path
    prefix: str  # of the Prometheus API
    headers: Mapping[str, str]
    token: str = ""
    app: int = 0
    login: str = ""
    password: str = ""
    grpc_port: int = 0

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far by process name of the tree."""
        seconds: dict[str, float] = {}
        for process, line in processes(self.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                times, name = process.cpu_times(), _role(process, line)
                seconds[name] = seconds.get(name, 0.0) + times.user + times.system
        return seconds

    def busy_ms(self) -> float:
        """CPU ms so far of the living threads that answer requests, exact enough for queries of one ms."""
        spent = 0
        for process, line in processes(self.process.pid):
            if _role(process, line) in _ANSWERING:
                for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                    with contextlib.suppress(OSError):
                        spent += int(thread.read_text().split()[0])
        return spent / 1e6

    def connection(self) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def push(self, connection: http.client.HTTPConnection, body: bytes, message_id: str = "") -> int:
        """POST a body of line protocol; the status."""
        headers = {**self.headers, **({"X-Message-Id": message_id} if message_id else {})}
        connection.request("POST", "/write?precision=ms", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def ask(self, connection: http.client.HTTPConnection, call: str, **parameters: object) -> dict[str, object]:
        """GET a call of the Prometheus API; its `data`. Raises for an error."""
        query = urllib.parse.urlencode(parameters)
        connection.request("GET", f"{self.prefix}/api/v1/{call}?{query}", headers=dict(self.headers))
        answer = json.load(connection.getresponse())
        if answer.get("status") != "success":
            raise RuntimeError(f"{call}: {answer}")
        data: dict[str, object] = answer["data"]
        return data

    def stop(self) -> None:
        """End it as Ctrl-C would."""
        self.process.send_signal(2)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def processes(root: int) -> list[tuple[psutil.Process, str]]:
    """The living processes of a tree, each with its command line; those that end meanwhile are left out."""
    living = []
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is one of these
            living.append((process, " ".join(process.cmdline())))
    return living


def _role(process: psutil.Process, line: str) -> str:
    for word in ("gunicorn", "spm.worker", "celery", "ingest.agent", "victoria-metrics", "spm.cli.serve", "java"):
        if word in line:
            return word
    return process.name()


def start_product(
    data: Path, *arguments: str, environment: Mapping[str, str] | None = None, port: int | None = None
) -> Served:
    """bin/start on an own data folder, ready to be used; without this host's agent."""
    port = port or free_port()
    command = [str(ROOT / "bin/start"), "--port", str(port), "--data", str(data), "--json", "--no-agent", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment and dict(environment))
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            ready = json.loads(line)
            return Served(
                process,
                port,
                data,
                prefix="/prometheus",
                headers={"Authorization": f"Bearer {ready['token']}"},
                token=ready["token"],
                app=int(ready["app"]),
                login=ready["login"],
                password=ready["password"],
            )
    raise RuntimeError(f"bin/start ended with {process.wait()}")


def start_peer(data: Path) -> Served | None:
    """Debian's victoria-metrics on an own folder; ``None`` where it is not installed."""
    program = shutil.which("victoria-metrics")
    if program is None:
        return None
    port = free_port()
    command = [
        program,
        f"-storageDataPath={data}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-search.disableCache",
        "-loggerLevel=ERROR",
        "-search.maxStalenessInterval=5m",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    served = Served(process, port, data, "", {})
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        try:
            connection = served.connection()
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return served
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the peer did not start")
