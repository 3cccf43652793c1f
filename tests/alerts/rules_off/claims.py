"""Short histories about one rule of judging each. Each is right, and goes wrong when its rule is switched off."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from django.contrib.auth.models import User

from alerts import journal, rulebook
from alerts.backtesting import backtests
from alerts.judging import limits
from alerts.judging.knowledge.frontier import AcceptorSight, Frontier
from alerts.judging.versions import Steps
from alerts.models import AlertEvent, Episode, Lane, Operation, Rule
from ingest.accept.announcer import StampAnnouncer
from spm.limits import RULE_PERIOD_MS as PERIOD_MS
from spm.store.versions import retractions
from tests.alerts.conftest import AlertingWorld, draft
from tests.alerts.knowledge_world import HOSTS, Installation, killed_at
from tests.alerts.replay.comparison import ALWAYS, differences

MakeRule = Callable[..., Rule]
NEWEST = "last_over_time(cpu[15s])"


def position() -> int:
    return Lane.objects.get().position_ms


def assert_replay_is_live(app: int) -> None:
    lane = Lane.objects.get()
    steps = Steps(lane.first_ms + PERIOD_MS, lane.position_ms, PERIOD_MS)
    said = backtests.said_as_live_knew(app, journal.versions_between(lane, 0, ALWAYS), steps)
    changes, mismatches, _ = differences(lane, said)
    assert mismatches == []
    assert changes > 0


def a_replay_of_a_short_history_is_live(installation: Installation, make_rule: MakeRule) -> None:
    make_rule()
    installation.run_quietly(60)
    late_ms = installation.clock.now_ms() - 30_000
    installation.send("a", late_ms, 95.0)
    installation.run_quietly(80)
    retraction = installation.retract(late_ms - 1, late_ms)
    installation.run_quietly(80)
    retractions.end(installation.store, installation.app, retraction.number, installation.clock.now_ms())
    installation.run_quietly(80)
    assert_replay_is_live(installation.app)


def a_verdict_rests_on_what_its_k_holds(installation: Installation, make_rule: MakeRule) -> None:
    """A sample that is stored and not announced yet is no part of what an operation knows."""
    make_rule()
    installation.run_quietly(60)
    for count in range(40):
        now_ms = installation.clock.now_ms()
        if now_ms % PERIOD_MS == 0:
            for host in HOSTS:
                installation.send(host, now_ms, 50.0)
        installation.clock.advance(2_000)
        installation.announce()
        installation.send(f"new-{count}", position() + PERIOD_MS, 95.0)
        installation.judge()
    assert_replay_is_live(installation.app)


def a_step_before_an_edit_keeps_its_rule(
    installation: Installation, make_rule: MakeRule, people: dict[str, User]
) -> None:
    rule = make_rule()
    installation.run_quietly(60)
    late_ms = installation.clock.now_ms() - 30_000
    rulebook.change(rule, draft(threshold=99.0), by=people["edda"], now_ms=installation.clock.now_ms())
    installation.run_quietly(40)
    installation.send("a", late_ms, 95.0)
    installation.run_quietly(80)
    assert Episode.objects.get().start_ms == late_ms


def a_crash_tears_nothing(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    before = position()
    world.machine.values = {"a": 95.0}
    with killed_at("episodes"):
        world.evaluate()
    assert (position(), Operation.objects.count(), AlertEvent.objects.count()) == (before, 0, 0)


def a_source_that_is_late_is_waited_for(installation: Installation, make_rule: MakeRule) -> None:
    """A host whose samples come eight seconds after their time is not absent."""
    installation.run_quietly(20)
    for count in range(100):
        if count == 50:
            make_rule(expr="last_over_time(cpu[5s])", missing="alert", missing_for_ms=0)
        now_ms = installation.clock.now_ms()
        if now_ms % PERIOD_MS == 0:
            for host in HOSTS[1:]:
                installation.send(host, now_ms, 50.0)
        if now_ms % PERIOD_MS == 8_000:
            installation.send("late", now_ms - 8_000, 50.0)
        installation.tick()
    assert not AlertEvent.objects.filter(aspect="missing").exists()


def a_new_acceptor_is_waited_for(installation: Installation, make_rule: MakeRule) -> None:
    """What an accepting process accepts before its first round is not passed over."""
    make_rule()
    installation.run_quietly(60)
    start_ms = installation.clock.now_ms()
    installation.acceptors.append(StampAnnouncer(installation.store, installation.clock, every_s=None))
    for host in HOSTS:
        installation.send(host, start_ms, 50.0)
    installation.send("new", start_ms, 95.0, acceptor=2, stored_in_ms=60_000)
    installation.acceptors.pop()  # its first round is slow
    for _ in range(9):
        if installation.clock.now_ms() == start_ms + PERIOD_MS:
            for host in HOSTS:
                installation.send(host, start_ms + PERIOD_MS, 50.0)
        installation.tick()
    assert position() <= start_ms


def _live_stalled(installation: Installation, seconds: int, *, is_stalled: bool) -> None:
    """Let hosts but ``b`` send; the messages of another program are accepted, and stored minutes later if stalled."""
    for _ in range(seconds // 2):
        now_ms = installation.clock.now_ms()
        if now_ms % PERIOD_MS == 0:
            for host in HOSTS:
                if host != "b":
                    installation.send(host, now_ms, 50.0)
            installation.send_all("other", now_ms, {"disk": 1.0}, stored_in_ms=100_000 if is_stalled else 0)
        installation.tick()


def a_stall_judges_no_absence(installation: Installation, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_MAX_MS", 30_000)
    make_rule(expr=NEWEST, missing="alert", missing_for_ms=0)
    installation.run_quietly(60)
    _live_stalled(installation, 90, is_stalled=True)
    assert Operation.objects.exclude(behind_ms=None).exists()
    assert not AlertEvent.objects.filter(aspect="missing").exists()


def a_stall_is_made_good(installation: Installation, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that died while the pipeline stood still is missed, though no sample of its metric comes late."""
    monkeypatch.setattr(limits, "PIPELINE_MAX_MS", 30_000)
    make_rule(expr=NEWEST, missing="alert", missing_for_ms=0)
    installation.run_quietly(60)
    died_ms = installation.clock.now_ms()
    _live_stalled(installation, 90, is_stalled=True)
    _live_stalled(installation, 150, is_stalled=False)
    assert Lane.objects.get().behind_ms is None
    episode = Episode.objects.get(aspect="missing")
    assert episode.labels["host"] == "b"
    assert episode.start_ms <= died_ms + 30_000


