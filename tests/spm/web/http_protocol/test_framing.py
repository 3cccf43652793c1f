"""What is a request and what is not: one request has one answer, and what can be read in two ways has no second one."""

import socket

import pytest

from tests.spm.web.http_protocol.serving import GET, HOST, Served, answers, connect, read_all, say

POST = b"POST /echo HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED: dict[str, tuple[bytes, int]] = {
    "a length and chunks": (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks and a length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    "one length twice": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    "two lengths in one line": (POST + b"Content-Length: 1, 1\r\n\r\nx", 400),
    "a length with a plus": (POST + b"Content-Length: +1\r\n\r\nx", 400),
    "a length with a minus": (POST + b"Content-Length: -1\r\n\r\nx", 400),
    "a length in hexadecimal": (POST + b"Content-Length: 0x1\r\n\r\nx", 400),
    "a length of an underscore": (POST + b"Content-Length: 1_0\r\n\r\nx", 400),
    "a length in another script": (POST + "Content-Length: ١\r\n\r\nx".encode(), 400),
    "an empty length": (POST + b"Content-Length:\r\n\r\nx", 400),
    "a length beyond 64 bits": (POST + b"Content-Length: 99999999999999999999999\r\n\r\nx", 400),
    "chunks in other codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "another coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    "a coding that looks like chunks": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    "chunks twice": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks and identity": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    "a vertical tab before chunked": (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunks in HTTP/1.0": (b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    "a folded header": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: b\r\n c\r\n\r\n", 400),
    "a first header that is folded": (b"GET /echo HTTP/1.1\r\n A: b\r\n" + HOST + b"\r\n", 400),
    "a space before the colon": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A : b\r\n\r\n", 400),
    "a header without a name": (b"GET /echo HTTP/1.1\r\n" + HOST + b": b\r\n\r\n", 400),
    "a header without a colon": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A\r\n\r\n", 400),
    "NUL in a value": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: b\0c\r\n\r\n", 400),
    "NUL in a name": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A\0: b\r\n\r\n", 400),
    "a bare CR in a value": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: b\rc\r\n\r\n", 400),
    "bare LF at all ends": (b"GET /echo HTTP/1.1\nHost: here\n\n", 400),
    "bare LF at one end": (b"GET /echo HTTP/1.1\r\nHost: here\n\r\n", 400),
    "bare LF at the last end": (b"GET /echo HTTP/1.1\r\nHost: here\r\n\n", 400),
    "bare CR before the request": (b"\r" + GET, 400),
    "bare LF before the request": (b"\n" + GET, 400),
    "no host": (b"GET /echo HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /echo HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    "two hosts in HTTP/1.0": (b"GET /echo HTTP/1.0\r\n" + HOST + HOST + b"\r\n", 400),
    "another method": (b"BREW /echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a method in small letters": (b"get /echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a tunnel": (b"CONNECT here:80 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    "HTTP/0.9": (b"GET /echo\r\n\r\n", 400),
    "HTTP/1.2": (b"GET /echo HTTP/1.2\r\n" + HOST + b"\r\n", 400),
    "HTTP/2.0 in a line": (b"GET /echo HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    "the begin of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", 505),
    "RTSP": (b"OPTIONS * RTSP/1.0\r\n" + HOST + b"\r\n", 400),
    "a greeting of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "two spaces in the first line": (b"GET  /echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a tab in the first line": (b"GET /echo\tHTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a space in the path": (b"GET /ec ho HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a path of raw UTF-8": ("GET /é HTTP/1.1\r\nHost: here\r\n\r\n".encode(), 400),
    "a star for GET": (b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a path without a slash": (b"GET echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "another scheme": (b"GET ftp://here/echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a password in the target": (b"GET http://a:b@here/echo HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "another expectation": (POST + b"Content-Length: 1\r\nExpect: wonders\r\n\r\nx", 417),
    "a long first line": (b"GET /" + b"a" * 8_190 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a long head": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 65_536 + b"\r\n\r\n", 431),
    "many headers": (b"GET /echo HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 100 + b"\r\n", 431),
    "a negative chunk": (CHUNKED + b"-5\r\n", 400),
    "a chunk with a plus": (CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk with 0x": (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk without a size": (CHUNKED + b"\r\nabc", 400),
    "a chunk of no number": (CHUNKED + b"g\r\n", 400),
    "a chunk beyond 64 bits": (CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n", 400),
    "a chunk that is longer than it says": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "a chunk that is shorter than it says": (CHUNKED + b"3\r\nab\r\n0\r\n\r\n", 400),
    "a space after a chunk's size": (CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n", 400),
    "bare LF after a chunk's size": (CHUNKED + b"3\nabc\r\n0\r\n\r\n", 400),
    "bare CR after a chunk's size": (CHUNKED + b"3\rabc\r\n0\r\n\r\n", 400),
    "LF in a quoted extension": (CHUNKED + b'3;a="\n"\r\nabc\r\n0\r\n\r\n', 400),
    "a length behind chunks": (CHUNKED + b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n", 400),
    "an endless extension": (CHUNKED + b"3;a=" + b"b" * 70_000, 400),
    "an endless trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nA: " + b"b" * 70_000, 400),
    "many chunks of one byte": (CHUNKED + b"1\r\na\r\n" * 50_000, 400),
    "a body that ends before its end": (POST + b"Content-Length: 9\r\n\r\nhalf", 400),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_what_can_be_read_in_two_ways_is_refused_once_and_the_connection_ends(
    served: Served, data: bytes, status: int
) -> None:
    [answer] = say(served, data)
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.endswith(b".\n")
    assert served.tracebacks() == []


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_as_well_when_it_comes_byte_by_byte_behind_another_request(
    served: Served, data: bytes, status: int
) -> None:
    if len(data) > 10_000:
        pytest.skip("a byte at a time takes too long")
    with connect(served) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for at in range(0, len(GET + data), 1):
                link.sendall((GET + data)[at : at + 1])
            link.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before its end
        first, second = answers(read_all(link))
    assert (first.status, second.status) == (200, status)
    assert served.tracebacks() == []


def test_no_broken_request_reaches_the_application(served: Served) -> None:
    before = len(served.requests)
    bodies = ("chunk", "trailer", "extension", "behind chunks", "before its end")
    for name, (data, _) in REFUSED.items():
        if not any(part in name for part in bodies):
            say(served, data)
    # codings are refused with the head, chunks when they come
    assert served.requests[before:] == []


ACCEPTED: dict[str, tuple[bytes, str]] = {
    "chunks": (CHUNKED + b"3\r\nabc\r\n2;a=b\r\nde\r\n0\r\n\r\n", "abcde"),
    "chunks with a trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nX-T: 1\r\nAuthorization: x\r\n\r\n", "abc"),
    "chunks of an upper-case coding": (POST + b"Transfer-Encoding: Chunked \r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc"),
    "no chunk": (CHUNKED + b"0\r\n\r\n", ""),
    "a body that looks like a request": (POST + b"Content-Length: 4\r\n\r\nGET ", "GET "),
    "a length with zeros": (POST + b"Content-Length: 0004\r\n\r\nabcd", "abcd"),
    "a length with a space behind": (POST + b"Content-Length: 4 \r\n\r\nabcd", "abcd"),
    "a GET with a body": (b"GET /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\nabcd", "abcd"),
    "a wish for HTTP/2": (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
        b"Content-Length: 4\r\n\r\nabcd",
        "abcd",
    ),
    "a wish for a web socket": (
        POST + b"Connection: upgrade\r\nUPGRADE:websocket\r\nContent-Length: 2\r\n\r\nab",
        "ab",
    ),
    "a wish for HTTP/2 with chunks": (
        POST + b"Upgrade: h2c\r\nConnection: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        "ab",
    ),
    "blank lines before the request": (b"\r\n\r\n" + POST + b"Content-Length: 1\r\n\r\na", "a"),
    "the longest head": (
        b"GET /"
        + b"a" * 8_000
        + b" HTTP/1.1\r\n"
        + HOST
        + b"A: "
        + b"b" * 57_000
        + b"\r\n"
        + b"C: d\r\n" * 50
        + b"\r\n",
        "",
    ),
}


@pytest.mark.parametrize(("data", "body"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_request_is_followed_by_the_next_one_exactly_where_it_ends(served: Served, data: bytes, body: str) -> None:
    with connect(served) as link:
        link.sendall(data)
        first = link.recv(1 << 20)
        link.sendall(GET)
        link.shutdown(socket.SHUT_WR)
        one, other = answers(first + read_all(link))
    assert one.status == other.status == 200
    assert one.request["body"] == body
    assert other.request["body"] == ""


@pytest.mark.parametrize("number", [1, 2, 3, 50])
def test_pipelined_requests_are_answered_in_their_order(served: Served, number: int) -> None:
    one = b"POST /%d HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc"
    got = say(served, b"".join(one % at for at in range(number)))
    assert [answer.request["path"] for answer in got] == [f"/{at}" for at in range(number)]


def test_what_is_pipelined_beyond_a_bound_ends_the_connection_after_the_answer(served: Served) -> None:
    got = say(served, GET * 5_000)
    assert len(got) < 5_000  # a busy server may have read and answered some before they are too many
    assert [answer.headers.get("connection") for answer in got] == [None] * (len(got) - 1) + ["close"]


def test_what_follows_chunks_at_once_is_not_answered_and_the_connection_ends(served: Served) -> None:
    """Nobody knows where it begins, as the parser took all that came."""
    got = say(served, CHUNKED + b"2\r\nab\r\n0\r\n\r\n" + GET)
    assert [(answer.status, answer.headers.get("connection")) for answer in got] == [(200, "close")]
    assert got[0].request["body"] == "ab"


def test_what_follows_a_last_request_is_not_answered(served: Served) -> None:
    [answer] = say(served, b"GET /echo HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n" + GET)
    assert answer.headers["connection"] == "close"


def test_trailers_are_no_headers_of_the_request(served: Served) -> None:
    data, _ = ACCEPTED["chunks with a trailer"]
    [answer] = say(served, data)
    assert {name for name, _ in answer.request["headers"]} == {"host", "transfer-encoding"}


TARGETS = {
    b"/a?b=%2F&c": ("/a", "b=%2F&c", "here"),
    b"//x": ("//x", "", "here"),
    b"/%C3%A9": ("/é", "", "here"),
    b"/a%20b#f?g": ("/a b", "", "here"),
    b"http://there:81/a?b": ("/a", "b", "there:81"),
    b"HTTP://there?b": ("/", "b", "there"),
    b"https://there": ("/", "", "there"),
}


@pytest.mark.parametrize(("target", "wanted"), TARGETS.items(), ids=[t.decode() for t in TARGETS])
def test_a_target_is_split_into_path_query_and_host(
    served: Served, target: bytes, wanted: tuple[str, str, str]
) -> None:
    [answer] = say(served, b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    request = answer.request
    assert (request["path"], request["query"], dict(request["headers"])["host"]) == wanted


def test_a_question_about_the_whole_server_reaches_the_application(served: Served) -> None:
    [answer] = say(served, b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.request["path"] == "*"


def test_headers_that_others_could_take_for_trusted_ones_do_not_reach_the_application(served: Served) -> None:
    forged = b"X_Forwarded_For: 1.1.1.1\r\nSCRIPT_NAME: /x\r\nX-Forwarded-For: 2.2.2.2\r\nForwarded: for=3.3.3.3\r\n"
    forged += b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nContent_Length: 5\r\n"
    forged += b"Proxy: evil\r\nRemote-User: root\r\n"
    [answer] = say(served, b"GET /echo HTTP/1.1\r\n" + HOST + forged + b"Cookie: a=1; b_c=2\r\n\r\n")
    request = answer.request
    assert request["headers"] == [["host", "here"], ["cookie", "a=1; b_c=2"]]
    assert (request["client"][0], request["scheme"]) == ("127.0.0.1", "http")
