"""Notes wait in bounded memory, in fair shares of the apps, and are written together, later if the database fails."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

import pytest
from django.db import IntegrityError, OperationalError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spm import limits
from spm.accounts.models import App
from spm.accounts.note_writer import NoteQueue, NoteWriter, pause_s
from spm.clock import FakeClock, SystemClock
from tests.servers.processes import wait_until

Notes = Mapping[int, Mapping[str, str]]


def queue_of(app_max: int = 100, **options: bool | int) -> NoteQueue[str, str]:
    """A queue of texts, which are joined one after the other."""
    return NoteQueue("texts", str.__add__, app_max=app_max, **options)  # type: ignore[arg-type]


def contents(queue: NoteQueue[str, str]) -> dict[int, dict[str, str]]:
    """What waits in a queue, which stays there."""
    batch = queue.take(1_000_000)
    queue.give_back(batch)
    return {app: dict(notes) for app, notes in batch.items()}


def filled(counts: Mapping[int, int]) -> NoteQueue[str, str]:
    """A queue with so many notes by app."""
    queue = queue_of()
    for app, count in counts.items():
        for number in range(count):
            assert queue.put(app, f"{number:03}", "x")
    return queue


def test_notes_of_one_key_are_joined_in_their_order() -> None:
    queue = queue_of()
    for note in "abc":
        assert queue.put(1, "k", note)
    assert (contents(queue), len(queue)) == ({1: {"k": "abc"}}, 1)


def test_notes_that_come_back_are_the_older_part_of_what_came_since() -> None:
    queue = queue_of()
    queue.put(1, "k", "a")
    batch = queue.take(9)
    for key, note in (("j", "x"), ("k", "b")):
        queue.put(1, key, note)
    queue.give_back(batch)
    assert (list(contents(queue)[1].items()), len(queue)) == ([("k", "ab"), ("j", "x")], 2)


@pytest.mark.parametrize(
    ("counts", "taken"),
    [
        ({1: 100, 2: 3}, {1: 7, 2: 3}),
        ({1: 2, 2: 3}, {1: 2, 2: 3}),
        ({1: 9, 2: 9, 3: 9}, {1: 3, 2: 3, 3: 4}),
        (dict.fromkeys(range(20), 1), dict.fromkeys(range(10), 1)),
    ],
    ids=["a flood and a few", "room for all", "equal shares", "the first of too many apps"],
)
def test_a_round_of_ten_takes_fair_shares(counts: dict[int, int], taken: dict[int, int]) -> None:
    assert {app: len(notes) for app, notes in filled(counts).take(10).items()} == taken


@given(st.dictionaries(st.integers(1, 30), st.integers(1, 50), min_size=1), st.integers(1, 60))
def test_no_app_gets_less_than_another_while_it_waits_for_more(counts: dict[int, int], room: int) -> None:
    queue = filled(counts)
    taken = {app: len(notes) for app, notes in queue.take(room).items()}
    left = {app: counts[app] - taken.get(app, 0) for app in counts}
    assert sum(taken.values()) == min(room, sum(counts.values()))
    assert len(queue) == sum(left.values())
    if room >= len(counts):
        assert all(max(taken.values()) <= taken[app] + 1 for app in counts if left[app])


@given(st.dictionaries(st.integers(1, 30), st.integers(1, 5), min_size=2), st.integers(1, 8))
def test_every_app_gets_its_turn_within_a_few_rounds(counts: dict[int, int], room: int) -> None:
    queue = filled({0: 100, **counts})
    rounds = [queue.take(room) for _ in range(-(-sum(counts.values()) // 1) + 1)]
    first_turns = {app for batch in rounds[: len(counts) // room + 1] for app in batch}
    assert first_turns >= set(counts)


def test_an_app_has_a_bound_and_another_has_its_own() -> None:
    queue = queue_of(app_max=2)
    assert [queue.put(1, key, "x") for key in "abca"] == [True, True, False, True]
    assert queue.put(2, "a", "y")
    assert contents(queue) == {1: {"a": "xx", "b": "x"}, 2: {"a": "y"}}


def test_a_full_queue_has_room_for_some_notes_of_every_app() -> None:
    queue = queue_of(count_max=20)
    assert all(queue.put(1, str(number), "x") for number in range(20))
    assert not queue.put(1, "more", "x")
    assert sum(queue.put(2, str(number), "x") for number in range(99)) == limits.NOTES_APP_MIN


def test_the_newest_notes_push_out_the_oldest_where_that_is_wanted() -> None:
    queue = queue_of(app_max=3, keep_newest=True)
    assert all(queue.put(1, key, key) for key in "abcde")
    batch = queue.take(9)
    queue.put(1, "f", "f")
    queue.give_back(batch)
    assert (list(contents(queue)[1]), len(queue)) == (["d", "e", "f"], 3)


def test_apps_whose_notes_come_back_have_the_next_turn() -> None:
    queue = filled({1: 1, 2: 1})
    batch = queue.take(1)
    queue.put(3, "k", "x")
    queue.give_back(batch)
    assert [list(queue.take(1)) for _ in range(3)] == [[1], [2], [3]]


class QueueMachine(RuleBasedStateMachine):
    """Whatever is taken, given back or written: what was put and not written waits, joined in the order of time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue_of()
        self.model: dict[tuple[int, str], str] = {}
        self.batch: dict[int, OrderedDict[str, str]] = {}

    @rule(app=st.integers(1, 3), key=st.sampled_from("abc"), note=st.sampled_from("xyz"))
    def put(self, app: int, key: str, note: str) -> None:
        self.queue.put(app, key, note)
        self.model[app, key] = self.model.get((app, key), "") + note

    @rule(count=st.integers(1, 5), written=st.booleans(), note=st.sampled_from("xyz"))
    def round(self, count: int, written: bool, note: str) -> None:
        batch = self.queue.take(count)
        for app, notes in batch.items():
            for key in notes:
                if written:
                    assert self.model.pop((app, key)) == notes[key]
                else:
                    self.put(app, key, note)  # while the round runs
                    break
        if not written:
            self.queue.give_back(batch)

    @invariant()
    def all_waits(self) -> None:
        waiting = {(app, key): note for app, notes in contents(self.queue).items() for key, note in notes.items()}
        assert (waiting, len(self.queue)) == (self.model, len(self.model))


