"""``bin/stack``: the whole stack up, the product on it, everything killed, up again, down; and what it says."""

import gzip
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Verdict
from ingest.agent.spool.records import Message
from tests.conftest import missing_service
from tests.servers.command import NOT_RUNNING, main
from tests.servers.processes import Process, answers, kept_ports, wait_until
from tests.servers.product import ROOT, Served, start_product
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.whole import Chosen, Stack

UP_S = 300
SAMPLE_S = 1_767_225_600


def bare(data: Path, **chosen: object) -> Stack:
    return Stack(data, Chosen(**chosen), "secret")  # type: ignore[arg-type]


# --- without any server -----------------------------------------------------------------------------------------------


def test_status_of_an_empty_folder_says_what_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "stack"
    assert main(["status", "--data", str(data)]) == NOT_RUNNING
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in said] == ["postgres", "rabbitmq", "hbase", "spark"]
    assert all("does not run" in line and "=" not in line for line in said)


def test_settings_name_every_server_and_hold_no_spaces(tmp_path: Path) -> None:
    settings = bare(tmp_path).settings()
    assert settings["DATABASE_URL"].startswith("postgres://")
    assert settings["SPM_SPARK_MASTER"].startswith("spark://")
    assert settings["SPM_STORE_URL"].startswith("hbase://")
    assert not [value for value in settings.values() if " " in value]
    assert not {"DATABASE_URL", "SPM_SPARK_MASTER"} & bare(tmp_path, without=("spark", "postgres")).settings().keys()


def test_ports_of_one_folder_differ_and_stay(tmp_path: Path) -> None:
    urls = [server.url for server in bare(tmp_path).servers.values()]
    ports = [p for file in tmp_path.glob("*/ports.json") for p in json.loads(file.read_text()).values()]
    assert len(set(ports)) == len(ports) >= 10
    assert [server.url for server in bare(tmp_path).servers.values()] == urls


def test_what_was_chosen_once_is_chosen_until_something_else_is(tmp_path: Path) -> None:
    bare(tmp_path, cluster=True, without=("spark",))._keep()
    assert Stack.at(tmp_path).chosen == Chosen(cluster=True, without=("spark",))
    assert set(Stack.at(tmp_path).servers) == {"postgres", "rabbitmq", "hbase"}
    assert Stack.at(tmp_path).secret == "secret"


def test_a_port_that_another_program_has_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = bare(tmp_path, without=("postgres", "spark"))
    if reason := RabbitMQ(tmp_path).missing():
        missing_service(reason)
    stack._keep()
    port = kept_ports(tmp_path / "rabbitmq", ("amqp", "epmd", "distribution", "tls"))["amqp"]
    stranger = Process("stranger", tmp_path)
    stranger.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", str(port)], os.environ)
    try:
        assert wait_until(lambda: answers(port), 20)
        assert main(["up", "--data", str(tmp_path)]) == 1
    finally:
        stranger.kill()
    assert f"port {port} is another program's" in capsys.readouterr().err


# --- the whole of it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole:
    """The stack as a new user brings it up, and the product on it."""

    data: Path
    settings: Mapping[str, str]
    product: Served

    def shell(self, verb: str) -> subprocess.CompletedProcess[str]:
        return _stack(self.data, verb)

    def visible(self, metric: str) -> bool:
        connection = self.product.connection()
        settings = self.product.ask(connection, "query", query=metric, time=SAMPLE_S + 1)
        connection.close()
        return bool(settings["result"])


