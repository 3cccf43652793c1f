"""An InfluxDB 1 of Debian that holds known samples, for the tests that move them here.

Enter by ``filled``.
"""

import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.clients.support.known import Known
from tests.clients.support.programs import Running, program
from tests.servers.processes import answers, free_ports, wait_until

DATABASE = "telegraf"
_CONFIG = """\
reporting-disabled = true
bind-address = "127.0.0.1:{other}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
[http]
bind-address = "127.0.0.1:{port}"
"""


def filled(known: Known, run: Callable[..., Running], folder: Path) -> tuple[Running, int]:
    """The program, with the samples in its database ``telegraf`` below this folder, and the port where it answers."""
    port, other = free_ports(2)
    (folder / "influx.conf").write_text(_CONFIG.format(folder=folder, port=port, other=other))
    server = run("influxd", program("influxd", "influxdb"), "-config", folder / "influx.conf")
    assert wait_until(lambda: answers(port), 60), server.output()
    for path, body in (
        ("query", f"q=CREATE+DATABASE+{DATABASE}".encode()),
        (f"write?db={DATABASE}", known.lines().encode()),
    ):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", body, timeout=60) as answer:
            assert answer.status in (200, 204)
    return server, port
