"""A small installation in one process: accepting processes, a store, lanes and judges, with everything going wrong."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

import numpy as np

from alerts import evaluate, journal, watch
from alerts.judging.backtest import KnownSteps, replay
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_plan import OperationKind
from alerts.models import AlertEvent, Episode, Lane, Operation
from alerts.recording.sessions import open_session
from ingest.accept.announcer import StampAnnouncer
from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import HOUR_MS, LIVE_HOURS, RULE_ACTIVE_MAX, RULE_PERIOD_MS
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope, Parsed, SeriesTable, canonical

HOSTS = ("a", "b", "c")
_ALWAYS = 1 << 60


class Killed(BaseException):
    """Simulates kill -9 of a judge: nothing catches it."""


@dataclass
class Installation:
    """Hosts that send ``cpu`` every ten seconds through two accepting processes, and judges of one app's lane."""

    app: int
    clock: FakeClock
    store: MemoryBackend = field(default_factory=MemoryBackend)

    def __post_init__(self) -> None:
        self.accepted = 0
        self.start()

    def start(self) -> None:
        """Begin all processes anew: they know what the store and the database say."""
        self.writer = Writer(self.store, PlacementTable())
        self.acceptors = [StampAnnouncer(self.store, self.clock, every_s=None) for _ in range(2)]
        self.waiting: list[tuple[int, Envelope, StampAnnouncer]] = []  # accepted, stored at this time
        self.watch, self.storage = watch.AppWatch(), self.new_storage()

    def new_storage(self) -> AppStorage:
        return AppStorage(self.store, self.app, placement=PlacementTable(), clock=self.clock, cache=PageCache())

    def send(self, host: str, ts: int, value: float, *, acceptor: int = 0, stored_in_ms: int = 0) -> None:
        """Accept a sample now; it is stored then or later."""
        self.send_all(host, ts, {"cpu": value}, acceptor=acceptor, stored_in_ms=stored_in_ms)

    def send_with_past(self, host: str, ts: int, value: float, *, stored_in_ms: int) -> None:
        """Accept a message now, with a sample of this time and one of long ago."""
        self._accept(host, [("cpu", ts - (LIVE_HOURS + 1) * HOUR_MS, value), ("cpu", ts, value)], 0, stored_in_ms)
        self.settle()

    def send_all(
        self, host: str, ts: int, values: Mapping[str, float], *, acceptor: int = 0, stored_in_ms: int = 0
    ) -> None:
        """Accept a message now, with a sample of each of these metrics; it is stored then or later."""
        self.accept(host, ts, values, acceptor=acceptor, stored_in_ms=stored_in_ms)
        self.settle()

    def accept(
        self, host: str, ts: int, values: Mapping[str, float], *, acceptor: int = 0, stored_in_ms: int = 0
    ) -> None:
        """Accept a message now; ``settle`` stores it, once it is due."""
        self._accept(host, [(metric, ts, value) for metric, value in values.items()], acceptor, stored_in_ms)

    def _accept(self, host: str, samples: Sequence[tuple[str, int, float]], acceptor: int, stored_in_ms: int) -> None:
        self.accepted += 1
        metrics = list(dict.fromkeys(metric for metric, _, _ in samples))
        table = SeriesTable.from_canonical([canonical(metric, {"host": host}) for metric in metrics])
        index = np.array([metrics.index(metric) for metric, _, _ in samples], np.int32)
        times, values = np.array([ts for _, ts, _ in samples]), np.array([value for _, _, value in samples])
        parsed = Parsed(table, index, times, values)
        announcer = self.acceptors[acceptor]
        envelope = announcer.stamp_message(
            app=self.app, source=host, parsed=parsed, message_id=self.accepted.to_bytes(16, "big")
        )
        self.waiting.append((self.clock.now_ms() + stored_in_ms, envelope, announcer))

    def settle(self) -> None:
        """Store what is due to be stored, in one batch."""
        now_ms = self.clock.now_ms()
        due = [each for each in self.waiting if each[0] <= now_ms]
        if due:
            self.waiting = [each for each in self.waiting if each[0] > now_ms]
            self.writer.write([envelope for _, envelope, _ in due])
        for _, envelope, announcer in due:
            announcer.confirm(envelope)

    def retract(self, from_ms: int, to_ms: int, source: str = "") -> Retraction:
        draft = Retraction(0, self.clock.now_ms(), 0, 0, _ALWAYS, from_ms, to_ms, source, (), "test", "test")
        return retractions.add(self.store, self.app, draft)

    def compact(self) -> None:
        """Run a minor run: blocks become generations."""
        Driver(self.store, self.clock).roll(LocalExecutor(self.store), [self.app], minor=True)

    def announce(self) -> None:
        for each in self.acceptors:
            each.announce()

    def judge(self) -> int:
        """Judge the lane once; returns the number of operations."""
        counts = evaluate.evaluate_due_lanes(observe=self.observe, clock=self.clock)
        assert not counts.failed
        return counts.evaluated

    def observe(self, lane: Lane) -> Sight:
        return watch.look(self.store, self.storage, lane, self.watch, self.clock)

    def end(self) -> None:
        """End all processes in order, with nothing under way."""
        assert not self.waiting
        for each in self.acceptors:
            each.close()

    def restart_judge(self) -> None:
        """Another judge takes over: nothing is remembered but the database."""
        self.watch, self.storage = watch.AppWatch(), self.new_storage()
        Lane.objects.update(lease_until_ms=0)

    def tick(self, ms: int = 2_000) -> int:
        """Let two seconds pass, then announce and judge."""
        self.clock.advance(ms)
        self.settle()
        self.announce()
        return self.judge()

    def run_quietly(self, seconds: int) -> None:
        """Let time pass in which every host sends in time."""
        for _ in range(seconds // 2):
            now_ms = self.clock.now_ms()
            if now_ms % RULE_PERIOD_MS == 0:
                for host in HOSTS:
                    self.send(host, now_ms, 50.0)
            self.tick()


def written_line(lane: Lane) -> list[tuple[object, ...]]:
    """Return what the database says now: every transition in force."""
    rows = AlertEvent.objects.filter(rule__app=lane.app_id, superseded_seq=None).exclude(seq=0)
    return sorted(
        (event.key, event.at_ms, tuple(event.before_state or ()), event.state, event.reason) for event in rows
    )


def replayed_lines(installation: Installation, lane: Lane) -> Iterator[tuple[Operation, list[tuple[object, ...]]]]:
    """Replay the lane's operations from what they kept, with a storage that remembers nothing."""
    storage = installation.new_storage()
    operations = list(Operation.objects.filter(lane=lane).order_by("seq"))
    versions = journal.versions_between(lane, 0, _ALWAYS)

    def known(operation: Operation) -> KnownSteps:
        knowledge = operation.knowledge
        if operation.kind != OperationKind.JUDGE or knowledge is None:
            return KnownSteps(operation.after_ms, operation.upto_ms, None)
        at_k = storage.known_at(storage.restore_knowledge(knowledge.vector, knowledge.retractions))
        read = open_session(lane.app_id, at_k)
        return KnownSteps(operation.after_ms, operation.upto_ms, read, operation.behind_ms)

    said = replay(versions, map(known, operations), {}, period_ms=RULE_PERIOD_MS, active_max=RULE_ACTIVE_MAX)
    for operation, each_said in zip(operations, said, strict=True):
        yield (
            operation,
            sorted(
                (
                    each.key,
                    each.at_ms,
                    tuple(journal.state_columns(each.before)),
                    each.after.phase.value,
                    each.reason or each.detail[:200],
                )
                for each in each_said.line.transitions
            ),
        )


@contextmanager
def killed_at(step: str) -> Iterator[None]:
    """Kill the judge at a step of its operation."""
    places = {
        "read": (journal, "versions_between"),
        "operation": (Operation.objects, "create"),
        "transitions": (AlertEvent.objects, "bulk_create"),
        "episodes": (Episode.objects, "bulk_create"),
    }
    with patch.object(*places[step], side_effect=Killed):
        try:
            yield
        except Killed:
            return


def drawn_history(installation: Installation, random: Random, seconds: int) -> Iterator[None]:
    """Yield after each judged tick of a history with late data, retractions, stopped pipelines and killed judges."""
    late: list[tuple[int, str, int, float]] = []
    numbers: list[int] = []
    for _ in range(seconds // 2):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in HOSTS:
                value = random.choice([50.0, 50.0, 95.0])
                if random.random() < 0.3:
                    late.append((now_ms + random.randrange(0, 600_000), host, now_ms, value))
                else:
                    delay = random.choice([0, 0, 0, 3_000, 20_000])
                    installation.send(host, now_ms, value, acceptor=random.randrange(2), stored_in_ms=delay)
        for each in [each for each in late if each[0] <= now_ms]:
            late.remove(each)
            installation.send(each[1], each[2], each[3], acceptor=random.randrange(2))
        if random.random() < 0.01:
            numbers.append(installation.retract(now_ms - random.randrange(0, 300_000), now_ms).number)
        if numbers and random.random() < 0.01:
            retractions.end(installation.store, installation.app, numbers.pop(), now_ms)
        if random.random() < 0.02:
            installation.compact()
        if random.random() < 0.03:
            with killed_at(random.choice(["read", "operation", "transitions", "episodes"])):
                installation.tick()
            installation.restart_judge()
        else:
            installation.tick()
        yield
