"""A backup of the product under load, put back on an empty machine, holds what was acknowledged before it began."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_service
from tests.servers.postgres import Postgres
from tests.servers.product import ROOT, Served, start_product

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]
HOSTS = 50
HOUR = "sum(count_over_time(load_v[1h]))"


class Load:
    """A sender that never pauses; ``acknowledged`` counts its samples."""

    def __init__(self, served: Served) -> None:
        self.acknowledged = self.sent = 0
        self._served, self._stop = served, threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _send(self) -> None:
        link = self._served.connection()
        while not self._stop.is_set():
            now_ms = time.time_ns() // 1_000_000
            body = "\n".join(f"load,host=h{host} v=1 {now_ms}" for host in range(HOSTS))
            self.sent += HOSTS
            assert self._served.push(link, body.encode()) == 204
            self.acknowledged += HOSTS
            time.sleep(0.02)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """The settings of two databases, of which the second is empty."""
    if request.param == "sqlite":
        yield [{"DATABASE_URL": "sqlite://"}, {"DATABASE_URL": "sqlite://"}]
        return
    if reason := Postgres.missing():
        missing_service(reason)
    server = Postgres.new()
    server.start()
    host = ["--host=127.0.0.1", f"--port={server.port}", "--username=postgres"]
    subprocess.run(["createdb", *host, "second"], check=True)
    yield [{"DATABASE_URL": server.url}, {"DATABASE_URL": server.url.rpartition("/")[0] + "/second"}]
    server.stop()


def manage(data: Path, database: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a data folder, without secrets in the environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("SPM_PEPPER", "SPM_SECRET_KEY")}
    environment |= {"SPM_DATA": str(data), **database}
    return subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


def count(served: Served) -> int:
    result = served.ask(served.connection(), "query", query=HOUR)["result"]
    assert isinstance(result, list)
    return int(result[0]["value"][1])


def test_a_backup_under_load_comes_back_whole_on_an_empty_machine(
    tmp_path: Path, databases: list[dict[str, str]]
) -> None:
    first, second, backups = tmp_path / "first", tmp_path / "second", tmp_path / "backups"
    served = start_product(first, environment={**os.environ, **databases[0]})
    try:
        with Load(served) as load:
            time.sleep(2)
            before = load.acknowledged
            backed_up = manage(first, databases[0], "backup", str(backups))
            assert backed_up.returncode == 0, backed_up.stderr
            after = load.sent
            time.sleep(1)
        token = served.headers
    finally:
        served.stop()
    [folder] = backups.glob("backup-*")
    assert {path.stat().st_mode & 0o077 for path in (folder, *(folder / "secrets").iterdir())} == {0}

    back = manage(second, databases[1], "restore", str(folder))
    assert back.returncode == 0, back.stderr
    checked = manage(second, databases[1], "fsck")
    assert checked.returncode == 0, checked.stdout
    assert "all is well" in checked.stdout
    again = manage(second, databases[1], "restore", str(folder))
    assert (again.returncode, "is an installation here already" in again.stderr) == (1, True)

    served = start_product(second, environment={**os.environ, **databases[1]})
    served.headers = token
    try:
        assert before <= count(served) <= after  # the same token holds
        running = manage(second, databases[1], "restore", str(folder), "--replace")
        assert (running.returncode, "already running" in running.stderr) == (1, True)
        now_ms = time.time_ns() // 1_000_000
        assert served.push(served.connection(), f"load,host=new v=1 {now_ms}".encode()) == 204
    finally:
        served.stop()
    replaced = manage(second, databases[1], "restore", str(folder), "--replace")
    assert replaced.returncode == 0, replaced.stderr
    [aside] = second.glob("before-restore-*")
    assert (aside / "store" / "data.mdb").exists()
