"""Claims about ingest/http/push_batcher.py: no fault, of a body or of ours, touches another body or leaves anything."""

import asyncio
import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept import activity
from ingest.http import push_batcher
from ingest.http.body import UnknownEncoding
from ingest.http.endpoints.base import AcceptedMessage, Body, Plan
from ingest.transport.direct import DirectTransport
from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.clock import SystemClock
from spm.errors import BadMessage, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.wire import Envelope, Parsed
from tests.ingest.http.pushing import ALONE, LINES, Gate, HeldTransport, bench, line, soon, values
from tests.support.event_loop import on_loop
from tests.support.faults import Faulty
from tests.support.stored import copies, samples

BOMB = gzip.compress(b"m v=1 1\n" * 4_000_000)  # 32 MB


def fails(_: Body) -> Parsed:
    raise ZeroDivisionError("a fault of ours")


class Quota:
    """Refuses app 9."""

    def admit(self, app: int, parsed: Parsed, unit: str) -> Parsed:
        if app == 9:
            raise LimitExceeded("over its quota")
        return parsed

    def admit_many(self, bodies: Sequence[tuple[int, Parsed, str]]) -> list[Parsed | Exception]:
        return [LimitExceeded("over its quota") if app == 9 else parsed for app, parsed, _ in bodies]

    def is_over_quota(self, app: int) -> bool:
        return False

    def is_slow(self, app: int) -> bool:
        return False

    def sends_past(self, app: int) -> bool:
        return False


POISON: dict[str, tuple[bytes, dict[str, Any], type[Exception]]] = {
    "compressed, and is not": (b"plain", {"content_encoding": "gzip"}, BadMessage),
    "a bomb": (BOMB, {"content_encoding": "gzip"}, LimitExceeded),
    "an unknown encoding": (b"m v=1 1", {"content_encoding": "br"}, UnknownEncoding),
    "an unknown precision": (b"m v=1 1", {"plan": replace(LINES, precision="years")}, BadMessage),
    "a fault of ours in its parser": (b"m v=1 1", {"plan": replace(ALONE, parse=fails)}, ZeroDivisionError),
    "a message id that is too long": (b"m v=1 1", {"x_message_id": "x" * 999}, BadMessage),
    "an app over its quota": (b"m v=1 1", {"app": 9}, LimitExceeded),
}


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize(("body", "how", "error"), POISON.values(), ids=list(POISON))
def test_a_body_that_cannot_be_accepted_touches_no_other(
    body: bytes, how: dict[str, Any], error: type[Exception], place: int
) -> None:
    async def act() -> None:
        async with bench(admission=Quota()) as one:  # type: ignore[arg-type]
            for number in range(9):
                if number == place:
                    one.push(body, **how)
                one.push(line(number))
            answers = await one.outcomes()
            assert isinstance(answers.pop(place), error)
            assert all(isinstance(each, AcceptedMessage) and len(each.parsed.ts) == 1 for each in answers)
            assert values(one.transport) == [float(number) for number in range(9)]
            assert len(one.transport.submits) == 1

    on_loop(act())


def test_a_fault_in_reading_bodies_together_makes_them_be_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bodies: object) -> list[Parsed]:
        raise ZeroDivisionError

    monkeypatch.setattr(push_batcher, "parse_many", broken)

    async def act() -> None:
        async with bench() as one:
            for number in range(9):
                one.push(line(number))
            await one.outcomes()
            assert values(one.transport) == [float(number) for number in range(9)]

    on_loop(act())


def test_a_fault_in_a_note_is_no_fault_of_the_push_or_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(parsed: Parsed, sender: object, now_ms: int) -> None:
        if parsed.values[0] == 3:
            raise ZeroDivisionError

    monkeypatch.setattr(push_batcher, "record_accepted", broken)

    async def act() -> None:
        async with bench() as one:
            for number in range(6):
                one.push(line(number))
            assert all(isinstance(each, AcceptedMessage) for each in await one.outcomes())

    on_loop(act())


def test_without_room_each_body_is_refused_and_nothing_is_stamped() -> None:
    async def act() -> None:
        transport = HeldTransport()
        transport.full = QueueUnavailable("full")
        async with bench(transport) as one:
            for number in range(5):
                one.push(line(number))
            assert [type(each) for each in await one.outcomes()] == [QueueUnavailable] * 5
            assert (transport.submits, transport.reserved) == ([], 0)

    on_loop(act())


@pytest.mark.timed
def test_a_failing_transport_is_an_unknown_outcome_for_its_bodies_alone() -> None:
    async def act() -> None:
        transport = HeldTransport()
        transport.fault = ZeroDivisionError("ours")
        async with bench(transport, admission=Quota()) as one:  # type: ignore[arg-type]
            begun = SystemClock().monotonic()
            one.push(line(1))
            one.push(line(2), app=9)
            lost, refused = await one.outcomes()
            assert SystemClock().monotonic() - begun < 2
            assert isinstance(lost, StoreUnavailable)
            assert isinstance(refused, LimitExceeded)
            transport.fault, transport.reserved = None, 0
            assert isinstance(await one.push(line(3)), AcceptedMessage)

    on_loop(act())


