"""A threaded gunicorn worker that stays with a connection while its requests follow each other at once.

gunicorn's own worker hands every request to another thread, and every connection back to the thread that waits for all
of them. For a small request that costs as much as the answer. Here a thread whose connection sent its request within
``limits.WEB_KEEP_ALIVE_WAIT_MS`` of an answer waits as long for the next one. A connection with longer pauses never
holds a thread, and at most half of the threads stay with one connection: the others serve new ones.

While no other connection has a thread, the worker polls for the first ``limits.WEB_KEEP_ALIVE_SPIN_MS`` instead of
sleeping. A processor that slept has lost its caches to others, and the next request then takes longer than the polling
did.

A connection whose client takes no byte of its answer for ``limits.WEB_STALL_S`` is closed.

Head and body of a complete answer leave in one piece, since two pieces wake the reader twice. Clients repeat their
headers in every request of a connection: header bytes equal to those of the request before are not parsed again.

The web server's command line names the class (``--worker-class spm.web.gunicorn_worker.KeepAliveWorker``), so nothing
of the site is loaded with it.
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

from spm.limits import WEB_KEEP_ALIVE_SPIN_MS, WEB_KEEP_ALIVE_WAIT_MS, WEB_STALL_S

_LINES_KEPT = 1_024
_STALL = array("l", [WEB_STALL_S, 0]).tobytes()  # a timeval: seconds and microseconds
_JOINED_MAX = 1 << 17  # bytes of a piece: copying a larger one takes longer than sending the head alone


class KeepAliveWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Serves connections by threads as its parent does, except for the wait between two requests."""

    def init_process(self) -> None:
        """Starts to serve. Settings do not change in a worker, so they become plain attributes here."""
        self.cfg.__dict__.update({name: setting.get() for name, setting in self.cfg.settings.items()})
        super().init_process()

    def handle(self, conn: Any) -> Any:
        """Answers a request and those that follow at once. Returns whether the connection may be used again."""
        if not conn.initialized:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _STALL)
        follows_closely = self._followed_at_once(conn)
        while True:
            if follows_closely and isinstance(conn.parser, RequestParser):
                conn.parser.mesg_class = RepeatedRequest
            reusable = super().handle(conn)
            conn.answered = time.monotonic()
            if (
                reusable is not True
                or not follows_closely
                or not self._may_stay(conn)
                or not self._next_request_comes(conn)
            ):
                return reusable

    def handle_request(self, req: Any, conn: Any) -> bool:
        """Answers one request as the parent does, without its hooks; returns whether the connection may be reused."""
        if self.log.access_log_enabled or self.nr + 1 >= self.max_requests:
            return bool(super().handle_request(req, conn))
        answer, environ = self._prepare(req, conn)
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

    def _prepare(self, req: Any, conn: Any) -> tuple["JoinedResponse", dict[str, Any]]:
        """Returns the empty answer and the WSGI environ; for a request like the last one only the differing keys are
        set.
        """
        if getattr(req, "repeats", False) and getattr(conn, "environ", None):
            own = {"wsgi.input": req.body, "REQUEST_METHOD": req.method, "QUERY_STRING": req.query, "RAW_URI": req.uri}
            path = util.unquote_to_wsgi_str(req.path)
            return JoinedResponse(req, conn.sock, self.cfg), {**conn.environ, **own, "PATH_INFO": path}
        answer, environ = wsgi.create(req, conn.sock, conn.client, conn.server, self.cfg, response_class=JoinedResponse)
        environ["wsgi.multithread"] = True
        alone = environ["SCRIPT_NAME"] or not req.headers  # gunicorn reads no lines where there are none
        conn.environ = {} if alone else {k: v for k, v in environ.items() if k != "wsgi.early_hints"}
        return answer, environ

    def _keepalive_after(self, conn: Any, keepalive: bool) -> bool:
        """Returns whether the connection may be used again. A body that was read to its end leaves nothing to drain."""
        reader = conn.parser.mesg.body.reader
        if keepalive and isinstance(reader, LengthReader) and reader.length == 0:
            conn.parser.mesg = None
            return True
        return bool(super()._keepalive_after(conn, keepalive))

    def _followed_at_once(self, conn: Any) -> bool:
        return time.monotonic() - getattr(conn, "answered", 0.0) < WEB_KEEP_ALIVE_WAIT_MS / 1000

    def _may_stay(self, conn: Any) -> bool:
        """Returns False when more than half of the threads have a connection or soon will.

        Bytes of the next request that were already read or decrypted do not show on the socket: such a connection
        goes back to the common queue as well.
        """
        if self.cfg.is_ssl or self._active_connections() > self.cfg.threads // 2:
            return False
        return not conn.parser.unreader.buf.getvalue()

    def _next_request_comes(self, conn: Any) -> bool:
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        until = time.monotonic() + WEB_KEEP_ALIVE_SPIN_MS / 1000
        while self._active_connections() <= 1 and time.monotonic() < until:
            if waiting.poll(0):
                return True
        return bool(waiting.poll(WEB_KEEP_ALIVE_WAIT_MS))

    def _active_connections(self) -> int:
        """Returns how many connections have a thread or wait for one."""
        return int(self.nr_conns - len(self.keepalived_conns) - len(self.pending_conns))


