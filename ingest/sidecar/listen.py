"""The sockets of a listener: UDP in one thread, TCP in one thread for each connection, both bounded.

A datagram holds whole lines. A TCP connection is read line by line; one whose line does not end, or that says nothing
for ``SIDECAR_IDLE_S``, is closed, and so is the newest when there are too many. What has come before the end is still
read. Enter by ``Listener``.
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
_LAST_S = 2.0  # for what has come before the end


class Listener:
    """Listens on one port by TCP and UDP. Port 0: any that is free for both, see ``port``."""

    def __init__(self, host: str, port: int, intake: Intake, clock: Clock) -> None:
        self._intake, self._clock = intake, clock
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._tcp = socket.create_server((host, port), family=family)
        self.port = int(self._tcp.getsockname()[1])
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.SIDECAR_UDP_BUFFER_BYTES)
        self._udp.bind((host, self.port))
        self._room = threading.BoundedSemaphore(limits.SIDECAR_CONNECTIONS_MAX)
        self._served: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._works = [
            threading.Thread(target=work, name=f"listen{work.__name__}", daemon=True)
            for work in (self._datagrams, self._connections)
        ]
        for work in self._works:
            work.start()

    def close(self) -> None:
        """Listen no more, and take what the system holds already, for two seconds at most."""
        self._closed = True
        until = self._clock.monotonic() + _LAST_S
        served = dict(self._served)
        for one in (self._tcp, self._udp, *served):
            with suppress(OSError):  # a datagram socket says it has no other side, and wakes its reader
                one.shutdown(socket.SHUT_RD)
        for work in (*self._works, *served.values()):
            work.join(max(0.0, until - self._clock.monotonic()))
        self._tcp.close()
        self._udp.close()

    def _datagrams(self) -> None:
        while True:
            try:
                block = self._udp.recv(_DATAGRAM_BYTES)
            except OSError:  # closed, or the system's passing trouble
                block = b""
                self._clock.sleep(0.01)
            if not block and self._closed:
                return
            self._intake.take(block, self._clock.now_ms())

    def _connections(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                self._clock.sleep(0.01)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                self._intake.count_dropped()
                continue
            work = threading.Thread(target=self._serve, args=(connection,), name="connection", daemon=True)
            self._served[connection] = work
            work.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(limits.SIDECAR_IDLE_S)
                self._read(connection)
        except OSError as error:
            log.debug("a connection ended: %s", error)
        finally:
            del self._served[connection]
            self._room.release()

    def _read(self, connection: socket.socket) -> None:
        """Whole lines as they come; what stands behind the last line end waits for more, or for the end."""
        rest = b""
        while piece := connection.recv(_DATAGRAM_BYTES):
            block, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                self._intake.take(block, self._clock.now_ms())
            if len(rest) > 4 * limits.SIDECAR_LINE_CHARS_MAX:
                self._intake.count_dropped()
                return
        self._intake.take(rest, self._clock.now_ms())
