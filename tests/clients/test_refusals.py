"""Bodies that the product refuses by their heads: what the programs that send them see, each with a large body.

The product answers before the body has come: 401 without a token of ours, 413 for a body over the bound, 429 for an app
over its rate. A sender must see that answer, and no broken pipe: else it does not learn to stop, or to wait.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
import urllib3

from spm.limits import BODY_BYTES_MAX
from tests.clients import telegraf
from tests.clients.support.apps import new_apps
from tests.clients.support.golang import build, cached_build
from tests.clients.support.known import Known
from tests.clients.support.programs import Running
from tests.conftest import missing_service
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
ROUNDS = 10  # a reset overtakes an answer only now and then
LARGE = BODY_BYTES_MAX - 1  # bytes of a body that is within the bound: no system buffers it
Refused = tuple[int, str, int]  # the status that is due, the token, the bytes of the body
_SENDER = """
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
	size, _ := strconv.Atoi(os.Args[3])
	rounds, _ := strconv.Atoi(os.Args[4])
	for i := 0; i < rounds; i++ {
		request, _ := http.NewRequest("POST", os.Args[1], bytes.NewReader(make([]byte, size)))
		request.Header.Set("Authorization", "Bearer "+os.Args[2])
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}
}
"""


@pytest.fixture(scope="module")
def hasty(served: Served) -> Served:
    """The product as seen by an app that has used up its rate for hours."""
    [app] = new_apps(served, rate_max=1)
    link, lines = app.connection(), "".join(f"hasty,n={n} v=1\n" for n in range(50_000)).encode()
    assert wait_until(lambda: app.push(link, lines) == 429, 60)
    return app


@pytest.fixture(params=[401, 413, 429])
def refused(request: pytest.FixtureRequest, served: Served, hasty: Served) -> Refused:
    """What is sent, and the status that is due."""
    status: int = request.param
    token = {401: "spm_nobody", 413: served.token, 429: hasty.token}[status]
    return status, token, LARGE if status != 413 else 3 * BODY_BYTES_MAX


def _url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/write"


def test_curl_sees_why_its_body_is_refused(served: Served, refused: Refused, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing_service("curl is not installed (Debian: apt-get install curl)")
    status, token, size = refused
    (tmp_path / "body").write_bytes(bytes(size))
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {token}"]
    for expect in ("Expect:", "Expect: 100-continue"):
        ask = [*command, "-H", expect, "--data-binary", f"@{tmp_path}/body", _url(served)]
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
        assert (done.stdout, done.stderr) == (str(status), "")


def test_python_s_clients_see_why_their_body_is_refused(served: Served, refused: Refused) -> None:
    status, token, size = refused
    headers = {"Authorization": f"Bearer {token}"}
    pool, session = urllib3.PoolManager(retries=False), requests.Session()
    for _ in range(ROUNDS):
        assert pool.request("POST", _url(served), body=bytes(size), headers=headers).status == status
        assert session.post(_url(served), data=bytes(size), headers=headers).status_code == status


def test_go_sees_why_its_body_is_refused(served: Served, refused: Refused) -> None:
    def make(target: Path) -> None:
        source = target.with_suffix(".go")
        source.write_text(_SENDER)
        build(source.parent, target, source.name)

    status, token, size = refused
    command = [str(cached_build("refused-bodies", _SENDER.encode(), make)), _url(served), token, str(size), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(status)] * ROUNDS)


SIZES = (1_000, 1_000_000, 200_000_000)
GATHERED = 100_000  # bytes of a piece


def early_refusals(served: Served, hasty: Served) -> dict[int, tuple[str, str, tuple[int, ...]]]:
    """The token, the parameters and the sizes of bodies by the status that is due."""
    return {
        400: (served.token, "?source=a%07b", SIZES),
        401: ("spm_nobody", "", SIZES),
        413: (served.token, "", SIZES[2:]),
        429: (hasty.token, "", SIZES),
    }


@pytest.mark.parametrize("status", [400, 401, 413, 429])
def test_curl_sees_the_status_of_small_and_of_endless_bodies(
    served: Served, hasty: Served, status: int, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        missing_service("curl is not installed (Debian: apt-get install curl)")
    token, parameters, sizes = early_refusals(served, hasty)[status]
    for size in sizes:
        with (tmp_path / "body").open("wb") as body:
            body.truncate(size)
        for name in ("Expect:", "Expect: 100-continue", "Transfer-Encoding: chunked", "Content-Encoding: gzip"):
            command = ["curl", "-sS", "-X", "POST", "-w", " %{http_code}", "-H", f"Authorization: Bearer {token}"]
            command += ["-H", name, "-T", str(tmp_path / "body"), _url(served) + parameters]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (done.stdout[-3:], done.stderr) == (str(status), ""), (size, name)


@pytest.mark.parametrize("status", [400, 401, 413, 429])
def test_requests_sees_the_status_of_small_and_of_endless_bodies(served: Served, hasty: Served, status: int) -> None:
    token, parameters, sizes = early_refusals(served, hasty)[status]
    session = requests.Session()
    for size in sizes:
        pieces = [bytes(min(size, GATHERED))] * max(1, size // GATHERED)
        for body in (bytes(size), iter(pieces)):
            headers = {"Authorization": f"Bearer {token}"}
            answer = session.post(_url(served) + parameters, data=body, headers=headers, timeout=60)
            assert answer.status_code == status
            assert answer.json()["error"]


def test_the_refusal_of_a_rate_names_the_limit_its_size_and_where_it_is_changed(hasty: Served) -> None:
    answer = requests.post(_url(hasty), data=b"a v=1", headers={"Authorization": f"Bearer {hasty.token}"}, timeout=60)
    text = " ".join(str(part) for part in answer.json().values())
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
    for part in ("the app sends more samples than its rate allows", "at most 1 a second", "SPM_APP_RATE_MAX", "admin"):
        assert part in text


@pytest.mark.timeout(1200)  # its first run builds Telegraf
def test_telegraf_s_http_output_says_why_its_body_is_refused(
    served: Served, refused: Refused, run: Callable[..., Running], tmp_path: Path
) -> None:
    status, token, size = refused
    known = Known.make(f"telegraf_refused_{status}")
    line = f"{known.name},pad={'x' * 1_000} v="
    count = size // (len(line) + 30)
    (tmp_path / "lines").write_text("".join(f"{line}{n}i {1_700_000_000_000_000_000 + n}\n" for n in range(count)))
    output = telegraf.http(served, known.name).replace(served.token, token)
    config = telegraf.config(tmp_path / "lines", [output]).replace("size = 1000", "size = 200000")
    (tmp_path / "telegraf.conf").write_text(config)
    running = run(f"telegraf{status}", telegraf.binary(), "--config", tmp_path / "telegraf.conf")
    assert wait_until(lambda: f"received status code: {status}" in running.output(), 120), running.output()
    assert "broken pipe" not in running.output()
