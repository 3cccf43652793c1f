"""Runs the site's WSGI application behind the event loop, in bounded threads. Enter by ``WsgiBridge``.

A request gets a thread only when its body has arrived as a whole, so that a slow sender costs no thread. Only a body
that is meant to be long (an import) is passed on as it comes, at the pace at which the thread reads it. A streamed
answer waits in its thread until its client has taken what was sent before; other answers leave their thread at once.
Requests that an application knows to be light are answered by the loop itself, for a share of its time.
"""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from spm import limits
from spm.clock import Clock
from spm.web.byte_budget import ByteBudget, NoRoom
from spm.web.error_status import RETRYABLE
from spm.web.fair_pool import FairPool, PoolClosed, PoolFull, WaitedTooLong
from spm.web.http_protocol import AnswerAtOnce, Reply
from spm.web.protective_headers import protective_headers

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Environ = dict[str, Any]
WsgiApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
LightApplication = Callable[[Environ, Callable[..., Any]], Iterable[bytes] | None]
FurtherAnswers = Callable[[Environ], AnswerAtOnce | None]
T = TypeVar("T")
_LOG = logging.getLogger("django.request")
LIGHT_LOOP_SHARE = 0.6  # of the event loop's time, for queries; further ones get threads
LIGHT_LOOP_BURST_S = 0.002  # that queries take of it at a stretch
_GATHER_BYTES = 1 << 17  # of a file, in one piece to the loop
_LOOP_LOOK_S = 1.0  # between two looks of a thread whether the loop that it waits for has ended


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that is not run."""

    status: int
    body: bytes
    content_type: str


def plain_refusal(status: int, text: str) -> Refusal:
    """Return a refusal for people."""
    return Refusal(status, f"{text[:1].upper()}{text[1:]}.\n".encode(), "text/plain; charset=utf-8")


def json_refusal(status: int, text: str) -> Refusal:
    """Return a refusal for programs of the REST interface."""
    return Refusal(status, json.dumps({"error": text}).encode(), "application/json")


def prometheus_refusal(status: int, text: str) -> Refusal:
    """Return a refusal as Prometheus' API has it."""
    kind = {413: "bad_data", 429: "too_many_requests"}.get(status, "timeout")
    body = {"status": "error", "errorType": kind, "error": text}
    return Refusal(status, json.dumps(body).encode(), "application/json")


@dataclass(frozen=True, slots=True)
class Work:
    """How one request is run: by which application, in which pool, under which key, and how long it may wait."""

    application: WsgiApplication
    pool: FairPool
    key: Hashable
    wait_s: float = limits.PAGE_WAIT_S
    body_max: int = limits.PAGE_BODY_BYTES_MAX
    streams_body: bool = False
    refusal: Callable[[int, str], Refusal] = plain_refusal
    at_once: LightApplication | None = None  # answers light requests without waiting, and others with ``None``
    further: FurtherAnswers | None = None  # of a request that ``at_once`` has answered: answers those with its head