def test_a_message_that_is_lost_for_good_is_not_acknowledged() -> None:
    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            one.push(line(1))
            assert await soon(lambda: bool(transport.unconfirmed))
            transport.settle(stored=False)
            [answer] = await one.outcomes()
            assert isinstance(answer, StoreUnavailable)

    on_loop(act())


@pytest.mark.timed
def test_senders_hear_within_a_second_that_the_store_stands_still_and_their_message_is_counted_once() -> None:
    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            begun = SystemClock().monotonic()
            first = one.push(line(1))
            assert await soon(lambda: bool(transport.unconfirmed))
            transport.trouble = "the store does not answer"
            [answer] = await one.outcomes()
            assert SystemClock().monotonic() - begun < 1
            assert isinstance(answer, StoreUnavailable)
            assert "does not answer" in str(answer)
            transport.trouble, transport.confirms = None, True
            transport.settle()
            again = await one.push(line(1))
            first_id, second_id = (each.message_id for each in transport.published)
            assert first_id == second_id == again.message_id
            assert first.done()

    on_loop(act())


def test_a_store_that_fails_for_a_while_has_each_message_once_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISH_AGAIN_S", 0.05)
    store = Faulty(open_backend(f"lmdb://{tmp_path}/store"))
    transport = DirectTransport(Writer(store, PlacementTable()))

    async def act() -> None:
        async with bench(transport, store=store) as one:
            store.fails_at = len(store.calls)
            for number in range(20):
                one.push(line(number))
            answers = await one.outcomes()
            assert {type(each) for each in answers} == {StoreUnavailable}
            store.fails_at = None
            assert await soon(lambda: transport._standstill() is None)
            for number in range(20):
                one.push(line(number))
            assert all(isinstance(each, AcceptedMessage) for each in (await one.outcomes())[20:])

    on_loop(act())
    transport.close()
    read = samples(store, 1_699_999_000_000, 1_700_001_000_000)
    assert len(read) == 20
    assert set(read.values()) == {1}
    assert all(len(stamps) <= 2 for stamps in copies(store).values())
    store.close()


