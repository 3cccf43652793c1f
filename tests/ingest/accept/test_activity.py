"""What people see of messages: as if each message had written it at once, and a few statements a second do it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.accept import activity, descriptions, rejections
from ingest.accept.activity import ActivityRecorder
from ingest.accept.identity import Sender
from ingest.exemplars.limits import EXEMPLARS_WAITING_APP_MAX
from ingest.models import Arrival, MetricDescription, RejectedLine, StoredExemplar
from spm import limits
from spm.accounts import sources
from spm.accounts.models import App, Organisation, Source
from spm.accounts.note_writer import NoteWriter
from spm.clock import FakeClock
from spm.errors import BadMessage
from spm.wire import Exemplar, Metadata, Parsed, Rejection, SeriesTable, canonical

NOW = 1_700_000_000_000
TABLE = SeriesTable.from_canonical([canonical("m", {})])


def message(
    samples: int = 1,
    rejected: Sequence[Rejection] = (),
    metadata: Sequence[Metadata] = (),
    exemplars: Sequence[Exemplar] = (),
) -> Parsed:
    """A parsed body."""
    index, ts, values = np.zeros(samples, np.int32), np.zeros(samples, np.int64), np.zeros(samples)
    notes = tuple(rejected), len(rejected), tuple(metadata)
    return Parsed(TABLE, index, ts, values, 0, *notes, exemplars=tuple(exemplars))


class Waiting(NoteWriter):
    """A writer without a thread, which counts how often it was woken."""

    wakes = 0

    def wake(self) -> None:
        self.wakes += 1


@dataclass(slots=True)
class Desk:
    """A recorder with its writer."""

    writer: Waiting = field(default_factory=lambda: Waiting(FakeClock()))
    recorder: ActivityRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = ActivityRecorder(self.writer)

    def record(self, app: int, source: str = "a", now_ms: int = NOW, *, way: str = "json", **parts: Any) -> None:
        stamp_ms = parts.pop("stamp_ms", None)
        self.recorder.record_accepted(message(**parts), Sender(app, source, way), now_ms, stamp_ms)

    def waiting(self) -> dict[str, int]:
        return {queue.kind: len(queue) for queue, _ in self.writer._queues if len(queue)}


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def app(db: None) -> int:
    return App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop").pk


def other_app(app: int) -> int:
    return App.objects.create(organisation=App.objects.get(pk=app).organisation, name="Other").pk


# The rules, one by one


def test_a_message_leaves_its_source_and_its_way(desk: Desk, app: int) -> None:
    desk.record(app, "web-1")
    assert (Source.objects.count(), desk.writer.wakes) == (0, 1)
    assert desk.writer.flush()
    assert Source.objects.get().name == "web-1"
    assert [(each.way, each.source) for each in Arrival.objects.all()] == [("json", "web-1")]


def test_a_message_with_nothing_new_leaves_nothing_and_wakes_nobody(desk: Desk, app: int) -> None:
    described = [Metadata("up", "gauge", "", "")]
    desk.record(app, metadata=described)
    desk.writer.flush()
    for later_ms in (0, limits.SOURCE_SEEN_EVERY_MS - 1):
        desk.record(app, "a", NOW + later_ms, metadata=described)
    assert (desk.waiting(), desk.writer.wakes) == ({}, 1)
    desk.record(app, "a", NOW + limits.SOURCE_SEEN_EVERY_MS)
    assert (desk.waiting(), desk.writer.wakes) == ({"arrivals": 1, "sources": 1}, 2)


@pytest.mark.parametrize(
    ("source", "way", "samples", "waiting"),
    [
        (sources.SYSTEM_SOURCE, "", 1, {}),
        ("a", "", 1, {"sources": 1}),
        ("a", "json", 0, {}),
    ],
    ids=["of the system itself", "without a way", "without a sample"],
)
def test_a_message_that_is_no_arrival_of_a_source_leaves_none(
    desk: Desk, source: str, way: str, samples: int, waiting: dict[str, int]
) -> None:
    for _ in range(2):
        desk.record(1, source, way=way, samples=samples)
    assert desk.waiting() == waiting


def test_a_rejected_body_is_one_rejection(desk: Desk, app: int) -> None:
    desk.recorder.record_rejected_body(BadMessage("no JSON", got="x"), Sender(app, "a", "json"), NOW)
    desk.writer.flush()
    row = RejectedLine.objects.get()
    assert (row.source, row.way, row.line, row.time_ms) == ("a", "json", 0, NOW)
    assert "no JSON" in row.reason


def test_exemplars_are_written_with_the_stamp_and_the_source_of_their_message(desk: Desk, app: int) -> None:
    first, second = (Exemplar(canonical("m", {}), NOW, value, ()) for value in (1.0, 2.0))
    desk.record(app, "a", exemplars=[first], stamp_ms=NOW - 7)
    desk.record(app, "b", exemplars=[second], samples=0)
    assert (StoredExemplar.objects.count(), desk.waiting()["exemplars"]) == (0, 2)
    desk.writer.flush()
    rows = StoredExemplar.objects.order_by("stamp_ms").values_list("source", "stamp_ms", "metric")
    assert list(rows) == [("a", NOW - 7, "m"), ("b", NOW, "m")]


def test_of_a_flood_of_exemplars_the_newest_wait_and_the_others_are_counted(desk: Desk, app: int) -> None:
    many = [Exemplar(b"", NOW, float(n), ()) for n in range(EXEMPLARS_WAITING_APP_MAX + 3)]
    desk.record(app, exemplars=many)
    [queue] = [queue for queue, _ in desk.writer._queues if queue.kind == "exemplars"]
    waiting = queue.take(len(many))[app]
    assert list(waiting) == many[3:]


def test_a_broken_sender_is_throttled_and_the_others_are_not(desk: Desk, app: int) -> None:
    other = other_app(app)
    for number in range(limits.REJECTION_NOTES_MAX + 5):
        desk.record(app, rejected=[Rejection(number, "r", "")])
    for later_ms in (0, limits.REJECTION_NOTES_PER_MS):
        desk.record(app if later_ms else other, "a", NOW + later_ms, rejected=[Rejection(99, "r", "")])
    desk.writer.flush()
    lines = RejectedLine.objects.order_by("id").values_list("app", "line")
    assert list(lines) == [*((app, number) for number in (*range(limits.REJECTION_NOTES_MAX), 99)), (other, 99)]


def test_texts_that_a_database_refuses_are_made_fit(desk: Desk, app: int) -> None:
    desk.record(app, rejected=[Rejection(1, "r\0" * 400, "e\0" * 400)], metadata=[Metadata("m" * 300, "", "", "")])
    desk.writer.flush()
    row = RejectedLine.objects.get()
    assert (len(row.reason), len(row.example)) == (300, limits.REJECTION_EXAMPLE_CHARS_MAX)
    assert not MetricDescription.objects.exists()


def test_an_app_that_always_has_news_is_throttled_and_heard_in_the_end(desk: Desk, app: int) -> None:
    for number in range(limits.REJECTION_NOTES_MAX + 5):
        desk.record(app, metadata=[Metadata("up", "gauge", f"Word {number}.", "")])
    desk.writer.flush()
    assert descriptions.of_app(app)["up"].help == f"Word {limits.REJECTION_NOTES_MAX - 1}."
    up = Metadata("up", "gauge", "Whether it is up.", "")
    desk.record(app, "a", NOW + limits.REJECTION_NOTES_PER_MS, metadata=[up])
    desk.writer.flush()
    assert descriptions.of_app(app) == {"up": up}


# A model of what direct writes would leave, message by message


@dataclass(slots=True)
class DirectWrites:
    """The rows that each message would write by itself."""

    sources: dict[tuple[int, str], dict[str, int | None]] = field(default_factory=dict)
    ways: dict[tuple[int, str], tuple[int, int, str]] = field(default_factory=dict)
    rings: dict[int, list[tuple[int, str, int]]] = field(default_factory=dict)
    metrics: dict[int, dict[str, Metadata]] = field(default_factory=dict)
    newest: dict[tuple[int, str], Metadata] = field(default_factory=dict)
    written: dict[tuple[str, int, str], int] = field(default_factory=dict)
    writes: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def accept(self, parsed: Parsed, sender: Sender, now: int) -> None:
        app = sender.app_id
        if len(parsed.ts) and self.is_due("source", app, sender.source, now):
            self.see(self.sources.setdefault((app, sender.source), {}), sender.period_ms, now)
        if len(parsed.ts) and self.is_due("way", app, sender.way, now):
            first, last, source = self.ways.get((app, sender.way), (now, -1, ""))
            self.ways[app, sender.way] = (first, *((now, sender.source) if last < now else (last, source)))
        if parsed.rejections and self.may_write("rejections", app, now):
            lines = [(now, sender.source, one.line) for one in parsed.rejections]
            self.rings[app] = (self.rings.get(app, []) + lines)[-RING:]
        known = self.metrics.setdefault(app, {})
        news = {one.metric: one for one in parsed.metadata if self.newest.get((app, one.metric)) != one}
        if news and self.may_write("descriptions", app, now):
            for metric, one in news.items():
                self.newest[app, metric] = one
                if metric in known or len(known) < METRICS:
                    known[metric] = one

    def see(self, row: dict[str, int | None], period: int, now: int) -> None:
        """One sighting of a source."""
        last = row.get("last")
        if last is None:
            row.update(first=now, last=now, period=None, since=None, before=None)
        elif last < now:
            row["last"] = now
        elif last > now + limits.SOURCE_GONE_AFTER_MS:  # our own clock was ahead
            row["last"] = now
            row.update({name: now for name in ("first", "since") if (row[name] or 0) > now})
        if period and row["period"] != period:
            row.update(before=row["period"], period=period, since=now)

    def is_due(self, kind: str, app: int, name: str, now: int) -> bool:
        before = self.written.get((kind, app, name))
        if before is not None and 0 <= now - before < limits.SOURCE_SEEN_EVERY_MS:
            return False
        self.written[kind, app, name] = now
        return True

    def may_write(self, kind: str, app: int, now: int) -> bool:
        interval = now // limits.REJECTION_NOTES_PER_MS
        last, count = self.writes.get((kind, app), (interval, 0))
        self.writes[kind, app] = (interval, count + 1 if last == interval else 1)
        return self.writes[kind, app][1] <= limits.REJECTION_NOTES_MAX


RING, METRICS = 4, 3  # of an app, in these tests


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bounds, which a few messages reach."""
    for module in (activity, rejections):
        monkeypatch.setattr(module, "REJECTIONS_KEPT_MAX", RING)
    monkeypatch.setattr(descriptions, "METADATA_APP_MAX", METRICS)
    for name in ("REJECTION_NOTES_MAX", "SOURCE_NOTES_MAX"):
        monkeypatch.setattr(limits, name, 3 if name == "REJECTION_NOTES_MAX" else 10_000)
    monkeypatch.setattr(activity, "REJECTION_NOTES_MAX", 3)
    monkeypatch.setattr(sources, "SOURCE_NOTES_MAX", 10_000)
    monkeypatch.setattr(limits, "NOTES_ROUND_MAX", 3)


