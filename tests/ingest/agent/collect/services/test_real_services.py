"""Collectors and discovery against the real RabbitMQ, PostgreSQL, Redis and nginx, each a private one of Debian's."""

import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ingest.agent import discover
from ingest.agent.collect.fetch import Unreachable
from ingest.agent.discover import Listener
from ingest.agent.settings.config import Target
from tests.conftest import missing_service
from tests.ingest.agent.collect.services.test_services import collect, values
from tests.servers.postgres import Postgres
from tests.servers.processes import Process, answers, free_ports, wait_ready
from tests.servers.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.real, pytest.mark.slow]
READY_S = 240
GUEST = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
NGINX = """\
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location = /nginx_status {{ stub_status; }}
    location / {{ return 204; }}
  }}
}}
"""


def program(name: str) -> str:
    """Returns the path of a server's program; without it the test is skipped."""
    result = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if result is None:
        missing_service(f"{name} is not installed (Debian: apt-get install {name})")
    return result


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis whose password is "geheim"."""
    [port], process = free_ports(1), Process("redis", tmp_path)
    command = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--requirepass",
        "geheim",
        "--save",
        "",
        "--dir",
        str(tmp_path),
    ]
    process.start([program("redis-server"), *command], os.environ)
    wait_ready(lambda: answers(port), [process], READY_S)
    yield port
    process.stop()


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[int]:
    """The port of an nginx with its status page."""
    [port], process = free_ports(1), Process("nginx", tmp_path)
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, port=port))
    process.start([program("nginx"), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], os.environ)
    wait_ready(lambda: answers(port), [process], READY_S)
    yield port
    process.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RabbitMQ]:
    """A RabbitMQ with its management interface, and a queue that holds a message."""
    rabbitmq = RabbitMQ(tmp_path / "broker", management=True)
    if reason := rabbitmq.missing():
        missing_service(reason)
    rabbitmq.start()
    yield rabbitmq
    rabbitmq.stop()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    if reason := Postgres.missing():
        missing_service(reason)
    server = Postgres.new()
    server.start()
    yield server
    server.stop()


def hint(kind: str) -> discover.Hint:
    return next(each for each in discover.HINTS if each.kind == kind)


def found_at(kind: str, port: int) -> Target | None:
    """Returns the target that discovery makes of a port with this kind of service."""
    return discover.probe(hint(kind), Listener("127.0.0.1", port))


def test_the_real_redis_is_read_by_its_password_and_not_without(redis: int) -> None:
    address = f"127.0.0.1:{redis}"
    before, after = (collect("redis", address=address, password="geheim") for _ in range(2))
    first, second = values(before)["redis"], values(after)["redis"]
    assert second["total_commands_processed"] >= first["total_commands_processed"] + 1
    assert (first["connected_clients"], before[0].labels["role"]) == (1, "master")
    with pytest.raises(Unreachable, match="NOAUTH"):
        collect("redis", address=address)
    with pytest.raises(Unreachable, match="does not accept the password") as caught:
        collect("redis", address=address, password="geraten")
    assert "geraten" not in str(caught.value)
    assert found_at("redis", redis) is None  # discovery knows no password


def test_the_real_nginx_counts_what_it_was_asked_and_is_found(nginx: int) -> None:
    url = f"http://127.0.0.1:{nginx}"
    before = values(collect("nginx", url=f"{url}/nginx_status"))["nginx"]
    for _ in range(5):
        urllib.request.urlopen(f"{url}/", timeout=30).close()
    after = values(collect("nginx", url=f"{url}/nginx_status"))["nginx"]
    assert after["requests"] == before["requests"] + 6
    result = found_at("nginx", nginx)
    assert result is not None
    assert result.options["url"] == f"{url}/nginx_status"
    with pytest.raises(Unreachable):
        collect("nginx", url=f"{url}/")


@pytest.mark.timed
def test_the_real_rabbitmq_shows_its_node_and_each_queue(broker: RabbitMQ) -> None:
    make = urllib.request.Request(f"{broker.management_url}/api/queues/%2F/work", b"{}", GUEST, method="PUT")
    urllib.request.urlopen(make, timeout=READY_S).close()
    until = time.monotonic() + READY_S
    options = {"url": broker.management_url, "user": "guest", "password": "guest"}
    while "rabbitmq_queue" not in (result := values(points := collect("rabbitmq", **options))) or (
        "mem_used" not in result.get("rabbitmq_node", {})  # its statistics come a little after it
    ):
        assert time.monotonic() < until, result
        time.sleep(0.5)
    assert (result["rabbitmq_node"]["running"], result["rabbitmq_node"]["mem_alarm"]) == (1, 0)
    assert result["rabbitmq_node"]["mem_used"] > 1_000_000
    [queue] = [point for point in points if point.measurement == "rabbitmq_queue"]
    assert (queue.labels["queue"], queue.labels["vhost"]) == ("work", "/")
    with pytest.raises(Unreachable, match="401"):
        collect("rabbitmq", **{**options, "password": "geraten"})


def test_the_real_postgresql_shows_its_databases_to_a_login_made_as_discovery_says(postgres: Postgres) -> None:
    statements = hint("postgres").advice.removeprefix("needs a login: ").replace("…", "geheim")
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        for statement in filter(None, statements.split(";")):
            owner.execute(statement.encode())
    target = found_at("postgres", postgres.port)
    assert target is not None
    result = values(collect("postgres", **target.options, user="spm_agent", password="geheim"))
    assert result["postgresql"]["max_connections"] == 60
    assert result["postgresql_database"]["size_bytes"] > 1_000_000
    assert result["postgresql_connections"]["connections"] >= 1
    assert result["postgresql_writer"].keys() >= {"buffers_clean", "buffers_alloc"}