class RepeatedRequest(Request):  # type: ignore[misc]
    """A request whose header lines are not parsed again when they equal those of the last request on its connection."""

    repeats = False

    def parse_headers(self, data: bytes, from_trailer: bool = False) -> list[tuple[str, str]]:
        """Returns the header lines as gunicorn parses them."""
        if from_trailer:
            return list(super().parse_headers(data, from_trailer))
        known = getattr(self.unreader, "known", None)
        self.repeats = known is not None and known[:2] == (self.version, data)
        if known is not None and self.repeats:
            return list(known[2])
        scheme, headers = self.scheme, list(super().parse_headers(data))
        plain = scheme == self.scheme and not self._expected_100_continue
        self.unreader.known = (self.version, data, headers) if plain else None
        return headers


class JoinedResponse(wsgi.Response):  # type: ignore[misc]
    """A response whose head leaves with the first piece of its body."""

    headers_sent: bool
    response_length: int | None
    upgrade: bool

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self._head = b""

    def send(self, pieces: Any) -> None:
        """Sends what an application returned, and closes it."""
        try:
            if isinstance(pieces, wsgi.FileWrapper):
                self.write_file(pieces)
            else:
                for piece in pieces:
                    self.write(piece)
            self.close()
        except BlockingIOError as error:  # treated as a client that has left
            raise BrokenPipeError(errno.EPIPE, f"the client took no byte for {WEB_STALL_S} s") from error
        finally:
            if hasattr(pieces, "close"):
                pieces.close()

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        """Checks header lines; lines that many answers share are checked once."""
        for name, value in headers:
            if name == "Set-Cookie":
                super().process_headers([(name, value)])
                continue
            lines, length, upgrade = _checked(name, value)
            self.headers += lines
            self.response_length = self.response_length if length is None else length
            self.upgrade = self.upgrade or upgrade

    def send_headers(self) -> None:
        """Builds the head; it is sent with what follows."""
        if not self.headers_sent:
            lines = [*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n"]
            self._head = "".join(lines).encode("latin-1")
            self.headers_sent = True

    def write(self, arg: bytes) -> None:
        """Sends a piece of the body. An empty piece sends the head at once."""
        super().write(arg)
        if not arg:
            self._flush()

    def sendfile(self, respiter: Any) -> bool:
        """Sends a file by the operating system's call, after the head."""
        self.send_headers()
        self._flush()
        return bool(super().sendfile(respiter))

    def close(self) -> None:
        """Sends what is still unsent."""
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
    """Returns (the line if it is to be sent, the body's length if the line says it, whether it asks for an upgrade)."""
    response = object.__new__(wsgi.Response)
    response.headers, response.response_length, response.upgrade = [], None, False
    response.process_headers([(name, value)])
    return tuple(response.headers), response.response_length, response.upgrade