def ms(at: Any) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def rows_of_database() -> tuple[Any, ...]:
    """All rows, as the model holds them."""
    seen = {
        (row.app_id, row.name): {
            "first": ms(row.first_seen),
            "last": ms(row.last_seen),
            "period": row.period_ms,
            "since": ms(row.period_since),
            "before": row.period_before_ms,
        }
        for row in Source.objects.all()
    }
    ways = {(row.app_id, row.way): (ms(row.first_seen), ms(row.last_seen), row.source) for row in Arrival.objects.all()}
    rings: dict[int, list[tuple[int, str, int]]] = {}
    for row in RejectedLine.objects.order_by("id"):
        rings.setdefault(row.app_id, []).append((row.time_ms, row.source, row.line))
    described = {app: names for app in App.objects.values_list("pk", flat=True) if (names := descriptions.of_app(app))}
    return seen, ways, rings, described


STEPS = st.tuples(
    st.sampled_from(
        [0, 0, 0, 0, 1, 1, 500, 500, 9_000, 29_999, 30_000, 70_000, 90_000_000, -1, -40_000, -1_000_000, -90_000_000]
    ),
    st.integers(0, 1),  # the app
    st.sampled_from("ab"),  # the source
    st.sampled_from(["json", "influx"]),
    st.sampled_from([0, 0, 10_000, 60_000]),
    st.lists(st.integers(1, 9), max_size=5),  # rejected lines
    st.dictionaries(st.sampled_from("wxyz"), st.sampled_from(["gauge", "counter"]), max_size=2),
    st.sampled_from(["", "", "flush", "fail"]),
)


