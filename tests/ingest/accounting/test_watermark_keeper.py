"""Claims about ingest/accounting/watermark_keeper.py and ingest/accounting/rounds.py: watermarks after a round,
and how much a look may read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from django.conf import settings

from ingest import tasks
from ingest.accept.announcer import StampAnnouncer
from ingest.accounting import rounds
from ingest.accounting.watermark_keeper import KeepResult, advance_watermarks, plan_reads
from ingest.writer import Writer
from rollups.delete.delete_app import delete_app
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm import limits
from spm.accounts.models import App, Organisation, Source
from spm.clock import FakeClock, SystemClock
from spm.errors import StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_columns, commit_records
from spm.store.ledger import watermarks as marks
from spm.store.ledger.commit_columns import CellOrError, CommitCellCache
from spm.store.ledger.watermarks import (
    AdoptionRecord,
    Announcement,
    OutcomeTotals,
    ProcessWatermarks,
    Watermark,
    pack_place,
)
from spm.wire import Envelope
from tests.model.world import APP, SPREAD, START, parsed
from tests.support.faults import Faulty, flip, keys_of

NONE = np.empty(0, np.uint64)
SILENT_MS = limits.PROCESS_GONE_S * 1000 + 1


@dataclass
class World:
    """One accepting process, a store and a writer."""

    store: Backend = field(default_factory=MemoryBackend)
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + 2 * HOUR_MS))

    def __post_init__(self) -> None:
        cell = epochs.encode(SPREAD)
        self.store.check_and_put("config", epochs.row_key(APP), b"v", None, cell)
        self.writer = Writer(self.store, SPREAD)
        self.process = StampAnnouncer(self.store, self.clock, every_s=None)

    def accept(self, *samples: tuple[int, int, float], rejected: int = 0) -> Envelope:
        """A message that is stamped and not stored yet."""
        self.clock.advance(100)
        body = replace(parsed(samples or ((0, self.clock.now_ms() % 1000 + 1, 1.0),)), rejected=rejected)
        return self.process.stamp_message(app=APP, source="h", parsed=body, message_id=bytes(16))

    def stored(self, *samples: tuple[int, int, float], rejected: int = 0) -> Envelope:
        """One that is."""
        envelope = self.accept(*samples, rejected=rejected)
        self.writer.write([envelope])
        return envelope

    def advance_watermarks(self, later_ms: int = 0) -> KeepResult:
        """A look."""
        return advance_watermarks(self.store, APP, self.clock.now_ms() + later_ms)

    def keep_long(self) -> int:
        """Looks of four minutes, after the process has gone silent; how many stragglers they name."""
        return sum(self.advance_watermarks(SILENT_MS + look * limits.KEEP_EVERY_S * 1000).adopted for look in range(24))

    def compact(self) -> None:
        """A minor run: commit records become ledger rows."""
        Driver(self.store, self.clock).roll(LocalExecutor(self.store), [APP], minor=True)

    @property
    def marks(self) -> ProcessWatermarks:
        """Of the process."""
        [row] = marks.read(self.store, APP).values()
        return row

    def mark(self) -> tuple[int, int]:
        """Up to where it stands."""
        return self.marks.watermark.place


def place(envelope: Envelope) -> tuple[int, int]:
    return envelope.stamp.ms, envelope.stamp.sequence


@pytest.mark.parametrize("compacted", [False, True], ids=["waiting for a run", "accounted for"])
def test_a_watermark_moves_when_everything_up_to_it_is_stored(compacted: bool) -> None:
    world = World()
    sent = [world.stored() for _ in range(3)]
    world.process.announce()
    if compacted:
        world.compact()
    assert world.advance_watermarks().moved == 1
    assert world.mark() == place(sent[-1])
    assert world.marks.watermark.totals == OutcomeTotals(3, 3, 3, 0, 0, 0, 3, 0, 0, 0)
    assert world.advance_watermarks() == KeepResult()


def test_a_watermark_waits_for_a_missing_message_and_moves_as_far_as_announcements_allow() -> None:
    world = World()
    first = world.stored()
    world.process.announce()
    missing = world.accept()
    last = world.stored()
    world.process.announce()
    assert world.advance_watermarks() == KeepResult(moved=1, waiting=1)
    assert world.mark() == place(first)
    assert world.advance_watermarks().moved == 0
    world.writer.write([missing])
    assert world.advance_watermarks().moved == 1
    assert world.mark() == place(last)


@pytest.mark.parametrize("at_s", range(0, 80, 10))
def test_a_message_is_known_by_the_next_look_although_it_was_written_with_one_of_long_before(at_s: int) -> None:
    """Of a process that was killed before it announced it, so that no look waits for that one."""
    world = World()
    world.clock.advance(1_000 * at_s)
    before = world.accept()
    world.process = StampAnnouncer(world.store, world.clock, every_s=None)
    world.clock.advance(9 * 60_000)
    now = world.accept()
    world.writer.write([before, now])
    world.process.announce()
    world.compact()
    assert world.advance_watermarks().moved == 1
    assert marks.read(world.store, APP)[now.stamp.process].watermark.place == place(now)


def test_watermarks_move_although_some_message_is_always_under_way() -> None:
    """In each round the newest messages are unsettled; only older announcements let watermarks move under load."""
    world, lags = World(), []
    late: list[Envelope] = []
    for _ in range(60):
        late.append(world.accept())
        if len(late) > 3:
            world.writer.write([late.pop(0)])
        world.process.announce()
        world.advance_watermarks()
        lags.append(world.clock.now_ms() - world.mark()[0])
    assert max(lags[5:]) <= 500


@pytest.mark.parametrize(
    ("kill", "totals"),
    [
        pytest.param("whole", OutcomeTotals(1, 2, 0, 0, 0, 2, 0, 0, 0, 1), id="all of it dead"),
        pytest.param("part", OutcomeTotals(1, 2, 1, 0, 0, 1, 1, 0, 0, 0), id="a sample of it"),
        pytest.param("both", OutcomeTotals(1, 2, 2, 0, 0, 0, 1, 0, 0, 0), id="stored by one, a dead letter by another"),
        pytest.param("lines", OutcomeTotals(1, 2, 2, 0, 3, 0, 1, 0, 0, 0), id="lines of it"),
        pytest.param("lines, rest dead", OutcomeTotals(1, 2, 0, 0, 3, 2, 0, 0, 0, 1), id="lines of it, the rest dead"),
    ],
)
def test_each_sample_has_one_outcome_when_some_died(kill: str, totals: OutcomeTotals) -> None:
    world = World()
    envelope = world.accept((0, -START - 5 if kill == "part" else 1, 1.0), (1, 1, 1.0), rejected=3 * ("lines" in kill))
    world.process.announce()
    for _ in range(2):  # and nothing changes when it is delivered again
        if kill not in ("whole", "lines, rest dead"):
            world.writer.write([envelope])
        if kill in ("whole", "both", "lines, rest dead"):
            world.writer.write_dead_letter(envelope, "cannot be written")
    assert world.advance_watermarks().moved == 1
    assert world.marks.watermark.totals == totals
    assert (world.marks.dead_stamps.tolist() == [pack_place(place(envelope))]) == (totals.stored == 0)


def test_refused_lines_alone_settle_nothing_but_a_message_without_samples() -> None:
    world = World()
    envelope = world.accept((0, 1, 1.0), rejected=3)
    world.process.announce()
    steps = world.writer.prepare([envelope]).steps
    world.store.put([step for step in steps if step[0] == "ledger"])
    assert world.advance_watermarks().moved == 0
    empty = replace(envelope, series_index=envelope.series_index[:0], ts=envelope.ts[:0], values=envelope.values[:0])
    other = World()
    other.process.stamp_message(app=APP, source="h", parsed=parsed([(0, 1, 1.0)]), message_id=bytes(16))
    other.process.announce()
    other.writer.write([replace(empty, stamp=replace(empty.stamp, ms=other.clock.now_ms()))])
    assert other.advance_watermarks().moved == 1


def test_stragglers_of_a_process_that_was_killed_are_named_once_it_is_gone() -> None:
    world = World()
    first = world.stored()
    world.process.announce()
    lost, straggler = world.accept(), world.stored()
    assert world.advance_watermarks() == KeepResult(moved=1, waiting=1)
    assert world.advance_watermarks().adopted == 0
    assert world.advance_watermarks(SILENT_MS).adopted == 1
    assert (world.mark(), world.marks.adopted_stamps.tolist()) == (place(first), [pack_place(place(straggler))])
    assert world.advance_watermarks(SILENT_MS).adopted == 0
    world.writer.write([lost])
    assert world.advance_watermarks(SILENT_MS).adopted == 1


def test_what_a_process_stored_that_was_killed_before_its_first_word_is_known_once_it_is_gone() -> None:
    world = World()
    straggler = world.stored()
    assert world.advance_watermarks() == KeepResult()
    assert world.keep_long() == 1
    assert world.marks.adopted_stamps.tolist() == [pack_place(place(straggler))]


def test_a_process_that_was_taken_for_gone_goes_on_and_nothing_is_counted_twice() -> None:
    world = World()
    sent = [world.stored((n, 1, 1.0)) for n in range(3)]
    missing = world.accept()
    world.process.announce()
    assert world.advance_watermarks(SILENT_MS).adopted == 3
    world.writer.write([missing])
    assert world.advance_watermarks().moved == 1
    together = world.marks.watermark.totals
    for record in world.marks.adoptions:
        together = together.plus(record.totals)
    assert (together.messages, together.stored) == (4, 4)
    assert (world.marks.messages, len(sent)) == (4, 3)
    world.stored()
    world.process.announce()
    assert world.advance_watermarks().moved == 1


def test_an_hour_without_announcements_and_a_dead_message_in_it_are_counted_by_one_word() -> None:
    """The store was away for announcements; the ledger rows of dead stamps lie far before the announcement."""
    world = World()
    world.stored()
    world.process.announce()
    world.advance_watermarks()
    dead = world.accept((0, 1, 1.0), (1, 1, 1.0))
    world.writer.write_dead_letter(dead, "cannot be written")
    world.clock.advance(HOUR_MS)
    world.stored(rejected=4)
    world.compact()
    world.process.announce()
    world.advance_watermarks(limits.KEEP_STUCK_MS + 1)
    assert (world.marks.watermark.totals.dead, world.marks.watermark.totals.rejected, world.marks.messages) == (2, 4, 3)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("fails_at", range(10))
def test_a_look_that_fails_anywhere_is_made_good_by_the_next(fails_at: int, lost: bool) -> None:
    world = World()
    world.stored()
    world.process.announce()
    straggler = world.stored()
    for later in (0, SILENT_MS):
        try:
            advance_watermarks(
                Faulty(world.store, fails_at=fails_at, lost_answer=lost), APP, world.clock.now_ms() + later
            )
        except StoreUnavailable:
            assert advance_watermarks(world.store, APP, world.clock.now_ms() + later).damaged == 0
    assert (world.marks.messages, world.marks.adopted_stamps.tolist()) == (1, [pack_place(place(straggler))])
    assert len(world.marks.adoptions) == 1


def test_a_damaged_account_is_told_and_only_what_it_holds_stays_unsettled() -> None:
    world = World()
    good = world.stored()
    world.process.announce()
    bad = world.stored()
    world.process.announce()
    for item in commit_records.scan(world.store, APP, list(SPREAD.all_shards(APP))):
        if commit_records.decode(item.cell).messages.ms[0] == bad.stamp.ms:
            cell = {keys.hour_column(item.hour): item.cell[:-1] + b"?"}
            world.store.put([("pending", [(item.key.to_bytes(), cell)])])
    assert world.advance_watermarks() == KeepResult(moved=1, waiting=1, damaged=1)
    assert world.mark() == place(good)


@pytest.mark.parametrize("column", [b"a", b"m"], ids=["words", "mark"])
def test_a_damaged_row_of_marks_is_told_and_others_marks_move_on(column: bytes) -> None:
    world = World()
    world.stored()
    world.process.announce()
    world.advance_watermarks()
    [damaged] = marks.read(world.store, APP)
    flip(world.store, "marks", keys.watermark(APP, damaged), column)
    before = world.store.get("marks", [keys.watermark(APP, damaged)])
    world.process = StampAnnouncer(world.store, world.clock, every_s=None)
    world.stored()
    world.process.announce()
    assert world.advance_watermarks() == KeepResult(moved=1, waiting=1, damaged=1)
    assert world.advance_watermarks(SILENT_MS).damaged == 1
    assert world.store.get("marks", [keys.watermark(APP, damaged)]) == before  # no keeper overwrites damaged rows


def test_erasing_an_app_takes_its_marks_and_leaves_the_others() -> None:
    world = World()
    world.stored()
    world.process.announce()
    world.advance_watermarks()
    word = world.marks.newest
    assert word is not None
    marks.announce(world.store, APP + 1, 1, word)
    delete_app(world.store, APP)
    assert keys_of(world.store, "marks") == [keys.watermark(0, 1), keys.watermark(APP + 1, 1)], "0: the round"


# --- how much is read -------------------------------------------------------------------------------------------------


class Counting(MemoryBackend):
    """Counts the rows that scans give."""

    rows = 0

    def scan(self, table, start, stop, **how):  # type: ignore[no-untyped-def]
        for row in super().scan(table, start, stop, **how):
            self.rows += 1
            yield row


def aged(now: int, minutes: int, *, ended: bool = False, waits: bool = True) -> ProcessWatermarks:
    """A process whose last announcement was so long ago."""
    ms = now - minutes * 60_000
    return ProcessWatermarks(1, (Announcement(ms, 0, 1, 1, 0, 0, 0, ms, ended),), Watermark(1, ms - 1 if waits else ms))


def read_minutes(of: Callable[[int], dict[int, ProcessWatermarks]], looked: int = 1_000) -> float:
    """Return the minutes of ledger rows that one round reads on average; without an end, back from now."""
    total = 0.0
    for tick in range(looked):
        now = START + tick * limits.KEEP_EVERY_S * 1000
        total += sum(min(10**6, ((look.until_ms or now) - look.since_ms) / 60_000) for look in plan_reads(of(now), now))
    return total / looked


def test_a_look_reads_some_minutes_of_accounts_whatever_died_long_ago() -> None:
    assert read_minutes(lambda now: {}) < 30
    fresh = read_minutes(lambda now: {1: aged(now, 0)})
    assert fresh < 30
    dead = {n: 60 * 24 * n for n in range(1, 200)}  # a process was killed each day
    many = read_minutes(lambda now: {n: aged(now, age) for n, age in dead.items()}, looked=100)
    assert many < fresh + 60


def test_whatever_its_age_what_a_process_left_is_looked_at_some_day() -> None:
    for minutes, ticks in ((20, 200), (300, 1_000), (3_000, 5_000)):
        rows = {1: aged(START, minutes)}
        times = (START + tick * limits.KEEP_EVERY_S * 1000 for tick in range(ticks))
        reached = sum(any(look.since_ms <= START - minutes * 60_000 for look in plan_reads(rows, now)) for now in times)
        assert 0 < reached < ticks / 3, minutes


def test_commit_records_that_were_decoded_once_are_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    decoded: list[bytes] = []
    for n in range(5):
        world.stored((n, 1, 1.0))
    world.accept()
    world.process.announce()
    cells, opened = CommitCellCache(), commit_columns.open_cells

    def noted(raws: list[bytes], kind: int, *, copy: bool = False) -> list[CellOrError]:
        decoded.extend(raws)
        return opened(raws, kind, copy=copy)

    monkeypatch.setattr(commit_columns, "open_cells", noted)
    for _ in range(3):
        advance_watermarks(world.store, APP, world.clock.now_ms(), cells=cells)
    assert len(decoded) == len(set(decoded))


def test_decoded_records_take_no_more_than_their_bytes() -> None:
    world = World()
    for n in range(50):
        world.stored((n % 4, n + 1, 1.0))
    cells = CommitCellCache(bytes_max=5_000)
    advance_watermarks(world.store, APP, world.clock.now_ms(), cells=cells)
    assert 0 < cells._cells.weight <= 5_000
    assert sum(cell.size for cell, _ in cells._cells._entries.values()) == cells._cells.weight


def test_of_too_many_accounts_the_newest_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counting()
    world = World(store)
    for n in range(30):
        world.stored((0, n + 1, 1.0))
        world.clock.advance(60_000)
    world.compact()
    world.process.announce()
    monkeypatch.setattr(limits, "KEEP_ROWS_MAX", 5)
    store.rows = 0
    world.advance_watermarks(limits.KEEP_STUCK_MS + 1)
    assert store.rows < 20
    assert world.mark() == (0, 0)


# --- rounds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def apps(db: None) -> list[App]:
    organisation = Organisation.objects.create(name="o")
    App.objects.bulk_create(App(organisation=organisation, name=f"a{n}") for n in range(400))
    return list(App.objects.order_by("pk"))


def heard(app: App, ms: int) -> None:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    Source.objects.create(app=app, name="h", first_seen=moment, last_seen=moment)


def test_apps_with_news_are_looked_at_every_time_and_every_app_now_and_then(apps: list[App]) -> None:
    heard(apps[3], START - 1000)
    heard(apps[4], START - limits.KEEP_NEWS_MS - 1000)
    App.objects.filter(pk=apps[5].pk).update(going=datetime.fromtimestamp(START / 1000, UTC))
    rows = [
        set(rounds.due_apps(START + tick)) for tick in range(0, limits.KEEP_ROUND * limits.KEEP_EVERY_S * 1000, 10_000)
    ]
    assert all(len(each) <= 400 / limits.KEEP_ROUND + 2 for each in rows)
    assert set().union(*rows) == {app.pk for app in apps} - {apps[5].pk}
    assert sum(apps[3].pk in each for each in rows[:30]) == 30
    assert sum(apps[4].pk in each for each in rows[:30]) <= 1


def test_a_round_ends_with_its_budget_and_others_begin_elsewhere(
    apps: list[App], monkeypatch: pytest.MonkeyPatch
) -> None:
    for app in apps[:50]:
        heard(app, START)
    clock, seen = FakeClock(START), []

    def slow(store: Backend, app: int, now_ms: int, **_: object) -> KeepResult:
        clock.advance(1_000)
        seen.append(app)
        return KeepResult(moved=1)

    monkeypatch.setattr(rounds, "advance_watermarks", slow)
    assert rounds.run_round(MemoryBackend(), clock).moved <= limits.KEEP_BUDGET_S + 1
    for _ in range(40):
        clock.advance(limits.KEEP_EVERY_S * 1000 - clock.now_ms() % 10_000)
        rounds.run_round(MemoryBackend(), clock)
    assert {app.pk for app in apps[:50]} <= set(seen)


def test_an_app_whose_store_fails_holds_up_no_other(apps: list[App], monkeypatch: pytest.MonkeyPatch) -> None:
    for app in apps[:5]:
        heard(app, START)

    def broken(store: Backend, app: int, now_ms: int, **_: object) -> KeepResult:
        if app == apps[2].pk:
            raise StoreUnavailable("no")
        return KeepResult(moved=1)

    monkeypatch.setattr(rounds, "advance_watermarks", broken)
    assert rounds.run_round(MemoryBackend(), FakeClock(START)).moved >= 4


def test_a_record_is_never_larger_than_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAMPS_PER_CELL", 2)
    world = World()
    for n in range(5):
        world.stored((0, n + 1, 1.0))
    world.keep_long()
    assert [len(record.stamps) for record in world.marks.adoptions] == [2, 2, 1]
    with pytest.raises(AssertionError, match="too large"):
        marks.adopt(world.store, APP, world.marks, AdoptionRecord(np.arange(3, dtype=np.uint64), NONE, OutcomeTotals()))


def test_adoption_records_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADOPTIONS_MAX", 2)
    world = World()
    for n in range(4):
        world.stored((0, n + 1, 1.0))
        world.keep_long()
    assert len(world.marks.adoptions) == 2


@pytest.mark.django_db
def test_beat_has_the_marks_of_apps_with_news_moved(apps: list[App], monkeypatch: pytest.MonkeyPatch) -> None:
    [entry] = [e for e in settings.CELERY_BEAT_SCHEDULE.values() if e["task"] == tasks.keep_marks.name]
    assert entry["schedule"] == limits.KEEP_EVERY_S
    store, app = MemoryBackend(), apps[0]
    monkeypatch.setattr(tasks, "open_backend", lambda url: store)
    now = SystemClock().now_ms()
    heard(app, now)
    process = StampAnnouncer(store, SystemClock(), every_s=None)
    sent = process.stamp_message(app=app.pk, source="h", parsed=parsed([(0, 1, 1.0)]), message_id=bytes(16))
    Writer(store, PlacementTable()).write([sent])
    process.announce()
    assert (tasks.keep_marks(), tasks.keep_marks()) == (1, 0)
