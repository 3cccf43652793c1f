"""Requests whose head is that of an earlier one of their connection, but for the length of the body or the target.

Senders of samples repeat their head with each body. An application that has answered one of them may offer to take the
next ones as a whole (``scope["extensions"]["spm.repeat"]``): these are neither parsed nor scheduled again, and the
application sends their answers when it has them. A dashboard repeats its head with another target, or another form; the
application may offer to answer such requests at once (``spm.at_once``), where the client waits for the answer before
it sends more. Everything else of such a connection goes on as before. Enter by ``Repeats`` and ``WholeAnswer``.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from spm.web.http_protocol.exchange import header_line, shared_line

_HEAD_BYTES_MAX = 1_024  # of a head that is kept with its connection
_DIGITS_MAX = 8  # of a body's length
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,8})(?=\r\n)", re.IGNORECASE)
_FRAMING = frozenset((b"host", b"content-length", b"connection"))
_TARGET = re.compile(rb"/[!-\"$-~]{0,4095}")  # that any parser reads in one way: a path, and what may follow it


class Sink(Protocol):
    """What an answer asks of its connection."""

    server_state: Any

    def write(self, data: bytes) -> None:
        """Sends bytes of an answer."""

    def on_response_complete(self) -> None:
        """Goes on after an answer."""


class WholeAnswer:
    """The answer to one request that was taken as a whole; to its connection it is the exchange at work."""

    __slots__ = ("_sink", "disconnected", "gone", "keep_alive", "response_complete")
    response_started = waiting_for_100_continue = more_body = False

    def __init__(self, sink: Sink) -> None:
        self._sink: Sink | None = sink
        self.disconnected = self.gone = self.response_complete = False
        self.keep_alive = True

    @property
    def client(self) -> "WholeAnswer":
        """What knows whether the client still waits."""
        return self

    @property
    def message_event(self) -> "WholeAnswer":
        """What is set when more of the request comes, or the client leaves."""
        return self

    def set(self) -> None:
        """Does nothing, since nobody waits for more of the request."""

    def send(self, status: int, lines: bytes, headers: Collection[tuple[bytes, bytes]], body: bytes) -> None:
        """Sends the answer, unless the client has left. ``lines`` are headers as ``header_line`` makes them."""
        sink, self._sink = self._sink, None
        if self.disconnected or sink is None:
            return
        own = [header_line(name, value) for name, value in headers]
        if not self.keep_alive:
            own.append(b"connection: close\r\n")
        self.response_complete = True
        sink.write(_bytes_of(sink, status, b"".join((lines, *own)), body))
        sink.on_response_complete()


def _bytes_of(sink: Sink, status: int, lines: bytes, body: bytes) -> bytes:
    """Returns the bytes of an answer, with the headers that all answers of a server have."""
    common = [shared_line(*each)[0] for each in sink.server_state.default_headers]
    return b"".join((STATUS_LINE[status], *common, lines, b"\r\n", body))


Take = Callable[[bytes, WholeAnswer], bool]
"""Takes the body of a request and its answer; false: it does not, and the request is to be parsed as any other."""

Reply = tuple[int, bytes, bytes]
"""The status, header lines (``header_line``) and body of an answer."""

AnswerAtOnce = Callable[[bytes, bytes], Reply | None]
"""Answers a request by its target and body without waiting; ``None``: it is to be parsed as any other."""


@dataclass(frozen=True, slots=True)
class RepeatedHead:
    """A head around the digits of its body's length."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, head: bytes) -> "RepeatedHead | None":
        """Returns the parts of a head; ``None`` unless the body's length stands in it exactly once."""
        lengths = list(_LENGTH.finditer(head))
        if len(lengths) != 1:
            return None
        start, end = lengths[0].span(1)
        return cls(head[:start], head[end:])

    def body_in(self, data: bytes | bytearray) -> tuple[int, int] | None:
        """Returns where the body of a request begins and ends, if ``data`` begins with all of one with this head."""
        if not data.startswith(self.before):
            return None
        start = len(self.before)
        end = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self.after, end):
            return None
        first = end + len(self.after)
        last = first + int(digits)
        return (first, last) if last <= len(data) else None


