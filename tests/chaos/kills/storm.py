"""Kills: which process dies when, and who starts it again; and the check of what is left when the storm is over.

A ``Storm`` has the whole line on an HBase cluster. ``kill_workers`` and ``kill_in_turn`` are what a test lets run while
agents send; ``kill_at_random`` kills whatever is up, at a beat. ``judge`` runs the ledger over everything.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spm.clock import random_u64
from tests.chaos.line.checker import Recount, Sent, violations_in_parts, wrong_hours
from tests.chaos.line.thin_line import APP, ROOT, Line
from tests.servers.java.cluster import REGIONS, Cluster
from tests.servers.processes import Process, wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import RECENT_MS
from tests.support.stored import copies, reader, samples

START_MS = RECENT_MS - 50_000  # the messages cross an hour
READY_S = 120
WATCH_S = 2
JUDGE_S = 3_600  # for the last run of a proof
PART = 2_000  # messages of one part of the check: some hundred MB
WORKER_LIVES_S = (0.5, 2.0, 4.0, 3.0)  # once they are ready; queues are theirs after a second or two
OPTIONS = "?partitions=4&calm=32"  # every worker has its share, so that every kill hits one that holds messages
Turn = tuple[str, Callable[[], object], Callable[[], object]]  # name, kill, start


@dataclass(slots=True)
class Storm:
    """The stack, and what was done to it."""

    line: Line
    cluster: Cluster
    rabbitmq: RabbitMQ
    kills: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)

    def watched(self, act: Callable[[], None]) -> threading.Thread:
        """A thread whose failure is the test's."""

        def run() -> None:
            try:
                act()
            except BaseException as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def joined(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for them; raises what one of them has failed with."""
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def watch_kept(self) -> Iterator[None]:
        """Meanwhile somebody starts what ends without being killed, as a cluster's own supervisor would.

        On a machine that is short of CPU a server that loses its session for two seconds gives up by itself.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(WATCH_S):
                with self.starting:
                    self.cluster.start_missing()

        watcher = self.watched(watch)
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _start_region(self, name: str) -> None:
        with self.starting:
            self.cluster.start_region(name)

    def kill_workers(self, kills: int) -> None:
        """One worker after the other, each some time after it is ready; another one starts at once."""
        working = [self.line.start_worker(), self.line.start_worker()]
        while self.kills["worker"] < kills and self.failure is None:
            victim = working.pop(0)
            assert wait_until(lambda worker=victim: consumes(worker), READY_S), victim.log.read_text()[-2000:]  # type: ignore[misc]
            time.sleep(WORKER_LIVES_S[self.kills["worker"] % len(WORKER_LIVES_S)])
            victim.kill()
            self.kills["worker"] += 1
            working.append(self.line.start_worker())

    def kill_in_turn(self, names: Sequence[str], rounds: int, pause_s: float = 1) -> None:
        """Each of these in turn, back before the next one goes."""
        for number in range(rounds):
            for name, kill, start in (self.turn(name, number) for name in names):
                if self.failure is not None:
                    return
                time.sleep(pause_s)
                kill()
                self.kills[name] += 1
                start()
            print(f"  {dict(self.kills)}", flush=True)

    def kill_at_random(self, names: Sequence[str], every_s: float, seconds: float) -> None:
        """At every beat one of ``names`` that is up, more often if it is named more often; started beside the beat."""
        begun = time.monotonic()
        starting: dict[str, Future[object]] = {}
        with ThreadPoolExecutor(len(set(names))) as starters:
            while (at := time.monotonic() - begun) < seconds and self.failure is None:
                for name in [name for name, start in starting.items() if start.done()]:
                    starting.pop(name).result()
                if up := [name for name in names if name not in starting and self._is_there(name)]:
                    name = up[random_u64() % len(up)]
                    _, kill, start = self.turn(name, self.kills[name])
                    kill()
                    self.kills[name] += 1
                    starting[name] = starters.submit(start)
                if sum(self.kills.values()) % 20 == 0:
                    print(f"  {at:,.0f} of {seconds:,.0f} s: {dict(self.kills)}", flush=True)
                time.sleep(max(0.0, every_s - (time.monotonic() - begun - at)))

    def _is_there(self, name: str) -> bool:
        return name != "run" or Process("roll", self.line.folder).alive()

    def turn(self, name: str, number: int) -> Turn:
        """How the process of this name is killed, and started again."""
        region, cluster, line = REGIONS[number % len(REGIONS)], self.cluster, self.line
        if name == "worker":
            return name, self._oldest_worker().kill, lambda: consumes_soon(line.start_worker())
        return {
            "rabbitmq": (name, self.rabbitmq.kill, self.rabbitmq.start),
            "thrift": (name, cluster.process("thrift").kill, cluster.start_gateway),
            "region server": (name, cluster.process(region).kill, lambda: self._start_region(region)),
            "web": (name, line.web.kill_all, line.start_web),
            "run": (name, Process("roll", line.folder).kill_all, lambda: None),
        }[name]

    def _oldest_worker(self) -> Process:
        living = [w for n in range(1, self.line.workers + 1) if (w := self.line.worker(n)).alive()]
        return living[0] if living else self.line.start_worker()

    def roll_again_and_again(self, over: Callable[[], bool], spark_every: int, pause_s: float = 5) -> None:
        """One run after the other, killed or not, until it is ``over``; now and then one on Spark."""
        number = 0
        while not over() and self.failure is None:
            where = [] if number % spark_every == spark_every - 1 else ["--local"]
            self.line.fork(Process("roll", self.line.folder), ["manage.py", "roll", *where, *_FOR_APP], ROOT)
            wait_until(lambda: over() or not Process("roll", self.line.folder).alive(), READY_S)
            number += 1
            time.sleep(pause_s)
        Process("roll", self.line.folder).kill_all()

    def judge(self, log: Sequence[Sent]) -> list[str]:
        """Whatever is wrong after a last run: with the ledger of what was sent, then with the hours."""
        self.line.manage("roll", "--local", *_FOR_APP, timeout_s=JUDGE_S)
        backend, recount = self.line.backend, Recount()
        storage = reader(backend, APP)
        violations = violations_in_parts(
            log, lambda a, b: samples(backend, a, b, app=APP, storage=storage), copies(backend, APP), PART, recount
        )
        return [*violations, *wrong_hours(reader(backend, APP), recount)]


_FOR_APP = ("--app", str(APP), "--now", str(START_MS + 86_400_000))


def consumes(worker: Process) -> bool:
    """Whether a worker has begun."""
    return worker.log.exists() and " ready." in worker.log.read_text(errors="replace")


def consumes_soon(worker: Process) -> None:
    """Wait until a worker has begun, or was killed meanwhile."""
    assert wait_until(lambda: consumes(worker) or not worker.alive(), READY_S), worker.log.read_text()[-2000:]


@contextmanager
def storm_on(folder: Path, cluster: Cluster, rabbitmq: RabbitMQ, *, cut: bool = False) -> Iterator[Storm]:
    """The whole line on a cluster, with tables and queues of its own; tables may be cut at every shard beforehand."""
    if cut:
        cluster.make_tables(folder.name, ["series", "log", "pending", "ledger", "chunks", "manifest"])
    line = Line(folder, f"{cluster.url}/{folder.name}", rabbitmq.new_vhost(folder.name) + OPTIONS)
    try:
        storm = Storm(line, cluster, rabbitmq)
        with storm.watch_kept():
            yield storm
    finally:
        line.close()
