"""A small HTTP server on the loopback that answers as a test says, and records what it got."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class HttpServer:
    """``answers`` are (status, headers, body), used in order; the last one stays."""

    port: int = 0
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=lambda: [(200, {}, b"ok")])
    received: list[Received] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def http_server() -> Iterator[HttpServer]:
    """Run the server."""
    state = HttpServer()

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            state.connections += 1
            super().setup()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.received.append(Received(self.command, self.path, dict(self.headers), body))
            status, headers, text = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
