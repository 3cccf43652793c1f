"""gunicorn's worker with threads, which stays with a connection for a moment while its requests come one upon another.

gunicorn's own gives every request to another thread and every connection back to the thread that waits for all of them:
for a small request that costs as much as the answer. Here a thread whose connection has just asked again within
``limits.WEB_ATTENDS_MS`` of an answer waits as long for the next request. A connection that asks now and then never
holds a thread, and at most half of the threads stay with one: the others are there for whoever comes.

While no other connection has a thread, it looks again and again for the first ``limits.WEB_SPINS_MS`` instead of
sleeping: a processor that slept, if only so long, has lost its caches to others, and the next request takes it longer
than the looking did.

A client that takes no byte of its answer for ``limits.WEB_STALL_S`` does not read it: its connection ends.

An answer that is there as a whole leaves in one piece, head and body together: in two, its reader is woken twice. And
clients say the same of themselves in every request of a connection: lines that are, byte by byte, those of the request
before are not read again.

Named in the command line of the web server (``--worker-class spm.web.gunicorn_worker.Attentive``), so nothing of the
site is loaded with it.
"""

import errno
import select
import socket
import time
from array import array
from functools import lru_cache
from typing import Any

from gunicorn import util
from gunicorn.http import RequestParser, wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import Request
from gunicorn.workers.gthread import ThreadWorker

from spm.limits import WEB_ATTENDS_MS, WEB_SPINS_MS, WEB_STALL_S

_LINES_KEPT = 1_024
_STALL = array("l", [WEB_STALL_S, 0]).tobytes()  # a timeval: seconds and microseconds
_JOINED_MAX = 1 << 17  # bytes of a piece: copying a larger one takes longer than sending the head alone


