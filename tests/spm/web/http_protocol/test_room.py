"""How many connections there may be, who makes room for whom, and what a stop does with them."""

import http.client
import resource
import socket
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from spm.limits import RETRY_AFTER_S, WEB_FILES_RESERVE, WEB_SYSTEM_UNSENT_BYTES
from spm.web.http_protocol import HttpBounds, allowed_connections, bound_system_buffers
from tests.servers.processes import wait_until
from tests.spm.web.http_protocol.serving import GET, HOST, Served, answers, connect, read_all, say, serving

ROOMY = HttpBounds(sweep_s=0.05, linger_stall_s=0.3)


def test_one_address_gets_so_many_connections_and_another_one_is_served() -> None:
    with serving(replace(ROOMY, address_connections_max=3)) as served, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(busy(served))
        assert wait_until(lambda: len(served.requests) == 3, 5)
        [answer] = say(served, GET)
        assert (answer.status, answer.headers["connection"], answer.headers["retry-after"]) == (
            503,
            "close",
            str(RETRY_AFTER_S),
        )
        assert answer.body.startswith(b"All 3 connections that your address may have are at work: SPM_ADDRESS_CONN")
        with connect(served, source="127.0.0.9") as other:
            other.sendall(GET)
            assert answers(other.recv(1 << 16))[0].status == 200
        stack.close()
        assert wait_until(lambda: say(served, GET)[0].status == 200, 5)


def test_many_senders_behind_one_address_are_all_served() -> None:
    """Each keeps its connection, and opens a new one when that was closed."""
    with serving(replace(ROOMY, address_connections_max=10)) as served, ExitStack() as stack:
        sleeping = stack.enter_context(connect(served, source="127.0.0.9"))
        links = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(30)]
        opened = 0
        for _ in range(3):
            for link in links:
                stack.callback(link.close)
                try:
                    link.request("GET", "/echo")
                    answer = link.getresponse()
                except (http.client.RemoteDisconnected, ConnectionError):
                    link.close()
                    opened += 1
                    link.request("GET", "/echo")
                    answer = link.getresponse()
                assert (answer.status, len(answer.read()) > 0) == (200, True)
                assert len(served.connections) <= 12
        assert opened > 0
        sleeping.sendall(GET)
        assert answers(sleeping.recv(1 << 16))[0].status == 200


def test_a_trusted_proxy_gets_as_many_as_it_opens() -> None:
    with serving(replace(ROOMY, address_connections_max=2), proxies=("127.0.0.0/8",)) as served, ExitStack() as stack:
        links = [stack.enter_context(connect(served)) for _ in range(9)]
        for link in links:
            link.sendall(GET)
            assert answers(link.recv(1 << 16))[0].status == 200


def busy(served: Served, path: bytes = b"/wait") -> socket.socket:
    """A connection with a request that runs."""
    link = connect(served)
    link.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    return link


def test_a_full_server_closes_connections_that_never_sent_a_byte_and_then_the_longest_idle_ones() -> None:
    with serving(replace(ROOMY, connections_max=3)) as served, ExitStack() as stack:
        silent = stack.enter_context(connect(served))
        idle = [stack.enter_context(connect(served)) for _ in range(2)]
        for link in idle:
            link.sendall(GET)
            assert answers(link.recv(1 << 16))[0].status == 200
        for closed in (silent, *idle):
            link = stack.enter_context(busy(served, b"/slow"))
            assert closed.recv(1) == b""
            time.sleep(0.05)


def test_a_full_server_in_which_every_connection_works_says_so_and_serves_again_when_one_ends() -> None:
    with serving(replace(ROOMY, connections_max=3)) as served, ExitStack() as stack:
        links = [stack.enter_context(busy(served)) for _ in range(3)]
        assert wait_until(lambda: len(served.requests) == 3, 5)
        [answer] = say(served, GET)
        assert (answer.status, answer.body) == (
            503,
            b"All 3 connections that this web server may have are at work: SPM_WEB_PROCESSES, or its limit of open "
            b"files, allows more. Try again later.\n",
        )
        links.pop().close()
        assert wait_until(lambda: say(served, GET)[0].status == 200, 5)


