"""Fake services on loopback: HTTP from a table of answers, and sockets that misbehave."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"


@contextmanager
def http(answers: Mapping[str, bytes | int]) -> Iterator[tuple[str, list[tuple[str, Mapping[str, str]]]]]:
    """Runs a server that answers paths (without queries) with a body or a status; yields its address and requests."""
    requests: list[tuple[str, Mapping[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, dict(self.headers)))
            answer = answers.get(self.path.partition("?")[0], 404)
            body = answer if isinstance(answer, bytes) else b"no"
            self.send_response(200 if isinstance(answer, bytes) else answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Runs a server that passes each connection to ``serve`` and then closes it; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    serve(link)

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