@pytest.mark.timed
def test_bodies_behind_a_commit_that_stands_still_hear_of_it_before_their_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that reads bodies commits them, too: those behind it are not read yet."""
    monkeypatch.setattr(limits, "PUBLISH_STALL_S", 0.3)
    gate, now_ms = Gate(), SystemClock().now_ms()
    writer = Writer(MemoryBackend(), PlacementTable())
    prepare = writer.prepare
    transport = DirectTransport(writer)

    def waiting(batch: Sequence[Envelope]) -> WriteBatch:
        gate.wait()
        return prepare(batch)

    monkeypatch.setattr(writer, "prepare", waiting)

    def live(number: int) -> bytes:
        return b"m v=%d %d" % (number, 1_000_000 * (now_ms + number))

    async def act() -> None:
        async with bench(transport) as one:
            begun = SystemClock().monotonic()
            one.push(live(1))
            assert await soon(lambda: bool(gate.names))
            for number in range(2, 9):
                one.push(live(number))
                await asyncio.sleep(0.05)
            answers = await one.outcomes()
            assert SystemClock().monotonic() - begun < 3
            assert {type(each) for each in answers} == {StoreUnavailable}
            assert all("has not answered" in str(each) or "at work" in str(each) for each in answers)
            gate.open()
            assert await soon(lambda: not any(one.left()))
            assert isinstance(await one.push(live(9)), AcceptedMessage)

    on_loop(act())
    assert gate.names[0].startswith("push-batch")
    transport.close()


def test_nobody_waits_longer_than_a_sender_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_TIMEOUT_S", 0.3)

    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            one.push(line(1))
            [answer] = await one.outcomes()
            assert str(answer) == "no confirm within 0.3 s"
            assert (len(one.batcher._in_flight), one.batcher._batches) == (0, 0)
            transport.settle()

    on_loop(act())


def test_a_thread_that_hangs_answers_its_senders_and_holds_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_TIMEOUT_S", 1.0)
    monkeypatch.setattr(limits, "PUBLISH_STALL_S", 0.5)
    gate = Gate()

    def hangs(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    async def act() -> None:
        async with bench() as one:
            one.push(b"m v=1 1", plan=replace(ALONE, parse=hangs))
            assert await soon(lambda: bool(gate.names))
            pushes: list[Any] = []
            for number in range(100):
                one.push(line(number))
                await asyncio.sleep(0.02)
                pushes.extend(each for each in one.batcher._in_flight if each not in pushes)
            answers = await one.outcomes()
            assert {type(each) for each in answers} == {StoreUnavailable}
            assert one.batcher._backlog <= limits.JOIN_BATCHES_MAX
            assert all((each.raw, each.parsed) == (b"", None) for each in pushes)
            gate.open()
            assert isinstance(await one.push(line(7)), AcceptedMessage)
            assert values(one.transport)[-1:] == [7.0]
            assert len(one.transport.published) <= 2  # what was given up is passed over

    on_loop(act())


@pytest.mark.parametrize("moment", ["while it waits", "in its batch", "in its commit"])
def test_a_push_whose_task_is_cancelled_leaves_nothing_behind(moment: str) -> None:
    gate = Gate()

    def waits(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            if moment == "while it waits":
                one.push(line(0))
                assert await soon(lambda: len(transport.unconfirmed) == 1)
            push = one.push(line(1), plan=replace(ALONE, parse=waits) if moment == "in its batch" else LINES)
            await asyncio.sleep(0.05)
            push.cancel()
            await asyncio.sleep(2.5 * limits.PUBLISH_LOOK_S)
            gate.open()
            transport.confirms = True
            assert await soon(lambda: bool(transport.submits))
            transport.settle()
            await soon(lambda: push.done())
            assert isinstance(await one.push(line(2)), AcceptedMessage)

    on_loop(act())


def test_the_look_at_late_pushes_survives_a_cancelled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_STALL_S", 0.3)
    monkeypatch.setattr(limits, "JOIN_BATCHES_MAX", 1)
    gate = Gate()

    def hangs(body: Body) -> Parsed:
        gate.wait()
        return LINES.parse(body)

    async def act() -> None:
        async with bench() as one:
            one.push(b"m v=1 1", plan=replace(ALONE, parse=hangs))
            assert await soon(lambda: bool(gate.names))
            one.push(line(1))
            late = one.push(line(2))
            await asyncio.sleep(0)
            one.tasks[1].cancel()
            with pytest.raises(StoreUnavailable, match="before this one"):
                await late
            gate.open()

    on_loop(act())


def test_closing_hands_over_what_waits_answers_it_and_takes_no_more() -> None:
    async def act() -> None:
        transport = HeldTransport(confirms=False)
        async with bench(transport) as one:
            one.push(line(0))
            assert await soon(lambda: len(transport.unconfirmed) == 1)
            for number in range(1, 5):
                one.push(line(number))
            await asyncio.sleep(0)
            transport.confirms = True
            one.batcher.close()
            transport.settle()
            assert all(isinstance(each, AcceptedMessage) for each in await one.outcomes())
            with pytest.raises(StoreUnavailable, match="about to end"):
                await one.push(line(9))

    on_loop(act())


KINDS: dict[str, Callable[[int], tuple[bytes, Plan, dict[str, Any]]]] = {
    "good": lambda number: (line(number), LINES, {}),
    "packed": lambda number: (gzip.compress(line(number)), LINES, {"content_encoding": "gzip"}),
    "alone": lambda number: (line(number), ALONE, {}),
    "bad": lambda number: (b"\xff", LINES, {"content_encoding": "zstd"}),
    "faulty": lambda number: (line(number), replace(ALONE, parse=fails), {}),
    "large": lambda number: (line(number) + 70_000 * b" ", LINES, {}),
    "grows": lambda number: (
        gzip.compress(line(number) + 3 * (b"\n#" + 99_999 * b" ")),
        LINES,
        {"content_encoding": "gzip"},
    ),
}
GOOD = ("good", "packed", "alone", "large", "grows")


@given(
    st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(0, 2), st.booleans()), min_size=1, max_size=30),
    st.lists(st.booleans(), max_size=5),
)
@settings(max_examples=25)
def test_in_any_order_each_push_gets_its_own_outcome(pushes: list[tuple[str, int, bool]], losses: list[bool]) -> None:
    async def act() -> None:
        transport = HeldTransport(confirms=not losses)
        async with bench(transport) as one:
            for number, (kind, turns, leaves) in enumerate(pushes):
                body, plan, headers = KINDS[kind](number)
                task = one.push(body, plan=plan, **headers)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if leaves:
                    task.cancel()
            for stored in losses:
                await asyncio.sleep(0.002)
                transport.settle(stored)
            while not all(task.done() for task in one.tasks):
                await asyncio.sleep(0.002)
                transport.settle()
            for number, (kind, _, leaves) in enumerate(pushes):
                task = one.tasks[number]
                if task.cancelled():
                    assert leaves
                elif task.exception() is None:
                    assert task.result().parsed.values.tolist() == [float(number)]
                    assert kind in GOOD
                elif kind in GOOD:
                    assert isinstance(task.exception(), StoreUnavailable)
            counted = Counter(values(transport))
            assert set(counted.values()) <= {1}
            transport.confirms = True
            transport.settle()

    on_loop(act())
    activity.process_recorder.forget()
