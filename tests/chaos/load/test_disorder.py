"""Nearly a third of all messages twice, none in order, some a day late: hours and days are those of the ledger.

Runs come in between, so that much of what is late belongs to hours that are rolled up already. The order is drawn from
a fixed seed; the messages themselves say which samples there must be, each once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from spm.limits import HOUR_MS
from spm.wire import Envelope
from tests.chaos.kills.storm import PART
from tests.chaos.line.agents import HOSTS, Message
from tests.chaos.line.checker import ACKED, Recount, Sent, violations_in_parts, wrong_hours
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.stored import copies, reader, samples

pytestmark = [pytest.mark.real, pytest.mark.chaos]
START_MS = 490_896 * HOUR_MS
SPAN_MS = 24 * HOUR_MS
TWICE, LATE = 0.3, 0.3
PHASES, FIELDS = 3, 100
PUBLISHED_PER_S, CHECK_S = 30_000, 12 / 1e6  # samples, and seconds for each in the end: what a proof will take


@dataclass(frozen=True, slots=True)
class Spread(Message):
    """A message whose time lies where its number says within a day."""

    every_ms: int = 1000

    @property
    def ts(self) -> int:
        return self.start_ms + 1 + self.every_ms * (self.number // HOSTS)


@pytest.fixture
def line(tmp_path: Path, hbase_url: str, rabbitmq: RabbitMQ) -> Iterator[Line]:
    line_ = Line(tmp_path, f"{hbase_url}/{tmp_path.name}", rabbitmq.new_vhost(tmp_path.name) + "?partitions=4")
    yield line_
    line_.close()


def spread_messages(count: int) -> list[Spread]:
    """``count`` messages over a day."""
    every_ms = SPAN_MS // -(-count // HOSTS)
    return [Spread(number, START_MS, FIELDS, every_ms) for number in range(count)]


def arrivals(messages: Sequence[Message]) -> list[Message]:
    """In the order in which they come: each some seconds off its turn, many hours late, many twice."""
    draw = np.random.default_rng(8)
    ts = np.array([message.ts for message in messages])
    again = draw.random(len(ts)) < TWICE
    which = np.concatenate([np.arange(len(ts)), np.flatnonzero(again)])
    delay_ms = draw.integers(0, 30_000, len(which))
    late = draw.random(len(which)) < LATE
    delay_ms[late] = draw.integers(0, SPAN_MS, int(late.sum()))
    return [messages[i] for i in which[np.argsort(ts[which] + delay_ms, kind="stable")]]


def accepted(line: Line, message: Message) -> Envelope:
    return line.accepted(message.body(), source=message.host, message_id=message.number.to_bytes(16, "big"))


@pytest.mark.parametrize(
    "default",
    [
        pytest.param(200_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)], id="200 k"),
        pytest.param(20_000_000, marks=pytest.mark.proof, id="20 M"),
    ],
)
def test_r8_duplicates_disorder_and_delays_of_a_day_leave_rollups_equal_to_the_ledger(
    line: Line, size: Callable[[str, int], int], default: int
) -> None:
    count = size("R8_SAMPLES", default) if default > 200_000 else default
    messages = spread_messages(count // FIELDS)
    print(f"  about {(60 + count / PUBLISHED_PER_S + CHECK_S * count) / 60:,.0f} minutes", flush=True)
    line.token()
    workers = [line.start_worker(), line.start_worker()]
    stamps: dict[int, int] = {}
    coming = arrivals(messages)
    for number, part in enumerate(np.array_split(np.arange(len(coming)), PHASES)):
        some = [coming[i] for i in part]
        for message in some:
            stamps[message.number] = stamps.get(message.number, 0) + 1
        send(line, some)
        wanted = sum(stamps.values())
        assert wait_until(lambda n=wanted: stored(line) >= n, 600), f"{stored(line):,} of {wanted:,}"  # type: ignore[misc]
        now_ms = START_MS + (number + 1) * SPAN_MS
        line.manage("roll", "--local", "--app", str(APP), "--now", str(now_ms), timeout_s=3_600)
        print(f"  {number + 1} of {PHASES}: {len(some):,} messages, rolled up", flush=True)
    assert all(worker.alive() for worker in workers)
    line.manage("roll", "--local", "--app", str(APP), "--now", str(START_MS + 10 * SPAN_MS), timeout_s=3_600)
    log = [Sent(m.number.to_bytes(16, "big"), m.sent().samples, ACKED, stamps[m.number]) for m in messages]
    assert sum(s > 1 for s in stamps.values()) > 0.25 * len(messages)
    assert wrong(line, log) == []


def send(line: Line, messages: Sequence[Message]) -> None:
    """Accept and publish them in their order, a thousand at a time."""
    for at in range(0, len(messages), 1_000):
        line.publish([accepted(line, message) for message in messages[at : at + 1_000]])
        line.sent.clear()


def stored(line: Line) -> int:
    """Acceptances that are in the store. Looking costs CPU, so it is not done all the time."""
    time.sleep(0.5)
    return sum(map(len, copies(line.backend, APP).values()))


def wrong(line: Line, log: Sequence[Sent]) -> list[str]:
    backend, recount = line.backend, Recount()
    storage, copies_ = reader(backend, APP), copies(backend, APP)
    complaints = violations_in_parts(log, lambda a, b: samples(backend, a, b, storage=storage), copies_, PART, recount)
    return [*complaints, *wrong_hours(reader(backend, APP), recount)]
