"""A loopback server that records requests and answers from a script, and a spool in a folder of the test."""

import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ingest.agent.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the server received."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return gzip.decompress(self.body).decode()


@dataclass(slots=True)
class FakeServer:
    """Answers with the next status of ``script``, and 204 after its end. A status of 0 breaks the connection."""

    url: str = ""
    script: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    answer: bytes = b""

    @property
    def ids(self) -> list[str]:
        return [request.headers["x-message-id"] for request in self.requests]


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.startswith("/api/"):  # a heartbeat: this server knows none
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append(Request(self.path, headers, body))
            status = server.script.pop(0) if server.script else 204
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in server.headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(server.answer)))
            self.end_headers()
            if status != 204:
                self.wfile.write(server.answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    http.daemon_threads = True
    fake.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def open_spool(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    opened: list[Spool] = []

    def opener(folder: Path = tmp_path / "spool", *, bytes_max: int = 1_000_000) -> Spool:
        for spool in opened:
            spool.close()
        opened[:] = [Spool(folder, bytes_max=bytes_max)]
        return opened[0]

    yield opener
    for spool in opened:
        spool.close()
