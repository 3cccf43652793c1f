"""A history of many rules: hosts measure, data comes late, is retracted and compacted, and judges are killed."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from spm.store.versions import retractions
from tests.alerts.knowledge_world import Installation, killed_at

HOSTS = ("a", "b", "c", "d")
SEND_MS, LATE_MAX_MS = 30_000, 600_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
JUDGE_MS = 4 * MINUTE_MS
STEPS_OF_AN_OPERATION = ("read", "operation", "transitions", "episodes")
FORMS: tuple[dict[str, Any], ...] = (
    {"expr": "cpu", "comparator": ">", "threshold": 80.0},
    {"expr": "cpu", "comparator": ">", "threshold": 70.0, "recovery": 60.0, "keep_firing_for_ms": 2 * MINUTE_MS},
    {"expr": "cpu", "comparator": ">", "threshold": 80.0, "missing": "alert", "missing_for_ms": 2 * MINUTE_MS},
    {"expr": "disk", "comparator": "<", "threshold": 20.0, "missing": "resolve"},
    {"expr": "sum(cpu)", "comparator": ">", "threshold": 230.0},
    {"expr": "avg_over_time(cpu[5m])", "comparator": ">=", "threshold": 75.0},
    {"expr": "cpu > 60 and disk < 40", "comparator": ""},
    {"expr": 'absent_over_time(disk{host="a"}[2m])', "comparator": ""},
    {"expr": "requests", "kind": "rate", "comparator": ">", "threshold": 3.0},
    {"expr": "disk", "kind": "change", "comparator": "<", "threshold": -30.0},
    {"expr": "cpu", "kind": "heartbeat", "window_ms": 2 * MINUTE_MS, "forget_ms": 20 * MINUTE_MS},
    {"expr": "disk", "kind": "forecast", "window_ms": 10 * MINUTE_MS, "comparator": "<", "threshold": 0.0},
    {"expr": "cpu", "kind": "anomaly", "comparator": ">", "threshold": 3.0},
)
COMPOSITES = ("#{0} and not #{3}", "#{1} or #{9}")


def forms(count: int, first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield rules of all kinds from a number on, each with thresholds and durations of its own."""
    for number in range(first, first + count):
        form = FORMS[number % len(FORMS)]
        wait_ms = number // len(FORMS) % 4 * MINUTE_MS
        yield {
            **form,
            "threshold": form.get("threshold", 0.0) + number // 7 % 5,
            "for_ms": wait_ms,
            "name": f"r{number}",
        }


@dataclass
class Hosts:
    """What hosts measure: hours of quiet, with excursions of some minutes."""

    random: Random
    is_busy: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(HOSTS, False))
    requests: dict[str, float] = field(default_factory=lambda: dict.fromkeys(HOSTS, 0.0))

    def measure(self, host: str) -> dict[str, float]:
        if self.random.random() < (0.1 if self.is_busy[host] else 0.01):
            self.is_busy[host] = not self.is_busy[host]
        is_busy = self.is_busy[host]
        self.requests[host] += 30.0 * (6 if is_busy else 1)
        cpu, disk = (85.0, 15.0) if is_busy else (40.0, 60.0)
        return {"cpu": cpu + self.random.randrange(10), "disk": disk, "requests": self.requests[host]}


@dataclass
class Living:
    """A history: what is under way, and how often what went wrong."""

    installation: Installation
    random: Random
    began_ms: int
    hosts: Hosts
    days: int = 0  # that have ended
    late: dict[int, list[tuple[str, int, dict[str, float]]]] = field(default_factory=lambda: defaultdict(list))
    retracted: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def begin(cls, installation: Installation, seed: int) -> "Living":
        random = Random(seed)
        return cls(installation, random, installation.clock.now_ms(), Hosts(random))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "installation": None}

    def live(self, duration_ms: int, edit: Callable[[int], None], end_day: Callable[[], None], day_ms: int) -> None:
        """Send every 30 seconds and judge every four minutes; for a minute of each six hours, every two seconds.

        At the end of each day all processes end, and begin anew after ``end_day``.
        """
        clock, hosts = self.installation.clock, self.hosts
        noon_ms, end_ms = self.began_ms + duration_ms // 2, self.began_ms + duration_ms
        while (now_ms := clock.now_ms()) < end_ms:
            if now_ms >= self.began_ms + (self.days + 1) * day_ms and not self.installation.waiting:
                self.days += 1
                self.installation.end()
                end_day()
                self.installation.start()
            if now_ms % SEND_MS == 0:
                for host in HOSTS:
                    self.send(host, now_ms, hosts.measure(host))
                self.installation.settle()
            if noon_ms <= now_ms < noon_ms + SEND_MS:
                edit(now_ms)
            is_watched = now_ms % (6 * HOUR_MS) < MINUTE_MS
            if is_watched or now_ms % JUDGE_MS == JUDGE_MS - 2_000:
                self.disturb(now_ms)
                self.judge()
            else:
                clock.advance(2_000 if now_ms % MINUTE_MS >= MINUTE_MS - 10_000 else 10_000)
                self.installation.settle()
                self.installation.announce()

    def send(self, host: str, at_ms: int, values: dict[str, float]) -> None:
        if self.random.random() < 0.3:
            self.late[at_ms + self.random.randrange(0, LATE_MAX_MS, SEND_MS)].append((host, at_ms, values))
            self.counts["late"] += 1
        elif self.random.random() < 0.99:
            stored_in_ms = self.random.choice([0, 0, 0, 3_000, 20_000])
            acceptor = self.random.randrange(2)
            self.installation.accept(host, at_ms, values, acceptor=acceptor, stored_in_ms=stored_in_ms)
        for late in self.late.pop(at_ms, ()):
            self.installation.accept(*late, acceptor=self.random.randrange(2))
        self.counts["messages"] += 1

    def disturb(self, now_ms: int) -> None:
        """Now and then retract some minutes, undo that, or compact."""
        if self.random.random() < 0.02:
            retraction = self.installation.retract(now_ms - self.random.randrange(0, 20 * MINUTE_MS), now_ms)
            self.retracted.append(retraction.number)
            self.counts["retractions"] += 1
        if self.retracted and self.random.random() < 0.02:
            number = self.retracted.pop(self.random.randrange(len(self.retracted)))
            retractions.end(self.installation.store, self.installation.app, number, now_ms)
            self.counts["undone"] += 1
        if self.random.random() < 0.1:
            self.installation.compact()
            self.counts["compactions"] += 1

    def judge(self) -> None:
        if self.random.random() < 0.97:
            self.installation.tick()
            return
        with killed_at(self.random.choice(STEPS_OF_AN_OPERATION)):
            self.installation.tick()
        self.installation.restart_judge()
        self.counts["kills"] += 1
