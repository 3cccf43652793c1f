"""collectd, unmodified: a configuration with one output, and known values as input through its unix socket.

``Collectd.put`` uses collectd's plain text protocol (PUTVAL); ``flush`` makes it send its buffer. It does not convert
values to rates, so that queries return the same values. Fifteen digits of a value survive. It has one writing thread:
several could overtake each other, and values older than the newest of their series are dropped.
"""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.clients.support.known import Known
from tests.clients.support.programs import Running, program
from tests.servers.processes import wait_until

PACKAGE = "collectd-core librabbitmq4 libcurl3-gnutls libyajl2"
_HEAD = """\
Hostname "nobody"
FQDNLookup false
BaseDir "{folder}"
PIDFile "{folder}/pid"
TypesDB "/usr/share/collectd/types.db"
Interval 10
AutoLoadPlugin true
WriteQueueLimitHigh 1000000
WriteQueueLimitLow 1000000
WriteThreads 1
<Plugin logfile>
  LogLevel info
  File stdout
</Plugin>
<Plugin unixsock>
  SocketFile "{socket}"
</Plugin>
"""


def by_plugin(name: str, field: str, host: str) -> Mapping[str, str]:
    """How plugin, type instance and host are read back."""
    return {"__name__": f"{name}_gauge", "host": host, "type": field}


def write_http(url: str, token: str) -> str:
    """Returns the output over HTTP."""
    return f"""\
<Plugin write_http>
  <Node "spm">
    URL "{url}"
    Header "Authorization: Bearer {token}"
    Format "JSON"
    StoreRates false
    BufferSize 65536
    Timeout 120000
  </Node>
</Plugin>
"""


def amqp(port: int, user: str, secret: str) -> str:
    """Returns the output through RabbitMQ, as in docs/how-to/full-stack.md."""
    return f"""\
<Plugin amqp>
  <Publish "spm">
    Host "127.0.0.1"
    Port "{port}"
    VHost "/"
    User "{user}"
    Password "{secret}"
    Exchange "spm.agents"
    RoutingKey "{user}.collectd"
    Format "JSON"
    Persistent true
    StoreRates false
  </Publish>
</Plugin>
"""


@dataclass(frozen=True, slots=True)
class Collectd:
    """One that runs."""

    running: Running
    socket: Path

    @classmethod
    def start(cls, run: Callable[..., Running], folder: Path, output: str) -> "Collectd":
        """Start it with one output, and wait until it listens."""
        listens = Path(f"/tmp/collectd-{os.getpid()}-{folder.name}"[:100])  # a socket's address holds 107 bytes
        (folder / "collectd.conf").write_text(_HEAD.format(folder=folder, socket=listens) + output)
        executable = program("collectd", PACKAGE)
        server = cls(run("collectd", executable, "-f", "-C", folder / "collectd.conf"), listens)
        assert wait_until(listens.exists, 30), server.running.output()
        return server

    def put(self, known: Known) -> None:
        """Every sample, in the order of time."""
        lines = [
            f'PUTVAL "{host}/{known.name}/gauge-{field}" interval=10 {ms / 1000:.3f}:{value!r}'
            for step in range(known.steps)
            for host, ms, fields in known.reports(step)
            for field, value in fields.items()
        ]
        self._say(lines)

    def flush(self) -> None:
        """Send what is held back."""
        self._say(["FLUSH"])

    def _say(self, lines: list[str]) -> None:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(30)
            link.connect(str(self.socket))
            answers = link.makefile("r")
            for line in lines:
                link.sendall(f"{line}\n".encode())
                answer = answers.readline()
                assert answer.startswith("0 "), (line, answer)
