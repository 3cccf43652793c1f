"""All servers of the full stack under one folder: HBase in either form, RabbitMQ, PostgreSQL, a Spark cluster.

``Stack.at`` finds what an earlier ``up`` chose; ``up`` starts what does not run and looks whether it works; ``down``
ends all. Servers keep data and ports in their folders, so that ``up`` after any number of kills heals.
"""

import json
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from spm.clock import random_bytes
from spm.errors import StoreUnavailable
from spm.store.backends import open_backend
from tests.servers import postgres
from tests.servers.java.cluster import Cluster
from tests.servers.java.hbase import HBase
from tests.servers.java.spark import SparkCluster
from tests.servers.postgres import Postgres
from tests.servers.processes import NotReady
from tests.servers.rabbitmq import RabbitMQ

SITE = "http://127.0.0.1:8000"  # where bin/start listens unless a setting says otherwise
PREFIX = "spm"  # of the tables
ROUNDS = 3  # of starting: what lost its neighbours for long enough ends some seconds after they are back
OPTIONAL = ("postgres", "spark")
RUNS, SILENT, STOPPED = "runs", "runs and does not answer", "does not run"


class Server(Protocol):
    """What each of them offers."""

    @property
    def url(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    def missing(self) -> str | None: ...
    def start(self) -> str: ...
    def stop(self) -> None: ...
    def alive(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was asked for when the stack was last brought up."""

    cluster: bool = False
    without: tuple[str, ...] = ()
    site: str = SITE


@dataclass(frozen=True, slots=True)
class Stack:
    """The servers in ``data``, by name, in the order of their start."""

    data: Path
    chosen: Chosen
    secret: str

    @classmethod
    def at(cls, data: Path, wish: Callable[[Chosen], Chosen] = lambda chosen: chosen) -> "Stack":
        """The stack of a folder, with what was chosen there, as ``wish`` changes it."""
        file = data / "stack.json"
        fields = json.loads(file.read_text()) if file.exists() else {}
        chosen = Chosen(**{**fields, "without": tuple(fields.get("without", ()))})
        secret = data / "broker-secret"
        return cls(data, wish(chosen), secret.read_text() if secret.exists() else random_bytes(16).hex())

    @property
    def servers(self) -> Mapping[str, Server]:
        """Those that were chosen."""
        hbase: Server = Cluster(self.data / "cluster", lasting=True) if self.chosen.cluster else self._light
        servers: dict[str, Server] = {
            "postgres": Postgres.lasting(self.data / "postgres"),
            "rabbitmq": RabbitMQ(self.data / "rabbitmq", site=f"{self.chosen.site}/broker/{self.secret}"),
            "hbase": hbase,
            "spark": SparkCluster(self.data / "spark"),
        }
        return {name: server for name, server in servers.items() if name not in self.chosen.without}

    def up(self, say: Callable[[str], None]) -> None:
        """Start what does not run, and look whether the store answers; raises ``NotReady``."""
        if lacking := [reason for server in self.servers.values() if (reason := server.missing())]:
            raise NotReady("\n".join(lacking))
        if taken := [text for name, server in self.servers.items() if (text := _stranger_on(name, server))]:
            raise NotReady("\n".join(taken))
        self._keep()
        for left in reversed(range(ROUNDS)):
            try:
                for name, server in self.servers.items():
                    self._start(name, server, say)
                self._look_at_store()
                self._look_who_ended()
                return
            except NotReady as error:
                if not left:
                    raise
                say(f"· once more: {error}")

    def down(self) -> None:
        """End everything, in either form, whatever was chosen."""
        everything = Stack(self.data, Chosen(), self.secret).servers
        for server in [*reversed(list(everything.values())), Cluster(self.data / "cluster")]:
            if server.folder.exists():
                server.stop()

    def states(self) -> dict[str, str]:
        """How each of them is."""
        return {name: _state(server) if server.folder.exists() else STOPPED for name, server in self.servers.items()}

    def settings(self) -> dict[str, str]:
        """With which the product uses what was chosen."""
        servers = self.servers
        amqp = servers["rabbitmq"].url
        settings = {
            "SPM_STORE_URL": f"{servers['hbase'].url}/{PREFIX}",
            "SPM_TRANSPORT": "amqp",
            "SPM_AMQP_URL": f"{amqp}?agents=1",
            "SPM_BROKER_SECRET": self.secret,
            "SPM_CELERY_BROKER_URL": amqp,
        }
        if "postgres" in servers:
            settings["DATABASE_URL"] = servers["postgres"].url
        if "spark" in servers:
            settings["SPM_SPARK_MASTER"] = servers["spark"].url
            settings["SPM_SPARK_PYTHON"] = (
                sys.executable
            )  # its workers are on this machine, so packages need not travel
        return settings

    @property
    def _light(self) -> HBase:
        return HBase(self.data / "hbase", lasting=True)

    def _keep(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        secret = self.data / "broker-secret"
        secret.touch(mode=0o600)
        secret.write_text(self.secret)
        (self.data / "stack.json").write_text(json.dumps(asdict(self.chosen)))
        if "postgres" in self.servers:
            postgres.placed(self.data / "postgres")
        if (other := self.data / ("hbase" if self.chosen.cluster else "cluster")).exists():
            (HBase(other) if self.chosen.cluster else Cluster(other)).stop()  # one form at a time

    def _start(self, name: str, server: Server, say: Callable[[str], None]) -> None:
        if not server.alive():
            say(f"· starting {name}")
        server.start()
        if isinstance(server, HBase | Cluster) and not (note := server.folder / "tables-made").exists():
            server.make_tables(PREFIX)
            note.touch()

    def _look_who_ended(self) -> None:
        if ended := [name for name, server in self.servers.items() if not server.alive()]:
            raise NotReady(f"{', '.join(ended)} does not stay up; see the logs in {self.data}")

    def _look_at_store(self) -> None:
        """One read through gateway and region server: that ports are open says little of HBase."""
        server = self.servers["hbase"]
        backend = open_backend(f"{server.url}/{PREFIX}")
        try:
            backend.get("config", [b"distribution"])
        except StoreUnavailable as error:
            raise NotReady(f"HBase runs and cannot be read: {error}; see the logs in {server.folder}") from error
        finally:
            backend.close()


def _state(server: Server) -> str:
    if not server.alive():
        return STOPPED
    parts = urlsplit(server.url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=2).close()
    except OSError:
        return SILENT
    return RUNS


def _stranger_on(name: str, server: Server) -> str | None:
    """What to say of a port that somebody else listens on, of a server of which nothing runs."""
    file = server.folder / "ports.json"
    if not file.exists() or any(server.folder.glob("*.pid")):  # a part of it may run
        return None
    taken = [port for port in json.loads(file.read_text()).values() if _listens(port)]
    if not taken:
        return None
    return f"{name}: port {taken[0]} is another program's. End that, or remove {file}, and {name} gets other ports"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