@given(st.lists(STEPS, max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small")
def test_the_database_holds_what_direct_writes_would_leave(db: None, steps: list[Any]) -> None:
    App.objects.all().delete()  # of the example before
    organisation = Organisation.objects.create(name="any")
    apps = [App.objects.create(organisation=organisation, name=name).pk for name in "xy"]
    desk, model, now = Desk(), DirectWrites(), NOW
    for step_ms, app, source, way, period, lines, metrics, then in steps:
        now += step_ms
        rejected = [Rejection(line, "r", "") for line in lines]
        parsed = message(1, rejected, [Metadata(name, kind, "", "") for name, kind in metrics.items()])
        sender = Sender(apps[app], source, way, period)
        desk.recorder.record_accepted(parsed, sender, now)
        model.accept(parsed, sender, now)
        if then == "fail":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sources, "execute_many", fail)
                desk.writer.flush()
        elif then == "flush":
            assert desk.writer.flush()
    assert desk.writer.flush()
    described = {app: names for app, names in model.metrics.items() if names}
    assert rows_of_database() == (model.sources, model.ways, model.rings, described)


def fail(*_: object) -> None:
    raise OperationalError("database is locked")


# Bounds and costs


def flood(desk: Desk, app: int, count: int, now_ms: int = NOW) -> None:
    for number in range(count):
        desk.record(app, f"pod-{number}", now_ms, way=f"way-{number}")


@pytest.fixture
def few_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (activity, sources):
        monkeypatch.setattr(module, "SOURCES_PER_APP_MAX", 20)


@pytest.mark.usefixtures("few_sources")
def test_a_flood_of_names_shares_one_row_and_takes_bounded_memory(desk: Desk, app: int) -> None:
    for _ in range(2):
        flood(desk, app, 1_000)
        assert desk.waiting().get("sources", 0) <= 21
        assert desk.waiting()["arrivals"] == limits.WAYS_PER_APP_MAX
        assert len(desk.recorder._apps[app].sources) == 21
        desk.writer.flush()
    names = set(Source.objects.values_list("name", flat=True))
    assert names == {f"pod-{number}" for number in range(20)} | {sources.OTHER_SOURCES}


@pytest.mark.usefixtures("few_sources")
def test_names_of_a_minute_ago_make_room_for_others(desk: Desk, app: int) -> None:
    flood(desk, app, 100)
    desk.writer.flush()
    desk.record(app, "new", NOW + 60_000)
    assert set(desk.recorder._apps[app].sources) == {"new"}


@pytest.mark.usefixtures("few_sources")
def test_a_flood_of_one_app_delays_no_note_of_another(desk: Desk, app: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NOTES_ROUND_MAX", 6)
    other = other_app(app)
    flood(desk, app, 1_000)
    for source in "abc":
        desk.record(other, source)
    desk.record(other, rejected=[Rejection(1, "r", "")])
    assert desk.writer.write_round()
    assert Source.objects.filter(app=other).count() == 3
    assert RejectedLine.objects.filter(app=other).count() == 1


def test_what_a_process_remembers_of_all_apps_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "SOURCES_SEEN_MAX", 50)
    for number in range(500):
        desk.record(number % 40 + 1, f"host-{number}", NOW + number)
        memory = desk.recorder._apps.values()
        assert sum(each.size() + 1 for each in memory) == desk.recorder._count <= 50
    desk.record(7, "host", NOW)
    assert desk.recorder._apps[7].sources["host"] == NOW


def test_rejections_beyond_the_ring_are_counted_and_the_newest_stay(
    desk: Desk, app: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.writer._queues.clear()
    monkeypatch.setattr(activity, "REJECTIONS_KEPT_MAX", 5)
    desk = Desk()
    desk.record(app, rejected=[Rejection(line, "r", "") for line in range(100)])
    desk.writer.flush()
    assert list(RejectedLine.objects.order_by("id").values_list("line", flat=True)) == [95, 96, 97, 98, 99]


@pytest.fixture
def statements(db: None) -> Callable[[Callable[[], object]], list[str]]:
    """Runs something; returns its statements, without savepoints."""

    def run(act: Callable[[], object]) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            act()
        return [query["sql"].split("\n")[0] for query in captured.captured_queries]

    return run


def test_a_round_takes_one_transaction_and_few_statements_for_any_number_of_notes(
    desk: Desk, app: int, statements: Callable[[Callable[[], object]], list[str]]
) -> None:
    costs = []
    for count in (3, 900):
        for number in range(count):
            described = [Metadata(f"metric-{count}-{number % 20}", "gauge", "", "")]
            rejected = [Rejection(1, "r", "")]
            desk.record(app, f"host-{count}-{number}", NOW + count * 1_000, rejected=rejected, metadata=described)
        costs.append(statements(desk.writer.write_round))
        assert not desk.waiting()
    assert len(costs[0]) == len(costs[1]) <= 13
    assert sum("SAVEPOINT" in text and "RELEASE" not in text for text in costs[1]) == 1


def test_a_round_of_known_sources_takes_three_statements(
    desk: Desk, app: int, statements: Callable[[Callable[[], object]], list[str]]
) -> None:
    for now_ms in (NOW, NOW + 40_000):
        for number in range(300):
            desk.record(app, f"host-{number}", now_ms, way="")
        texts = statements(desk.writer.write_round)
    assert len([text for text in texts if "SAVEPOINT" not in text]) == 3
