"""Ten kinds of poison among good messages: each ends among the dead with its cause, the others are stored.

Some cannot be read, some cannot be written, some end the worker that reads them; agents send some. A supervisor starts
the worker again whenever it ended. In CI one of each kind; ``bin/test --proof r19_`` sends a thousand.
"""

import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from ingest.accounting import dead_letter_review
from ingest.routing import AGENTS
from ingest.transport import topology
from ingest.transport.amqp import Publisher
from ingest.transport.topology import Address
from ingest.writer import COLLIDED, TIMELESS
from spm import limits
from spm.store.dictionary import SeriesRegistry
from spm.store.ledger import dead_letters
from spm.wire import HEAD, Envelope
from tests.chaos.faults.consumers import UNWRITABLE
from tests.chaos.kills.storm import consumes
from tests.chaos.line.checker import ACKED, Sent, violations
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message, recent
from tests.support.people import Person
from tests.support.stored import copies, samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
TRIES_MAX = 5
KILLED = "workers, and the process that tried it"  # "ended 3": more, when it waited beside another one


@dataclass(frozen=True, slots=True)
class Poison:
    """One kind: how a message of it is made of a good one; where its letter lies, and what its cause says."""

    name: str
    make: Callable[[Envelope], bytes]
    cause: str
    app: int = APP
    by_agent: str = ""  # the first part of the routing key of an agent that sends it

    def died(self, letter: tuple[int, str]) -> bool:
        """Whether a letter's (app, cause) are those of this kind."""
        return letter[0] == self.app and self.cause in letter[1]


def _summed(body: bytes) -> bytes:
    return HEAD.pack(b"SPMe", 1, zlib.crc32(body)) + body


def _collided(good: Envelope) -> bytes:
    """Its series has the id of one that is known already, and another text."""
    other = message(int.from_bytes(good.message_id, "big"), source="collider", samples=1)
    return replace(other, stamp=good.stamp, series=replace(other.series, ids=good.series.ids[:1])).to_bytes()


def _timeless(good: Envelope) -> bytes:
    return replace(good, source="timeless", ts=np.full(len(good), -5, np.int64)).to_bytes()


POISONS = (
    Poison("garbage", lambda good: b"garbage" * 9, "not an envelope", dead_letters.UNKNOWN_APP),
    Poison("truncated", lambda good: good.to_bytes()[:-20], "checksum", dead_letters.UNKNOWN_APP),
    Poison("flipped bit", lambda good: good.to_bytes()[:-1] + b"\xaa", "checksum", dead_letters.UNKNOWN_APP),
    Poison(
        "wrong length",
        lambda good: _summed(good.to_bytes()[HEAD.size :] + b"x"),
        "wrong length",
        dead_letters.UNKNOWN_APP,
    ),
    Poison(
        "wrong version",
        lambda good: b"SPMe\x09" + good.to_bytes()[5:],
        "unknown envelope version",
        dead_letters.UNKNOWN_APP,
    ),
    Poison("wrong time", _timeless, TIMELESS),
    Poison("collision", _collided, COLLIDED),
    Poison("cannot be written", lambda good: replace(good, source=UNWRITABLE).to_bytes(), "cannot be written"),
    Poison("ends its worker", lambda good: replace(good, source="curse: kill").to_bytes(), KILLED),
    Poison("too large", lambda good: b"#" * (limits.AMQP_PARTITION_BODY_BYTES_MAX + 1), "too large", by_agent="{own}"),
    Poison(
        "another's app",
        lambda good: good.to_bytes(),
        "no valid token",
        dead_letters.UNKNOWN_APP,
        by_agent="spm_nobodys",
    ),
    Poison("no lines", lambda good: b"[ no json" * 3, "", by_agent="{own}"),
)


@pytest.fixture
def line(tmp_path: Path, rabbitmq: RabbitMQ) -> Iterator[Line]:
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", rabbitmq.new_vhost("poison") + "?partitions=2&agents=1")
    line_.step = "tests.chaos.faults.consumers:Cursed"
    yield line_
    line_.close()


class Supervised:
    """A worker that is started again when it ends; ``deaths``: how often it did."""

    def __init__(self, line: Line) -> None:
        self.line, self.deaths, self.over = line, 0, threading.Event()
        self.worker = self.line.start_worker()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        while not self.over.wait(0.2):
            if not self.worker.alive():
                self.deaths += 1
                self.worker = self.line.start_worker()

    def end(self) -> None:
        self.over.set()
        self.thread.join()


