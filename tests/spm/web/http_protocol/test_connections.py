"""The table of all connections without any network: its wheel of times, its order of room, its count of bytes."""

import asyncio
import gc
import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from spm.web.client_address import TrustedProxies
from spm.web.http_protocol import Connections, HttpBounds
from spm.web.http_protocol.bounds import NEVER, pace_due
from spm.web.http_protocol.connections import HEAD, IDLE, LINGERING, RUNNING, SILENT, Phase
from tests.spm.web.http_protocol.serving import GET, say, serving

BOUNDS = HttpBounds(connections_max=4, address_connections_max=2, lingering_max=2, unsent_bytes_max=100)


class Loop:
    """Tells the time that a test sets, and runs what is due when told."""

    def __init__(self) -> None:
        self.at = 100.0
        self.calls: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.at

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self.calls.append((self.at + seconds, call, arguments))

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.call_later(0, call, *arguments)

    def advance(self, seconds: float) -> None:
        """Let time pass, and run what became due, the last of it late."""
        self.at += seconds
        while due := [entry for entry in self.calls if entry[0] <= self.at]:
            self.calls.remove(due[0])
            due[0][1](*due[0][2])


class Fake:
    """A connection whose client's time is over at ``over``."""

    def __init__(self, table: Connections, over: float = NEVER, unsent: int = 0, pace: float = 0.0) -> None:
        self.table, self.over = table, over
        self.phase, self.wheel_slot, self.address_key = RUNNING, 0, ""
        self.unsent, self.pace, self.seconds = unsent, pace, 5.0
        self.expired_at: list[float] = []
        self.dropped = False

    def due(self, _: float) -> float:
        return self.over

    def expire(self) -> None:
        self.expired_at.append(self.table.now())

    def drop(self) -> None:
        self.dropped = True

    def unsent_bytes(self) -> int:
        return self.unsent

    def reader_pace(self, _: float) -> tuple[float, float]:
        return self.seconds, self.pace


def started(bounds: HttpBounds = BOUNDS, *proxies: str) -> tuple[Connections, Loop]:
    """A table on a loop of the test's own."""
    table, loop = Connections(bounds, TrustedProxies.parse(proxies)), Loop()
    table.start(loop)  # type: ignore[arg-type]
    return table, loop


@given(st.lists(st.tuples(st.floats(0, 30), st.one_of(st.none(), st.floats(0, 30)), st.floats(0, 5)), max_size=30))
def test_a_client_is_sent_away_when_its_time_is_over_and_never_before(
    plans: list[tuple[float, float | None, float]],
) -> None:
    """Some get more or less time meanwhile: more needs no call, less a call of ``watch``."""
    table, loop = started()
    fakes = []
    for wait, other, _ in plans:
        fake = Fake(table, table.now() + wait)
        assert not table.add(fake, None) or fake.dropped is False
        table.watch(fake, fake.over)
        fakes.append((fake, other))
    loop.advance(0.9)
    for fake, other in fakes:
        if other is not None and not fake.expired_at:
            fake.over = table.now() + other
            table.watch(fake, fake.over)
    for _ in range(70):
        loop.advance(0.5)
    for fake, _ in fakes:
        assert len(fake.expired_at) == 1
        assert fake.over <= fake.expired_at[0] <= fake.over + 2 * BOUNDS.sweep_s


def test_a_thousand_whose_time_is_over_are_closed_in_portions_within_a_second() -> None:
    table, loop = started(replace(BOUNDS, connections_max=2_000))
    fakes = [Fake(table, table.now() + 1) for _ in range(1_000)]
    for fake in fakes:
        table.add(fake, None)
        table.watch(fake, fake.over)
    loop.advance(2.0)
    closed = [sum(bool(fake.expired_at) for fake in fakes)]
    while closed[-1] < 1_000:
        loop.advance(0.01)
        closed.append(sum(bool(fake.expired_at) for fake in fakes))
        assert 0 < closed[-1] - closed[-2] <= 50
    assert closed[0] <= 50
    assert len(closed) < 100


