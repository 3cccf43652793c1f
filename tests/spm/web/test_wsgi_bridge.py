"""Claims about spm/web/wsgi_bridge.py: an application sees what WSGI wants, and holds a thread only for its work."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.http import FileResponse

from spm import limits
from spm.clock import SystemClock
from spm.web.wsgi_bridge import Environ, json_refusal, prometheus_refusal
from tests.servers.processes import wait_until
from tests.spm.web.bridging import Start, bridged, everything

MEGABYTE = 1_000_000


def plain(start: Start, body: bytes, status: str = "200 OK", headers: Iterable[tuple[str, str]] = ()) -> list[bytes]:
    """A whole answer."""
    start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *headers])
    return [body]


def parts(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a raw answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body


def tells_environ(environ: Environ, start: Start) -> Iterable[bytes]:
    """Answers with the texts of its environ, and with the body."""
    seen = {name: value for name, value in environ.items() if isinstance(value, str | bool | tuple)}
    seen["body"] = environ["wsgi.input"].read().decode("latin-1")
    return plain(start, json.dumps(seen).encode())


COMMON = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": "127.0.0.1",
    "REMOTE_ADDR": "127.0.0.1",
    "HTTP_HOST": "here",
    "wsgi.version": [1, 0],
    "wsgi.url_scheme": "http",
    "wsgi.input_terminated": True,
    "wsgi.multithread": True,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
    "SERVER_PROTOCOL": "HTTP/1.1",
    "HTTP_CONNECTION": "close",
}
ENVIRONS: dict[str, tuple[bytes, dict[str, object]]] = {
    "a plain address": (b"GET /a/b?c=d&e HTTP/1.1\r\n", {"PATH_INFO": "/a/b", "QUERY_STRING": "c=d&e"}),
    "no query": (b"GET / HTTP/1.1\r\n", {"PATH_INFO": "/", "QUERY_STRING": ""}),
    "an empty query": (b"GET /? HTTP/1.1\r\n", {"PATH_INFO": "/", "QUERY_STRING": ""}),
    "signs of UTF-8, as their bytes": (b"GET /%C3%A4%E2%82%AC HTTP/1.1\r\n", {"PATH_INFO": "/\xc3\xa4\xe2\x82\xac"}),
    "bytes that are no UTF-8": (b"GET /%FF%80/%c3 HTTP/1.1\r\n", {"PATH_INFO": "/\xff\x80/\xc3"}),
    "a slash within a part": (b"GET /a%2Fb//c/ HTTP/1.1\r\n", {"PATH_INFO": "/a/b//c/"}),
    "a percent sign": (b"GET /%25%3F%zz HTTP/1.1\r\n", {"PATH_INFO": "/%?%zz"}),
    "dots": (b"GET /a/../b/./c HTTP/1.1\r\n", {"PATH_INFO": "/a/../b/./c"}),
    "a plus sign": (b"GET /a+b?c+d HTTP/1.1\r\n", {"PATH_INFO": "/a+b", "QUERY_STRING": "c+d"}),
    "a query as it was sent": (b"GET /?a=%C3%A4&b=%FF HTTP/1.1\r\n", {"QUERY_STRING": "a=%C3%A4&b=%FF"}),
    "another method": (b"PATCH /x HTTP/1.1\r\n", {"REQUEST_METHOD": "PATCH"}),
    "the names of headers": (
        b"GET / HTTP/1.1\r\nX-Some-Thing: a\r\naccept:b \r\n",
        {"HTTP_X_SOME_THING": "a", "HTTP_ACCEPT": "b"},
    ),
    "headers that come twice": (
        b"GET / HTTP/1.1\r\nAccept: a\r\nX-A: 1\r\nAccept: b\r\nX-A: 2\r\n",
        {"HTTP_ACCEPT": "a,b", "HTTP_X_A": "1,2"},
    ),
    "cookies that come twice": (
        b"GET / HTTP/1.1\r\nCookie: a=1\r\nCookie: b=2; c=3\r\n",
        {"HTTP_COOKIE": "a=1; b=2; c=3"},
    ),
    "bytes of a header": (b"GET / HTTP/1.1\r\nX-A: \xc3\xa4\xff\r\n", {"HTTP_X_A": "\xc3\xa4\xff"}),
    "an empty header": (b"GET / HTTP/1.1\r\nX-A:\r\n", {"HTTP_X_A": ""}),
    "type and length of a body": (
        b"POST / HTTP/1.1\r\nContent-Type: text/x; a=b\r\nContent-Length: 3\r\n",
        {"CONTENT_TYPE": "text/x; a=b", "CONTENT_LENGTH": "3", "body": "b\xe4!", "REQUEST_METHOD": "POST"},
    ),
    "a body in chunks, which is whole": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
        {"CONTENT_LENGTH": "5", "body": "b\xe4!cd"},
    ),
}
BODIES = {
    "type and length of a body": b"b\xe4!",
    "a body in chunks, which is whole": b"3\r\nb\xe4!\r\n2\r\ncd\r\n0\r\n\r\n",
}
ABSENT = ("CONTENT_LENGTH", "CONTENT_TYPE", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE", "HTTP_TRANSFER_ENCODING")


@pytest.mark.parametrize("name", list(ENVIRONS))
def test_an_environ_is_what_wsgi_wants(name: str) -> None:
    head, wanted = ENVIRONS[name]
    with bridged(tells_environ) as web:
        seen = json.loads(parts(web.ask(head, BODIES.get(name, b"")))[2])
        assert seen["SERVER_PORT"] == str(web.port)
    expected = {**COMMON, **wanted}
    assert {key: seen.get(key) for key in expected} == expected
    assert not [key for key in ABSENT if key in seen and key not in wanted]
    known = {*COMMON, *wanted, "SERVER_PORT", "PATH_INFO", "QUERY_STRING", "REQUEST_METHOD", "body"}
    assert set(seen) <= known


@dataclass
class Streamed:
    """A streamed answer whose pieces the test decides; ``closed`` counts the ends."""

    pieces: Iterable[bytes]
    streaming: bool = True
    closed: list[float] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.pieces)

    def close(self) -> None:
        """Note the end."""
        self.closed.append(SystemClock().monotonic())


def gives(answer: Iterable[bytes], *headers: tuple[str, str]) -> Callable[[Environ, Start], Iterable[bytes]]:
    """An application that always gives this answer."""

    def application(_: Environ, start: Start) -> Iterable[bytes]:
        start("200 OK", list(headers))
        return answer

    return application


def test_a_streamed_answer_comes_in_pieces_and_is_closed_once() -> None:
    answer = Streamed([b"a", b"", b"b" * 10])
    with bridged(gives(answer)) as web:
        status, headers, body = parts(web.ask())
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert body == b"1\r\na\r\na\r\nbbbbbbbbbb\r\n0\r\n\r\n"
        assert wait_until(lambda: len(answer.closed) == 1 and web.is_idle(), 5)


def test_a_whole_answer_is_closed_once_before_it_is_sent() -> None:
    answer = Streamed([b"a", b"b"], streaming=False)
    with bridged(gives(answer, ("Content-Length", "2"))) as web:
        assert parts(web.ask())[2] == b"ab"
        assert len(answer.closed) == 1


def test_an_application_may_give_its_status_with_its_first_piece() -> None:
    def application(_: Environ, start: Start) -> Iterator[bytes]:
        start("418 I'm a teapot", [("Content-Length", "3")])
        yield b"tea"

    with bridged(application) as web:
        status, _, body = parts(web.ask())
    assert (status, body) == (418, b"tea")


@pytest.mark.timed
def test_a_slow_reader_stops_the_application_and_a_reader_that_leaves_ends_it() -> None:
    given = list[int]()

    def pieces() -> Iterator[bytes]:
        for number in range(10_000):
            given.append(number)
            yield bytes(100_000)

    answer = Streamed(pieces())
    with bridged(gives(answer)) as web:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.connect(("127.0.0.1", web.port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1)
        SystemClock().sleep(0.5)
        before = len(given)
        SystemClock().sleep(0.3)
        assert len(given) == before < 200
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        begun = SystemClock().monotonic()
        client.close()
        assert wait_until(lambda: len(answer.closed) == 1 and web.is_idle(), 5)
        assert answer.closed[0] - begun < 1
        assert len(given) <= before + 2


@pytest.mark.parametrize("after", [0, 2], ids=["before its first piece", "after two pieces"])
def test_a_fault_of_a_streamed_answer_is_no_whole_answer_and_shows_no_text(after: int) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 1_000] * after
        raise ZeroDivisionError("a secret")

    answer = Streamed(pieces())
    with bridged(gives(answer)) as web:
        try:
            said = web.ask()
        except ConnectionResetError:
            said = b""
        assert not said.endswith(b"0\r\n\r\n")
        assert b"secret" not in said
        assert b"Traceback" not in said
        assert wait_until(lambda: len(answer.closed) == 1 and web.is_idle(), 5)


def test_a_fault_before_the_answer_is_a_500_without_its_text() -> None:
    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        raise ZeroDivisionError("a secret")

    with bridged(application) as web:
        for _ in range(5):  # more than there are threads
            status, _, body = parts(web.ask())
            assert (status, body) == (500, b"Internal Server Error\n")
        assert wait_until(web.is_idle, 5)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_head_request_gets_the_head_alone(streams: bool) -> None:
    begun = list[bytes]()

    def pieces() -> Iterator[bytes]:
        begun.append(b"abc")
        yield b"abc"

    answer = Streamed(pieces(), streaming=streams)
    with bridged(gives(answer, ("Content-Length", "3"))) as web:
        status, headers, body = parts(web.ask(b"HEAD / HTTP/1.1\r\n"))
        assert (status, headers["content-length"], body) == (200, "3", b"")
        assert wait_until(lambda: len(answer.closed) == 1, 5)
        assert len(begun) == int(not streams)  # a stream may be long: nobody wants it


def test_a_file_comes_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000
    (tmp_path / "file").write_bytes(content)

    def application(_: Environ, start: Start) -> Iterable[bytes]:
        response = FileResponse((tmp_path / "file").open("rb"))
        start("200 OK", list(response.items()))
        return response

    with bridged(application) as web:
        for _ in range(2):
            _, headers, body = parts(web.ask())
            assert (headers["content-length"], body) == (str(len(content)), content)
        assert wait_until(web.is_idle, 5)


def echoes_length(environ: Environ, start: Start) -> Iterable[bytes]:
    return plain(start, str(len(environ["wsgi.input"].read())).encode())


def never(environ: Environ, start: Start) -> Iterable[bytes]:
    raise AssertionError("it must not run")


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


def test_a_body_at_its_bound_is_taken_and_one_byte_more_is_refused() -> None:
    with bridged(echoes_length, body_max=1_000) as web:
        assert parts(web.ask(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n", bytes(1_000)))[2] == b"1000"
        chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        assert parts(web.ask(chunked, chunks(bytes(900), bytes(100))))[2] == b"1000"
        status, _, text = parts(web.ask(chunked, chunks(bytes(900), bytes(101))))
        assert (status, text) == (413, b"The body is larger than 1000 bytes.\n")
        assert wait_until(web.is_idle, 5)


def test_a_length_over_the_bound_is_refused_before_a_byte_of_the_body() -> None:
    with bridged(never, body_max=1_000) as web, web.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        assert parts(client.recv(4_096))[0] == 413


def test_a_slow_body_costs_no_thread_and_its_bytes_are_given_back_when_its_client_leaves() -> None:
    with bridged(echoes_length, threads=1) as web:
        slow = [web.connect() for _ in range(8)]
        for client in slow:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + bytes(1_000))
        assert wait_until(lambda: web.held_bytes == 8_000, 5)
        assert web.pool.running == 0
        assert parts(web.ask())[0] == 200
        for client in slow:
            client.close()
        assert wait_until(web.is_idle, 5)


def test_bodies_beyond_the_room_for_all_are_answered_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_BODIES_KEY_BYTES_MAX", 1_500)
    with bridged(echoes_length) as web:
        with web.connect() as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + bytes(1_000))
            assert wait_until(lambda: web.held_bytes == 1_000, 5)
            status, headers, text = parts(web.ask(b"POST / HTTP/1.1\r\nContent-Length: 900\r\n", bytes(900)))
            assert (status, headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
            assert b"of at most 1,500 now" in text
        assert wait_until(web.is_idle, 5)


def _sent(client: socket.socket, size: int) -> int:
    """How many bytes of so many the server takes, until it takes none for a second."""
    sent = 0
    try:
        while sent < size:
            sent += client.send(bytes(min(MEGABYTE, size - sent)))
    except TimeoutError:
        return sent
    return sent


def test_a_long_body_is_read_at_the_pace_of_its_application() -> None:
    read, go = list[int](), threading.Event()

    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"]
        read.append(len(body.read(10)))
        assert go.wait(120)
        while piece := body.read(65_536):
            assert len(piece) <= 65_536
            read.append(len(piece))
        assert body.read(9) == b""
        return plain(start, str(sum(read)).encode())

    with bridged(application, streams_body=True, body_max=10) as web, web.connect() as client:
        size = 30 * MEGABYTE
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        client.settimeout(1)
        sent = _sent(client, size)
        assert sent < size
        assert (read, web.held_bytes) == ([10], 0)
        go.set()
        client.settimeout(20)
        client.sendall(bytes(size - sent))
        assert parts(everything(client))[2] == str(size).encode()
        assert wait_until(web.is_idle, 5)


def test_a_client_that_leaves_within_a_long_body_is_an_error_of_every_read() -> None:
    errors = list[BaseException]()

    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        for _ in range(3):
            try:
                while environ["wsgi.input"].read():
                    pass
            except OSError as error:
                errors.append(error)
        return plain(start, b"")

    with bridged(application, streams_body=True) as web:
        with web.connect() as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + bytes(1_000))
            assert wait_until(lambda: web.pool.running == 1, 5)
        assert wait_until(lambda: len(errors) == 3 and web.is_idle(), 5)


REFUSALS: dict[str, tuple[dict[str, Any], Callable[[bytes], str]]] = {
    "plainly": ({}, lambda body: body.decode()),
    "as the REST interface": ({"refusal": json_refusal}, lambda body: str(json.loads(body)["error"])),
    "as Prometheus": ({"refusal": prometheus_refusal}, lambda body: str(json.loads(body)["error"])),
}


@pytest.mark.parametrize("form", list(REFUSALS))
def test_one_request_too_many_is_answered_429_with_the_limit_and_its_size(form: str) -> None:
    how, text_of = REFUSALS[form]
    go = threading.Event()

    def waits(_: Environ, start: Start) -> Iterable[bytes]:
        assert go.wait(120)
        return plain(start, b"")

    with bridged(waits, threads=1, waiting=3, **how) as web:
        clients = [web.connect() for _ in range(4)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert wait_until(lambda: (web.pool.running, web.pool.waiting) == (1, 3), 5)
        status, headers, body = parts(web.ask())
        assert (status, headers["retry-after"]) == (429, str(limits.RETRY_AFTER_S))
        assert "3 requests of one user wait for a thread for pages already, and no more may" in text_of(body)
        assert headers["x-content-type-options"] == "nosniff"
        go.set()
        assert [parts(everything(client))[0] for client in clients] == [200] * 4


def test_a_request_that_waits_too_long_is_answered_503() -> None:
    go = threading.Event()

    def waits(_: Environ, start: Start) -> Iterable[bytes]:
        assert go.wait(120)
        return plain(start, b"")

    with bridged(waits, threads=1, wait_s=0.2) as web, web.connect() as first:
        first.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert wait_until(lambda: web.pool.running == 1, 5)
        status, headers, text = parts(web.ask())
        assert (status, headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
        assert b"No thread for pages was free within 0.2 s" in text
        go.set()
        assert parts(everything(first))[0] == 200


def test_a_client_that_leaves_while_it_waits_gives_its_place_to_others_at_once() -> None:
    go, ran = threading.Event(), list[str]()

    def waits(environ: Environ, start: Start) -> Iterable[bytes]:
        ran.append(environ["PATH_INFO"])
        assert go.wait(120)
        return plain(start, b"")

    with bridged(waits, threads=1) as web:
        first, second, third = (web.connect() for _ in range(3))
        for path, client in ((b"/1", first), (b"/2", second), (b"/3", third)):
            client.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
            assert wait_until(lambda path=path: path == b"/1" or web.pool.waiting == int(path[1:]) - 1, 5)  # type: ignore[misc]
            assert wait_until(lambda: web.pool.running == 1, 5)
        second.close()
        assert wait_until(lambda: web.pool.waiting == 1, 5)
        go.set()
        assert parts(everything(third))[0] == 200
        assert ran == ["/1", "/3"]
        assert parts(everything(first))[0] == 200
        assert wait_until(web.is_idle, 5)


def test_an_application_hears_that_its_client_has_left() -> None:
    heard = threading.Event()

    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        assert not environ["spm.client_gone"]()
        if wait_until(environ["spm.client_gone"], 60):
            heard.set()
        return plain(start, b"")

    with bridged(application) as web:
        with web.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert wait_until(lambda: web.pool.running == 1, 5)
        assert heard.wait(60)
        assert wait_until(web.is_idle, 5)
