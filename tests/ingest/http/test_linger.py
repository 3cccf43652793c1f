"""Claims about ingest/http/linger.py: senders that wait for answers are told from those that send by the clock."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingest.http import push_batcher
from ingest.http.endpoints.base import Body
from ingest.http.linger import Linger
from ingest.http.push_batcher import PushBatcher, _Push
from spm import limits
from spm.clock import FakeClock
from spm.web.fair_pool import call_in_loop
from spm.wire import Parsed
from tests.ingest.http.pushing import ALONE, LINES, Bench, Gate, HeldTransport, bench, line, soon
from tests.support.event_loop import on_loop

RETURN_MS = round(limits.JOIN_RETURN_S * 1_000)


@pytest.mark.parametrize(
    ("after_ms", "returned"),
    [(0, True), (RETURN_MS, True), (RETURN_MS + 1, False), (10_000, False)],
    ids=["at once", "just in time", "too late", "by the clock"],
)
def test_a_sender_returns_if_it_sends_soon_after_its_answer(after_ms: int, returned: bool) -> None:
    clock = FakeClock()
    linger = Linger(clock)
    assert not linger.note_arrival("a", 1)
    linger.note_answer("a", expected=False)
    clock.advance(after_ms)
    assert linger.note_arrival("a", 1) == returned
    assert not linger.note_arrival("a", 1), "one answer is followed by one return"


def test_a_sender_that_returned_is_expected_until_it_is_overdue() -> None:
    clock = FakeClock()
    linger = Linger(clock)
    linger.note_answer("a", expected=True)
    linger.note_answer("b", expected=False)
    assert linger.awaits_returns()
    clock.advance(RETURN_MS + 1)
    assert not linger.awaits_returns()
    linger.note_answer("a", expected=True)
    linger.note_answer("a", expected=True)
    linger.note_arrival("a", 1)
    assert not linger.awaits_returns()


def test_what_is_known_of_senders_is_forgotten_soon() -> None:
    clock = FakeClock()
    linger = Linger(clock)
    for number in range(1_000):
        linger.note_answer(number, expected=True)
        clock.advance(1)
    assert len(linger._answered) <= RETURN_MS + 2
    clock.advance(10_000)
    assert not linger.awaits_returns()
    assert not linger._answered
    assert linger._expected == 0


def test_a_sender_that_cannot_be_recognised_is_not_expected() -> None:
    linger = Linger(FakeClock())
    linger.note_answer(None, expected=True)
    assert not linger.note_arrival(None, 1)
    assert not linger.awaits_returns()


def test_another_organisation_counts_as_one_sender_however_many_it_has() -> None:
    linger = Linger(FakeClock())
    for number in range(100):
        linger.note_arrival(number, 1)
    linger.note_arrival("lone", 2)
    assert (linger.has_many(1), linger.has_many(2)) == (True, False)
    for organisation in range(3, limits.JOIN_FROM_SENDERS + 1):
        assert not linger.has_many(2)
        linger.note_arrival("agent", organisation)
    assert linger.has_many(2)


def test_senders_that_wait_for_their_answers_do_not_wait_for_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("JOIN_LINGER_S", 1.0), ("JOIN_QUIET_GAPS", 1e6), ("PUBLISH_LOOK_S", 1e6)):
        monkeypatch.setattr(limits, name, value)
    senders, rounds = 8, 12

    async def send(one: Bench, name: int) -> None:
        for number in range(rounds):
            await one.push(line(name * rounds + number), connection=name)

    async def act() -> None:
        async with bench() as one:
            await asyncio.wait_for(asyncio.gather(*(send(one, name) for name in range(senders))), rounds / 4)
            assert len(one.transport.submits) < 3 * rounds

    on_loop(act())


def test_a_batch_waits_for_a_sender_that_is_expected() -> None:
    async def act() -> None:
        async with bench(clock=FakeClock()) as one:
            for number in range(40):
                one.push(line(number))
            await one.outcomes()
            for _ in range(3):
                pushes = [one.push(line(0), connection="a"), one.push(line(1), connection="b")]
                await asyncio.gather(*pushes)
            assert await soon(lambda: not any(one.left()))
            one.push(line(2), connection="a")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(one.batcher._waiting) == 1
            one.push(line(3), connection="b")
            await asyncio.sleep(0)
            assert not one.batcher._waiting

    on_loop(act())


def test_an_answered_push_leaves_nothing_for_the_garbage_collector() -> None:
    async def act() -> None:
        async with bench() as one:
            gc.collect()
            gc.disable()
            try:
                for number in range(20):
                    one.push(line(number))
                await one.outcomes()
                assert await soon(lambda: not any(one.left()))
                one.tasks.clear()
                one.transport.submits.clear()
                assert not sum(type(each) is _Push for each in gc.get_objects())
            finally:
                gc.enable()

    on_loop(act())


def test_a_batch_wakes_the_loop_once_where_nothing_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def call_noting(loop: asyncio.AbstractEventLoop, act: Callable[..., Any], *given: Any) -> None:
        calls.append(act.__name__)
        call_in_loop(loop, act, *given)

    monkeypatch.setattr(push_batcher, "call_in_loop", call_noting)

    async def act() -> None:
        async with bench() as one:
            for number in range(10):
                await one.push(line(number))
                assert await soon(lambda: not any(one.left()))
            assert calls == ["_drain"] * 10

    on_loop(act())


def test_the_end_of_a_batch_lets_in_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("JOIN_BATCHES_MAX", 1), ("JOIN_BODIES", 2), ("PUBLISH_LOOK_S", 1e6)):
        monkeypatch.setattr(limits, name, value)
    gate = Gate()

    def hangs(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    async def act() -> None:
        transport = HeldTransport(confirms=False)  # so that no answer hands over what waits
        async with bench(transport) as one:
            one.push(line(9), plan=replace(ALONE, parse=hangs))
            assert await soon(lambda: bool(gate.names))
            for number in range(4):
                one.push(line(number))
            await asyncio.sleep(0.02)
            assert len(one.batcher._waiting) == 4
            gate.open()
            assert await soon(lambda: len(transport.submits) == 2)
            assert not one.batcher._waiting
            assert await soon(lambda: one.batcher._backlog == 0)
            transport.confirms = True
            transport.settle()

    on_loop(act())


def test_a_body_that_lingers_for_a_few_gaps_wakes_the_loop_for_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    await_more = PushBatcher._await_more

    def look(batcher: PushBatcher, count_before: int) -> None:
        looks.append(count_before)
        await_more(batcher, count_before)

    monkeypatch.setattr(PushBatcher, "_await_more", look)
    monkeypatch.setattr(Linger, "per_s", lambda _: 100.0)
    monkeypatch.setattr(Linger, "has_many", lambda *_: True)

    async def act() -> None:
        async with bench() as one:
            first = one.push(line(1))
            await asyncio.sleep(0.02)
            one.push(line(2))
            await first
            assert looks == [0, 1]
            assert [len(each) for each in one.transport.submits] == [2]

    on_loop(act())
