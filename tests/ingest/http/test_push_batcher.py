"""Claims about ingest/http/push_batcher.py: bodies are accepted together, and each waits no longer than it must."""

import asyncio
import gzip
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.accept.admission import Admission
from ingest.http.endpoints.base import AcceptedMessage, Body
from ingest.transport.direct import DirectTransport
from ingest.transport.limits import APART_HOURS, APART_SERIES
from ingest.writer import Writer
from spm import limits
from spm.accounts.quotas import Quota
from spm.clock import FakeClock, SystemClock
from spm.errors import QueueUnavailable
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.wire import Parsed
from tests.ingest.http.pushing import ALONE, LINES, LONG_S, Gate, HeldTransport, bench, line, soon, values
from tests.support.event_loop import on_loop
from tests.support.stored import copies, samples

MANY = gzip.compress(b"m v=1 1\n" * 100_000)  # 2 kB that become 800 kB


def test_bodies_that_come_together_are_accepted_together() -> None:
    async def act() -> None:
        async with bench() as one:
            for number in range(50):
                one.push(line(number), app=number % 3)
            answers = await one.outcomes()
            assert [len(each) for each in one.transport.submits] == [50]
            assert all(isinstance(each, AcceptedMessage) and len(each.parsed.ts) == 1 for each in answers)
            assert values(one.transport) == [float(number) for number in range(50)]

    on_loop(act())


def test_bodies_that_come_during_a_commit_make_the_next_batch() -> None:
    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            one.push(line(0))
            assert await soon(lambda: len(transport.unconfirmed) == 1)
            for number in range(1, 9):
                one.push(line(number))
                await asyncio.sleep(0.001)
            assert len(transport.submits) == 1
            transport.confirms = True
            transport.settle()
            await one.outcomes()
            assert [len(each) for each in transport.submits] == [1, 8]

    on_loop(act())


def test_a_full_batch_does_not_wait_for_the_commit_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOIN_BODIES", 4)
    monkeypatch.setattr(limits, "PUBLISH_LOOK_S", 2 * LONG_S)

    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            one.push(line(0))
            assert await soon(lambda: len(transport.submits) == 1)
            for number in range(1, 5):
                one.push(line(number))
            assert await soon(lambda: len(transport.submits) == 2)
            transport.settle()

    on_loop(act())


def test_a_lone_body_is_handed_over_in_the_same_turn_of_the_loop() -> None:
    async def act() -> None:
        async with bench(clock=FakeClock()) as one:
            for number in range(30):  # one a second
                one.push(line(number))
                await asyncio.sleep(0)  # the body arrives
                assert len(one.batcher._waiting) == 1
                await asyncio.sleep(0)
                assert len(one.batcher._in_flight) == 1
                await one.outcomes()
                assert await soon(lambda: not any(one.left()))
                one.batcher._clock.advance(1_000)  # type: ignore[attr-defined]

    on_loop(act())


@pytest.mark.parametrize(("before", "lingers"), [(18, False), (19, True)], ids=["19 a second", "20 a second"])
def test_a_body_lingers_from_so_many_a_second_on(before: int, lingers: bool) -> None:
    assert limits.JOIN_FROM_PER_S == 20

    async def act() -> None:
        async with bench(clock=FakeClock()) as one:
            for number in range(before):
                one.push(line(number), connection=number)
            await one.outcomes()
            assert await soon(lambda: not any(one.left()))
            one.push(line(before), connection=before)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(one.batcher._waiting) == int(lingers)

    on_loop(act())


@pytest.mark.timed
def test_a_body_lingers_while_others_come_and_no_longer_than_it_may() -> None:
    async def act() -> None:
        clock, transport = FakeClock(), HeldTransport()
        async with bench(transport, clock=clock) as one:
            for number in range(400):
                one.push(line(number), connection=number)
            await one.outcomes()
            assert await soon(lambda: not any(one.left()))
            waited, submits = 0, len(transport.submits)
            while len(transport.submits) == submits:
                for _ in range(8):  # others come before each look
                    one.push(line(waited), connection=f"other {waited}")
                    await asyncio.sleep(0.002)
                waited += 10
                clock.advance(10)
            assert limits.JOIN_LINGER_S * 1_000 - 10 <= waited <= limits.JOIN_LINGER_S * 1_000 + 30

    on_loop(act())