TestQueue = QueueMachine.TestCase


@pytest.fixture
def apps(app: App) -> list[int]:
    """Five apps."""
    more = [App.objects.create(organisation=app.organisation, name=str(number)) for number in range(4)]
    return [app.pk, *(each.pk for each in more)]


class Database:
    """Takes notes; can be told to fail, or to refuse an app's."""

    def __init__(self) -> None:
        self.rounds: list[dict[int, dict[str, str]]] = []
        self.error: Exception | None = None
        self.tries = 0
        self.bad_app = 0

    def write(self, notes: Notes) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        if self.bad_app in notes:
            raise IntegrityError("no")
        self.rounds.append({app: dict(of_app) for app, of_app in notes.items()})


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def queue() -> NoteQueue[str, str]:
    return queue_of()


@pytest.fixture
def writer(queue: NoteQueue[str, str], database: Database) -> Iterator[NoteWriter]:
    writer = NoteWriter(SystemClock(), every_s=0.01)
    writer.add_queue(queue, database.write)
    yield writer
    writer.close()


def test_all_that_waits_is_written_together(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], database: Database
) -> None:
    for app in apps:
        queue.put(app, "k", str(app))
    assert writer.flush()
    assert database.rounds == [{app: {"k": str(app)} for app in apps}]
    assert (writer.flush(), len(database.rounds)) == (True, 1)


def test_a_flush_writes_more_than_one_round_holds(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NOTES_ROUND_MAX", 10)
    for number in range(100):
        queue.put(apps[number % 2], str(number), "x")
    assert writer.flush()
    assert [sum(map(len, notes.values())) for notes in database.rounds] == [10] * 10


def test_notes_of_an_app_that_was_deleted_are_for_nobody(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], database: Database
) -> None:
    for app in (apps[0], 4_000_000_000):
        queue.put(app, "k", "x")
    assert (writer.flush(), database.rounds, len(queue)) == (True, [{apps[0]: {"k": "x"}}], 0)


