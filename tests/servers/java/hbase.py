"""HBase standalone (master, region server and ZooKeeper in one JVM) and its Thrift gateway in a second one.

Data lies on the local file system through ``RawLocalFileSystem``, whose streams flush to the operating system before a
write is acknowledged: a kill -9 loses nothing that was acknowledged (a power failure may). ``HBase(folder).start()``
answers when the master's log says it is initialised; asking the gateway earlier sends its client into a back-off of
many seconds. Ports are chosen once per folder and kept over restarts.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from spm.store import keys
from spm.store.backends import hbase_tables
from tests.servers.java import jars
from tests.servers.processes import NotReady, Process, answers, free_ports, kept_ports, wait_ready

READY_S = 180
READY_LINE = "Master has completed initialization"
MASTER = "org.apache.hadoop.hbase.master.HMaster"
GATEWAY = "org.apache.hadoop.hbase.thrift.ThriftServer"
GATEWAY2 = "org.apache.hadoop.hbase.thrift2.ThriftServer"
HEAP = {"master": "1536m", "thrift": "384m", "thrift2": "256m"}  # 1g dies of a 40 MB request

_OPENED = (
    "java.nio",
    "sun.nio.ch",
    "java.lang",
    "jdk.internal.ref",
    "java.lang.reflect",
    "java.util",
    "java.util.concurrent",
)
# The second compiler costs a test more than it gives; libraries whose digests are known need no verifier.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
JVM = (
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    *(word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")),
)


@dataclass(frozen=True, slots=True)
class HBase:
    """One instance in ``folder``; a ``lasting`` one is compiled better: slower for a minute, then twice as fast."""

    folder: Path
    lasting: bool = False

    @property
    def url(self) -> str:
        """Its address as the store knows it, without a table prefix."""
        return f"hbase://127.0.0.1:{self._ports()['thrift']}"

    def missing(self) -> str | None:
        """Why it cannot run here, or ``None``."""
        if shutil.which("java") is None:
            return "HBase needs Java 17 or newer"
        return None if jars.present() else "HBase's jars are not there: python -m tests.servers.prepare"

    def start(self) -> str:
        """Start what does not run, wait until it answers, and say where; raises ``NotReady``."""
        reason = self.missing()
        if reason:
            raise NotReady(reason)
        self.start_master()
        self.start_gateway()
        wait_ready(self._ready, [self.process("master"), self.process("thrift")], READY_S)
        return self.url

    def start_master(self) -> None:
        """Start what keeps the data, without waiting for it."""
        self._configure()
        self._start("master", [MASTER, "start"])

    def start_gateway(self) -> None:
        """Start the gateway, without waiting for it."""
        self._configure()
        self._start("thrift", ["-XX:+UseSerialGC", GATEWAY, "start"])

    def make_tables(self, prefix: str, tables: Sequence[str] = tuple(keys.TABLES)) -> list[str]:
        """Make the product's tables as an administrator would, by a second gateway that lives for this moment only."""
        port = free_ports(1)[0]
        gateway = self.process("thrift2")
        gateway.kill()  # one that was left behind listens elsewhere
        self._start("thrift2", ["-XX:+UseSerialGC", GATEWAY2, "-p", str(port), "start"])
        try:
            wait_ready(lambda: answers(port), [gateway], READY_S)
            return hbase_tables.create_tables("127.0.0.1", port, prefix, tables)
        finally:
            gateway.stop(20)

    def stop(self) -> None:
        """End the gateway, then the master, which writes out its memory."""
        self.process("thrift").stop(20)
        self.process("master").stop(90)

    def kill(self) -> None:
        """Kill -9 of both."""
        self.process("thrift").kill()
        self.process("master").kill()

    def discard(self) -> None:
        """End it for good: nobody will read its data, so nothing is written out."""
        self.kill()

    def alive(self) -> bool:
        """Whether both run."""
        return self.process("master").alive() and self.process("thrift").alive()

    def process(self, name: str) -> Process:
        """``master`` or ``thrift``."""
        return Process(name, self.folder)

    def _start(self, name: str, words: Sequence[str]) -> None:
        if self.process(name).alive():
            return
        log = self._log(name)
        log.unlink(missing_ok=True)
        classes = f"{self.folder / 'conf'}:{jars.folder()}/*"
        where = [f"-Dspm.log={log}", f"-Djava.io.tmpdir={self.folder / 'tmp'}", "-cp", classes]
        heap = f"-Xmx{HEAP[name]}"
        at = next(i for i, word in enumerate(words) if not word.startswith("-"))  # the class; before it, flags
        flags = [heap, *JVM, *(() if self.lasting else SHORT_LIVED), *words[:at]]
        self.process(name).start(["java", *flags, *where, *words[at:]], os.environ)

    def _ready(self) -> bool:
        log = self._log("master")
        return log.exists() and READY_LINE in log.read_text(errors="replace") and answers(self._ports()["thrift"])

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _ports(self) -> dict[str, int]:
        return kept_ports(self.folder, ("thrift", "zookeeper", "master", "region"))

    def _configure(self) -> None:
        for name in ("conf", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(jars.POM.parent / "log4j2.properties", self.folder / "conf")
        write_site(self.folder / "conf" / "hbase-site.xml", properties(self.folder, self._ports()))


def write_site(file: Path, values: Mapping[str, object]) -> None:
    """A configuration file as Hadoop and HBase read them."""
    rows = (f"<property><name>{n}</name><value>{escape(str(v))}</value></property>" for n, v in values.items())
    file.write_text("<?xml version='1.0'?>\n<configuration>\n" + "\n".join(rows) + "\n</configuration>\n")


def properties(folder: Path, ports: dict[str, int]) -> dict[str, object]:
    return {
        "hbase.cluster.distributed": "false",
        "hbase.rootdir": f"file://{folder}/root",
        "hbase.tmp.dir": folder / "tmp",
        "hbase.wal.provider": "filesystem",
        "hbase.unsafe.stream.capability.enforce": "true",
        "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        "hbase.io.compress.zstd.codec": "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec",
        # everything on the loopback address, nothing on a well-known port
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": ports["zookeeper"],
        "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
        "hbase.zookeeper.property.dataDir": folder / "zookeeper",
        "hbase.master.hostname": "localhost",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.master.port": ports["master"],
        "hbase.master.info.port": -1,
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.regionserver.port": ports["region"],
        "hbase.regionserver.info.port": -1,
        "hbase.regionserver.thrift.ipaddress": "127.0.0.1",
        "hbase.regionserver.thrift.port": ports["thrift"],
        "hbase.thrift.info.port": -1,
        # small, and quick to start and to stop
        "hbase.regionserver.handler.count": 30,
        "hbase.thrift.minWorkerThreads": 4,
        "hbase.master.wait.on.regionservers.maxtostart": 1,
        "hbase.master.wait.on.regionservers.timeout": 1000,
        "hbase.master.wait.on.regionservers.interval": 200,
        "hbase.client.pause": 50,
        "zookeeper.recovery.retry": 1,
        "zookeeper.recovery.retry.intervalmill": 100,
    }
