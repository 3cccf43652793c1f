"""The programs of docs/send, one in each language: they deliver 10,000 samples, wait where they should, and give up.

A small fake server records requests and gives the answers of each case; the delivery test uses the real product.
"""

import atexit
import functools
import gzip
import http.server
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clients.support import golang
from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.programs import find
from tests.servers.product import ROOT, Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000
FOLDER = ROOT / "docs" / "send"
EXAMPLES = {"send.sh": "sh", "send.py": "python3", "send.mjs": "node", "send.go": "go", "Send.java": "java"}
BROKEN = 0  # the connection is closed without an answer


@functools.cache
def command(name: str) -> tuple[str, ...]:
    """What runs an example, where its tool is on this machine; that in Go is built first."""
    tool = find(EXAMPLES[name])
    if tool is None or (name == "Send.java" and find("javac") is None):
        pytest.skip(f"nothing here runs {name}")
    if name == "send.go":
        sender = Path(tempfile.mkdtemp(prefix="spm-example-")) / "send"
        atexit.register(shutil.rmtree, sender.parent, ignore_errors=True)
        golang.build(FOLDER, sender, name)
        return (str(sender),)
    return tool, str(FOLDER / name)


def start(name: str, url: str, token: str, lines: str) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    environment = {**os.environ, "SPM_URL": url, "SPM_TOKEN": token}
    return subprocess.run(
        command(name), input=lines, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


class Busy:
    """A server that gives these answers, one after the other, and keeps (message id, body) of each request."""

    def __init__(self, answers: Sequence[int]) -> None:
        self.got: list[tuple[str, bytes]] = []
        busy, statuses = self, list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            """One POST."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                busy.got.append((self.headers["X-Message-Id"], gzip.decompress(body) if packed else body))
                status = statuses.pop(0)
                if status == BROKEN:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Length", "0" if status == 204 else "6")
                self.end_headers()
                self.wfile.write(b"" if status == 204 else b"reason")

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[Busy]:
    sender = Busy(request.param)
    yield sender
    sender.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_delivers_every_sample(served: Served, name: str) -> None:
    known = Known.make(f"example_{Path(name).suffix[1:]}")
    done = start(name, f"http://127.0.0.1:{served.port}", served.token, known.lines(unit=""))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert assert_same(wait_for(served, known.name, SAMPLES), known.samples()) == SAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("busy", [(503, BROKEN, 204, 204)], indirect=True)
def test_example_repeats_its_request_to_a_server_that_is_busy_or_away(busy: Busy, name: str) -> None:
    lines = [f"m,n={n} v={n} {n + 1}\n" for n in range(6_000)]
    done = start(name, busy.url, "t", "".join(lines))
    (first, body), again, later, (second, rest) = busy.got
    assert (done.returncode, again, later) == (0, (first, body), (first, body))
    assert (second != first, body.strip().decode(), rest.strip().decode()) == (
        True,
        "".join(lines[:5_000]).strip(),
        "".join(lines[5_000:]).strip(),
    )


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("busy", [(400,)], indirect=True)
def test_example_shows_why_it_is_rejected_and_does_not_try_again(busy: Busy, name: str) -> None:
    done = start(name, busy.url, "t", "no line\n")
    assert (done.returncode, len(busy.got)) == (1, 1)
    assert "reason" in done.stderr


def test_the_page_about_sending_shows_every_example_as_it_is() -> None:
    page = (ROOT / "docs" / "how-to" / "sending.md").read_text()
    assert [name for name in EXAMPLES if (FOLDER / name).read_text() not in page] == []
