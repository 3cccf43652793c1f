"""How long a client may take: for the first byte, a head, a body, an answer, the next request, and after the last one.

Bounds are below a second; each is met from both sides.
"""

import socket
import time
from dataclasses import replace

import pytest

from spm.web.http_protocol import HttpBounds
from tests.servers.processes import wait_until
from tests.spm.web.http_protocol.serving import GET, HOST, QUICK, Served, answers, connect, read_all, say, serving

POST = b"POST /echo HTTP/1.1\r\n" + HOST


def drip(link: socket.socket, data: bytes, every_s: float) -> float:
    """Sends byte by byte until the server closes; returns the seconds that took."""
    begun = time.monotonic()
    link.settimeout(every_s)
    try:
        for at in range(len(data)):
            link.sendall(data[at : at + 1])
            try:
                if not link.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                continue
            break
    except OSError:
        pass
    link.settimeout(10)
    return time.monotonic() - begun


def closed_after(link: socket.socket) -> tuple[bytes, float]:
    """What the server sends until it closes, and how long that takes."""
    begun = time.monotonic()
    return read_all(link), time.monotonic() - begun


@pytest.mark.timed
def test_a_connection_that_sends_nothing_is_closed_without_a_word(served: Served) -> None:
    with connect(served) as link:
        data, seconds = closed_after(link)
    assert data == b""
    assert QUICK.silent_s <= seconds < QUICK.silent_s + 1


@pytest.mark.timed
@pytest.mark.parametrize("begin", [b"", GET], ids=["at once", "behind a request"])
@pytest.mark.parametrize("head", [b"G", b"GET /echo HTTP/1.1\r\n", b"\r\n", GET[:-1]])
def test_a_head_that_stops_is_answered_408(served: Served, begin: bytes, head: bytes) -> None:
    with connect(served) as link:
        link.sendall(begin + head)
        data, seconds = closed_after(link)
    assert answers(data)[-1].status == 408
    assert len(answers(data)) == (2 if begin else 1)
    assert QUICK.head_s <= seconds < QUICK.head_s + 1


@pytest.mark.timed
def test_a_head_that_goes_on_and_on_is_over_after_the_same_time(served: Served) -> None:
    with connect(served) as link:
        link.sendall(GET[:-2])
        seconds = drip(link, b"A: b\r\n" * 1_000, 0.02)
        assert answers(read_all(link))[0].status == 408
    assert QUICK.head_s <= seconds < QUICK.head_s + 1


@pytest.mark.timed
def test_blank_lines_do_not_keep_a_connection(served: Served) -> None:
    with connect(served) as link:
        seconds = drip(link, b"\r\n" * 1_000, 0.02)
    assert QUICK.head_s <= seconds < QUICK.head_s + 1


@pytest.mark.timed
def test_a_head_in_pieces_within_its_time_is_a_request(served: Served) -> None:
    with connect(served) as link:
        for piece in (GET[:3], GET[3:20], GET[20:-1], GET[-1:]):
            link.sendall(piece)
            time.sleep(QUICK.head_s / 6)
        link.shutdown(socket.SHUT_WR)
        assert answers(read_all(link))[0].status == 200


@pytest.mark.timed
def test_an_idle_connection_is_closed_and_one_that_asks_now_and_then_is_not(served: Served) -> None:
    with connect(served) as link:
        for _ in range(4):
            link.sendall(GET)
            assert answers(link.recv(1 << 16))[0].status == 200
            time.sleep(QUICK.idle_s / 2)
        link.sendall(GET)
        assert answers(link.recv(1 << 16))[0].status == 200
        data, seconds = closed_after(link)
    assert data == b""
    assert QUICK.idle_s <= seconds < QUICK.idle_s + 1


@pytest.mark.timed
@pytest.mark.parametrize("begin", [b"", b"abc"])
def test_a_body_that_stands_still_is_answered_408(served: Served, begin: bytes) -> None:
    with connect(served) as link:
        link.sendall(POST + b"Content-Length: 1000\r\n\r\n" + begin)
        data, seconds = closed_after(link)
    assert [answer.status for answer in answers(data)] == [408]
    assert QUICK.body_stall_s <= seconds < QUICK.body_stall_s + 1


@pytest.mark.timed
@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"Content-Length: 100000\r\n\r\n", b"a"), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n")],
    ids=["of known length", "in chunks"],
)
def test_a_body_that_drips_is_answered_408_after_its_grace(served: Served, head: bytes, piece: bytes) -> None:
    with connect(served) as link:
        link.sendall(POST + head)
        seconds = drip(link, piece * 1_000, 0.05)
        assert [answer.status for answer in answers(read_all(link))] == [408]
    assert QUICK.body_grace_s <= seconds < QUICK.body_grace_s + 1