@dataclass
class _Acceptor:
    """An accepting process: its rounds, and the places (ms, sequence) of its messages."""

    random: Random
    skew_ms: int
    round: int = 0
    round_ms: int = 0
    accepted: list[int] = field(default_factory=list)
    taken: int | None = None  # how many messages the round under way announces
    announced: int = 0
    settled: int = 0
    stopped_until_ms: int = 0

    def act(self, now_ms: int) -> None:
        """Do one thing, or nothing: stop, accept, begin a round, end it, settle."""
        settleable = self.announced - self.settled
        if settleable and self.random.random() < 0.5:  # workers do this, also for a process that stopped
            self.settled += self.random.randint(0, settleable)
        if now_ms < self.stopped_until_ms:
            return
        choice = self.random.random()
        if choice < 0.01:
            self.stopped_until_ms = now_ms + self.random.choice([5_000, 21_000, 30_000, 1 << 60])
        elif choice < 0.4 and now_ms - self.round_ms < 10_000:
            self.accepted.append(now_ms)
        elif self.taken is None:
            self.taken = len(self.accepted)
        else:
            self.announced, self.taken = self.taken, None
            self.round, self.round_ms = self.round + 1, now_ms

    def place(self, count: int) -> tuple[int, int]:
        return (self.accepted[count - 1], count) if count else (0, 0)


def all_up_to_the_frontier_is_known() -> None:
    """What a process that is alive accepted up to F is settled, and of a gone one what it announced."""
    for seed in range(150):
        _look_for_a_minute(Random(seed))


def _look_for_a_minute(random: Random) -> None:
    acceptors = [_Acceptor(random, random.choice([0, -3_600_000, 3_600_000])) for _ in range(2)]
    frontier, passed_ms, changed = Frontier(), 0, dict[int, tuple[int, int]]()
    for now_ms in range(1_000_000, 1_100_000, 500):
        for each in acceptors:
            each.act(now_ms)
        if now_ms % 2_000:
            continue
        rounds = [each.round for each in acceptors]
        for each in acceptors:  # between the read of the rounds and that of the watermarks
            each.act(now_ms)
        sights = {
            number: AcceptorSight(
                rounds[number],
                now_ms + each.skew_ms,
                announced=each.place(each.announced) if each.announced else None,
                settled=each.place(each.settled),
            )
            for number, each in enumerate(acceptors)
        }
        found_ms = frontier.look(now_ms, sights)
        for number, each in enumerate(acceptors):
            if changed.get(number, (-1, 0))[0] != rounds[number]:
                changed[number] = rounds[number], now_ms
            is_gone = now_ms - changed[number][1] >= limits.ACCEPTOR_SILENT_MS
            by_then = sum(at_ms <= found_ms for at_ms in each.accepted)
            needed = min(by_then, each.announced) if is_gone else by_then
            assert found_ms == passed_ms or each.settled >= needed
        passed_ms = found_ms