@pytest.mark.timed
def test_a_lingering_body_is_handed_over_when_no_other_comes() -> None:
    async def act() -> None:
        async with bench(clock=FakeClock()) as one:
            for number in range(100):
                one.push(line(number), connection=number)
            await one.outcomes()
            assert await soon(lambda: not any(one.left()))
            begun = SystemClock().monotonic()
            await one.push(line(100), connection=100)
            assert SystemClock().monotonic() - begun < limits.JOIN_LINGER_S * 5

    on_loop(act())


@pytest.mark.parametrize(
    ("senders", "lingers"), [(1, False), (limits.JOIN_FROM_SENDERS - 1, False), (limits.JOIN_FROM_SENDERS, True)]
)
def test_a_body_lingers_from_so_many_senders_on_however_often_they_send(senders: int, lingers: bool) -> None:
    async def act() -> None:
        clock = FakeClock()
        async with bench(clock=clock) as one:
            for number in range(40):
                one.push(line(number), connection=number % senders)
            await one.outcomes()
            assert await soon(lambda: not any(one.left()))
            clock.advance(40)  # none returns at once
            one.push(line(40), connection=0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(one.batcher._waiting) == int(lingers)

    on_loop(act())


def test_hundreds_of_bodies_over_lmdb_are_stored_each_once(tmp_path: Path) -> None:
    store = open_backend(f"lmdb://{tmp_path}/store")
    transport = DirectTransport(Writer(store, PlacementTable()))

    async def act() -> Counter[bytes]:
        async with bench(transport, store=store) as one:
            for number in range(300):
                one.push(line(number))
                if number % 40 == 0:
                    await asyncio.sleep(0.01)
            answers = await one.outcomes()
            return Counter(each.message_id for each in answers if isinstance(each, AcceptedMessage))

    ids = on_loop(act())
    transport.close()
    assert len(ids) == 300
    assert {name: len(stamps) for name, stamps in copies(store).items()} == dict(ids)
    assert set(samples(store, 1_699_999_000_000, 1_700_001_000_000).values()) == {1}
    store.close()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"\n".join(line(number) for number in range(2_000)), {}, id="a large body"),
        pytest.param(MANY, {"content_encoding": "gzip"}, id="a small one that becomes large"),
    ],
)
def test_large_bodies_are_parsed_apart_while_small_ones_are_answered(body: bytes, headers: dict[str, Any]) -> None:
    gate = Gate()

    def waits(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    async def act() -> None:
        async with bench() as one:
            large = one.push(body, plan=replace(ALONE, parse=waits), **headers)
            assert await soon(lambda: bool(gate.names))
            for number in range(5):
                assert isinstance(await one.push(line(number)), AcceptedMessage)
            assert not large.done()
            gate.open()
            assert len((await large).parsed.ts) == body.count(b"\n") + 1 if not headers else 100_000
            assert all(name.startswith("large bodies") for name in gate.names)

    on_loop(act())


def test_large_bodies_of_one_organisation_do_not_keep_anothers_waiting() -> None:
    order: list[int] = []

    def parse(body: Body) -> Parsed:
        order.append(body.raw[0])
        SystemClock().sleep(0.01)
        return LINES.parse(body)

    plan, large = replace(ALONE, parse=parse), limits.JOIN_BODY_BYTES_MAX * b" "

    async def act() -> None:
        async with bench() as one:
            for _ in range(30):
                one.push(b"a v=1 1" + large, plan=plan, organisation=1)
            one.push(b"b v=1 1" + large, plan=plan, organisation=2)
            await one.outcomes()

    on_loop(act())
    assert order.index(ord("b")) <= limits.LARGE_BODY_THREADS + 1


NOW_MS = time.time_ns() // 1_000_000
NEW = b"\n".join(b"new,host=h%d v=1" % number for number in range(APART_SERIES))


def past(*hours: int) -> bytes:
    """A sample of so many hours ago, each."""
    return b"\n".join(b"old v=1 %d" % ((NOW_MS - each * limits.HOUR_MS) * 1_000_000) for each in hours)


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        pytest.param(b"m v=1\n" + limits.JOIN_BODY_BYTES_MAX * b" ", [True, True], id="a large body"),
        pytest.param(NEW, [False, True], id="new series"),
        pytest.param(past(60), [False, False], id="a sample of long ago"),
        pytest.param(past(60, 60 + APART_HOURS), [False, True], id="many hours of long ago"),
    ],
)
def test_no_other_organisation_waits_for_a_body_that_takes_long(
    body: bytes, apart: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_LOOK_S", 2 * LONG_S)
    threads: list[str] = []

    def parse(body: Body) -> Parsed:
        threads.append(threading.current_thread().name)
        return LINES.parse(body)

    async def act() -> None:
        transport, clock = HeldTransport(), SystemClock()
        transport.holds = 1
        admission = Admission(MemoryBackend(), clock, lambda app: Quota(series=10_000, samples_per_s=10**9))
        async with bench(transport, admission=admission) as one:
            slow = [one.push(body, plan=replace(ALONE, parse=parse))]
            for sent in (1, 2):
                assert await soon(lambda sent=sent: len(transport.held_messages) == sent)  # type: ignore[misc]
                for number in range(5):
                    assert isinstance(await one.push(b"m v=%d" % number, app=2, organisation=2), AcceptedMessage)
                if sent == 1:
                    slow.append(one.push(body, plan=replace(ALONE, parse=parse)))
                    one.push(b"m v=9", app=2, organisation=2)  # with which its batch begins
            assert not any(each.done() for each in slow)
            transport.let_go()

    on_loop(act())
    assert [name.startswith("large bodies") for name in threads] == apart


def test_bodies_of_an_organisation_wait_for_its_own_of_long_ago_as_for_any_other() -> None:
    async def act() -> None:
        transport, clock = HeldTransport(), SystemClock()
        transport.holds = 1
        admission = Admission(MemoryBackend(), clock, lambda app: Quota(series=10_000, samples_per_s=10**9))
        async with bench(transport, admission=admission) as one:
            one.push(past(60))
            assert await soon(lambda: len(transport.held_messages) == 1 and not one.batcher._batches)
            transport.holds = None
            one.push(past(61))
            one.push(past(62))
            await asyncio.sleep(0.01)
            assert len(one.batcher._waiting) == 2
            transport.let_go()
            await one.outcomes()
            assert [len(each) for each in transport.submits] == [1, 2]

    on_loop(act())


def test_a_body_does_not_linger_because_another_organisation_has_many_senders() -> None:
    async def act() -> None:
        async with bench(clock=FakeClock()) as one:
            for number in range(40):
                one.push(line(number), connection=number)
            await one.outcomes()
            assert await soon(lambda: not any(one.left()))
            one.push(line(40), connection=40)
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(one.batcher._waiting) == 1, "its own organisation has many"
            one.push(line(41), connection=41, app=2, organisation=2)
            for _ in range(2):
                await asyncio.sleep(0)
            assert not one.batcher._waiting
            assert await soon(lambda: len(one.transport.submits[-1]) == 2)

    on_loop(act())


@pytest.mark.parametrize("limit", ["so many wait", "so long"])
def test_large_bodies_wait_within_bounds(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    if limit == "so many wait":
        monkeypatch.setattr(limits, "LARGE_BODIES_WAITING_MAX", 2)
    else:
        monkeypatch.setattr(limits, "PUBLISH_TIMEOUT_S", 0.1)

    def waits(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    plan, large = replace(ALONE, parse=waits), b"m v=1 1\n" + limits.JOIN_BODY_BYTES_MAX * b" "

    async def act() -> None:
        async with bench() as one:
            tasks = [one.push(large, plan=plan) for _ in range(limits.LARGE_BODY_THREADS + 2)]
            refused, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert all(isinstance(each.exception(), QueueUnavailable) for each in refused)
            gate.open()

    on_loop(act())
