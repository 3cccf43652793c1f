"""Claims about spm/web/http_protocol/repeated.py: a head that is taken by memory is read as the parser reads it."""

import asyncio
import random
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from spm.web.http_protocol import BoundedHttpProtocol, Connections, Reply, WholeAnswer, header_line
from tests.spm.web.http_protocol import serving
from tests.spm.web.http_protocol.generated import _damaged, in_pieces
from tests.spm.web.http_protocol.serving import HOST, answers
from tests.spm.web.http_protocol.test_answers import Transport
from tests.support.event_loop import on_loop

HEAD = b"POST /push?a=b HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\nX: y_z\r\n\r\n"
HIDDEN = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"


def request(body: bytes) -> bytes:
    """A request with the head that repeats itself."""
    return HEAD % len(body) + body


class Pushes:
    """An application that offers to take further requests, and says of each body how it got it."""

    def __init__(self, *, offers: bool = True) -> None:
        self.offers, self.seen = offers, list[tuple[str, bytes]]()
        self.waiting: list[WholeAnswer] = []
        self.answers_at_once = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await serving.whole_body(receive)
        if body is None:
            return
        self.seen.append(("parsed", body))
        if self.offers and scope["path"] == "/push":
            scope["extensions"]["spm.repeat"](self.take)
        await serving.answer(send, 200, scope["path"].encode() + body)

    def take(self, body: bytes, reply: WholeAnswer) -> bool:
        """Take all bodies but one."""
        if body == b"not this one":
            return False
        self.seen.append(("whole", body))
        self.waiting.append(reply)
        if self.answers_at_once:
            asyncio.get_running_loop().call_soon(self.say, reply, body)
        return True

    @staticmethod
    def say(reply: WholeAnswer, body: bytes) -> None:
        """Answer a request that was taken."""
        body = b"/push" + body
        reply.send(200, header_line(b"A", b"b"), [(b"content-length", str(len(body)).encode())], body)


class OpenTransport(Transport):
    """Takes what a protocol writes, of a client that is never slow."""

    def close(self) -> None:
        """Nothing is open."""

    pause_reading = resume_reading = close

    def can_write_eof(self) -> bool:
        return False


class Connection:
    """A connection without a socket, whose client sends pieces and waits after each."""

    def __init__(self, app: Any) -> None:
        config = Config(app, interface="asgi3", lifespan="off", proxy_headers=False, log_config=None)
        config.load()
        self.transport: Any = OpenTransport()
        self.protocol = BoundedHttpProtocol(config, ServerState(), {}, connections=Connections())
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    async def send(self, *pieces: bytes) -> None:
        """Let pieces arrive, one after the other."""
        for piece in pieces:
            self.protocol.data_received(piece)
            for _ in range(6):
                await asyncio.sleep(0)

    def answered(self) -> list[tuple[int, bytes]]:
        """Status and body of each answer so far."""
        return [(answer.status, answer.body) for answer in answers(b"".join(self.transport.writes))]


async def _after_first(*pieces: bytes, offers: bool = True) -> tuple[Pushes, Connection]:
    app = Pushes(offers=offers)
    connection = Connection(app)
    await connection.send(request(b"first"), *pieces)
    return app, connection


@pytest.mark.parametrize(
    ("pieces", "how"),
    [
        pytest.param([request(b"1")], ["whole"], id="the same head with another length"),
        pytest.param([request(HIDDEN)], ["whole"], id="a body that looks like a request"),
        pytest.param([request(b"")], ["whole"], id="an empty body"),
        pytest.param([request(b"1") + request(b"2"), request(b"3")], ["whole"] * 3, id="two at once"),
        pytest.param([request(b"1")[:-5], request(b"1")[-5:]], ["whole"], id="a head in pieces"),
        pytest.param([request(b"12")[:-1], b"2", request(b"3")], ["parsed", "whole"], id="a body in pieces"),
        pytest.param([request(b"not this one"), request(b"3")], ["parsed", "whole"], id="one that is not taken"),
        pytest.param([request(b"1").replace(b"X:", b"x:"), request(b"3")], ["parsed"] * 2, id="another name"),
        pytest.param([request(b"1").replace(b"push", b"pull"), request(b"3")], ["parsed", "whole"], id="a path"),
        pytest.param([request(b"1").replace(b"POST", b"PUT")], ["parsed"], id="another method"),
        pytest.param([b"\r\n" + request(b"1")], ["parsed"], id="after a blank line"),
    ],
)
def test_a_request_is_taken_whole_only_under_the_head_that_was_read_before(pieces: list[bytes], how: list[str]) -> None:
    app, connection = on_loop(_after_first(*pieces))
    assert [one for one, _ in app.seen] == ["parsed", *how]
    said = [(200, body) for _, body in app.seen]
    assert [(status, body[5:]) for status, body in connection.answered()] == said


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD.replace(b"X:", b"X-Forwarded-For:"), id="an address that a proxy adds"),
        pytest.param(HEAD.replace(b"X: y_z", b"Expect: 100-continue"), id="an expectation"),
        pytest.param(HEAD.replace(b"X: y_z", b"Connection: close"), id="a last request"),
        pytest.param(HEAD.replace(b"y_z", b"y" * 1_024), id="a long head"),
        pytest.param(HEAD.replace(b"/push", b"http://there/push"), id="a target with a host"),
        pytest.param(HEAD.replace(b"1.1", b"1.0").replace(b"X: y_z", b"Connection: keep-alive"), id="HTTP/1.0"),
    ],
)
def test_a_head_that_says_more_than_a_length_is_parsed_each_time(head: bytes) -> None:
    async def act() -> Pushes:
        app = Pushes()
        await Connection(app).send(head % 1 + b"1", head % 1 + b"2")
        return app

    assert {how for how, _ in on_loop(act()).seen} == {"parsed"}