def test_time_in_which_the_loop_stood_still_does_not_pass() -> None:
    table, loop = started()
    fake = Fake(table, table.now() + 10)
    table.watch(fake, fake.over)
    loop.advance(0.5)
    loop.advance(60)
    assert fake.expired_at == []
    for _ in range(24):
        loop.advance(0.5)
    assert len(fake.expired_at) == 1


def test_one_that_has_gone_is_not_looked_at() -> None:
    table, loop = started()
    gone, other = Fake(table, table.now() + 1), Fake(table, table.now() + 1)
    for fake in (gone, other):
        table.add(fake, "1.2.3.4")
        table.watch(fake, fake.over)
    table.remove(gone)
    table.sweep(table.now() + 5)
    table.remove(other)  # between its turn and the look
    loop.advance(1)
    assert gone.expired_at == other.expired_at == []
    assert (table._by_address, len(table)) == ({}, 0)


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [
        (["1.2.3.4"] * 3, [True, True, False]),
        (["1.2.3.4", "1.2.3.5"] * 2, [True] * 4),
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:0:1::"], [True, True, False]),
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::"], [True] * 3),
        (["1.2.3.4", "::ffff:1.2.3.4", "1.2.3.4"], [True, True, False]),
        (["fe80::1%eth0", "fe80::2%eth0", "fe80::3"], [True, True, False]),
        (["10.0.0.1"] * 4, [True] * 4),
        ([None] * 4, [True] * 4),
    ],
)
def test_connections_are_counted_by_address_or_network(hosts: list[str | None], allowed: list[bool]) -> None:
    table, _ = started(BOUNDS, "10.0.0.0/8")
    assert [not table.add(Fake(table), host) for host in hosts] == allowed


def test_an_address_makes_room_by_its_own_connections_and_by_nobody_elses() -> None:
    table, _ = started(replace(BOUNDS, connections_max=99, address_connections_max=3))
    fakes = {}
    for name, host, phase in (
        ("other", "1.2.3.5", SILENT),
        ("head", "1.2.3.4", HEAD),
        ("idle since long", "1.2.3.4", IDLE),
        ("idle", "1.2.3.4", IDLE),
    ):
        fakes[name] = Fake(table)
        assert table.add(fakes[name], host) == ""
        table.enter(fakes[name], phase)
    table.enter(fakes["head"], RUNNING)
    table.enter(fakes["head"], HEAD)
    gone: list[str] = []
    while not table.add(Fake(table), "1.2.3.4"):
        gone += [name for name, fake in fakes.items() if fake.dropped and name not in gone]
    assert gone == ["idle since long", "idle", "head"]


@pytest.mark.parametrize(
    ("phases", "dropped"),
    [
        ([RUNNING] * 4, None),
        ([HEAD, IDLE, SILENT, RUNNING], 2),
        ([HEAD, IDLE, IDLE, RUNNING], 1),
        ([RUNNING, HEAD, HEAD, RUNNING], 1),
    ],
)
def test_room_is_made_by_those_whom_it_costs_least(phases: list[Phase], dropped: int | None) -> None:
    table, _ = started()
    fakes = [Fake(table) for _ in phases]
    for fake, phase in zip(fakes, phases, strict=True):
        table.add(fake, None)
        table.enter(fake, phase)
    assert (table.add(Fake(table), None) == "") is (dropped is not None)
    assert [fake.dropped for fake in fakes] == [number == dropped for number in range(4)]


def test_connections_that_are_being_closed_take_no_room_and_are_few() -> None:
    table, _ = started()
    fakes = [Fake(table) for _ in range(3)]
    for fake in fakes:
        table.add(fake, None)
        table.enter(fake, LINGERING)
    assert [fake.dropped for fake in fakes] == [True, False, False]
    table.remove(fakes[0])
    assert len(table) == 0