def test_refused_connections_take_no_more_than_a_bound_themselves() -> None:
    with serving(replace(ROOMY, connections_max=1, lingering_max=4, linger_s=60, linger_stall_s=60)) as served:
        with ExitStack() as stack:
            stack.enter_context(busy(served))
            assert wait_until(lambda: len(served.requests) == 1, 5)
            refused = [stack.enter_context(connect(served)) for _ in range(50)]
            assert wait_until(lambda: len(served.server.server_state.connections) <= 5, 5)
            assert answers(refused[-1].recv(1 << 16))[0].status == 503
        assert wait_until(lambda: say(served, GET)[0].status == 200, 5)


def test_half_heads_give_way_to_an_honest_client() -> None:
    with serving(replace(ROOMY, connections_max=20, head_s=60)) as served, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(served)).sendall(b"GET / HT")
        time.sleep(0.2)
        for _ in range(50):
            assert say(served, GET)[0].status == 200


def test_readers_that_take_nothing_are_ended_where_more_bytes_wait_than_may() -> None:
    """The honest one takes its bytes, and gets all of them."""
    bounds = replace(ROOMY, unsent_bytes_max=20_000_000, answer_stall_s=60)
    large = b"GET /large?8000000 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    with serving(bounds) as served, ExitStack() as stack:
        links = [stack.enter_context(connect(served, receive_bytes=4_096)) for _ in range(8)]
        for link in links:
            link.sendall(large)
        assert wait_until(lambda: len(served.connections) <= 3, 10)
        honest = stack.enter_context(connect(served))
        honest.sendall(large)
        assert len(answers(read_all(honest))[0].body) == 8_000_000
        assert served.tracebacks() == []


@pytest.mark.timed
def test_a_stop_closes_idle_connections_at_once_and_lets_requests_end() -> None:
    with serving() as served, connect(served) as idle, connect(served) as silent, busy(served, b"/slow") as link:
        idle.sendall(GET)
        assert answers(idle.recv(1 << 16))[0].status == 200
        assert wait_until(lambda: len(served.requests) == 2, 5)
        begun = time.monotonic()
        served.stop()
        assert idle.recv(1) == silent.recv(1) == b""
        assert time.monotonic() - begun < 0.4
        [answer] = answers(read_all(link))
        assert (answer.body, answer.headers["connection"]) == (b"slow", "close")
        served.thread.join(5)
        assert not served.thread.is_alive()
        assert served.tracebacks() == []


@pytest.mark.timed
def test_a_stop_cuts_requests_that_do_not_end_in_their_time() -> None:
    with serving(grace_s=1) as served, busy(served) as link:
        assert wait_until(lambda: len(served.requests) == 1, 5)
        begun = time.monotonic()
        served.stop()
        assert read_all(link) == b""
        served.thread.join(5)
        assert 0.9 < time.monotonic() - begun < 4
        assert [record for record in served.log if record.exc_info] == []


@pytest.mark.parametrize("path", ["/echo", "/wait", "/large?1000000", "/early"])
def test_nothing_remains_of_connections_that_are_over(path: str) -> None:
    with serving() as served:
        for number in range(40):
            link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
            link.request("POST", path, body=b"a" * (1 + 5_000 * number))
            if path != "/wait":
                link.getresponse().read(10)
            link.close()
        assert wait_until(lambda: not served.server.server_state.connections, 10)
        table = served.connections
        assert (table._by_address, table._waiting) == ({}, set())
        assert [len(order) for order in table._by_phase.values()] == [0, 0, 0, 0]
        assert sum(map(len, table._wheel.values())) == 0


def test_the_system_takes_little_of_an_answer_that_nobody_reads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bound_system_buffers(listener)
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            reader.connect(listener.getsockname())
            writer, _ = listener.accept()
            with writer:
                writer.setblocking(False)
                assert writer.send(b"x" * 5_000_000) < 2 * WEB_SYSTEM_UNSENT_BYTES


def test_as_many_connections_are_allowed_as_files_may_be_open() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, before[1]))
        assert allowed_connections(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
        assert allowed_connections(10**9) == before[1] - WEB_FILES_RESERVE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
