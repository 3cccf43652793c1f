"""Requests at random, most of them nearly right, and what another parser (h11) reads in the same bytes.

Their bodies hold what looks like further requests, so that a parser that loses its place finds some. Enter by
``conversation`` and ``read_by_h11``.
"""

import random
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

_LENGTHS = (b"Content-Length: %d", b"content-length:%d", b"Content-Length:  %d ", b"Content-Length: 0%d")
_WRONG_LENGTHS = (
    *(b"Content-Length: +%d", b"Content-Length: -%d", b"Content-Length: %d, %d", b"Content-Length : %d"),
    *(
        b"Content_Length: %d",
        b"Content-Length: 0x%d",
        b"Content-Length: %d\r\nContent-Length: 5",
        b"Content-Length:\n %d",
    ),
    *(b"Content-Length: %d\nX: y", b"Content-Length: %d\0", b"Content-Length: %d.0", b"Content-Length: 1_%d"),
)
_CHUNKED = (b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked", b"TRANSFER-ENCODING: chunked ")
_WRONG_CHUNKED = (
    *(b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked", b"Transfer_Encoding: chunked"),
    *(b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\x0bchunked"),
    *(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", b"X: y\nTransfer-Encoding: chunked"),
    *(
        b"Transfer-Encoding:\r\n chunked",
        b'Transfer-Encoding: "chunked"',
        b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    ),
)
_SIZES = (b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;a="b"')
_WRONG_SIZES = (b"+%x", b"-%x", b"0x%x", b"%x ", b" %x", b"%x\n", b"%xg", b"%x;\n", b"%x\r", b"%x;a=\0", b"%x,")
_OTHERS = (
    *(b"Connection: close", b"Connection: Upgrade\r\nUpgrade: h2c", b"Accept: */*", b"X-Forwarded-For: 1.1.1.1"),
    *(b"Cookie: a=b; c_d=e", b"X_Y: z", b"Expect: 100-continue", b"A:", b"A: \xff"),
)
_WRONG_OTHERS = (
    b" A: b",
    b"A : b",
    b"A",
    b": b",
    b"A: b\r\n c",
    b"A: \0",
    b"A\xff: b",
    b"Host: again",
    b"\tA: b",
    b"A: b\rc",
)


@dataclass(frozen=True)
class Request:
    """What a parser reads: method, path with query, body."""

    method: str
    target: str
    body: bytes


def conversation(dice: random.Random, name: str, number: int, wrong: float) -> list[bytes]:
    """So many requests, each of bytes that name it; ``wrong`` is the share of parts that are not as they should be."""
    requests = [_request(dice, f"{name}-{at}", wrong) for at in range(number)]
    if dice.random() < wrong:
        at = dice.randrange(number)
        requests[at] = _damaged(dice, requests[at])
    return requests


def in_pieces(dice: random.Random, data: bytes) -> list[bytes]:
    """The data in one to six pieces."""
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 1, 5))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def _request(dice: random.Random, name: str, wrong: float) -> bytes:
    def pick(right: tuple[bytes, ...], broken: tuple[bytes, ...]) -> bytes:
        return dice.choice(broken if dice.random() < wrong else right)

    hidden = b"GET /smuggled-%b HTTP/1.1\r\nHost: here\r\n\r\n" % name.encode()
    body = dice.choice((b"", b"a", hidden, b"0\r\n\r\n" + hidden, b"\r\n\r\n", b"x" * 2_000 + hidden))
    method = dice.choice((b"GET", b"POST", b"POST", b"PUT"))
    target = dice.choice((b"/%b", b"/%b?a=/b", b"http://there/%b")) % name.encode()
    version = pick(
        (b" HTTP/1.1",), (b" HTTP/1.0", b" HTTP/1.2", b"  HTTP/1.1", b" http/1.1", b"", b" HTTP/1.1 ", b" HTTP/2.0")
    )
    lines = [pick((b"Host: here",), (b"Host : here", b"X: y", b"host:here\r\nHost: there"))]
    if dice.random() < 0.5:
        lines.append(pick(_OTHERS, _WRONG_OTHERS))
    if method == b"GET" and dice.random() < 0.8:
        body = b""
    elif dice.random() < 0.5:
        form = pick(_LENGTHS, _WRONG_LENGTHS)
        lines.append(form % ((len(body),) * form.count(b"%d")))
    else:
        lines.append(pick(_CHUNKED, _WRONG_CHUNKED))
        body = _chunks(dice, body, pick) + (b"0\r\n\r\n" if dice.random() < 0.8 else b"0\r\nT: x\r\n\r\n")
    dice.shuffle(lines)
    ends = b"\n" if dice.random() < wrong / 4 else b"\r\n"
    return method + b" " + target + version + ends + ends.join(lines) + ends + ends + body


def _chunks(dice: random.Random, body: bytes, pick: object) -> bytes:
    pieces = []
    for piece in in_pieces(dice, body) if body else []:
        size = pick(_SIZES, _WRONG_SIZES) % len(piece)  # type: ignore[operator]
        pieces.append(size + b"\r\n" + piece + b"\r\n")
    return b"".join(pieces)


def _damaged(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data))
    byte = dice.choice((b"\r", b"\n", b"\0", b" ", b":", b"\t", b"0", b"\r\n", bytes([dice.randrange(256)])))
    return dice.choice((data[:at] + byte + data[at:], data[:at] + byte + data[at + 1 :], data[:at] + data[at + 1 :]))


def read_by_h11(data: bytes) -> tuple[list[Request], str]:
    """The requests in ``data`` as h11 reads them, and why it stopped; empty: at the end."""
    connection, requests = h11.Connection(h11.SERVER, max_incomplete_event_size=70_000), []
    connection.receive_data(data)
    connection.receive_data(b"")
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                head, pieces = event, []
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                requests.append(Request(head.method.decode(), _path(head.target.decode("latin-1")), b"".join(pieces)))
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return requests, "closed"
                connection.start_next_cycle()
            else:
                return requests, ""
    except h11.RemoteProtocolError as error:
        return requests, str(error)


def _path(target: str) -> str:
    """Returns path and query of a target."""
    target = target.partition("#")[0]
    if target.startswith("/"):
        return target
    parts = urlsplit(target)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