def test_the_slowest_reader_goes_first_and_none_that_has_just_begun() -> None:
    table, loop = started()
    quick = Fake(table, unsent=60, pace=50.0)
    slow = Fake(table, unsent=60, pace=5.0)
    fresh = Fake(table, unsent=60)
    fresh.seconds = 0.1
    for fake in (quick, slow, fresh):
        table.wait_for_reader(fake)
    loop.advance(1)
    assert (quick.dropped, slow.dropped, fresh.dropped) == (True, True, False)
    quick.dropped = False
    table.reader_followed(fresh)
    table.wait_for_reader(quick)
    loop.advance(1)
    assert not quick.dropped


def test_a_flood_spares_not_even_those_that_have_just_begun() -> None:
    table, _ = started()
    fresh = Fake(table, unsent=201)
    fresh.seconds = 0.1
    table.wait_for_reader(fresh)
    assert fresh.dropped


@given(begun=st.floats(0, 1e6), waited=st.floats(0, 1e4), byte_count=st.integers(0, 10**9), later=st.floats(0, 1e4))
def test_more_bytes_never_shorten_a_clients_time(begun: float, waited: float, byte_count: int, later: float) -> None:
    def due(moved: float, bytes_: int) -> float:
        return pace_due(begun, moved, bytes_, stall_s=20, grace_s=10, bytes_per_s_min=1_000)

    moved = begun + waited
    assert due(moved + later, byte_count) >= due(moved, byte_count)
    assert due(moved, byte_count + 1) >= due(moved, byte_count)
    assert due(moved, byte_count) <= moved + 20


@pytest.mark.timed
@pytest.mark.serial
def test_a_look_at_ten_thousand_idle_connections_takes_less_than_five_milliseconds() -> None:
    table, _ = started(replace(BOUNDS, connections_max=20_000))
    for number in range(10_000):
        fake = Fake(table, table.now() + 75 + number % 75)
        table.add(fake, None)
        table.enter(fake, IDLE)
        table.watch(fake, fake.over)
    took = []
    for second in range(20):
        begun = time.perf_counter()
        table.sweep(table.now() + second)
        took.append(time.perf_counter() - begun)
    assert sorted(took)[10] < 0.005


def test_connections_that_have_ended_leave_nothing_to_the_garbage_collector() -> None:
    """Looking for cycles stops the event loop: the more connections there are, the longer."""
    with serving() as served:
        say(served, GET)
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                assert [answer.status for answer in say(served, GET * 3)] == [200] * 3
            left = gc.collect()
        finally:
            gc.enable()
    assert left < 50


def test_uvicorn_has_what_the_protocol_uses_of_it() -> None:
    """``spm.web.http_protocol.protocol`` names these; another version may have others."""
    parts: dict[Any, list[str]] = {
        HttpToolsProtocol.__init__: ["config", "server_state", "app_state", "_loop"],
        HttpToolsProtocol.connection_made: ["transport"],
        HttpToolsProtocol.connection_lost: ["exc"],
        HttpToolsProtocol.shutdown: [],
        HttpToolsProtocol.pause_writing: [],
        HttpToolsProtocol.resume_writing: [],
        HttpToolsProtocol.on_url: ["url"],
        HttpToolsProtocol._start_asgi_task: ["cycle", "app"],
        FlowControl.__init__: ["transport"],
        FlowControl.pause_reading: [],
        FlowControl.resume_reading: [],
        FlowControl.drain: [],
        RequestResponseCycle.__init__: [
            *("scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
            *("message_event", "expect_100_continue", "keep_alive", "on_response"),
        ],
    }
    for part, names in parts.items():
        assert [*inspect.signature(part).parameters][1:] == names, part
    used = {
        HttpToolsProtocol: "parser transport flow client scheme server headers url scope cycle loop app app_state "
        "server_state asgi_version root_path access_log access_logger logger",
        RequestResponseCycle: "scope flow logger access_logger access_log default_headers message_event disconnected "
        "keep_alive waiting_for_100_continue body more_body response_started response_complete chunked_encoding "
        "expected_content_length",
        FlowControl: "read_paused write_paused",
    }
    for kind, names_used in used.items():
        source = inspect.getsource(kind)
        assert [name for name in names_used.split() if f"self.{name}" not in source] == []
    assert asyncio.iscoroutinefunction(RequestResponseCycle.run_asgi)
