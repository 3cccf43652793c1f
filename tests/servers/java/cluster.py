"""HBase as it is run for real, on one machine: HDFS, ZooKeeper, a master, region servers and a gateway, each a process.

For tests that kill one of them: a region server's write-ahead log lies in HDFS, is fenced there, and another server
takes over its regions some ten seconds after its death. ``Cluster(folder).start()`` takes half a minute and 1.6 GB; for
anything but such tests ``tests.servers.java.hbase.HBase`` does. Processes keep their ports and their data over
restarts.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spm.store import keys
from spm.store.backends import hbase_tables
from tests.servers.java import jars
from tests.servers.java.hbase import (
    GATEWAY,
    GATEWAY2,
    JVM,
    MASTER,
    READY_LINE,
    SHORT_LIVED,
    HBase,
    properties,
    write_site,
)
from tests.servers.processes import NotReady, Process, answers, free_ports, kept_ports, wait_ready

READY_S = 240
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
REGION_SERVER = "org.apache.hadoop.hbase.regionserver.HRegionServer"
REGIONS = ("region1", "region2")
HEAP = {"namenode": 192, "datanode": 192, "zookeeper": 96, "master": 384, "region1": 512, "region2": 512, "thrift": 384}
GATEWAY2_HEAP = 256
MASTER_SESSION_MS = 5_000  # the most that the tick allows: nobody takes over from it, so haste wins nothing
HDFS_PORTS = ("namenode", "namenode-http", "datanode", "datanode-http", "datanode-ipc")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster in ``folder``; a ``lasting`` one is compiled better, as ``HBase`` is."""

    folder: Path
    lasting: bool = False

    @property
    def url(self) -> str:
        """Its address as the store knows it, without a table prefix."""
        return f"hbase://127.0.0.1:{self._ports()['thrift']}"

    def missing(self) -> str | None:
        """Why it cannot run here, or ``None``."""
        return HBase(self.folder).missing()

    def start(self) -> str:
        """Start what does not run, in order, wait until it answers, and say where; raises ``NotReady``."""
        if reason := self.missing():
            raise NotReady(reason)
        self._configure()
        ports = self._ports()
        if not (self.folder / "namenode" / "current").exists():
            self._format()
        for name, words in (
            ("namenode", [NAMENODE]),
            ("datanode", [DATANODE]),
            ("zookeeper", [ZOOKEEPER, str(self.folder / "conf" / "zoo.cfg")]),
        ):
            self._start(name, words)
        first = [self.process(name) for name in ("namenode", "datanode", "zookeeper")]
        wait_ready(
            lambda: all(map(answers, (ports["namenode"], ports["datanode"], ports["zookeeper"]))), first, READY_S
        )
        self.start_missing()
        self._start("thrift", [GATEWAY, "start"])
        wait_ready(self._ready, [self.process(name) for name in HEAP], READY_S)
        return self.url

    def start_missing(self) -> None:
        """Start the master and the region servers that do not run: who loses its session ends by itself."""
        patience = f"-Dzookeeper.session.timeout={MASTER_SESSION_MS}"
        self._start("master", [MASTER, patience, "start"])
        for name in REGIONS:
            self.start_region(name)

    def start_region(self, name: str) -> None:
        """Start one region server, which joins by itself."""
        port = f"-Dhbase.regionserver.port={self._ports()[name]}"
        self._start(name, [port, REGION_SERVER, port, "start"])

    def start_gateway(self) -> None:
        """Start the gateway, and wait until it listens."""
        self._start("thrift", [GATEWAY, "start"])
        wait_ready(lambda: answers(self._ports()["thrift"]), [self.process("thrift")], READY_S)

    def stop(self) -> None:
        """End all, in the opposite order."""
        for name in ("thrift", *REGIONS, "master", "zookeeper", "datanode", "namenode"):
            self.process(name).stop(25)

    def discard(self) -> None:
        """End it for good: nobody will read its data, so nothing is written out."""
        for name in HEAP:
            self.process(name).kill()

    def make_tables(self, prefix: str, tables: Sequence[str] = tuple(keys.TABLES)) -> list[str]:
        """Make the product's tables as an administrator would, by a second gateway that lives for this moment only."""
        port = free_ports(1)[0]
        self.process("thrift2").kill()  # one that was left behind listens elsewhere
        self._start("thrift2", [GATEWAY2, "-p", str(port), "start"], GATEWAY2_HEAP)
        try:
            wait_ready(lambda: answers(port), [self.process("thrift2")], READY_S)
            return hbase_tables.create_tables("127.0.0.1", port, prefix, tables)
        finally:
            self.process("thrift2").stop(20)

    def alive(self) -> bool:
        """Whether all of its processes run."""
        return all(self.process(name).alive() for name in HEAP)

    def process(self, name: str) -> Process:
        """One of the processes that ``HEAP`` names."""
        return Process(name, self.folder)

    def _ready(self) -> bool:
        log = self.folder / "master.log"
        return log.exists() and READY_LINE in log.read_text(errors="replace") and answers(self._ports()["thrift"])

    def _ports(self) -> dict[str, int]:
        return kept_ports(self.folder, ("thrift", "zookeeper", "master", "region", *REGIONS, *HDFS_PORTS))

    def _format(self) -> None:
        command = self._command("format", 128, [NAMENODE, "-format", "-nonInteractive"])
        done = subprocess.run(command, capture_output=True, timeout=READY_S, check=False)
        if done.returncode:
            raise NotReady(f"HDFS cannot be made: {done.stderr.decode(errors='replace')[-2000:]}")

    def _start(self, name: str, words: list[str], heap: int = 0) -> None:
        if not self.process(name).alive():
            (self.folder / f"{name}.log").unlink(missing_ok=True)
            self.process(name).start(self._command(name, heap or HEAP[name], words), os.environ)

    def _command(self, name: str, heap: int, words: list[str]) -> list[str]:
        where = [f"-Dspm.log={self.folder / name}.log", f"-Djava.io.tmpdir={self.folder / 'tmp'}"]
        classes = f"{self.folder / 'conf'}:{jars.folder()}/*"
        flags = [f"-Xmx{heap}m", "-XX:+UseSerialGC", *JVM, *(() if self.lasting else SHORT_LIVED)]
        return ["java", *flags, *where, "-cp", classes, *words]

    def _configure(self) -> None:
        for name in ("conf/webapps/hdfs", "conf/webapps/datanode", "tmp"):  # the jar lacks the first two
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(jars.POM.parent / "log4j2.properties", self.folder / "conf")
        ports, conf = self._ports(), self.folder / "conf"
        root = f"hdfs://127.0.0.1:{ports['namenode']}"
        write_site(conf / "core-site.xml", {"hadoop.tmp.dir": self.folder / "tmp", "fs.defaultFS": root})
        write_site(conf / "hdfs-site.xml", _hdfs(self.folder, ports))
        write_site(conf / "hbase-site.xml", {**_without_files(properties(self.folder, ports)), **_distributed(root)})
        zookeeper = {
            "tickTime": 250,
            "dataDir": self.folder / "zookeeper",
            "clientPort": ports["zookeeper"],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        (conf / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in zookeeper.items()))