@dataclass(frozen=True, slots=True)
class _Known:
    """The head of the last request of a connection that came with an offer."""

    target: bytes
    head: RepeatedHead | None  # of a POST
    rest: bytes  # of the head of a GET, from behind its target on
    take: Take | None
    answer: AnswerAtOnce | None

    def request_in(self, data: bytes | bytearray) -> tuple[bytes, bytes] | None:
        """Returns target and body of the request that ``data`` is; ``None`` unless it is one, whole, of this head."""
        if self.head is not None:
            place = self.head.body_in(data)
            return None if place is None or place[1] != len(data) else (self.target, bytes(data[place[0] :]))
        if not data.startswith(b"GET /") or not data.endswith(self.rest):
            return None
        target = bytes(data[len(b"GET ") : -len(self.rest)])
        return (target, b"") if _TARGET.fullmatch(target) else None


class Repeats:
    """What one connection knows of a head that may come again."""

    __slots__ = ("_answer", "_head", "_known", "_method", "_take", "_target")

    def __init__(self) -> None:
        self._head = self._method = self._target = b""  # of the request at work
        self._take: Take | None = None
        self._answer: AnswerAtOnce | None = None
        self._known: _Known | None = None

    def begin(
        self, head: bytes, method: bytes, target: bytes, version: str, special: Mapping[bytes, list[bytes]]
    ) -> None:
        """Notes the head of a request that was parsed, if nothing but its target or its body's length can differ."""
        is_get, lengths = method == b"GET", len(special.get(b"content-length", ()))
        may_come_again = (
            version == "1.1"
            and ((is_get and lengths == 0) or (method == b"POST" and lengths == 1))
            and len(head) <= _HEAD_BYTES_MAX + (len(target) if is_get else 0)
            and special.keys() <= _FRAMING
            and all(value.lower() == b"keep-alive" for value in special.get(b"connection", ()))
        )
        self._head, self._method, self._target = head if may_come_again else b"", method, target
        self._take = self._answer = None

    def offer(self, take: Take) -> None:
        """Lets ``take`` have further requests with the head of the one at work; called before its answer has gone."""
        self._take = take

    def offer_answers(self, answer: AnswerAtOnce) -> None:
        """Lets ``answer`` answer further ones with another target or body; called before this answer has gone, too."""
        self._answer = answer

    def offers(self) -> dict[str, Callable[[Any], None]]:
        """Returns the extensions by which an application makes these offers."""
        return {"spm.repeat": self.offer, "spm.at_once": self.offer_answers}

    def end(self) -> None:
        """Notes that the request at work was answered, and that its connection goes on."""
        take, answer, head = self._take, self._answer, self._head
        if head and (take is not None or answer is not None):
            if self._method == b"GET":
                self._known = _Known(self._target, None, head[len(b"GET ") + len(self._target) :], None, answer)
            else:
                repeated = RepeatedHead.of(head)
                self._known = None if repeated is None else _Known(self._target, repeated, b"", take, answer)
        self._head, self._take, self._answer = b"", None, None

    def forget(self) -> None:
        """Lets every further request be parsed."""
        self._known = None

    def take(self, data: bytes | bytearray, sink: Sink) -> tuple[WholeAnswer, int] | None:
        """Hands over the request that ``data`` begins with, if it has come whole under the known head.

        Returns its answer, and where it ends in ``data``; ``None`` if it was not taken.
        """
        known = self._known
        if known is None or known.take is None or known.head is None:
            return None
        place = known.head.body_in(data)
        if place is None:
            return None
        answer = WholeAnswer(sink)
        return (answer, place[1]) if known.take(bytes(data[place[0] : place[1]]), answer) else None

    def answer(self, data: bytes | bytearray, sink: Sink) -> bool:
        """Answers the request that ``data`` is, if it is one whole request under the known head; returns whether."""
        known = self._known
        request = None if known is None or known.answer is None else known.request_in(data)
        if known is None or known.answer is None or request is None:
            return False
        reply = known.answer(*request)
        if reply is None:
            return False
        sink.server_state.total_requests += 1
        sink.write(_bytes_of(sink, *reply))
        return True
