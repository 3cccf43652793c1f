"""The sidecar as a program: it listens on sockets, pushes with a token, and loses nothing while the server is away."""

import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ingest.sidecar.graphite import Graphite
from ingest.sidecar.intake import Intake
from ingest.sidecar.listen import Listener
from spm import limits
from spm.clock import SystemClock

ROOT = Path(__file__).resolve().parents[3]


def until(true: Callable[[], object], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


class Server:
    """Records pushes, or answers 503."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.away = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                if not outer.away:
                    outer.bodies.append(body.decode())
                    outer.headers.append(dict(self.headers))
                self.send_response(503 if outer.away else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def text(self) -> str:
        return "\n".join(self.bodies)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.fixture
def sidecar(server: Server, tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[bytes], int]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(protocol: str) -> tuple[subprocess.Popen[bytes], int]:
        port = free_port()
        flags = [
            "--port",
            str(port),
            "--url",
            f"http://127.0.0.1:{server.http.server_address[1]}",
            "--period-s",
            "1",
            "--spool",
            str(tmp_path / "spool"),
            "--host",
            "h",
            "--tags",
            "env=test",
        ]
        environment = {**os.environ, "SPM_AGENT_TOKEN": "spm_x"}
        processes.append(
            subprocess.Popen([sys.executable, "-m", "ingest.sidecar", protocol, *flags], cwd=ROOT, env=environment)
        )

        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        until(listens)
        return processes[-1], port

    yield start
    for one in processes:
        if one.poll() is None:
            one.kill()
        one.wait()


def test_graphite_by_tcp_and_udp_arrives_with_token_and_tags(
    server: Server, sidecar: Callable[..., tuple[subprocess.Popen[bytes], int]]
) -> None:
    program, port = sidecar("graphite")
    with socket.create_connection(("127.0.0.1", port)) as tcp:
        tcp.sendall(b"a.b;host=x 1 1700000001\nc 2 17000")
        tcp.sendall(b"00002\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"d 3 1700000003\n", ("127.0.0.1", port))
    until(lambda: "1700000003000" in server.text and "1700000002000" in server.text)
    assert "a.b,env=test,host=x value=1.0 1700000001000" in server.text
    assert server.headers[0]["Authorization"] == "Bearer spm_x"
    assert server.headers[0]["User-Agent"].startswith("spm-graphite/")
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 0


def test_statsd_that_comes_while_the_server_is_away_arrives_later(
    server: Server, sidecar: Callable[..., tuple[subprocess.Popen[bytes], int]]
) -> None:
    server.away = True
    program, port = sidecar("statsd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"hits:3|c|#env:prod\nhits:1|c|@0.5|#env:prod", ("127.0.0.1", port))
    program.send_signal(signal.SIGTERM)  # its last look goes to the disk
    assert program.wait(20) == 0
    server.away = False
    sidecar("statsd")
    until(lambda: "hits,env=prod value=5.0" in server.text)


def test_program_carries_neither_django_nor_numpy() -> None:
    code = "import sys, ingest.sidecar.__main__; print([n for n in ('django', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_connections_are_limited_and_lines_without_end_cut_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIDECAR_CONNECTIONS_MAX", 1)
    intake = Intake("graphite", Graphite())
    listener = Listener("127.0.0.1", 0, intake, SystemClock())
    with socket.create_connection(("127.0.0.1", listener.port)) as first:
        first.sendall(b"a 1 5\n")
        until(lambda: intake.lines == 1)
        with socket.create_connection(("127.0.0.1", listener.port)) as second:
            assert second.recv(1) == b""
        first.sendall(b"x" * (5 * limits.SIDECAR_LINE_CHARS_MAX))
        until(lambda: intake.dropped == 2)
    listener.close()


def test_lines_that_arrived_before_the_end_are_read() -> None:
    intake, clock = Intake("graphite", Graphite()), SystemClock()
    listener = Listener("127.0.0.1", 0, intake, clock)
    connections = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
    for one in connections:
        one.sendall(b"before 1 5\n")
    until(lambda: intake.lines == 3)
    with intake._lock:  # readers wait here with what they hold; the rest stays with the system
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for number in range(20):
                udp.sendto(b"datagram%d 1 5" % number, ("127.0.0.1", listener.port))
        for one in connections:
            one.sendall(b"b 1 5\n")
        time.sleep(0.1)
        for one in connections:
            one.sendall(b"c 1 5\nd 1 5")
        ending = threading.Thread(target=listener.close)
        ending.start()
        time.sleep(0.2)
    ending.join()
    assert intake.lines == 3 + 20 + 3 * 3
    for one in connections:
        one.close()


def test_who_can_connect_can_also_send_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    class Observed(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:  # type: ignore[override]
            if self.type == socket.SOCK_DGRAM:
                with socket.socket() as early:
                    refused.append(early.connect_ex(address) != 0)
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Observed)
    Listener("127.0.0.1", 0, Intake("graphite", Graphite()), SystemClock()).close()
    assert refused == [True]