def _hdfs(folder: Path, ports: dict[str, int]) -> dict[str, object]:
    return {
        "dfs.replication": 1,
        "dfs.namenode.name.dir": f"file://{folder}/namenode",
        "dfs.datanode.data.dir": f"file://{folder}/datanode",
        "dfs.namenode.rpc-address": f"127.0.0.1:{ports['namenode']}",
        "dfs.namenode.http-address": f"127.0.0.1:{ports['namenode-http']}",
        "dfs.datanode.address": f"127.0.0.1:{ports['datanode']}",
        "dfs.datanode.http.address": f"127.0.0.1:{ports['datanode-http']}",
        "dfs.datanode.ipc.address": f"127.0.0.1:{ports['datanode-ipc']}",
        "dfs.datanode.hostname": "localhost",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.safemode.extension": 0,
        "dfs.heartbeat.interval": 1,
    }


def _without_files(values: dict[str, object]) -> dict[str, object]:
    """Of a standalone instance's settings, those that do not say where it runs."""
    gone = ("fs.", "hbase.rootdir", "hbase.wal.provider", "hbase.regionserver.port")
    return {name: value for name, value in values.items() if not name.startswith(gone)}


def _distributed(root: str) -> dict[str, object]:
    return {
        "hbase.cluster.distributed": "true",
        "hbase.rootdir": f"{root}/hbase",
        "hbase.wal.provider": "asyncfs",
        "dfs.replication": 1,
        "zookeeper.session.timeout": 2000,  # a death is noticed after two seconds instead of ninety
        "hbase.lease.recovery.first.pause": 500,
        "hbase.lease.recovery.pause": 500,
        "hbase.master.wait.on.regionservers.mintostart": len(REGIONS),
        "hbase.master.wait.on.regionservers.maxtostart": len(REGIONS),
        "hbase.master.wait.on.regionservers.timeout": 2000,
    }
