"""OpenTSDB on an HBase of ours, to be measured beside the product.

One process with its own class path. Its tables are made through the same gateway, as its manual has them: a family of
one version, not compressed by default, here with row bloom filters; compaction of old rows is left on, as it comes.
"""

import http.client
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import happybase

from tests.servers.java import jars
from tests.servers.processes import NotReady, Process, answers, kept_ports, wait_ready

READY_S = 240  # of a busy machine
MAIN, SCAN = "net.opentsdb.tools.TSDMain", "net.opentsdb.tools.DumpSeries"
HEAP = "768m"
TABLES = {"tsdb": ["t"], "tsdb-uid": ["id", "name"], "tsdb-tree": ["t"], "tsdb-meta": ["name"]}
LOGGING = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5level %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""  # noqa: E501
LOGGED = "2026-11-27 16:01:02,003 WARN  Slow DNS lookup! Resolved IP of `localhost' to 127.0.0.1 in 51234567ns"


@dataclass(frozen=True, slots=True)
class OpenTSDB:
    """One instance in ``folder``, on the HBase behind the gateway ``hbase`` and the ZooKeeper at ``zookeeper``."""

    folder: Path
    hbase: str
    zookeeper: int

    @property
    def port(self) -> int:
        """Where it answers: its telnet-like protocol and HTTP both."""
        return kept_ports(self.folder, ["opentsdb"])["opentsdb"]

    def start(self) -> None:
        """Make what is not there, start, and wait until it answers; raises ``NotReady``."""
        classes = jars.resolve(jars.OPENTSDB)
        self._configure()
        self._make_tables()
        command = ["java", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", f"{self.folder}:{classes}/*"]
        self.process.start([*command, MAIN, f"--config={self.folder / 'opentsdb.conf'}"], os.environ)
        wait_ready(lambda: answers(self.port) and self._speaks(), [self.process], READY_S)

    def stop(self) -> None:
        """End it; it writes out what it holds."""
        self.process.stop(30)

    def write_scan_program(self, target: Path) -> None:
        """Write its program ``tsdb``, of which ``tsdb scan`` is there: it dumps what the tables hold.

        Its log goes to where its points go; a line of it comes in each run, as by chance where a lookup takes long.
        """
        classes = f"{self.folder}:{jars.resolve(jars.OPENTSDB)}/*"
        words = ["java", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", classes, SCAN]
        command = shlex.join([*words, f"--config={self.folder / 'opentsdb.conf'}"])
        logged = shlex.quote(LOGGED)
        target.write_text(f'#!/bin/sh\n[ "$1" = scan ] || exit 2\nshift\necho {logged}\nexec {command} "$@"\n')
        target.chmod(0o755)

    @property
    def process(self) -> Process:
        """The server."""
        return Process("opentsdb", self.folder)

    def statistics(self) -> dict[str, int]:
        """Its own counters, those of one name added up."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/api/stats")
        answer = connection.getresponse()
        if answer.status != 200:
            raise NotReady(f"OpenTSDB answers {answer.status}: {answer.read()[:300]!r}")
        statistics: dict[str, int] = {}
        for item in json.loads(answer.read()):
            name = item["metric"] + "".join(f".{item['tags'][tag]}" for tag in ("type",) if tag in item["tags"])
            statistics[name] = statistics.get(name, 0) + int(float(item["value"]))
        connection.close()
        return statistics

    def points(self) -> int:
        """How many points its table holds, each a cell until it is compacted."""
        connection = self._gateway()
        rows = connection.table("tsdb").scan(batch_size=200)
        count = sum(_points(name) for _, cells in rows for name in cells)
        connection.close()
        return count

    def _speaks(self) -> bool:
        try:
            self.statistics()
        except (OSError, http.client.HTTPException, NotReady, ValueError):
            return False
        return True

    def _gateway(self) -> happybase.Connection:
        parts = urlsplit(self.hbase)
        return happybase.Connection(parts.hostname, parts.port, timeout=120_000)

    def _make_tables(self) -> None:
        connection = self._gateway()
        there = {name.decode() for name in connection.tables()}
        for name, families in TABLES.items():
            if name not in there:
                connection.create_table(name, {f: {"max_versions": 1, "bloom_filter_type": "ROW"} for f in families})
        connection.close()

    def _configure(self) -> None:
        for name in ("cache", "static"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "logback.xml").write_text(LOGGING)
        settings = {
            "tsd.network.port": self.port,
            "tsd.network.bind": "127.0.0.1",
            "tsd.http.cachedir": self.folder / "cache",
            "tsd.http.staticroot": self.folder / "static",
            "tsd.core.auto_create_metrics": "true",
            "tsd.http.request.enable_chunked": "true",  # without it a body of a hundred points is refused
            "tsd.http.request.max_chunk": 16_000_000,
            "tsd.storage.hbase.zk_quorum": f"127.0.0.1:{self.zookeeper}",
        }
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.folder / "opentsdb.conf").write_text(text)


def _points(column: bytes) -> int:
    """Of a column's name: two bytes for each point of whole seconds, four for one of milliseconds."""
    qualifier = column.partition(b":")[2]
    return max(1, len(qualifier) // (4 if qualifier[:1] >= b"\xf0" else 2))
