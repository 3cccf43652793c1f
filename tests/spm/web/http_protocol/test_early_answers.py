"""An answer before the end of the body: what senders of large bodies see of it, by the programs they use.

Go's ``net/http`` is what Telegraf, Prometheus and most collectors send with; it is skipped where Go is missing.
"""

import http.client
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import urllib3

from tests.clients.support.golang import build, cached_build
from tests.conftest import missing_service
from tests.servers.processes import wait_until
from tests.spm.web.http_protocol.serving import GET, HOST, QUICK, Served, answers, connect, read_all, say, serving

SIZES = [1, 100_000, 3_000_000, 30_000_000]
ROUNDS = 10  # a reset overtakes an answer only now and then


@pytest.fixture(scope="module")
def patient() -> Iterator[Served]:
    """A server that waits for senders as long as the product does."""
    with serving(replace(QUICK, linger_s=10, linger_stall_s=2)) as running:
        yield running


def test_curl_sees_the_status(patient: Served, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing_service("curl is not installed")
    for size in SIZES:
        (tmp_path / "body").write_bytes(b"x" * size)
        for expect in ("Expect:", "Expect: 100-continue"):
            for coding in ("Transfer-Encoding:", "Transfer-Encoding: chunked"):
                command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", expect, "-H", coding]
                command += ["--data-binary", f"@{tmp_path}/body", f"http://127.0.0.1:{patient.port}/early"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
                assert (done.stdout, done.stderr) == ("413", "")


@pytest.mark.parametrize("size", SIZES)
def test_pythons_client_sees_the_status_after_it_has_sent_everything(patient: Served, size: int) -> None:
    for _ in range(ROUNDS):
        link = http.client.HTTPConnection("127.0.0.1", patient.port, timeout=30)
        link.request("POST", "/early", body=b"x" * size)
        answer = link.getresponse()
        assert (answer.status, answer.read()) == (413, b"too large")
        link.close()


@pytest.mark.parametrize("size", SIZES)
def test_urllib3_and_requests_see_the_status(patient: Served, size: int) -> None:
    url = f"http://127.0.0.1:{patient.port}/early"
    pool = urllib3.PoolManager(retries=False)
    session = requests.Session()
    for _ in range(ROUNDS):
        assert pool.request("POST", url, body=b"x" * size).status == 413
        assert session.post(url, data=b"x" * size).status_code == 413
        assert session.post(url, data=iter([b"x" * (1 + size // 10)] * 10)).status_code == 413


SENDER = """
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

func main() {
	size, _ := strconv.Atoi(os.Args[2])
	for i := 0; i < 20; i++ {
		var body io.Reader = bytes.NewReader(make([]byte, size))
		if i%2 == 1 {
			body = struct{ io.Reader }{body} // of unknown length: in chunks
		}
		answer, err := http.Post(os.Args[1], "text/plain", body)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != 413 || string(text) != "too large" {
			fmt.Println(answer.Status, string(text), err)
			os.Exit(1)
		}
	}
}
"""


@pytest.mark.real
@pytest.mark.slow
def test_go_sees_the_status(patient: Served) -> None:
    def make(target: Path) -> None:
        source = target.with_suffix(".go")
        source.write_text(SENDER)
        build(source.parent, target, source.name)

    program = cached_build("early-answers", SENDER.encode(), make)
    for size in SIZES:
        command = [str(program), f"http://127.0.0.1:{patient.port}/early", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def test_an_early_answer_says_that_it_is_the_last_one_and_nothing_behind_it_is_answered(served: Served) -> None:
    for rest in (b"-5\r\n", b"3\r\nabc\r\n0\r\n\r\n" + GET, b"g" * 1_000, GET * 10):
        with connect(served) as link:
            link.sendall(b"POST /early HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\n")
            first = link.recv(1 << 16)
            link.sendall(b"abc\r\n" + rest)
            link.shutdown(socket.SHUT_WR)
            [answer] = answers(first + read_all(link))
        assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_an_answer_to_a_body_that_has_come_whole_keeps_the_connection(served: Served) -> None:
    one = b"POST /early HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
    assert [answer.status for answer in say(served, one + GET)] == [413, 200]


def test_a_sender_that_goes_on_after_its_answer_is_closed_after_a_number_of_bytes() -> None:
    with serving(replace(QUICK, linger_bytes_max=1_000_000, linger_s=60, linger_stall_s=60)) as served:
        head = b"POST /early HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n"
        with connect(served) as link, pytest.raises(OSError, match=r"reset|pipe"):
            link.sendall(head + b"x" * 99_999_999)
        assert wait_until(lambda: not served.server.server_state.connections, 5)


@pytest.mark.timed
@pytest.mark.parametrize(("pause_s", "wanted_s"), [(0.05, QUICK.linger_s), (10.0, QUICK.linger_stall_s)])
def test_a_sender_that_goes_on_after_its_answer_is_closed_after_a_time(
    served: Served, pause_s: float, wanted_s: float
) -> None:
    ended = threading.Event()

    def send() -> None:
        try:
            while not ended.wait(pause_s):
                link.sendall(b"x")
        except OSError:
            pass

    with connect(served) as link:
        link.sendall(b"POST /early HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\nx")
        assert answers(read_all(link))[0].status == 413
        begun, sender = time.monotonic(), threading.Thread(target=send)
        sender.start()
        assert wait_until(lambda: not served.server.server_state.connections, 5)
        seconds = time.monotonic() - begun
        ended.set()
        sender.join()
    assert wanted_s - 0.2 <= seconds < wanted_s + 1