@pytest.mark.parametrize("seed", range(200))
def test_whatever_follows_is_answered_as_without_the_offer(seed: int) -> None:
    dice = random.Random(seed)
    second = _damaged(dice, request(dice.choice((b"", b"2", HIDDEN, b"2" * 300))))
    pieces = in_pieces(dice, second + (request(b"3") if dice.random() < 0.5 else b""))

    async def act(offers: bool) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        app, connection = await _after_first(*pieces, offers=offers)
        return [body for _, body in app.seen], connection.answered()

    assert on_loop(act(True)) == on_loop(act(False))


GET = b"GET /page?%b HTTP/1.1\r\n" + HOST + b"X: y_z\r\n\r\n"
FORM = b"POST /page HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n"


class Pages:
    """An application that offers to answer further requests at once, and says how it got each."""

    def __init__(self, *, offers: bool = True) -> None:
        self.offers, self.seen = offers, list[tuple[str, bytes]]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await serving.whole_body(receive)
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self.seen.append(("parsed", target + b" " + (body or b"")))
        if self.offers:
            scope["extensions"]["spm.at_once"](self.answer)
        await serving.answer(send, 200, self.seen[-1][1])

    def answer(self, target: bytes, body: bytes) -> Reply | None:
        """Answer all requests but one."""
        if target.endswith(b"not+this"):
            return None
        self.seen.append(("at once", target + b" " + body))
        said = self.seen[-1][1]
        return 200, header_line(b"content-length", str(len(said)).encode()), said


async def _pages_after(first: bytes, *pieces: bytes, offers: bool = True) -> tuple[Pages, Connection]:
    app = Pages(offers=offers)
    connection = Connection(app)
    await connection.send(first, *pieces)
    return app, connection


@pytest.mark.parametrize(
    ("pieces", "how"),
    [
        pytest.param([GET % b"2", GET % b"3"], ["at once"] * 2, id="another target"),
        pytest.param([GET.replace(b"/page", b"/other") % b"2"], ["at once"], id="another path"),
        pytest.param([GET % b"q=%22a%22{b='c'}&d=e"], ["at once"], id="signs"),
        pytest.param([GET % b"not+this", GET % b"3"], ["parsed", "at once"], id="one that is not answered"),
        pytest.param([GET % b"2" + GET % b"3", GET % b"4"], ["parsed"] + ["at once"] * 2, id="two at once"),
        pytest.param([(GET % b"2")[:-5], (GET % b"2")[-5:]], ["at once"], id="in pieces"),
        pytest.param([b"\r\n" + GET % b"2"], ["parsed"], id="after a blank line"),
        pytest.param([GET % b"2#3", GET % b"4"], ["parsed", "at once"], id="a fragment"),
        pytest.param([GET.replace(b"X:", b"x:") % b"2"], ["parsed"], id="another name"),
        pytest.param([GET.replace(b"/page", b"http://there/page") % b"2"], ["parsed"], id="a host in the target"),
        pytest.param([GET % (b"2" * 4_000)], ["at once"], id="a long target"),
        pytest.param([GET % (b"2" * 4_096)], ["parsed"], id="a longer target"),
        pytest.param([FORM % 3 + b"a=b", FORM % 5 + b"a=b&c"], ["parsed", "at once"], id="forms"),
        pytest.param([FORM % 3 + b"a=b", FORM % 3 + b"a=b" + GET % b"2"], ["parsed"] * 3, id="a form and more"),
        pytest.param([FORM % 3 + b"a=b", FORM % 5 + b"a=b", b"&c"], ["parsed"] * 2, id="a form in pieces"),
        pytest.param([FORM % 3 + b"a=b", GET % b"2", FORM % 1 + b"a"], ["parsed"] * 3, id="heads by turns"),
    ],
)
def test_a_page_is_answered_at_once_only_under_a_head_that_was_read(pieces: list[bytes], how: list[str]) -> None:
    app, connection = on_loop(_pages_after(GET % b"1", *pieces))
    assert [one for one, _ in app.seen] == ["parsed", *how]
    assert connection.answered() == [(200, body) for _, body in app.seen]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(GET.replace(b"X:", b"X-Forwarded-For:"), id="an address that a proxy adds"),
        pytest.param(GET.replace(b"X: y_z", b"Content-Length: 0"), id="a length"),
        pytest.param(GET.replace(b"X: y_z", b"Connection: close"), id="a last request"),
        pytest.param(GET.replace(b"y_z", b"y" * 1_024), id="a long head"),
        pytest.param(GET.replace(b"GET", b"HEAD"), id="another method"),
        pytest.param(GET.replace(b"1.1", b"1.0").replace(b"X: y_z", b"Connection: keep-alive"), id="HTTP/1.0"),
    ],
)
def test_a_head_that_says_more_than_a_target_is_parsed_each_time(head: bytes) -> None:
    app, _ = on_loop(_pages_after(head % b"1", head % b"2"))
    assert {how for how, _ in app.seen} == {"parsed"}


