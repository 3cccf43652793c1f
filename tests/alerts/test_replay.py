"""Replay is live: a day of many rules, judged while data comes late, is retracted, and judges are killed.

Every operation of live judging leaves on record which transitions it added and which it mismatches to hold no longer. A
replay of the operations, each at what it knew, must add and drop the same; a difference that a later operation mends is
a difference all the same.
"""

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from alerts import journal, rulebook
from alerts.backtesting import backtests
from alerts.judging.backtest import Line
from alerts.judging.reconciliation import EpisodeStatus
from alerts.judging.versions import Steps
from alerts.models import AlertEvent, Episode, Lane, Operation
from spm import query
from spm.accounts.models import App
from spm.limits import RULE_PERIOD_MS
from spm.store.versions import retractions
from tests.alerts.conftest import AlertingWorld, draft
from tests.alerts.knowledge_world import Installation, killed_at

pytestmark = pytest.mark.django_db
HOSTS = ("a", "b", "c", "d")
SEND_MS, LATE_MAX_MS, ALWAYS = 30_000, 600_000, 1 << 60
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


def forms(count: int) -> Iterator[dict[str, Any]]:
    """Yield rules of all kinds, each with thresholds and durations of its own."""
    for number in range(count):
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
    late: dict[int, list[tuple[str, int, dict[str, float]]]] = field(default_factory=lambda: defaultdict(list))
    retracted: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def live(self, duration_ms: int, rules: int, edit: Callable[[], None]) -> None:
        """Send every 30 seconds and judge every four minutes; for a minute of each six hours, every two seconds."""
        clock, hosts = self.installation.clock, Hosts(self.random)
        end_ms, noon_ms = clock.now_ms() + duration_ms, clock.now_ms() + duration_ms // 2
        while (now_ms := clock.now_ms()) < end_ms:
            if now_ms % SEND_MS == 0:
                for host in HOSTS:
                    self.send(host, now_ms, hosts.measure(host))
            if noon_ms <= now_ms < noon_ms + SEND_MS:
                edit()
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
            self.installation.send_all(host, at_ms, values, acceptor=acceptor, stored_in_ms=stored_in_ms)
        for late in self.late.pop(at_ms, ()):
            self.installation.send_all(*late, acceptor=self.random.randrange(2))
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

    def judge(self) -> None:
        if self.random.random() < 0.97:
            self.installation.tick()
            return
        with killed_at(self.random.choice(STEPS_OF_AN_OPERATION)):
            self.installation.tick()
        self.installation.restart_judge()
        self.counts["kills"] += 1


def differences(lane: Lane, lines: Iterator[Line]) -> tuple[int, list[str], Line]:
    """Compare what each operation added and dropped; returns how many did, what differs, and the last line."""
    added, dropped = defaultdict[int, set[object]](set), defaultdict[int, set[object]](set)
    for event in AlertEvent.objects.filter(rule__app=lane.app_id).exclude(seq=0):
        added[event.seq].add(journal._content(event))
        if event.superseded_seq is not None:
            dropped[event.superseded_seq].add(journal._content(event))
    changes, mismatches, last = 0, [], Line((), {}, {})
    operations = Operation.objects.filter(lane=lane).order_by("seq")
    for operation, line in zip(operations, lines, strict=True):
        before, now = after(last, operation.after_ms), after(line, operation.after_ms)
        by_replay, by_live = (now - before, before - now), (added[operation.seq], dropped[operation.seq])
        if by_replay != by_live:
            mismatches.append(f"operation {operation.seq}: replay {by_replay}, live {by_live}")
        changes += any(by_live)
        last = line
    return changes, mismatches, last


def after(line: Line, at_ms: int) -> set[object]:
    """Return the transitions of a line after a step."""
    first = bisect_right(line.transitions, at_ms, key=lambda each: each.at_ms)
    return {journal._identity(each) for each in line.transitions[first:]}


@pytest.fixture
def installation(app: App, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> Installation:
    world.clock.advance(-world.clock.now_ms() % MINUTE_MS)
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    return installation


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        pytest.param(20, 0.1, id="20 rules for some hours"),
        pytest.param(100, 0.67, id="100 rules for sixteen hours", marks=pytest.mark.slow),
        pytest.param(
            int(os.environ.get("SPM_REPLAY_RULES", "1000")),
            float(os.environ.get("SPM_REPLAY_DAYS", "30")),
            id="as many as are asked for",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_a_replay_of_days_says_after_each_operation_what_live_judging_said(
    installation: Installation, rules: int, days: float, figure: Callable[[str], None]
) -> None:
    """``bin/test --proof replay_of_days`` lives a month with a thousand rules."""
    app, first_ms = App.objects.get(pk=installation.app), installation.clock.now_ms()
    written = [rulebook.write(app, draft(**form), by=None, now_ms=first_ms) for form in forms(rules)]
    living = Living(installation, Random(rules))
    is_edited = False

    def edit() -> None:
        """At noon some rules change, one goes, and composites come."""
        nonlocal is_edited
        if is_edited:
            return
        is_edited = True
        now_ms = installation.clock.now_ms()
        for rule, form in zip(written[:5], forms(5), strict=True):
            rulebook.change(rule, draft(**{**form, "threshold": form["threshold"] + 3}), by=None, now_ms=now_ms)
        rulebook.change(written[6], draft(**{**FORMS[6], "expr": "cpu > 65"}), by=None, now_ms=now_ms)
        rulebook.delete(written[7], by=None, now_ms=now_ms)
        for expr in COMPOSITES:
            form = {"kind": "composite", "by": ("host",), "expr": expr.format(*(rule.pk for rule in written))}
            rulebook.write(app, draft(**form), by=None, now_ms=now_ms)

    living.live(int(days * DAY_MS), rules, edit)
    lane = Lane.objects.get()
    versions = journal.versions_between(lane, 0, ALWAYS)
    steps = Steps(lane.first_ms + RULE_PERIOD_MS, lane.position_ms, RULE_PERIOD_MS)
    changes, mismatches, last = differences(lane, backtests.lines_as_live_knew(app.pk, versions, steps))
    assert mismatches == []
    assert episodes_of(last) == written_episodes()
    assert min(living.counts.values()) > 0
    assert changes > 20
    figure(
        f"{rules} rules, {days:g} days: {Operation.objects.count()} operations, {changes} with changes, "
        f"{Episode.objects.count()} episodes; {dict(living.counts)}: 0 differences"
    )


def episodes_of(line: Line) -> list[tuple[object, ...]]:
    """Return the stretches of firing that a line says."""
    return sorted((key, each.start_ms, each.end_ms, each.reason or "") for key, each in line.stretches())


def written_episodes() -> list[tuple[object, ...]]:
    """Return the episodes of live judging that are neither void nor merged."""
    rows = Episode.objects.filter(status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED))
    keys = ((row, (row.rule_id, row.fingerprint, row.aspect)) for row in rows)
    return sorted((key, row.start_ms, row.end_ms, row.end_reason) for row, key in keys)
