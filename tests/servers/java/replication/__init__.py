"""A second site: another HBase that gets every write of the first one, and an address that leads to either.

``replicate`` does what docs/how-to/second-site.md does in HBase's shell, which is no part of the tests' jars. A
``Switch`` is what a load balancer or a virtual address is to clients: a port that leads to one site, then to the other.
"""

import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from tests.servers.java import jars
from tests.servers.java.hbase import JVM, HBase
from tests.servers.processes import kept_ports

_PROGRAM = Path(__file__).with_name("Replicate.java")
_REPLICATE_S = 240
_PIECE_BYTES = 65_536


def missing() -> str | None:
    """Why a second site cannot be set up here, or ``None``."""
    return None if shutil.which("javac") else "replication is set up by a Java program: it needs a JDK"


def replicate(first: HBase, second: HBase, prefix: str) -> None:
    """Let the second site get all that is written to the first one's tables from now on; makes the missing tables."""
    peer = f"127.0.0.1:{kept_ports(second.folder, ['zookeeper'])['zookeeper']}:/hbase"
    classes = f"{first.folder / 'conf'}:{jars.folder()}/*"
    command = ["java", *JVM, "-cp", classes, f"-Dspm.log={first.folder / 'replicate.log'}"]
    done = subprocess.run(
        [*command, str(_PROGRAM), peer, prefix],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=_REPLICATE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


class Switch:
    """A port that passes all bytes to one of several others; ``lead_to`` ends what is connected."""

    def __init__(self, port: int) -> None:
        self._target, self._open = port, list[socket.socket]()
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, name="switch", daemon=True).start()

    def lead_to(self, port: int) -> None:
        """Lead new connections elsewhere, and end those there are."""
        with self._lock:
            self._target, ended, self._open = port, self._open, []
        for connection in ended:
            _end(connection)

    def close(self) -> None:
        """Lead nowhere."""
        _end(self._server)
        self.lead_to(0)

    def _accept(self) -> None:
        with suppress(OSError):  # of a closed port
            while True:
                self._join(self._server.accept()[0])

    def _join(self, client: socket.socket) -> None:
        try:
            site = socket.create_connection(("127.0.0.1", self._target), timeout=10)
        except OSError:
            _end(client)
            return
        site.settimeout(None)
        for connection in (client, site):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open += [client, site]
        for one, other in ((client, site), (site, client)):
            threading.Thread(target=_pass_on, args=(one, other), name="switch", daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while piece := one.recv(_PIECE_BYTES):
            other.sendall(piece)
    for connection in (one, other):
        _end(connection)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