@pytest.mark.timed
def test_a_body_faster_than_the_least_rate_may_take_its_time(served: Served) -> None:
    size, pieces = int(QUICK.body_bytes_per_s_min * 3), 20
    with connect(served) as link:
        link.sendall(POST + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(pieces):
            link.sendall(b"a" * (size // pieces))
            time.sleep(2 / pieces)
        link.shutdown(socket.SHUT_WR)
        [answer] = answers(read_all(link))
    assert len(answer.request["body"]) == size


@pytest.mark.timed
def test_time_in_which_the_application_takes_no_body_does_not_count(served: Served) -> None:
    """It takes none for two seconds, more than each bound; then the client is waited for again."""
    body = b"a" * 6_000_000
    [answer] = say(served, b"POST /sleepy HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert (answer.status, answer.body) == (200, str(len(body)).encode())


@pytest.mark.timed
def test_a_body_that_stops_after_such_a_pause_is_answered_408(served: Served) -> None:
    body = b"a" * 6_000_000
    with connect(served) as link:
        link.sendall(b"POST /sleepy HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        data, seconds = closed_after(link)
    assert [answer.status for answer in answers(data)] == [408]
    assert seconds < 2 + QUICK.body_stall_s + 1.5


def test_the_application_hears_that_a_slow_client_was_sent_away(served: Served) -> None:
    before = len(served.requests)
    with connect(served) as link:
        link.sendall(b"POST /wait HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\nabc")
        assert answers(read_all(link))[0].status == 408
    assert served.requests[before:] == ["/wait"]
    assert served.gone.wait(60)
    served.gone.clear()


SLOW_READER = replace(QUICK, answer_bytes_per_s_min=1_000_000.0)
LARGE = b"GET /large?%d HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.timed
@pytest.mark.parametrize("last", [False, True], ids=["kept", "closed"])
def test_a_client_that_takes_no_byte_of_its_answer_is_left(last: bool) -> None:
    with serving() as served, connect(served, receive_bytes=4_096) as link:
        request = LARGE % 50_000_000
        link.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") if last else request)
        assert wait_until(lambda: len(served.connections) == 1, 5)
        begun = time.monotonic()
        assert wait_until(lambda: len(served.connections) == 0, 5)
        assert QUICK.answer_stall_s <= time.monotonic() - begun < QUICK.answer_stall_s + 1.5


@pytest.mark.timed
def test_a_client_that_takes_its_answer_too_slowly_is_left_after_its_grace() -> None:
    with serving(replace(QUICK, answer_bytes_per_s_min=5_000_000.0)) as served, connect(served) as link:
        link.sendall(LARGE % 100_000_000)
        size, begun = 0, time.monotonic()
        try:
            while piece := link.recv(50_000):
                size += len(piece)
                time.sleep(0.05)
        except ConnectionResetError:
            pass
        seconds = time.monotonic() - begun
    assert size < 90_000_000
    assert QUICK.answer_grace_s <= seconds < QUICK.answer_grace_s + 6


@pytest.mark.timed
def test_a_client_that_takes_its_answer_slowly_but_steadily_gets_all_of_it() -> None:
    with serving() as served, connect(served) as link:
        link.sendall((LARGE % 30_000_000).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        size, begun = 0, time.monotonic()
        while piece := link.recv(1 << 20):
            size += len(piece)
            time.sleep(max(0, begun + 3 * size / 30_000_000 - time.monotonic()))
    assert size > 30_000_000


@pytest.mark.timed
def test_time_in_which_the_server_stood_still_counts_for_nobody() -> None:
    with serving() as served, connect(served) as idle, connect(served) as link:
        idle.sendall(GET)
        assert answers(idle.recv(1 << 16))[0].status == 200
        link.sendall(POST + b"Content-Length: 3\r\n\r\na")
        time.sleep(0.1)
        stand_still(served, 2.0)
        link.sendall(b"bc")
        assert answers(link.recv(1 << 16))[0].request["body"] == "abc"
        idle.sendall(GET)
        assert answers(idle.recv(1 << 16))[0].status == 200


def stand_still(served: Served, seconds: float) -> None:
    """Holds the server's event loop for so long."""
    connection = next(iter(served.server.server_state.connections))
    connection.loop.call_soon_threadsafe(time.sleep, seconds)
    time.sleep(seconds / 2)


def test_the_bounds_of_the_product_leave_honest_clients_their_time() -> None:
    bounds = HttpBounds()
    assert (bounds.head_s, bounds.body_stall_s, bounds.idle_s, bounds.answer_stall_s) == (10, 20, 75, 60)
