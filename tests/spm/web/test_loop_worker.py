"""Claims about spm/web/loop_worker.py under a real gunicorn: no restart costs a request, and an end is in order."""

import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spm import limits
from spm.clock import SystemClock
from spm.web.loop_worker import SWITCH_S
from tests.servers.authority import sign
from tests.servers.processes import Process, answers, free_ports, stopped, wait_ready, wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
GUNICORN = Path(sysconfig.get_path("scripts")) / "gunicorn"
CLIENTS = 8


@dataclass
class Web:
    """A gunicorn with the worker and the small site."""

    folder: Path
    port: int
    process: Process

    def start(
        self, *options: str | Path, environment: Mapping[str, str] | None = None, command: tuple[str, ...] = ()
    ) -> None:
        """Start it, and wait until it listens."""
        self.launch(*options, environment=environment, command=command)
        wait_ready(lambda: answers(self.port), [self.process], 30)

    def launch(
        self, *options: str | Path, environment: Mapping[str, str] | None = None, command: tuple[str, ...] = ()
    ) -> None:
        """Start it."""
        bind = () if command else ("--bind", f"127.0.0.1:{self.port}")
        words = (sys.executable, GUNICORN, "tests.spm.web.worker_site:open_site", *bind)
        worker = ("--worker-class", "spm.web.loop_worker.LoopWorker", "--graceful-timeout", "10")
        self.process.start(
            [*command, *words, *worker, "--no-control-socket", "--pid", self.folder / "arbiter", *options],
            {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})},
        )

    def signal(self, number: int, pid: int | None = None) -> None:
        """Send a signal to the arbiter, or to one of its processes."""
        pid = pid or self.process.pid()
        assert pid is not None
        os.kill(pid, number)

    def ask(self, path: str = "/pid") -> str:
        """The answer to one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def log(self) -> str:
        """What it printed."""
        return self.process.log.read_text()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    process = Process("web", tmp_path)
    yield Web(tmp_path, free_ports(1)[0], process)
    process.kill_all()


@dataclass
class Load:
    """Clients that ask again and again on kept connections, each a moment after its last answer."""

    port: int
    over: threading.Event = field(default_factory=threading.Event)
    pids: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Load":
        self.threads = [threading.Thread(target=self._ask, args=(0.003 * (n + 1),)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()
        assert wait_until(lambda: len(self.pids) > 100, 20)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def _ask(self, pause_s: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self.over.wait(pause_s):
            try:
                connection.request("GET", "/pid")  # connects again where the last answer said that it was the last
                answer = connection.getresponse()
                self.pids.append(answer.read().decode())
                assert answer.status == 200
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(repr(error))
                connection.close()
        connection.close()


def test_the_loop_waits_briefly_for_a_thread_that_computes(web: Web) -> None:
    web.start()
    assert float(web.ask("/switch")) == SWITCH_S <= 0.001


def test_a_restart_with_new_code_costs_no_request(web: Web) -> None:
    web.start("--workers", "2")
    with Load(web.port) as load:
        for _ in range(3):
            before = set(load.pids[-200:])
            web.signal(signal.SIGHUP)
            assert wait_until(lambda before=before: before.isdisjoint(load.pids[-50:]), 20)  # type: ignore[misc]
    assert load.failures == []
    assert "Traceback" not in web.log()


def test_a_new_arbiter_takes_over_without_a_failed_request(web: Web) -> None:
    web.start()
    old = web.process.pid()
    with Load(web.port) as load:
        before = set(load.pids)
        web.signal(signal.SIGUSR2)
        successor = web.folder / "arbiter.2"
        assert wait_until(successor.exists, 20)
        new = int(successor.read_text())
        assert wait_until(lambda: web.ask() not in before, 20)  # kept connections stay with the old one
        web.signal(signal.SIGTERM)
        assert wait_until(lambda: web.process.pid() is None, 20)
        count = len(load.pids)
        assert wait_until(lambda: len(load.pids) > count + 200, 20)
        assert before.isdisjoint(load.pids[-100:])
    assert load.failures == []
    assert old != new
    os.kill(new, signal.SIGTERM)
    assert wait_until(lambda: not answers(web.port), 20)


@pytest.mark.timed
def test_an_end_answers_what_is_at_work_and_closes_idle_connections(web: Web) -> None:
    web.start()
    idle = socket.create_connection(("127.0.0.1", web.port), timeout=20)
    idle.sendall(b"GET /pid HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in idle.recv(4_096)
    said: list[str] = []
    paths = ("/slow?2", "/stream")
    threads = [threading.Thread(target=lambda path=path: said.append(web.ask(path))) for path in paths]
    for thread in threads:
        thread.start()
    SystemClock().sleep(0.5)
    begun = SystemClock().monotonic()
    web.signal(signal.SIGTERM)
    assert idle.recv(4_096) == b""
    idle_s = SystemClock().monotonic() - begun
    for thread in threads:
        thread.join(20)
    assert web.process.wait(20)
    assert limits.WEB_LAST_REQUEST_S <= idle_s < limits.WEB_LAST_REQUEST_S + 1
    assert SystemClock().monotonic() - begun < 4
    assert all(re.search(r"\d+$", each) for each in said)
    assert len(said) == 2
    assert re.search(r"^closed \d+$", web.log(), re.MULTILINE)


@pytest.mark.timed
def test_a_request_that_comes_during_the_end_is_answered_as_its_connections_last(web: Web) -> None:
    web.start()
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    connection.request("GET", "/pid")
    pid = connection.getresponse().read()
    web.signal(signal.SIGTERM, int(pid))
    SystemClock().sleep(0.4)
    connection.request("GET", "/pid")
    answer = connection.getresponse()
    assert (answer.read(), answer.getheader("connection")) == (pid, "close")


@pytest.mark.timed
def test_a_request_that_takes_too_long_is_cut_off_at_the_end(web: Web) -> None:
    web.start()
    with socket.create_connection(("127.0.0.1", web.port), timeout=20) as client:
        client.sendall(b"GET /slow?60 HTTP/1.1\r\nHost: x\r\n\r\n")
        SystemClock().sleep(0.3)
        begun = SystemClock().monotonic()
        web.signal(signal.SIGTERM)
        assert web.process.wait(20)
        assert limits.WEB_GRACE_S - 1 < SystemClock().monotonic() - begun < 10
    assert "closed" in web.log()


@pytest.mark.timed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["INT", "QUIT"])
def test_an_end_at_once_waits_for_nobody(web: Web, number: int) -> None:
    web.start()
    with socket.create_connection(("127.0.0.1", web.port), timeout=20) as client:
        client.sendall(b"GET /slow?60 HTTP/1.1\r\nHost: x\r\n\r\n")
        SystemClock().sleep(0.3)
        web.signal(number)
        assert web.process.wait(4)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGWINCH], ids=["USR1", "WINCH"])
def test_a_signal_about_logs_or_terminals_ends_no_worker(web: Web, number: int) -> None:
    web.start()
    pid = web.ask()
    web.signal(number, int(pid))
    SystemClock().sleep(0.3)
    assert web.ask() == pid


def test_a_worker_whose_arbiter_was_killed_ends_by_itself(web: Web) -> None:
    web.start()
    worker = int(web.ask())
    web.process.kill()
    assert wait_until(lambda: not Path(f"/proc/{worker}").exists() or not answers(web.port), 15)


def test_a_killed_worker_is_replaced(web: Web) -> None:
    web.start()
    pid = web.ask()
    web.signal(signal.SIGKILL, int(pid))
    assert wait_until(lambda: answers(web.port) and web.ask() != pid, 15)


def test_each_of_two_workers_serves(web: Web) -> None:
    web.start("--workers", "2")
    arbiter = web.process.pid()
    children = Path(f"/proc/{arbiter}/task/{arbiter}/children")
    assert wait_until(lambda: len(children.read_text().split()) == 2 and web.ask().isdigit(), 10)
    first, second = children.read_text().split()
    for still, other in ((first, second), (second, first)):
        with stopped(int(still)):
            assert {web.ask() for _ in range(5)} == {other}


def start_for_socket(web: Web, listener: socket.socket) -> subprocess.Popen[bytes]:
    """Start the server as systemd does, which hands its sockets over from number 3 on, and names their count and the
    process that they are for.
    """
    script = f'exec 3<&{listener.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"'
    words = [sys.executable, "-m", "gunicorn", "tests.spm.web.worker_site:open_site", "--no-control-socket"]
    with web.process.log.open("wb") as out:
        child = subprocess.Popen(
            ["bash", "-c", script, "x", *words, "--worker-class", "spm.web.loop_worker.LoopWorker"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=out,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    web.process.adopt(child.pid)
    return child


def test_a_socket_of_systemd_is_served(web: Web) -> None:
    with socket.create_server(("127.0.0.1", web.port)) as listener:
        start_for_socket(web, listener)
    assert wait_until(lambda: "Booting worker" in web.log(), 20)
    assert web.ask().isdigit()
    web.signal(signal.SIGTERM)
    assert web.process.wait(15)


def test_a_service_with_a_socket_of_systemd_ends_and_begins_again_without_a_failed_request(web: Web) -> None:
    """Connections that come in between wait in the socket, which stays open."""
    with socket.create_server(("127.0.0.1", web.port), backlog=128) as listener:
        first = start_for_socket(web, listener)
        assert wait_until(lambda: answers(web.port), 20)
        with Load(web.port) as load:
            before = set(load.pids)
            web.signal(signal.SIGTERM)
            assert first.wait(20) == 0
            SystemClock().sleep(0.3)
            start_for_socket(web, listener)
            count = len(load.pids)
            assert wait_until(lambda: len(load.pids) > count + 100, 20)
            assert before.isdisjoint(load.pids[-50:])
    assert load.failures == []
    web.signal(signal.SIGTERM)
    assert web.process.wait(15)


def test_tls_is_served_with_the_arbiters_certificate(web: Web, tmp_path: Path) -> None:
    signed = sign(tmp_path)
    web.start("--certfile", signed.certificate, "--keyfile", signed.key)
    context = ssl.create_default_context(cafile=str(signed.ca))
    connection = http.client.HTTPSConnection("localhost", web.port, context=context, timeout=20)
    for _ in range(2):
        connection.request("GET", "/pid")
        assert connection.getresponse().read().isdigit()
    connection.close()


@pytest.mark.parametrize(
    ("options", "environment", "text"),
    [
        ((), {"SITE_FAULT": "1"}, "ValueError: the site has no foundation"),
        (("--certfile", "{folder}/bad.pem", "--keyfile", "{folder}/bad.pem"), {}, "SSLError"),
        (("--chdir", "/", "--pythonpath", "{folder}"), {"BREAK_IMPORT": "1"}, "RuntimeError: this module is broken"),
    ],
    ids=["a fault of the site", "a damaged certificate", "a module that cannot be loaded"],
)
def test_a_fault_at_the_start_ends_the_server_with_one_line_that_says_why(
    web: Web, options: tuple[str, ...], environment: dict[str, str], text: str
) -> None:
    (web.folder / "bad.pem").write_text("no certificate")
    if "BREAK_IMPORT" in environment:
        package = web.folder / "tests" / "spm" / "web"
        package.mkdir(parents=True)
        (package / "worker_site.py").write_text("raise RuntimeError('this module is broken')\n")
        environment = {"PYTHONPATH": f"{web.folder}:{ROOT}"}
        (web.folder / "tests/__init__.py").touch()
        (web.folder / "tests/spm/__init__.py").touch()
        (package / "__init__.py").touch()
    web.launch(*(each.format(folder=web.folder) for each in options), environment=environment)
    assert web.process.wait(20)
    log = web.log()
    [line] = [each for each in log.splitlines() if "cannot begin" in each]
    assert text in line
    assert "exited with code 3" in log
    assert "Traceback" not in log
