"""A push batcher or push application on a loop of the test's own, over a transport that the test holds back.

Enter by ``Bench``: ``async with bench() as …`` on a running loop. At its end nothing may be left of any push.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.accept.acceptor import Acceptor
from ingest.accept.admission import Admission
from ingest.accept.identity import Sender
from ingest.http.endpoints.base import AcceptedMessage, Plan
from ingest.http.endpoints.samples import influx_endpoint
from ingest.http.exchange import PushAnswer, PushRequest
from ingest.http.push_batcher import PushBatcher
from ingest.transport.base import OutcomeCallback, Submission, Transport, Trouble
from spm.accounts.tokens import Principal
from spm.clock import Clock, SystemClock
from spm.errors import SpmError
from spm.store.backends.base import Backend
from spm.wire import Envelope
from tests.support.acceptors import silent_announcer

LONG_S = 60.0  # for what must happen soon on a busy machine


class HeldTransport(Transport):
    """Notes what is submitted together; confirms it at once, or when the test says so."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.confirms = confirms
        self.submits: list[list[Envelope]] = []
        self.holds: int | None = None  # an app whose messages are held, in whatever way they come
        self.held_messages: list[Submission] = []
        self.unconfirmed: list[Submission] = []
        self.reserved = 0
        self.full: SpmError | None = None
        self.fault: Exception | None = None
        self.trouble: str | None = None

    @property
    def published(self) -> list[Envelope]:
        """Everything that was submitted."""
        return [each for together in self.submits for each in together]

    def reserve(self, app: int, source: str, weight: int, wait_s: float = 0.0) -> None:
        if self.full is not None:
            raise self.full
        self.reserved += weight

    def release(self, app: int, weight: int) -> None:
        self.reserved -= weight

    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        if self.fault is not None:
            raise self.fault
        self.submits.append([each.envelope for each in messages])
        self.held_messages += [each for each in messages if each.envelope.app == self.holds]
        self.unconfirmed += [each for each in messages if each.envelope.app != self.holds]
        if self.confirms:
            self.settle()
        return [lambda: self.trouble] * len(messages)

    def let_go(self) -> None:
        """Confirm what is held of one app."""
        for message in self.held_messages:
            self.reserved -= message.weight
            message.outcome(True)

    def settle(self, stored: bool = True) -> None:
        """Call the outcome of everything that is not confirmed."""
        messages, self.unconfirmed = self.unconfirmed, []
        for message in messages:
            self.reserved -= message.weight
            message.outcome(stored)

    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: OutcomeCallback) -> None:
        self.submit([Submission(envelope, weight, outcome)])

    def close(self) -> None:
        return


def _plan_of_lines() -> Plan:
    plan = influx_endpoint("write").plan(PushRequest("POST", "/write", "", {}))
    assert not isinstance(plan, PushAnswer)
    return plan


LINES = _plan_of_lines()
ALONE = replace(LINES, precision=None)  # parsed body by body


def line(number: int) -> bytes:
    """One sample whose value is its number."""
    return f"m,host=h{number % 7} v={number} {1_700_000_000_000_000_000 + number * 1_000_000}".encode()


def values(transport: HeldTransport) -> list[float]:
    """What was submitted, of bodies of ``line``."""
    return sorted(value for each in transport.published for value in each.values.tolist())


@dataclass
class Bench:
    """A batcher with its acceptor."""

    batcher: PushBatcher
    acceptor: Acceptor
    transport: Any
    tasks: list["asyncio.Task[AcceptedMessage]"] = field(default_factory=list)

    def push(
        self,
        body: bytes,
        *,
        app: int = 1,
        organisation: int = 1,
        plan: Plan = LINES,
        connection: Hashable = None,
        **headers: Any,
    ) -> "asyncio.Task[AcceptedMessage]":
        """Begin to push a body; header names have underscores."""
        request = PushRequest("POST", "/write", "", {name.replace("_", "-"): value for name, value in headers.items()})
        principal = Principal(app, organisation, 1, frozenset({"ingest"}))
        accept = self.batcher.accept(request, principal, plan, Sender(app, "h"), body, connection)
        self.tasks.append(asyncio.ensure_future(accept))
        return self.tasks[-1]

    async def outcomes(self) -> list[AcceptedMessage | BaseException]:
        """What became of all pushes so far, in their order."""
        return await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), LONG_S)

    def left(self) -> tuple[int, ...]:
        """What the batcher still holds of pushes: all zero when it has nothing to do."""
        own = self.batcher
        pool = own._large_threads
        in_flight = (len(own._in_flight), own._batches, len(own._waiting), own._waiting_bytes, own._backlog)
        return (*in_flight, len(own._settled), pool.running, pool.waiting)


@asynccontextmanager
async def bench(
    transport: Transport | None = None,
    *,
    clock: Clock | None = None,
    store: Backend | None = None,
    admission: Admission | None = None,
) -> AsyncIterator[Bench]:
    """A batcher for the time of a test."""
    clock, transport = clock or SystemClock(), transport or HeldTransport()
    acceptor = Acceptor(silent_announcer(clock, store), transport, clock, admission)
    one = Bench(PushBatcher(lambda: acceptor, clock), acceptor, transport)
    yield one
    await one.outcomes()
    assert await soon(lambda: not any(one.left())), f"left over: {one.left()}"
    one.batcher.close()


async def soon(condition: Callable[[], bool], seconds: float = LONG_S) -> bool:
    """Whether ``condition`` comes true in time; the loop goes on meanwhile."""
    end = SystemClock().monotonic() + seconds
    while not condition():
        if SystemClock().monotonic() > end:
            return False
        await asyncio.sleep(0.002)
    return True


class Gate:
    """Holds threads up until it is opened; ``names`` of those that came."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._open = threading.Event()

    def wait(self) -> None:
        """Wait in a thread."""
        self.names.append(threading.current_thread().name)
        assert self._open.wait(LONG_S)

    def open(self) -> None:
        """Let all go on."""
        self._open.set()