def _stack(data: Path, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [str(ROOT / "bin" / "stack"), verb, "--data", str(data), *options]
    environment = {**os.environ, "SPM_DATA": str(data.parent / "product")}
    return subprocess.run(words, capture_output=True, text=True, timeout=UP_S, check=False, env=environment)


def _start_product(data: Path, settings: Mapping[str, str], port: int) -> Served:
    return start_product(data, port=port, environment={**os.environ, **settings, "SPM_DATA": str(data)})


@pytest.fixture(scope="module", params=["--light", pytest.param("--cluster", marks=pytest.mark.proof)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    data = tmp_path_factory.mktemp("whole") / "stack"
    port = kept_ports(data / "site", ["http"])["http"]  # no server of the stack takes it before the site begins
    if reasons := [reason for server in bare(data).servers.values() if (reason := server.missing())]:
        missing_service("; ".join(reasons))
    try:
        up = _stack(data, "up", request.param, "--site", f"http://127.0.0.1:{port}")
        assert up.returncode == 0, up.stderr
        lines = [line for line in _stack(data, "status").stdout.splitlines() if "=" in line]
        settings = dict(line.split("=", 1) for line in lines)
        product = _start_product(data.parent / "product", settings, port)
        yield Whole(data, settings, product)
        product.stop()
    finally:
        _stack(data, "down")
        shutil.rmtree(Stack.at(data).servers["postgres"].folder)  # it may lie elsewhere


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_product_works_on_the_whole_stack_also_after_everything_was_killed(whole: Whole) -> None:
    connection = whole.product.connection()
    assert whole.product.push(connection, f"first value=1 {SAMPLE_S * 1000}\n".encode()) == 204
    assert wait_until(lambda: whole.visible("first"), 60)
    kill_all(whole.data)
    assert whole.shell("status").returncode == NOT_RUNNING
    healed = whole.shell("up")
    assert healed.returncode == 0, healed.stderr
    assert dict(line.split("=", 1) for line in healed.stdout.splitlines() if "=" in line) == whole.settings
    body = f"second value=2 {SAMPLE_S * 1000}\n".encode()
    assert wait_until(lambda: whole.product.push(whole.product.connection(), body) == 204, 60)
    assert wait_until(lambda: whole.visible("first") and whole.visible("second"), 60)
    assert agents_push(whole), "the broker does not ask the site"


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.proof
def test_the_whole_stack_rolls_up_on_its_spark_cluster(whole: Whole) -> None:
    connection = whole.product.connection()
    assert whole.product.push(connection, f"rolled value=1 {SAMPLE_S * 1000}\n".encode()) == 204
    assert wait_until(lambda: whole.visible("rolled"), 60)
    environment = {**os.environ, **whole.settings, "SPM_DATA": str(whole.data.parent / "product")}
    words = [str(ROOT / "bin" / "manage"), "roll", "--app", str(whole.product.app)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=UP_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "samples" in done.stdout
    assert whole.visible("rolled")


@pytest.mark.real
@pytest.mark.slow
def test_the_whole_stack_goes_down_and_leaves_nothing_running(whole: Whole) -> None:
    assert living(whole.data)
    assert whole.shell("down").returncode == 0
    assert not living(whole.data)


def agents_push(whole: Whole) -> bool:
    """Whether an agent's push through RabbitMQ is stored: the broker asks the web server who it is."""
    name = "_".join(whole.product.token.split("_")[:2])
    address = whole.settings["SPM_AMQP_URL"].partition("?")[0].replace("guest:guest", f"{name}:{whole.product.token}")
    push = open_push(address, token=whole.product.token, source="host")
    body = gzip.compress(f"third value=3 {SAMPLE_S * 1000}\n".encode())
    taken = wait_until(lambda: push.send(Message(1, bytes(15) + b"\1", body)).verdict is Verdict.ACCEPTED, 30)
    push.close()
    return taken and wait_until(lambda: whole.visible("third"), 60)


def processes(data: Path) -> list[Process]:
    folders = [server.folder for server in Stack.at(data).servers.values()]
    return [Process(file.stem, folder) for folder in folders for file in folder.glob("*.pid")]


def living(data: Path) -> list[str]:
    return [process.name for process in processes(data) if process.alive()]


def kill_all(data: Path) -> None:
    assert len(living(data)) >= 8, "PostgreSQL, RabbitMQ and its mapper, HBase and its gateway, Spark's three"
    for process in processes(data):
        process.kill()
    time.sleep(0.5)