class LoopShare:
    """The loop's time for light requests: ``LIGHT_LOOP_SHARE`` of it; ``LIGHT_LOOP_BURST_S`` or one request at a time.

    What else happens on the loop, pings and pushes, waits no longer than that. A request that takes longer is made up
    for: the next ones are not run.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._left_s, self._at_s = clock, LIGHT_LOOP_BURST_S, clock.monotonic()

    def run(self, act: Callable[[], T]) -> T | None:
        """Run something now; ``None``, and nothing is run, where the share is used up."""
        now_s = self._clock.monotonic()
        gained_s = (now_s - self._at_s) * LIGHT_LOOP_SHARE
        self._left_s, self._at_s = min(LIGHT_LOOP_BURST_S, self._left_s + gained_s), now_s
        if self._left_s <= 0:
            return None
        try:
            return act()
        finally:
            self._left_s -= self._clock.monotonic() - now_s


class ClientGone(Exception):
    """The client closed its connection: nobody reads an answer."""


class WsgiBridge:
    """Answers ASGI requests by WSGI applications. For one event loop.

    ``note_organisation`` is called with a request's key and organisation, once a view has checked whose it is.
    """

    def __init__(self, clock: Clock, note_organisation: Callable[[Hashable, int], None]) -> None:
        self._clock, self._note_organisation = clock, note_organisation
        self._share = LoopShare(clock)
        self._bytes = ByteBudget(
            "bodies of requests",
            total_max=limits.PAGE_BODIES_BYTES_MAX,
            per_key_max=limits.PAGE_BODIES_KEY_BYTES_MAX,
        )

    async def __call__(self, work: Work, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = self._clock.monotonic()
        byte_count = 0
        try:
            if work.streams_body:
                answer = await self._run(work, environ_of(scope, _ArrivingBody(receive), begun), None, send)
            else:
                content, byte_count = await self._read(work, scope, receive)
                environ = environ_of(scope, io.BytesIO(content), begun)
                if "HTTP_TRANSFER_ENCODING" in environ:  # it came in chunks, and is whole now
                    del environ["HTTP_TRANSFER_ENCODING"]
                    environ["CONTENT_LENGTH"] = str(len(content))
                answer = await self._run(work, environ, receive, send)
        except ClientGone:
            return
        except _TooLarge:
            await send_refusal(send, work.refusal(413, f"the body is larger than {work.body_max} bytes"))
        except PoolFull as error:
            await send_refusal(send, work.refusal(429, f"{error}: ask again in a few seconds, or ask for less at once"))
        except (WaitedTooLong, PoolClosed, NoRoom) as error:
            await send_refusal(send, work.refusal(503, f"{error}: ask again in a few seconds"))
        else:
            if answer is not None:
                await send({"type": "http.response.start", "status": answer[0], "headers": answer[1]})
                await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer[2]})
        finally:
            if byte_count:
                self._bytes.remove(work.key, byte_count)

    async def _run(self, work: Work, environ: Environ, receive: Receive | None, send: Send) -> "_Complete | None":
        """Run a request in a thread. While it waits for one, ``receive`` says whether its client still waits, too."""
        environ["spm.note_organisation"] = partial(self._note_organisation, work.key)
        if work.at_once is not None and work.pool.has_room(work.key):
            answer = self._share.run(partial(_answer_at_once, work.at_once, environ))
            if answer is not None:
                self._offer_more(work, environ)
                return answer
        channel = _Channel(asyncio.get_running_loop(), send)
        act = partial(_run, work.application, environ, channel, environ["spm.client_gone"])
        if receive is None or work.pool.has_room(work.key):
            return await work.pool.run(work.key, act, wait_s=work.wait_s)
        running = asyncio.ensure_future(work.pool.run(work.key, act, wait_s=work.wait_s))
        leaving = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise ClientGone
            return running.result()
        finally:
            running.cancel()
            leaving.cancel()

    def _offer_more(self, work: Work, environ: Environ) -> None:
        """Offer to answer further requests with the head of a light one, as light ones are answered."""
        offer, answer = environ["spm.offer_answers"], None if work.further is None else work.further(environ)
        if offer is None or answer is None:
            return

        def answer_at_once(target: bytes, body: bytes) -> Reply | None:
            if not work.pool.has_room(work.key):
                return None
            return self._share.run(partial(_reply_at_once, answer, target, body))

        offer(answer_at_once)

    async def _read(self, work: Work, scope: Scope, receive: Receive) -> tuple[bytes, int]:
        """Return the body, and how many bytes of it are counted."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if length.isdigit() and int(length) > work.body_max:
            raise _TooLarge
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                piece: bytes = message["body"]
                if piece:
                    if size + len(piece) > work.body_max:
                        raise _TooLarge
                    self._bytes.add(work.key, len(piece))
                    size += len(piece)
                    pieces.append(piece)
                if not message.get("more_body"):
                    return b"".join(pieces), size
        except BaseException:
            self._bytes.remove(work.key, size)
            raise


class _TooLarge(Exception):
    """A body over its bound."""


async def send_refusal(send: Send, refusal: Refusal) -> None:
    """Send the answer to a request that is not run."""
    headers = {
        "Content-Type": refusal.content_type,
        "Content-Length": str(len(refusal.body)),
        **protective_headers(),
        **({"Retry-After": str(limits.RETRY_AFTER_S)} if refusal.status in RETRYABLE else {}),
    }
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": refusal.body})


def environ_of(scope: Scope, body: Any, begun_s: float) -> Environ:
    """Return the WSGI environ of a request; ``begun_s``: monotonic time at which it arrived."""
    client, server = scope.get("client") or ("", 0), scope.get("server")
    if server is None or server[1] is None:  # a socket of the file system
        server = ("localhost", 443 if scope["scheme"] == "https" else 80)
    extensions = scope.get("extensions", {})
    handle = extensions.get("spm.client")
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),  # its bytes, whatever they say
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "spm.begun_s": begun_s,
        "spm.client_gone": _never_gone if handle is None else lambda: handle.gone,
        "spm.offer_answers": extensions.get("spm.at_once"),
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name == "content-type":
            environ["CONTENT_TYPE"] = value
        elif name == "content-length":
            environ["CONTENT_LENGTH"] = value
        else:
            key = "HTTP_" + name.upper().replace("-", "_")
            before = environ.get(key)
            joint = "; " if name == "cookie" else ","
            environ[key] = value if before is None else f"{before}{joint}{value}"
    return environ