class Attentive(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves connections by threads; does what its parent does, but for the wait between two requests."""

    def init_process(self) -> None:
        """Begin to serve. Settings do not change in a worker, so they are plain attributes from here on."""
        self.cfg.__dict__.update({name: setting.get() for name, setting in self.cfg.settings.items()})
        super().init_process()

    def handle(self, conn: Any) -> Any:
        """Answer a request, and those that follow at once; whether the connection may be used again."""
        if not conn.initialized:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _STALL)
        brisk = self._asked_again_at_once(conn)
        while True:
            if brisk and isinstance(conn.parser, RequestParser):
                conn.parser.mesg_class = Again
            kept = super().handle(conn)
            conn.answered = time.monotonic()
            if kept is not True or not brisk or not self._may_stay(conn) or not self._asks_again(conn):
                return kept

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Have a request answered; whether the connection may be used again. The parent's way, without its hooks."""
        if self.log.access_log_enabled or self.nr + 1 >= self.max_requests:
            return bool(super().handle_request(req, conn))
        answer, environ = self._made(req, conn)
        self.nr += 1
        if not self.alive or not self.cfg.keepalive or len(self.keepalived_conns) >= self.max_keepalived:
            answer.force_close()
        try:
            answer.send(self.wsgi(environ, answer.start_response))
        except OSError:
            raise
        except (Exception, SystemExit):
            if not answer.headers_sent:
                raise
            self.log.exception("Error handling request")  # half of an answer is no place for another one
            raise StopIteration from None  # the connection is closed where its end is counted
        return not answer.should_close()

    def _made(self, req: Any, conn: Any) -> tuple["AtOnce", dict[str, Any]]:
        """The answer to be filled, and what the application is told: of a request like the last only what differs."""
        if getattr(req, "repeats", False) and getattr(conn, "told", None):
            own = {"wsgi.input": req.body, "REQUEST_METHOD": req.method, "QUERY_STRING": req.query, "RAW_URI": req.uri}
            path = util.unquote_to_wsgi_str(req.path)
            return AtOnce(req, conn.sock, self.cfg), {**conn.told, **own, "PATH_INFO": path}
        answer, environ = wsgi.create(req, conn.sock, conn.client, conn.server, self.cfg, response_class=AtOnce)
        environ["wsgi.multithread"] = True
        alone = environ["SCRIPT_NAME"] or not req.headers  # gunicorn reads no lines where there are none
        conn.told = {} if alone else {k: v for k, v in environ.items() if k != "wsgi.early_hints"}
        return answer, environ

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """Whether the connection may be used again; of a body that was read to its end nothing has to be drained."""
        reader = conn.parser.mesg.body.reader
        if keepalive and isinstance(reader, LengthReader) and reader.length == 0:
            conn.parser.mesg = None
            return True
        return bool(super()._keepalive_after(conn, keepalive))

    def _asked_again_at_once(self, conn: Any) -> bool:
        return time.monotonic() - getattr(conn, "answered", 0.0) < WEB_ATTENDS_MS / 1000

    def _may_stay(self, conn: Any) -> bool:
        """Not when more than half of the threads have a connection or soon will.

        What was read of the next request already, or decrypted, does not show on the socket: such a connection goes
        back as well.
        """
        if self.cfg.is_ssl or self._in_hand() > self.cfg.threads // 2:
            return False
        return not conn.parser.unreader.buf.getvalue()

    def _asks_again(self, conn: Any) -> bool:
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        until = time.monotonic() + WEB_SPINS_MS / 1000
        while self._in_hand() <= 1 and time.monotonic() < until:
            if waiting.poll(0):
                return True
        return bool(waiting.poll(WEB_ATTENDS_MS))

    def _in_hand(self) -> int:
        """How many connections have a thread or wait for one."""
        return int(self.nr_conns - len(self.keepalived_conns) - len(self.pending_conns))


class Again(Request):  # type: ignore[misc]
    """A request of a connection whose lines of header are not read again where they are those of the one before."""

    repeats = False

    def parse_headers(self, data: bytes, from_trailer: bool = False) -> list[tuple[str, str]]:
        """The lines as gunicorn reads them."""
        if from_trailer:
            return list(super().parse_headers(data, from_trailer))
        known = getattr(self.unreader, "known", None)
        self.repeats = known is not None and known[:2] == (self.version, data)
        if known is not None and self.repeats:
            return list(known[2])
        scheme, found = self.scheme, list(super().parse_headers(data))
        plain = scheme == self.scheme and not self._expected_100_continue
        self.unreader.known = (self.version, data, found) if plain else None
        return found


class AtOnce(wsgi.Response):  # type: ignore[misc]
    """An answer whose head leaves with the first piece of its body."""

    headers_sent: bool
    response_length: int | None
    upgrade: bool

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self._head = b""

    def send(self, pieces: Any) -> None:
        """Send what an application returned, and close that."""
        try:
            if isinstance(pieces, wsgi.FileWrapper):
                self.write_file(pieces)
            else:
                for piece in pieces:
                    self.write(piece)
            self.close()
        except BlockingIOError as error:  # as of somebody who has gone
            raise BrokenPipeError(errno.EPIPE, f"nobody took a byte for {WEB_STALL_S} s") from error
        finally:
            if hasattr(pieces, "close"):
                pieces.close()

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        """Check lines, those that answers have in common once."""
        for name, value in headers:
            if name == "Set-Cookie":
                super().process_headers([(name, value)])
                continue
            kept, length, upgrade = _checked(name, value)
            self.headers += kept
            self.response_length = self.response_length if length is None else length
            self.upgrade = self.upgrade or upgrade

    def send_headers(self) -> None:
        """Make the head; it is sent with what follows."""
        if not self.headers_sent:
            lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
            self._head = "".join(lines).encode("latin-1")
            self.headers_sent = True

    def write(self, arg: bytes) -> None:
        """Send a piece; an empty one says that the head should not wait."""
        super().write(arg)
        if not arg:
            self._flush()

    def sendfile(self, respiter: Any) -> bool:
        """A file is sent by the system, past all pieces."""
        self.send_headers()
        self._flush()
        return bool(super().sendfile(respiter))

    def close(self) -> None:
        """Send what is still to be sent."""
        self.send_headers()
        self._flush()
        super().close()

    def _emit_body(self, data: bytes) -> None:
        if not self.chunked and len(data) <= _JOINED_MAX:
            head, self._head = self._head, b""
            self.sock.sendall(head + data if head else data)
        else:
            self._flush()
            super()._emit_body(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self.sock.sendall(head)


@lru_cache(maxsize=_LINES_KEPT)
def _checked(name: str, value: str) -> tuple[tuple[tuple[str, str], ...], int | None, bool]:
    """(the line, if it is one to be sent; the length of the body, if it says that; whether it asks for an upgrade)."""
    found = object.__new__(wsgi.Response)
    found.headers, found.response_length, found.upgrade = [], None, False
    found.process_headers([(name, value)])
    return tuple(found.headers), found.response_length, found.upgrade