def test_notes_that_the_database_refuses_are_dropped_with_their_app_alone(
    apps: list[int],
    writer: NoteWriter,
    queue: NoteQueue[str, str],
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.bad_app = apps[1]
    for app in apps:
        queue.put(app, "k", "x")
    assert writer.flush()
    assert sorted(app for notes in database.rounds for app in notes) == [app for app in apps if app != apps[1]]
    assert len(queue) == 0
    assert [record.getMessage() for record in caplog.records] == [
        f"what is to note about messages of app {apps[1]} cannot be written"
    ]


def test_notes_wait_while_the_database_fails_and_the_log_says_so_once(
    apps: list[int],
    writer: NoteWriter,
    queue: NoteQueue[str, str],
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    database.error = OperationalError("database is locked")
    for note in "abc":
        queue.put(apps[0], "k", note)
        assert not writer.flush()
    database.error = None
    assert writer.flush()
    assert database.rounds == [{apps[0]: {"k": "abc"}}]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_nothing_is_written_twice_when_the_database_fails_half_way(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[list[int]] = []

    def write(notes: Notes) -> None:
        if len(rounds) == 2:
            rounds.append([])
            raise OperationalError("gone")
        if apps[4] in notes and len(notes) > 1:
            raise IntegrityError("some of these")
        rounds.append(sorted(notes))

    monkeypatch.setattr(writer, "_queues", [(queue, write)])
    for app in apps:
        queue.put(app, "k", "x")
    assert not writer.flush()
    assert writer.flush()
    assert sorted(app for each in rounds for app in each) == apps


def test_kinds_are_written_in_one_order_by_every_process() -> None:
    writer, order = NoteWriter(FakeClock()), ["a", "b", "c"]
    for kind in "cab":
        writer.add_queue(NoteQueue(kind, str.__add__, app_max=1), lambda notes: None)
    assert [queue.kind for queue, _ in writer._queues] == order


# In its thread


def waits_for(true: Callable[[], bool]) -> None:
    assert wait_until(true, seconds=10)


@pytest.mark.django_db(transaction=True)
def test_the_thread_begins_with_the_first_note_and_writes_it_at_once(
    apps: list[int], queue: NoteQueue[str, str], database: Database
) -> None:
    writer = NoteWriter(SystemClock(), every_s=60)
    writer.add_queue(queue, database.write)
    before = threading.active_count()
    queue.put(apps[0], "k", "x")
    writer.wake()
    waits_for(lambda: bool(database.rounds))
    assert threading.active_count() == before + 1
    queue.put(apps[0], "k", "y")
    writer.wake()
    writer.close()
    assert [notes[apps[0]]["k"] for notes in database.rounds] == ["x", "y"]


@pytest.mark.django_db(transaction=True)
def test_the_thread_writes_all_that_came_within_its_pause_together(
    apps: list[int], queue: NoteQueue[str, str], database: Database
) -> None:
    writer = NoteWriter(SystemClock(), every_s=60)
    writer.add_queue(queue, database.write)
    for number in range(21):
        queue.put(apps[number % 5], str(number), "x")
        writer.wake()
        assert wait_until(lambda: len(database.rounds) == 1, seconds=10)
        SystemClock().sleep(0.005)
    assert len(queue) == 20
    writer.close()
    assert [sum(map(len, notes.values())) for notes in database.rounds] == [1, 20]


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1), (1, 2), (3, 8), (5, 30), (10**9, 30)])
def test_the_thread_tries_less_and_less_often_while_the_database_fails(failures: int, seconds: float) -> None:
    assert pause_s(1.0, failures, limits.NOTES_ROUND_MAX - 1) == seconds
    assert pause_s(1.0, failures, limits.NOTES_ROUND_MAX) == (seconds if failures else limits.NOTES_BEHIND_S)


@pytest.mark.django_db(transaction=True)
def test_the_thread_tries_again_until_the_database_takes_what_waits(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], database: Database
) -> None:
    database.error = OperationalError("database is locked")
    queue.put(apps[0], "k", "x")
    writer.wake()
    waits_for(lambda: database.tries >= 3)
    database.error = None
    waits_for(lambda: database.rounds == [{apps[0]: {"k": "x"}}])


@pytest.mark.django_db(transaction=True)
def test_the_thread_survives_a_fault_of_ours(
    apps: list[int], writer: NoteWriter, queue: NoteQueue[str, str], database: Database
) -> None:
    database.error = TypeError("a fault of ours")
    queue.put(apps[0], "k", "x")
    writer.wake()
    waits_for(lambda: database.tries == 1 and len(queue) == 0)
    database.error = None
    queue.put(apps[0], "k", "y")
    writer.wake()
    waits_for(lambda: database.rounds == [{apps[0]: {"k": "y"}}])


@pytest.mark.timed
@pytest.mark.django_db(transaction=True)
def test_a_process_ends_in_time_although_the_database_hangs(
    apps: list[int], queue: NoteQueue[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NOTES_STOP_S", 0.1)
    hanging, let_go = threading.Event(), threading.Event()

    def hang(_: Notes) -> None:
        hanging.set()
        let_go.wait(20)

    writer = NoteWriter(SystemClock())
    writer.add_queue(queue, hang)
    queue.put(apps[0], "k", "x")
    writer.wake()
    assert hanging.wait(10)
    started = SystemClock().monotonic()
    writer.close()
    assert SystemClock().monotonic() - started < 5
    let_go.set()
    waits_for(lambda: "note writer" not in [thread.name for thread in threading.enumerate()])
