"""Requests whose head is that of an earlier one of their connection, but for the length of the body.

Senders of samples repeat their head with each body. An application that has answered one of them may offer to take the
next ones as a whole (``scope["extensions"]["spm.repeat"]``): these are neither parsed nor scheduled again, and the
application sends their answers when it has them. Everything else of such a connection goes on as before. Enter by
``Repeats`` and ``WholeAnswer``.
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
        head = [STATUS_LINE[status], *(shared_line(*each)[0] for each in sink.server_state.default_headers), lines]
        head += [header_line(name, value) for name, value in headers]
        head.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self.response_complete = True
        sink.write(b"".join(head) + body)
        sink.on_response_complete()


Take = Callable[[bytes, WholeAnswer], bool]
"""Takes the body of a request and its answer; false: it does not, and the request is to be parsed as any other."""


@dataclass(frozen=True, slots=True)
class RepeatedHead:
    """A head around the digits of its body's length, and who takes further requests with it."""

    before: bytes
    after: bytes
    take: Take

    @classmethod
    def of(cls, head: bytes, take: Take) -> "RepeatedHead | None":
        """Returns the parts of a head; ``None`` unless the body's length stands in it exactly once."""
        lengths = list(_LENGTH.finditer(head))
        if len(lengths) != 1:
            return None
        start, end = lengths[0].span(1)
        return cls(head[:start], head[end:], take)

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


class Repeats:
    """What one connection knows of a head that may come again."""

    __slots__ = ("_head", "_offer", "_repeated")

    def __init__(self) -> None:
        self._head = b""  # of the request at work
        self._offer: Take | None = None
        self._repeated: RepeatedHead | None = None

    def begin(self, head: bytes, method: bytes, version: str, special: Mapping[bytes, list[bytes]]) -> None:
        """Notes the head of a request that was parsed, if nothing but the body's length can differ under it."""
        may_come_again = (
            version == "1.1"
            and method == b"POST"
            and len(head) <= _HEAD_BYTES_MAX
            and len(special.get(b"content-length", ())) == 1
            and special.keys() <= _FRAMING
            and all(value.lower() == b"keep-alive" for value in special.get(b"connection", ()))
        )
        self._head, self._offer = head if may_come_again else b"", None

    def offer(self, take: Take) -> None:
        """Lets ``take`` have further requests with the head of the one at work; called before its answer has gone."""
        self._offer = take

    def end(self) -> None:
        """Notes that the request at work was answered, and that its connection goes on."""
        if self._offer is not None:
            self._repeated = RepeatedHead.of(self._head, self._offer)
        self._head, self._offer = b"", None

    def forget(self) -> None:
        """Lets every further request be parsed."""
        self._repeated = None

    def take(self, data: bytes | bytearray, sink: Sink) -> tuple[WholeAnswer, int] | None:
        """Hands over the request that ``data`` begins with, if it has come whole under the known head.

        Returns its answer, and where it ends in ``data``; ``None`` if it was not taken.
        """
        place = None if self._repeated is None else self._repeated.body_in(data)
        if self._repeated is None or place is None:
            return None
        answer = WholeAnswer(sink)
        return (answer, place[1]) if self._repeated.take(bytes(data[place[0] : place[1]]), answer) else None
