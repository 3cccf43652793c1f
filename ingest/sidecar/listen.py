"""The sockets of a listener: UDP in one thread, TCP in one thread per connection, both with limits.

A datagram holds complete lines. A TCP connection is read line by line. A connection is closed if its line is too long,
if it is idle for ``SIDECAR_IDLE_S``, or if there are already too many. Data that arrived before the end is still read.
Enter by ``Listener``.
"""

import logging
import socket
import threading
from contextlib import suppress

from ingest.sidecar.intake import Intake
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.sidecar")
_DATAGRAM_BYTES = 65_535
_BACKLOG = 128  # connections that wait to be accepted
_CLOSE_S = 2.0  # for reading the data that arrived before the end


class Listener:
    """Listens on one port with TCP and UDP, UDP first. With port 0 it takes a free port; ``port`` has its number."""

    def __init__(self, host: str, port: int, intake: Intake, clock: Clock) -> None:
        self._intake, self._clock = intake, clock
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._tcp = socket.socket(family, socket.SOCK_STREAM)
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tcp.bind((host, port))
        self.port = int(self._tcp.getsockname()[1])
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.SIDECAR_UDP_BUFFER_BYTES)
        self._udp.bind((host, self.port))
        self._tcp.listen(_BACKLOG)  # last: who can connect can also send datagrams
        self._free_connections = threading.BoundedSemaphore(limits.SIDECAR_CONNECTIONS_MAX)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=target, name=f"listen{target.__name__}", daemon=True)
            for target in (self._read_datagrams, self._accept_connections)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop listening, and read the data that the system has already received, for at most two seconds."""
        self._closed = True
        until = self._clock.monotonic() + _CLOSE_S
        connections = dict(self._connections)
        for one in (self._tcp, self._udp, *connections):
            with suppress(OSError):  # a datagram socket fails as not connected, but its reader wakes up
                one.shutdown(socket.SHUT_RD)
        for thread in (*self._threads, *connections.values()):
            thread.join(max(0.0, until - self._clock.monotonic()))
        self._tcp.close()
        self._udp.close()

    def _read_datagrams(self) -> None:
        while True:
            try:
                block = self._udp.recv(_DATAGRAM_BYTES)
            except OSError:  # closed, or a temporary error of the system
                block = b""
                self._clock.sleep(0.01)
            if not block and self._closed:
                return
            self._intake.add(block, self._clock.now_ms())

    def _accept_connections(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                self._clock.sleep(0.01)
                continue
            if not self._free_connections.acquire(blocking=False):
                connection.close()
                self._intake.count_dropped()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="connection", daemon=True)
            self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(limits.SIDECAR_IDLE_S)
                self._read(connection)
        except OSError as error:
            log.debug("a connection ended: %s", error)
        finally:
            del self._connections[connection]
            self._free_connections.release()

    def _read(self, connection: socket.socket) -> None:
        """Read complete lines; the part after the last line end waits for more data, or for the end."""
        rest = b""
        while piece := connection.recv(_DATAGRAM_BYTES):
            block, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                self._intake.add(block, self._clock.now_ms())
            if len(rest) > 4 * limits.SIDECAR_LINE_CHARS_MAX:
                self._intake.count_dropped()
                return
        self._intake.add(rest, self._clock.now_ms())
