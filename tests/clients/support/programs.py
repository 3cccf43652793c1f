"""Client programs: where they are, how they run, and the pages that they scrape.

``program`` finds one on the path; if it is missing the test is skipped, or fails under SPM_REAL=1. ``Running`` is a
program that runs in a folder of its own. Prometheus and vmagent scrape ``Pages``: one page per scrape, in order.
"""

import http.server
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import missing_service
from tests.servers.processes import Process, wait_until

VISITS = 3  # of each page
_SYSTEM = ("/usr/sbin", "/usr/local/sbin")  # where Debian puts collectd


def find(name: str) -> str | None:
    """A program on the path or in the system's own folders."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM]))


def program(name: str, package: str) -> str:
    """A program; without it the test ends here."""
    executable = find(name)
    if executable is None:
        missing_service(f"{name} is not installed (Debian: apt-get install {package})")
    return executable


@dataclass(frozen=True, slots=True)
class Running:
    """One program that runs."""

    name: str
    folder: Path

    @property
    def process(self) -> Process:
        """The process itself."""
        return Process(self.name, self.folder)

    def start(self, command: Sequence[str | Path]) -> None:
        """Start it."""
        self.process.start(command, os.environ)

    def stop(self) -> None:
        """Ask it to end: clients then send what they still hold."""
        self.process.stop(30)

    def end(self) -> None:
        """Stop it, and then whatever it has started: the children of a shell outlive it."""
        group = self.process.pid()
        self.stop()
        if group is not None:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def ended(self, seconds: float) -> bool:
        """Whether it ended by itself within this time."""
        return self.process.wait(seconds)

    def output(self) -> str:
        """The end of its output."""
        return self.process.log.read_text(errors="replace")[-3000:]


class Pages:
    """Pages of metrics on a port of this machine: each is served for three scrapes, the last one always.

    A scraper gives a scrape up after waiting for a second; the same page is there at the next one.
    """

    def __init__(self, pages: Sequence[str], content_type: str = "text/plain; version=0.0.4") -> None:
        self._pages = [page.encode() for page in pages for _ in range(VISITS)]
        self.visits, self._content_type = 0, content_type
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def all_fetched(self, seconds: float) -> bool:
        """Whether every page was fetched within this time."""
        return wait_until(lambda: self.visits >= len(self._pages), seconds)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def _next(self) -> bytes:
        page = self._pages[min(self.visits, len(self._pages) - 1)]
        self.visits += 1
        return page

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        pages = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers any address."""

            def do_GET(self) -> None:
                body = pages._next()
                self.send_response(200)
                self.send_header("Content-Type", pages._content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        return Handler
