"""Who may compute: short queries freely, long ones in turns, and so those of an organisation with many short ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.clock import FakeClock, SystemClock
from spm.limits import QUERY_SHORT_S
from spm.query.request import pacing
from spm.query.request.pacing import QUERY_SHORT_BURST_S, QUERY_SHORT_SHARE, QueryPacer

EPSILON = 1e-6


class _Waits(Exception):
    """A query is long, and must not compute now."""


class Machine(FakeClock):
    """A pacer whose CPU time a test sets, which is time, too; long queries never get a turn."""

    def __init__(self) -> None:
        super().__init__(0)
        self.cpu_s = 0.0
        self.pacer = QueryPacer(self, parallel=0, cpu_s=lambda: self.cpu_s)

    def monotonic(self) -> float:
        return super().monotonic() + self.cpu_s

    def is_long(self, key: str, cpu_s: float) -> bool:
        """Run a query that looks once, after so much CPU; whether it is a long one then."""
        with self.pacer.query(key), patch.object(pacing, "QUERY_CLIENT_CHECK_S", 0.0):
            self.cpu_s += cpu_s
            try:
                self.pacer.tick(self._wait)
            except _Waits:
                return True
            return False

    def _wait(self) -> None:
        raise _Waits


@pytest.mark.parametrize(
    ("cpu_s", "is_long"), [(0.0, False), (QUERY_SHORT_S - EPSILON, False), (QUERY_SHORT_S + EPSILON, True)]
)
def test_a_query_is_long_from_so_much_cpu_on(cpu_s: float, is_long: bool) -> None:
    assert Machine().is_long("a", cpu_s) is is_long


def test_nothing_outside_of_a_query_waits() -> None:
    machine = Machine()
    machine.cpu_s = 9.0
    machine.pacer.tick(machine._wait)


def test_an_organisation_with_many_short_queries_takes_turns_and_another_one_does_not() -> None:
    machine, cpu_s, free = Machine(), QUERY_SHORT_S / 2, 0
    while not machine.is_long("many", cpu_s):
        free += 1
    assert QUERY_SHORT_BURST_S / cpu_s <= free < 2 * QUERY_SHORT_BURST_S / cpu_s
    assert machine.is_long("many", cpu_s)
    assert not machine.is_long("few", cpu_s)


def test_its_queries_are_short_again_after_a_while() -> None:
    machine = Machine()
    while not machine.is_long("many", QUERY_SHORT_S / 2):
        pass
    machine.advance(1_000)
    assert not machine.is_long("many", QUERY_SHORT_SHARE / 4)
    machine.advance(1_000_000)
    assert not machine.is_long("many", QUERY_SHORT_S - EPSILON)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 300)), max_size=60))
def test_short_queries_of_one_organisation_take_no_more_than_its_share(queries: list[tuple[float, int]]) -> None:
    machine, taken_s, passed_s = Machine(), 0.0, 0.0
    for cpu_s, wait_ms in queries:
        passed_s += cpu_s
        if not machine.is_long("a", cpu_s):
            taken_s += cpu_s
        assert taken_s <= QUERY_SHORT_BURST_S + QUERY_SHORT_SHARE * passed_s + QUERY_SHORT_S
        machine.advance(wait_ms)
        passed_s += wait_ms / 1000


class Turns:
    """Long queries in threads; knows how many compute at once, and whose turn was when."""

    def __init__(self, parallel: int) -> None:
        self.pacer = QueryPacer(SystemClock(), parallel, cpu_s=time.monotonic)
        self.computing, self.most, self.order = 0, 0, list[str]()
        self._lock = threading.Lock()

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        with self._lock:
            self.computing += 1
            self.most = max(self.most, self.computing)
            self.order.append(key)
        yield
        with self._lock:
            self.computing -= 1

    def compute(self, key: str, parts: int) -> None:
        with self.pacer.query(key):
            time.sleep(QUERY_SHORT_S)
            for _ in range(parts):
                self.pacer.tick()
                with self._turn(key):
                    time.sleep(0.06)


def test_long_queries_compute_one_at_a_time_and_organisations_take_turns() -> None:
    turns = Turns(parallel=1)
    threads = [threading.Thread(target=turns.compute, args=(key, 3)) for key in ("many", "many", "many", "few")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert turns.most == 1
    assert sorted(turns.order) == ["few"] * 3 + ["many"] * 9
    assert turns.order.index("few") <= 2
    assert len(turns.order) - turns.order[::-1].index("few") <= 7