def publish_all(line: Line, own: str, good: list[Envelope], of_each: int) -> None:
    """Good messages, and among them of each kind of poison as many as asked for."""
    address = Address.parse(line.amqp_url)
    publisher = Publisher(address)
    every = [poison for poison in POISONS for _ in range(of_each)]
    step = max(1, len(good) // len(every))
    known = SeriesRegistry(line.backend)
    for number in range(5):  # else the collider could come first, and nobody would be there to collide with
        known.register(APP, message(source=f"poison{number}").series)
    try:
        for number, envelope in enumerate(good):
            line.publish([envelope])
            if number % step == 0 and number // step < len(every):
                poison = every[number // step]
                body = poison.make(line.restamped(recent(message(10**6 + number, source=f"poison{number % 5}"))))
                exchange = AGENTS if poison.by_agent else topology.EXCHANGE
                key = f"{poison.by_agent.format(own=own)}.h" if poison.by_agent else f"00{number % 2}"
                publisher.publish(exchange, key, body, timeout_s=20, message_id=f"{number:032x}")
    finally:
        publisher.close()


def poisoned(line: Line, rabbitmq: RabbitMQ, *, good: int, of_each: int, wait_s: float) -> int:
    """Send, wait until all is settled, and judge; how often a worker died."""
    own = line.token().rpartition("_")[0]
    envelopes = [line.restamped(recent(message(number, source=f"host{number % 5}"))) for number in range(good)]
    worker = Supervised(line)
    try:
        assert wait_until(lambda: consumes(worker.worker), 120)
        publish_all(line, own, envelopes, of_each)
        wanted = {(e.stamp.ms, e.stamp.process, e.stamp.sequence) for e in envelopes}
        assert wait_until(lambda: wanted <= line.stored(), wait_s), f"{len(wanted - line.stored())} neighbours missing"
        assert wait_until(lambda: letters_found(line) >= of_each * len(POISONS), wait_s), causes(line)
        assert wait_until(lambda: all(any(map(poison.died, causes(line))) for poison in POISONS), wait_s), causes(line)
        line.settle(rabbitmq)
    finally:
        worker.end()
    log = [Sent(e.message_id, tuple(sent([e])), ACKED) for e in envelopes]
    first, last = int(envelopes[0].ts.min()), int(envelopes[-1].ts.max())
    assert violations(log, samples(line.backend, first - 1, last), copies(line.backend)) == []
    return worker.deaths


def shown(line: Line, app: int) -> list[dead_letter_review.DeadLetterSummary]:
    return dead_letter_review.list_dead_letters(line.backend, app, count=10_000)


def letters_found(line: Line) -> int:
    return len(shown(line, APP)) + len(shown(line, dead_letters.UNKNOWN_APP))


def causes(line: Line) -> list[tuple[int, str]]:
    return [(app, each.cause) for app in (APP, dead_letters.UNKNOWN_APP) for each in shown(line, app)]


def replayed_in_the_admin(line: Line, keys: list[str]) -> int:
    """How many letters the page says were accepted anew, by a web server and a worker without the fault."""
    line.step = "ingest.worker.connections:ConsumerStep"
    line.manage("collectstatic", "--noinput", "-v0")
    root = line.start_web()
    line.start_worker()
    login = json.loads((line.folder / "first-login.json").read_text())
    person = Person(root, login["login"], login["password"])
    said = person.submit(f"/admin/ingest/appdeadletters/{APP}/dead_letters/", key=keys, act="replay")
    return int(causes_[1]) if (causes_ := re.search(r"(\d+) accepted again", said)) else 0


def messages_in(line: Line, keys: list[str]) -> set[bytes]:
    """The ids of the messages that these letters hold."""
    causes_ = dead_letters.find(line.backend, [bytes.fromhex(key) for key in keys])
    return {Envelope.from_bytes(dead_letters.decode(each.raw).body).message_id for each in causes_ if each is not None}


@pytest.mark.seed("A4", compares="the dead letters of twelve kinds of poison, and their neighbours with what was sent")
def test_each_kind_of_poison_ends_with_its_cause_and_its_neighbours_are_stored(
    line: Line, rabbitmq: RabbitMQ, figure: Callable[[str], None]
) -> None:
    deaths = poisoned(line, rabbitmq, good=60, of_each=1, wait_s=200)
    assert 1 <= deaths <= TRIES_MAX
    causes_ = causes(line)
    for poison in POISONS:
        assert any(map(poison.died, causes_)), (poison.name, causes_)
    for letter in causes_:  # an agent's body that came again when its worker died has another letter
        assert any(poison.died(letter) for poison in POISONS), letter
    figure(f"{len(POISONS)} kinds; {deaths} workers ended by one message, at most {TRIES_MAX}")
    mended = [each.key for each in shown(line, APP) if "cannot be written" in each.cause or KILLED in each.cause]
    before = line.stored()
    assert replayed_in_the_admin(line, mended) == len(mended) == 2
    assert wait_until(lambda: len(line.stored()) == len(before) + 2, 60), line.said()
    again = line.stored() - before
    assert {name for name, known in copies(line.backend).items() if again & known.keys()} == messages_in(line, mended)
    assert {each.state for each in shown(line, APP) if each.key in mended} == {"replayed"}


@pytest.mark.proof
def test_r19_a_thousand_poison_messages_end_among_the_dead_and_harm_no_other(
    line: Line, rabbitmq: RabbitMQ, size: Callable[[str, int], int]
) -> None:
    of_each = -(-size("R19_POISONS", 1_000) // len(POISONS))
    deaths = poisoned(line, rabbitmq, good=size("R19_GOOD", 6_000), of_each=of_each, wait_s=1_800)
    print(f"  {of_each * len(POISONS)} poison messages ended {deaths} workers")
    assert 1 <= deaths <= TRIES_MAX * of_each
    causes_ = causes(line)
    counted = {poison.name: sum(map(poison.died, causes_)) for poison in POISONS}
    assert {name: count for name, count in counted.items() if count < of_each} == {}
    tries = [int(said[1]) for _, cause in causes_ if (said := re.match(r"ended (\d+) workers", cause))]
    assert max(tries) <= TRIES_MAX, sorted(tries)
