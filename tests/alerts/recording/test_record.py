"""What recording rules and alerts write: values, labels, stale markers, order, repetition, and what fails."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from alerts import evaluate
from alerts.expressions import evaluator_of
from alerts.judging.answers import Answer
from alerts.judging.automaton import OK, Timing, step
from alerts.judging.automaton import Input as In
from alerts.judging.instances.keys import InstanceKey
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_plan import Decision, News, Operation, OperationKind
from alerts.judging.versions import Steps
from alerts.models import Instance, Lane, RecordingRule, SeriesLane
from alerts.recording.alert_samples import series_of, stretches
from alerts.recording.lane import SeriesWriter, record_app, write_alerts, write_due_series
from alerts.recording.record import STALE, RecordedRule, reads_metric, record
from alerts.rulefiles.apply import Author, import_files
from ingest.accept.identity import Sender
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.query.fake import FakeStorage
from spm.wire import Parsed, parse_canonical
from tests.alerts.conftest import PERIOD_MS, START_MS

NAN = float("nan")


@dataclass(slots=True)
class Inbox:
    """An acceptance that keeps what it accepts, and writes it into the storage that rules read."""

    storage: FakeStorage
    messages: list[tuple[bytes, dict[str, list[tuple[int, float]]]]] = field(default_factory=list)
    failing: bool = False

    def accept(self, parsed: Parsed, *, sender: Sender, message_id: bytes) -> Parsed:
        if self.failing:
            raise StoreUnavailable("away")
        content: dict[str, list[tuple[int, float]]] = {}
        for index, at_ms, value in zip(parsed.series_index, parsed.ts, parsed.values, strict=True):
            metric, labels = parse_canonical(parsed.series.canonical(int(index)))
            text = ",".join([metric, *(f"{name}={each}" for name, each in sorted(labels.items()))])
            content.setdefault(text, []).append((int(at_ms), float(value)))
            self.storage.add(metric, labels, [int(at_ms)], np.array([value]))
        self.messages.append((message_id, content))
        return parsed

    def samples(self) -> dict[str, dict[int, float]]:
        """All samples by series, a step after another."""
        result: dict[str, dict[int, float]] = {}
        for _, content in self.messages:
            for series, points in content.items():
                result.setdefault(series, {}).update({(at - START_MS) // PERIOD_MS: value for at, value in points})
        return result


def is_stale(value: float) -> bool:
    return bool(np.array([value]).view(np.uint64)[0] == np.array([STALE]).view(np.uint64)[0])


@pytest.fixture
def storage() -> FakeStorage:
    times = [START_MS + n * PERIOD_MS for n in range(-2, 20)]
    storage = FakeStorage()
    storage.add("cpu", {"host": "a"}, times, np.arange(-2.0, 20.0))
    ending = [STALE if n >= 4 else 10.0 for n in range(-2, 20)]
    return storage.add("cpu", {"host": "b"}, times[:7], np.array(ending[:7]))


@pytest.fixture
def inbox(storage: FakeStorage) -> Inbox:
    return Inbox(storage)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS + PERIOD_MS)


@pytest.fixture
def writer(storage: FakeStorage, inbox: Inbox, clock: FakeClock) -> SeriesWriter:
    return SeriesWriter(lambda _: storage, lambda: inbox, clock)  # type: ignore[arg-type,return-value]  # what it needs


def bring(app: App, *rules: str, options: str = "") -> None:
    """Import recording rules, given as "name: expression"."""
    lines = "".join(f"\n  - record: {rule.split(': ')[0]}\n    expr: {rule.split(': ')[1]}" for rule in rules)
    text = f"groups:\n- name: g\n{options}  rules:{lines}"
    import_files(app, {"r.yml": text}, by=Author(), now_ms=START_MS)


def go_on(writer: SeriesWriter, clock: FakeClock, steps: int) -> None:
    """Let a worker come by at each of the next steps."""
    for _ in range(steps):
        write_due_series(writer, record_app)
        clock.advance(PERIOD_MS)


def test_a_rule_records_its_answer_under_its_name_and_labels(storage: FakeStorage) -> None:
    def read(expr: str, steps: Steps) -> Any:
        return evaluator_of(storage)(expr, steps)

    rule = RecordedRule("job:cpu", "cpu", {"team": "x", "host": ""})
    samples = record(RecordedRule("c", "cpu", {"team": "x"}), Steps(START_MS, START_MS + 60_000, PERIOD_MS), read)
    assert dict(samples.labels[0]) == {"__name__": "c", "host": "a", "team": "x"}
    assert samples.values[0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert samples.written[1].tolist() == [True] * 5 + [False] * 2
    assert [is_stale(value) for value in samples.values[1, :5]] == [False] * 4 + [True]
    joined = record(rule, Steps(START_MS, START_MS, PERIOD_MS), read)
    assert joined.errors == {0: "vector contains metrics with the same labelset after applying rule labels"}
    assert not joined.written.any()


def test_a_limit_stops_a_rule_and_says_by_how_much(storage: FakeStorage) -> None:
    read = evaluator_of(storage)
    samples = record(RecordedRule("c", "cpu", limit=1), Steps(START_MS, START_MS + 60_000, PERIOD_MS), read)
    assert samples.errors[0] == "exceeded limit of 1 with 2 series"
    assert samples.written[0].tolist() == [False] * 4 + [True] * 3


@pytest.mark.parametrize(
    ("expr", "reads"),
    [("a + b", True), ("rate(a[5m])", True), ('{__name__=~"a|x"}', True), ("b", False), ("ab", False), ("1", False)],
)
def test_what_a_rule_reads_is_known_from_its_expression(expr: str, reads: bool) -> None:
    assert reads_metric(expr, ["a"]) is reads


@pytest.mark.django_db
def test_rules_are_recorded_at_each_step_a_period_after_it(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "total: sum(cpu)", "twice: total * 2")
    go_on(writer, clock, 6)
    samples = inbox.samples()
    assert samples["total"] == {0: 10.0, 1: 11.0, 2: 12.0, 3: 13.0, 4: 4.0, 5: 5.0}
    assert samples["twice"] == {at: 2 * value for at, value in samples["total"].items()}


@pytest.mark.django_db
def test_a_stall_is_made_up_for_with_the_same_samples(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "total: sum(cpu)", "twice: total * 2", "count: (count offset 10s or vector(0)) + 1")
    go_on(writer, clock, 1)
    clock.advance(4 * PERIOD_MS)
    write_due_series(writer, record_app)
    samples = inbox.samples()
    assert samples["total"] == {0: 10.0, 1: 11.0, 2: 12.0, 3: 13.0, 4: 4.0, 5: 5.0}
    assert samples["twice"] == {at: 2 * value for at, value in samples["total"].items()}
    assert samples["count"] == {at: at + 1.0 for at in range(6)}


@pytest.mark.django_db
def test_a_worker_that_ended_before_the_position_moved_is_repeated_under_the_same_ids(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "total: sum(cpu)")
    write_due_series(writer, record_app)
    SeriesLane.objects.update(recorded_ms=START_MS - PERIOD_MS)
    write_due_series(writer, record_app)
    [first, second] = inbox.messages
    assert first == second


@pytest.mark.django_db
def test_nothing_is_passed_over_while_the_store_is_away(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "total: sum(cpu)")
    inbox.failing = True
    go_on(writer, clock, 3)
    inbox.failing = False
    go_on(writer, clock, 1)
    assert inbox.samples()["total"] == {0: 10.0, 1: 11.0, 2: 12.0, 3: 13.0}


@pytest.mark.django_db
def test_a_queue_that_cannot_be_opened_keeps_nobody_from_judging(
    app: App, storage: FakeStorage, clock: FakeClock
) -> None:
    def away() -> Any:
        raise QueueUnavailable("away")

    bring(app, "total: sum(cpu)")
    assert write_due_series(SeriesWriter(lambda _: storage, away, clock), record_app) == 0
    assert SeriesLane.objects.get().lease_until_ms == 0


@pytest.mark.django_db
def test_a_group_is_recorded_at_multiples_of_its_interval(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "total: sum(cpu)", options="  interval: 25s\n")
    go_on(writer, clock, 8)
    times = [START_MS + at * PERIOD_MS for at in inbox.samples()["total"]]
    assert len(times) >= 2
    assert [time % 30_000 for time in times] == [0] * len(times)


@pytest.mark.django_db
def test_a_rule_that_fails_says_so_until_it_works_again(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock
) -> None:
    bring(app, "both: cpu * on() cpu", "total: sum(cpu)")
    go_on(writer, clock, 2)
    assert "many-to-many" in RecordingRule.objects.get(name="both").error
    assert inbox.samples()["total"] == {0: 10.0, 1: 11.0}
    go_on(writer, clock, 4)
    assert RecordingRule.objects.get(name="both").error == ""
    assert inbox.samples()["both"] == {4: 16.0, 5: 25.0}


KEY = InstanceKey(1, "f", "value")
TIMING = Timing(for_ms=20_000, keep_firing_for_ms=10_000)


def test_alerts_have_the_series_of_prometheus_in_each_phase() -> None:
    steps, state, changes = Steps(START_MS, START_MS + 90_000, PERIOD_MS), OK, []
    for index, given in enumerate([In.WELL, *[In.VIOLATED] * 4, *[In.WELL] * 5]):
        after = step(TIMING, state, given, steps.at_ms(index))
        if after != state:
            changes.append((KEY, steps.at_ms(index), after))
        state = after
    parts = series_of(stretches({}, changes, steps), {"alertname": "A", "host": "a"}, len(steps))
    shown = [(each.labels["__name__"], each.labels.get("alertstate"), each.first, each.count) for each in parts]
    assert [row for row, part in zip(shown, parts, strict=True) if not is_stale(part.value)] == [
        ("ALERTS", "pending", 1, 2),
        ("ALERTS_FOR_STATE", None, 1, 2),
        ("ALERTS", "firing", 3, 2),
        ("ALERTS_FOR_STATE", None, 3, 2),
        ("ALERTS", "firing", 5, 1),
        ("ALERTS_FOR_STATE", None, 5, 1),
    ]
    assert [row for row, part in zip(shown, parts, strict=True) if is_stale(part.value)] == [
        ("ALERTS", "pending", 3, 1),
        ("ALERTS", "firing", 6, 1),
        ("ALERTS_FOR_STATE", None, 6, 1),
    ]
    assert {part.value for part in parts if part.labels["__name__"] == "ALERTS_FOR_STATE" and part.value > 0} == {
        (START_MS + PERIOD_MS) / 1000
    }


@pytest.mark.django_db
@pytest.mark.parametrize("often", [1, 3, 20], ids=["at each step", "at every third", "at once"])
def test_alerts_are_written_alike_however_often_a_worker_comes(
    app: App, writer: SeriesWriter, inbox: Inbox, clock: FakeClock, make_rule: Any, world: Any, often: int
) -> None:
    world.clock, inbox.storage = clock, FakeStorage()
    make_rule(for_ms=20_000, keep_firing_for_ms=10_000, missing="resolve", labels={"team": "x"})
    write_due_series(writer, write_alerts)
    for number, value in enumerate([10, 95, 95, 95, 95, 10, 95, 10, 10, 10, 95, 10], 1):
        world.evaluate_values(value)
        if number % often == 0 or number == 12:
            write_due_series(writer, write_alerts)
    samples = inbox.samples()
    name = "alertname=CPU is busy"
    tail = "host=a,severity=warning,team=x"
    values = {
        series: {at: "stale" if is_stale(value) else value for at, value in points.items()}
        for series, points in samples.items()
    }
    pending = values[f"ALERTS,{name},alertstate=pending,{tail}"]
    firing = values[f"ALERTS,{name},alertstate=firing,{tail}"]
    first = min(pending)
    assert {at - first: value for at, value in pending.items()} == {0: 1, 1: 1, 2: "stale", 9: 1, 10: "stale"}
    assert {at - first: value for at, value in firing.items()} == {2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: "stale"}


def judge_again(app: App, clock: FakeClock, value: float, *, after: int) -> None:
    """Judge the last steps again with another value, as late data makes it: those after the given step."""
    lane = Lane.objects.get(app=app)
    after_ms, now_ms = lane.position_ms - after * PERIOD_MS, clock.now_ms()

    def read(expr: str, steps: Steps) -> Answer:
        values = np.full((1, len(steps)), value)
        return Answer([{"__name__": "cpu", "host": "a"}], values, np.ones(values.shape, np.bool_))

    plan = Operation(OperationKind.JUDGE, after_ms, lane.position_ms, behind_ms=None)
    decision = Decision(plan, news=News(after_ms + 1, None))
    assert evaluate.judge(lane, decision, Sight(read, now_ms, now_ms, now_ms), now_ms=now_ms)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("for_ms", "late", "after", "ended"),
    [
        (0, 10.0, 2, {"firing", "for state"}),  # it was over while it was written as firing
        (0, 10.0, 9, {"firing", "for state"}),  # it never was
        (20_000, 10.0, 2, {"firing", "for state"}),
        (0, 95.0, 2, set()),  # nothing changed
    ],
    ids=["over earlier", "never there", "over earlier, after a wait", "no change"],
)
def test_series_of_alerts_that_late_data_takes_back_end_at_the_next_step(
    app: App,
    writer: SeriesWriter,
    inbox: Inbox,
    clock: FakeClock,
    make_rule: Any,
    world: Any,
    for_ms: int,
    late: float,
    after: int,
    ended: set[str],
) -> None:
    world.clock, inbox.storage = clock, FakeStorage()
    make_rule(for_ms=for_ms)
    write_due_series(writer, write_alerts)
    world.evaluate_values(10, 10, *[95] * 6)
    write_due_series(writer, write_alerts)
    inbox.messages.clear()
    judge_again(app, clock, late, after=after)
    for _ in range(2):
        world.evaluate_values(late)
        write_due_series(writer, write_alerts)
    short = {
        "ALERTS,alertname=CPU is busy,alertstate=firing": "firing",
        "ALERTS_FOR_STATE,alertname=CPU is busy": "for state",
    }
    samples = {short[name.partition(",host")[0]]: points for name, points in inbox.samples().items()}
    stale = {name: [at for at, value in points.items() if is_stale(value)] for name, points in samples.items()}
    first = 1 + (Lane.objects.get(app=app).position_ms - START_MS) // PERIOD_MS - 2
    assert {name: at for name, at in stale.items() if at} == {name: [first] for name in ended}


@pytest.mark.django_db
def test_nothing_is_written_while_nothing_alerts(app: App, writer: SeriesWriter, inbox: Inbox, make_rule: Any) -> None:
    make_rule()
    Lane.objects.filter(app=app).update(position_ms=START_MS + 10 * PERIOD_MS)
    write_due_series(writer, write_alerts)
    assert inbox.messages == []
    assert not Instance.objects.exists()