def _never_gone() -> bool:
    return False


class _Channel:
    """Lets a thread send pieces of an answer; each call returns when the client has room for more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._loop, self._send = loop, send

    def send(self, message: dict[str, Any]) -> None:
        """Send a message of ASGI from a thread."""
        _result_of(self._loop, self._send, message)


def _result_of(loop: asyncio.AbstractEventLoop, act: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Return in a thread what ``act`` returns on the loop; ``ClientGone`` where the loop ends before."""

    async def acting() -> T:
        return await act(*arguments)

    coroutine = acting()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError as error:
        coroutine.close()
        raise ClientGone from error
    while True:
        try:
            return future.result(_LOOP_LOOK_S)
        except CancelledError as error:
            raise ClientGone from error
        except TimeoutError:
            if future.done():  # it is the act's own
                raise
            if loop.is_closed():
                raise ClientGone from None


class _ArrivingBody(io.RawIOBase):
    """A body that a thread reads while it comes; what has not been asked for stays with the client."""

    def __init__(self, receive: Receive) -> None:
        self._loop, self._receive = asyncio.get_running_loop(), receive
        self._buffer, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return at most ``size`` bytes, b"" at the end; ``OSError`` where the client leaves within its body."""
        wanted = sys.maxsize if size is None or size < 0 else size
        pieces = [self._buffer]
        have = len(self._buffer)
        while have < wanted and not self._ended and (wanted == sys.maxsize or not have):
            pieces.append(self._next())
            have += len(pieces[-1])
        content = b"".join(pieces)
        self._buffer = content[wanted:] if wanted < len(content) else b""
        return content[:wanted] if wanted < len(content) else content

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self) -> bytes:
        message = _result_of(self._loop, self._receive)
        if message["type"] != "http.request":
            raise ConnectionResetError("the client closed its connection within the body")
        self._ended = not message.get("more_body")
        piece: bytes = message["body"]
        return piece


_Complete = tuple[int, list[tuple[bytes, bytes]], bytes]


class _Head:
    """The head of an answer, as an application gives it to ``start_response``."""

    def __init__(self) -> None:
        self.status, self.headers = 500, list[tuple[bytes, bytes]]()

    def __call__(self, line: str, lines: list[tuple[str, str]], _exc_info: Any = None) -> Callable[[bytes], None]:
        """Take the head."""
        self.status = int(line.split(" ", 1)[0])
        self.headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines]
        return _no_write


def _answer_at_once(application: LightApplication, environ: Environ) -> _Complete | None:
    """Answer on the loop; ``None`` where a thread must, for which the body is there again."""
    head = _Head()
    try:
        result = application(environ, head)
    except Exception:
        _LOG.exception("a light request failed; a thread tries it again: %r", environ["PATH_INFO"])
        result = None
    if result is None:
        environ["wsgi.input"].seek(0)
        return None
    return head.status, head.headers, b"".join(result)


def _reply_at_once(answer: AnswerAtOnce, target: bytes, body: bytes) -> Reply | None:
    """Answer on the loop; ``None`` where the request must be parsed, as any other."""
    try:
        return answer(target, body)
    except Exception:
        _LOG.exception("a light request failed; it is read again as any other: %r", target)
        return None


def _run(
    application: WsgiApplication, environ: Environ, channel: _Channel, gone: Callable[[], bool]
) -> _Complete | None:
    """Call the application in this thread; return a complete answer, ``None`` if it was streamed."""
    if gone():
        raise ClientGone
    head = _Head()
    result = application(environ, head)
    try:
        if not getattr(result, "streaming", False):
            body = b"".join(result)  # an application may give its status with the first piece
            return head.status, head.headers, body
        head_only = environ["REQUEST_METHOD"] == "HEAD"
        _stream(() if head_only else result, head.status, head.headers, channel, gone)
        return None
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()


def _stream(
    pieces: Iterable[bytes],
    status: int,
    headers: list[tuple[bytes, bytes]],
    channel: _Channel,
    gone: Callable[[], bool],
) -> None:
    """Send a streamed answer; the pieces of a file, whose length is known, are joined."""
    gathered, size = list[bytes](), 0
    least = _GATHER_BYTES if any(name == b"content-length" for name, _ in headers) else 1
    channel.send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces:
        if gone():
            raise ClientGone
        gathered.append(piece)
        size += len(piece)
        if size >= least:
            channel.send({"type": "http.response.body", "body": b"".join(gathered), "more_body": True})
            gathered, size = [], 0
    channel.send({"type": "http.response.body", "body": b"".join(gathered)})


def _no_write(_data: bytes) -> None:
    raise RuntimeError("BUG: an application writes by start_response")