@pytest.mark.parametrize("seed", range(200))
def test_whatever_page_follows_is_answered_as_without_the_offer(seed: int) -> None:
    dice = random.Random(seed)
    first = dice.choice((GET % b"1", FORM % 3 + b"a=b"))
    second = _damaged(dice, dice.choice((GET % b"2", FORM % 4 + b"c=de", GET % HIDDEN[:20])))
    pieces = in_pieces(dice, second + (first if dice.random() < 0.5 else b""))

    async def act(offers: bool) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        app, connection = await _pages_after(first, *pieces, offers=offers)
        return [said for _, said in app.seen], connection.answered()

    assert on_loop(act(True)) == on_loop(act(False))


def test_a_client_that_takes_no_answers_gets_none_at_once() -> None:
    async def act() -> tuple[Pages, Connection]:
        app, connection = await _pages_after(GET % b"1", GET % b"2")
        connection.protocol.pause_writing()
        await connection.send(GET % b"3")
        connection.protocol.resume_writing()
        await connection.send(GET % b"4")
        return app, connection

    app, connection = on_loop(act())
    assert [how for how, _ in app.seen] == ["parsed", "at once", "parsed", "at once"]
    assert connection.answered() == [(200, b"/page?%d " % number) for number in (1, 2, 3, 4)]


def test_a_connection_that_is_to_end_gets_no_answers_at_once() -> None:
    async def act() -> Pages:
        app, connection = await _pages_after(GET % b"1")
        connection.protocol.repeats.forget()
        await connection.send(GET % b"2")
        return app

    assert [how for how, _ in on_loop(act()).seen] == ["parsed"] * 2


def test_an_answer_to_a_client_that_has_left_is_dropped() -> None:
    async def act() -> tuple[Pushes, Connection]:
        app, connection = await _after_first()
        app.answers_at_once = False
        await connection.send(request(b"2"))
        connection.protocol.connection_lost(OSError("reset"))
        app.say(app.waiting[0], b"2")
        return app, connection

    app, connection = on_loop(act())
    assert app.waiting[0].gone
    assert connection.answered() == [(200, b"/pushfirst")]


def test_a_request_behind_one_that_was_taken_waits_for_its_answer() -> None:
    async def act() -> tuple[Pushes, Connection, list[bytes]]:
        app, connection = await _after_first()
        app.answers_at_once = False
        await connection.send(request(b"2") + request(b"3"))
        before = [body for _, body in app.seen]
        app.say(app.waiting[0], b"2")
        await connection.send()
        app.say(app.waiting[1], b"3")
        return app, connection, before

    _, connection, before = on_loop(act())
    assert before == [b"first", b"2"]
    assert connection.answered() == [(200, b"/pushfirst"), (200, b"/push2"), (200, b"/push3")]


def test_the_answer_of_a_connection_that_is_to_end_says_so() -> None:
    async def act() -> Connection:
        app, connection = await _after_first()
        app.answers_at_once = False
        await connection.send(request(b"2"))
        connection.protocol.shutdown()
        app.say(app.waiting[0], b"2")
        return connection

    last = answers(b"".join(on_loop(act()).transport.writes))[-1]
    assert last.headers["connection"] == "close"


def test_a_header_that_would_be_two_is_not_sent() -> None:
    with pytest.raises(RuntimeError, match="without control characters"):
        header_line(b"a", b"b\r\nc: d")
