"""The assembled agent: heartbeats and pushed settings, discovery, the doctor's checks, TLS and proxies."""

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ingest.agent import discover, doctor
from ingest.agent.__main__ import main
from ingest.agent.app import AgentApp, ConfigSource
from ingest.agent.discover import Listener
from ingest.agent.server.connector import Tls
from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Verdict
from ingest.agent.settings.config import Target
from ingest.agent.spool.records import Message
from spm.clock import FakeClock
from tests.ingest.agent.services import http
from tests.servers import authority

NOW = 1_700_000_000_000
OFF = "cpu,memory,load,disks,network,processes,containers"


class Site:
    """Answers heartbeats from a list, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[tuple[int, Mapping[str, Any]]] = []
        self.about: tuple[int, Mapping[str, Any]] = (200, {"server_ms": NOW, "version": "0.1.0", "app": "Shop"})
        self.url = ""


@pytest.fixture
def site() -> Iterator[Site]:
    own = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.startswith("/write"):
                self._answer(204, {})
                return
            own.requests.append((self.path, json.loads(body)))
            self._answer(*(own.answers.pop(0) if own.answers else (200, {"etag": "", "server_ms": NOW})))

        def do_GET(self) -> None:
            self._answer(*own.about)

        def _answer(self, status: int, content: Mapping[str, Any]) -> None:
            body = b"" if status == 204 else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    own.url = f"http://127.0.0.1:{server.server_port}"
    yield own
    server.shutdown()
    server.server_close()


@pytest.fixture
def make_app(site: Site, tmp_path: Path) -> Iterator[Callable[..., AgentApp]]:
    apps: list[AgentApp] = []

    def make(**environment: str) -> AgentApp:
        for each in apps:
            each.close()
        variables = {
            "SPM_AGENT_URL": site.url,
            "SPM_AGENT_TOKEN": "t",
            "SPM_AGENT_SPOOL": str(tmp_path / "spool"),
            "SPM_AGENT_CONFIG": "",
            "SPM_AGENT_HOST": "web-1",
            "SPM_AGENT_OFF": OFF,
            **environment,
        }
        variables = {name: value for name, value in variables.items() if value}
        apps[:] = [AgentApp(ConfigSource([], {"SPM_AGENT_CONFIG": "", **variables}), FakeClock(NOW))]
        return apps[0]

    yield make
    for each in apps:
        each.close()


def test_the_first_heartbeat_registers_and_reports_the_state(make_app: Callable[..., AgentApp], site: Site) -> None:
    own = make_app(SPM_AGENT_TAGS="role=web")
    own.agent.collect()
    own._heartbeat.send()  # type: ignore[union-attr]
    own._heartbeat.send()  # type: ignore[union-attr]
    (first, report), (second, _) = site.requests
    assert (first, second) == ("/api/v1/agents", "/api/v1/agents/heartbeat")
    assert (report["name"], report["period_ms"], report["tags"], report["spooled"]) == (
        "web-1",
        10_000,
        {"role": "web"},
        1,
    )
    assert (report["now_ms"], report["sequence"], len(report["spool"])) == (NOW, 1, 12)
    assert report["collectors"] == {"itself": "ok"}


def test_pushed_settings_are_applied_stored_and_confirmed(make_app: Callable[..., AgentApp], site: Site) -> None:
    own = make_app(SPM_AGENT_TAGS="role=web", SPM_AGENT_OFF="")
    pushed = {"period_s": 30, "off": ["cpu"], "tags": {"a": "b"}, "url": "http://evil"}
    site.answers = [(201, {"etag": "e1", "settings": pushed})]
    own._heartbeat.send()  # type: ignore[union-attr]
    assert (own.config.period_ms, own.config.labels, own.config.url) == (
        30_000,
        {"host": "web-1", "role": "web"},
        site.url,
    )
    assert "cpu" not in own.collectors.names()
    own._heartbeat.send()  # type: ignore[union-attr]
    report = site.requests[-1][1]
    assert (report["etag"], report["period_ms"], set(report["refused"])) == ("e1", 30_000, {"url", "tags"})
    again = make_app(SPM_AGENT_TAGS="role=web", SPM_AGENT_OFF="")
    assert (again.config.period_ms, "cpu" in again.collectors.names()) == (30_000, False)


def test_withdrawn_settings_leave_those_of_the_host(make_app: Callable[..., AgentApp], site: Site) -> None:
    own = make_app()
    site.answers = [(200, {"etag": "e1", "settings": {"period_s": 30}}), (200, {"etag": "", "settings": {}})]
    own._heartbeat.send()  # type: ignore[union-attr]
    own._heartbeat.send()  # type: ignore[union-attr]
    assert own.config.period_ms == 10_000


@pytest.mark.parametrize("status", [401, 403, 404, 405, 500, 503])
def test_a_server_that_accepts_no_heartbeat_costs_nothing(
    make_app: Callable[..., AgentApp], site: Site, status: int
) -> None:
    own = make_app()
    site.answers = [(status, {})] * 30
    for _ in range(10):
        own._heartbeat.send()  # type: ignore[union-attr]
    own.agent.collect()
    assert own.agent.push() == 0.0
    assert len(site.requests) == (1 if status in (404, 405) else 10)


def test_an_agent_deleted_at_the_server_registers_again(make_app: Callable[..., AgentApp], site: Site) -> None:
    own = make_app()
    site.answers = [(201, {}), (404, {}), (201, {})]
    for _ in range(3):
        own._heartbeat.send()  # type: ignore[union-attr]
    assert [path for path, _ in site.requests] == ["/api/v1/agents", "/api/v1/agents/heartbeat", "/api/v1/agents"]


def test_the_labels_of_a_service_are_on_its_points(make_app: Callable[..., AgentApp], tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[[command]]\nname = "x"\nrun = ["echo", "m v=1"]\ntags = { team = "a" }\n')
    own = make_app(SPM_AGENT_CONFIG=str(path))
    batches = own.collectors.collect(NOW, 10)
    assert [p.labels for _, points in batches for p in points if p.measurement == "m"] == [{"team": "a"}]


# --- discovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "port", "kinds"),
    [
        ("redis-server", 7000, ["redis"]),
        ("", 6379, ["redis"]),
        ("sshd", 6379, []),
        ("nginx", 80, ["nginx"]),
        ("java", 9200, ["elasticsearch"]),
        ("java", 8983, ["solr"]),
        ("java", 16030, ["jmx"]),
        ("java", 5005, []),
        ("node_exporter", 9100, ["prometheus"]),
        ("mysqld_exporter", 19104, ["prometheus"]),
        ("postgres", 5432, ["postgres"]),
        ("beam.smp", 15672, ["rabbitmq"]),
        ("python3", 8000, []),
        ("", 12345, []),
    ],
)
def test_only_sockets_with_a_hint_get_a_request(program: str, port: int, kinds: list[str]) -> None:
    result = discover.candidates([Listener("127.0.0.1", port, program)], off=frozenset(), known=())
    assert [hint.kind for hint, _ in result] == kinds


def test_services_that_are_off_or_configured_get_no_request() -> None:
    listening = [Listener("0.0.0.0", 6379, "redis-server")]
    known = [Target("redis", {"address": "localhost:6379"})]
    assert discover.candidates(listening, off=frozenset({"redis"}), known=()) == []
    assert discover.candidates(listening, off=frozenset(), known=known) == []


def test_a_candidate_counts_only_if_it_answers_as_expected() -> None:
    hint = next(hint for hint in discover.HINTS if hint.kind == "nginx")
    page = b"Active connections: 1 \nserver accepts handled requests\n 1 1 1 \nReading: 0 Writing: 1 Waiting: 0 \n"
    with http({"/stub_status": page}) as (url, _):
        port = int(url.rpartition(":")[2])
        assert discover.probe(hint, Listener("127.0.0.1", port)) == Target("nginx", {"url": f"{url}/stub_status"})
    with http({"/stub_status": b"hello"}) as (url, _):
        assert discover.probe(hint, Listener("127.0.0.1", int(url.rpartition(":")[2]))) is None


def test_this_machines_listeners_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        [own] = [each for each in discover.listeners() if each.port == port]
        assert own.place == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("address", "place"), [("0.0.0.0", "127.0.0.1:1"), ("::", "[::1]:1"), ("10.0.0.1", "10.0.0.1:1")]
)
def test_a_listener_on_all_addresses_is_reached_on_loopback(address: str, place: str) -> None:
    assert Listener(address, 1).place == place


# --- the doctor -------------------------------------------------------------------------------------------------------


def checks(own: AgentApp) -> dict[str, tuple[str, str]]:
    return {check.subject: (check.state, check.message) for check in doctor.run_checks(own.config, FakeClock(NOW))}


def test_the_doctor_reports_no_problem_if_there_is_none(make_app: Callable[..., AgentApp]) -> None:
    result = checks(make_app())
    assert {what: state for what, (state, _) in result.items()} == dict.fromkeys(
        ("settings", "name", "connection", "token", "clock", "spool"), "ok"
    )
    assert "Shop" in result["token"][1]


def test_the_doctor_names_what_is_wrong(make_app: Callable[..., AgentApp], site: Site) -> None:
    own = make_app()
    site.about = (200, {"server_ms": NOW - 90_000, "app": "Shop", "version": "9.9.9"})
    result = checks(own)
    assert result["clock"][0] == "wrong"
    assert "90.0 s ahead" in result["clock"][1]
    assert result["version"][0] == "warning"
    site.about = (401, {})
    assert checks(own)["token"][0] == "wrong"
    site.about = (200, {})
    assert "not as expected" in checks(own)["token"][1]


@pytest.mark.parametrize(
    ("url", "what", "message"),
    [
        ("http://no-such-host.invalid", "name", "cannot be resolved"),
        ("http://127.0.0.1:1", "connection", "refused"),
        ("amqp://u:geheim@127.0.0.1:1/%2F", "broker", "refused"),
    ],
)
def test_the_doctor_says_which_step_to_the_server_fails(
    make_app: Callable[..., AgentApp], url: str, what: str, message: str
) -> None:
    result = checks(make_app(SPM_AGENT_URL=url))
    assert message in result[what][1]
    assert "geheim" not in str(result)


def test_the_doctor_reads_a_spool_in_use_and_leaves_it(make_app: Callable[..., AgentApp]) -> None:
    own = make_app()
    own.agent.collect()
    assert "1 messages wait" in checks(own)["spool"][1]
    assert own.spool.depth() == 1


def test_the_doctor_warns_of_secrets_that_all_users_can_read(make_app: Callable[..., AgentApp], tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('token = "x"\n')
    path.chmod(0o644)
    assert checks(make_app(SPM_AGENT_CONFIG=str(path)))["settings"][0] == "warning"
    path.chmod(0o600)
    assert checks(make_app(SPM_AGENT_CONFIG=str(path)))["settings"][0] == "ok"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["version"], 0), (["nonsense"], 2), (["install"], 2), (["run", "-h"], 0)]
)
def test_commands_end_with_their_status(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    assert "".join(capsys.readouterr())


# --- TLS and proxies --------------------------------------------------------------------------------------------------


@contextmanager
def proxy_server(requests: list[bytes]) -> Iterator[int]:
    """A proxy that supports CONNECT, and answers all other requests itself."""

    def serve(link: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += link.recv(65_536)
        requests.append(head)
        if not head.startswith(b"CONNECT "):
            link.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            return
        host, port = head.split()[1].decode().rsplit(":", 1)
        with socket.create_connection((host, int(port))) as there:
            link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(there, link), daemon=True)
            back.start()
            _pump(link, there)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(link,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(65_536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


MESSAGE = Message(1, b"\xab" * 16, b"zipped")


def test_a_plain_server_is_reached_through_a_proxy_with_its_password() -> None:
    requests: list[bytes] = []
    with proxy_server(requests) as port:
        push = open_push("http://spm.example/x", token="t", source="h", proxy=f"http://u:p%40@127.0.0.1:{port}")
        assert push.send(MESSAGE).verdict is Verdict.ACCEPTED
    assert requests[0].startswith(b"POST http://spm.example/x/write?precision=ms HTTP/1.1")
    assert b"Proxy-Authorization: Basic dTpwQA==" in requests[0]


@pytest.fixture(scope="module")
def tls_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, authority.Signed]]:
    """A site that requires a client certificate of its own authority."""
    signed = authority.sign(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    context.load_verify_locations(signed.ca)
    context.verify_mode = ssl.CERT_REQUIRED

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"https://localhost:{server.server_port}", signed
    server.shutdown()
    server.server_close()


def test_tls_works_with_an_own_authority_and_a_client_certificate(tls_site: tuple[str, authority.Signed]) -> None:
    url, signed = tls_site
    tls = Tls(str(signed.ca), str(signed.certificate), str(signed.key))
    assert open_push(url, token="t", source="h", tls=tls).send(MESSAGE).verdict is Verdict.ACCEPTED


def test_tls_goes_through_a_proxy_that_sees_only_the_name(tls_site: tuple[str, authority.Signed]) -> None:
    url, signed = tls_site
    tls = Tls(str(signed.ca), str(signed.certificate), str(signed.key))
    requests: list[bytes] = []
    with proxy_server(requests) as port:
        push = open_push(url, token="geheim", source="h", tls=tls, proxy=f"http://127.0.0.1:{port}")
        assert push.send(MESSAGE).verdict is Verdict.ACCEPTED
        push.close()
    assert requests[0].startswith(f"CONNECT {url.removeprefix('https://')} ".encode())
    assert b"geheim" not in b"".join(requests)


def test_a_server_with_an_untrusted_certificate_gets_nothing(tls_site: tuple[str, authority.Signed]) -> None:
    outcome = open_push(tls_site[0], token="t", source="h").send(MESSAGE)
    assert outcome.verdict is Verdict.RETRY
    assert "CERTIFICATE_VERIFY_FAILED" in outcome.reason


def test_the_doctor_explains_an_invalid_certificate(
    tls_site: tuple[str, authority.Signed], make_app: Callable[..., AgentApp]
) -> None:
    state, message = checks(make_app(SPM_AGENT_URL=tls_site[0]))["TLS"]
    assert state == "wrong"
    assert "Set ca_file" in message


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
def test_a_bad_pem_file_is_reported_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("no pem")
    command = [
        sys.executable,
        "-m",
        "ingest.agent",
        "run",
        "--url",
        "https://localhost",
        f"--{name.replace('_', '-')}",
        str(tmp_path / "x"),
        "--spool",
        str(tmp_path / "s"),
    ]
    root = Path(__file__).resolve().parents[3]
    env = {"SPM_AGENT_TOKEN": "t", "SPM_AGENT_CONFIG": "", "PATH": "/usr/bin"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{name} cannot be used" in done.stderr
