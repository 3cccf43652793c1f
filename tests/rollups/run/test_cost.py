"""Claims about what a run costs: it follows the hours that changed, never the age of the table or what lies in it."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from rollups.decide.plan import PlanContext, cut_into_waves
from rollups.run import agenda
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from rollups.run.progress import Progress
from spm import limits
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.backends.base import Row
from spm.store.backends.memory import MemoryBackend
from tests.model.world import APP, NEXT_DAY, Crash, World, crash_at, days_in_force, whole_day

DAY_MS = DAY_HOURS * HOUR_MS
LATER = 40 * DAY_MS  # after START: all days of these tests are closed by then


class Counting(MemoryBackend):
    """A store that counts the rows it reads, table by table."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        self.read[table] += len(keys)
        return super().get(table, keys, columns)

    def scan(
        self,
        table: str,
        start: bytes,
        stop: bytes,
        *,
        columns: Sequence[bytes] | None = None,
        keys_only: bool = False,
        limit: int | None = None,
    ) -> Iterator[Row]:
        for row in super().scan(table, start, stop, columns=columns, keys_only=keys_only, limit=limit):
            self.read[table] += 1
            yield row


def grown(days: int) -> tuple[World, Counting]:
    """A world with an hour of data on each of some days, rolled up, and its store."""
    store = Counting()
    world = World(store)
    for day in range(days):
        world.send(*((series, day * DAY_MS + HOUR_MS // 2 + series, 1.0) for series in range(3)))
    world.roll(now_ms=world.clock.now_ms() + LATER)
    store.read.clear()
    return world, store


def spent(world: World, store: Counting) -> Counter[str]:
    """What the next full run reads."""
    store.read.clear()
    assert len(world.roll(now_ms=world.clock.now_ms() + LATER).days) == 1
    return Counter(store.read)


@pytest.mark.parametrize("what", ["late data", "retraction"])
def test_a_run_over_one_dirty_hour_reads_the_same_rows_at_ten_times_the_table(what: str) -> None:
    costs = []
    for days in (3, 30):
        world, store = grown(days)
        if what == "late data":
            world.send((0, DAY_MS + HOUR_MS // 2 + 9, 5.0))
        else:
            world.retract(data_from=world.clock.now_ms() // DAY_MS * DAY_MS, data_to=world.clock.now_ms() + HOUR_MS)
        costs.append(spent(world, store))
    assert costs[0] == costs[1]


def test_a_run_with_nothing_to_do_reads_no_manifest_of_the_past() -> None:
    world, store = grown(30)
    assert world.roll(now_ms=world.clock.now_ms() + LATER).days == ()
    assert store.read["manifest"] <= 1


def test_every_day_is_looked_at_once_a_day() -> None:
    world, store = grown(30)
    noted = agenda.read(store, APP)
    assert not agenda.is_sweep_due(noted, noted.swept_ms + limits.ROLL_SWEEP_MS - 1)
    assert agenda.is_sweep_due(noted, noted.swept_ms + limits.ROLL_SWEEP_MS)
    world.roll(now_ms=noted.swept_ms + limits.ROLL_SWEEP_MS)
    assert store.read["manifest"] >= 30


def test_a_full_look_finds_what_nobody_noted() -> None:
    """The agenda is a hint: with a wrong one answers are right, and the next full look makes good."""
    world, store = grown(2)
    world.send((0, HOUR_MS // 2 + 9, 5.0))
    world.roll(minor=True)
    agenda.finish(
        store, APP, agenda.read(store, APP), now_ms=world.clock.now_ms() + LATER, swept=False, known=(), remaining=()
    )
    assert world.hours() == world.recount()
    assert world.roll(now_ms=world.clock.now_ms() + LATER).days == ()
    report = world.driver().roll(LocalExecutor(store), [APP], sweep=True, now_ms=world.clock.now_ms() + LATER)
    assert len(report.days) == 1
    assert days_in_force(world) == whole_day(world)


@pytest.mark.parametrize("point", ["published", "agenda marked", "ledger written"])
def test_late_data_that_a_killed_minor_run_took_in_is_found_by_the_next_full_one(point: str) -> None:
    world, _ = grown(2)
    world.send((0, HOUR_MS // 2 + 9, 5.0))
    with pytest.raises(Crash):
        world.roll(minor=True, at=crash_at(point))
    world.roll(now_ms=world.clock.now_ms() + LATER)
    assert days_in_force(world) == whole_day(world)
    assert world.hours() == world.recount()


def test_a_damaged_agenda_asks_for_a_look_at_every_day() -> None:
    world, store = grown(2)
    [row] = store.get("config", [agenda.name_of(APP)])
    assert row is not None
    store.check_and_put("config", agenda.name_of(APP), b"v", row[b"v"], b"\xc1")
    assert world.driver().plan_app(APP, PlanContext(NEXT_DAY)).all_days


def test_what_a_run_with_an_earlier_clock_leaves_is_found_by_the_next() -> None:
    """A day can be due for a run of later and not for this one, which has moved it nevertheless."""
    world, _ = grown(2)
    world.send((0, HOUR_MS // 2 + 9, 5.0))
    world.roll(now_ms=world.clock.now_ms() + 2 * HOUR_MS)
    world.roll(now_ms=world.clock.now_ms() + LATER)
    assert days_in_force(world) == whole_day(world)
    assert world.resolutions() == {"day aggregates"}


def test_an_agenda_with_too_many_days_asks_for_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGENDA_DAYS_MAX", 3)
    world, store = grown(2)
    agenda.mark_due(store, APP, range(3))
    assert len(agenda.read(store, APP).due_days) == 3
    agenda.mark_due(store, APP, [9])
    assert (agenda.read(store, APP).due_days, agenda.read(store, APP).swept_ms) == ({}, 0)
    assert world.driver().plan_app(APP, PlanContext(NEXT_DAY)).all_days


def test_recounts_are_cut_into_waves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retraction over a year must not hold a year's hours in memory at once."""
    world, _ = grown(6)
    world.retract(source="host")
    plans = world.driver().plan_app(APP, PlanContext(world.clock.now_ms() + LATER)).plans
    two_days = 2 * plans[0].weight
    assert plans[0].weight >= limits.ROLL_HOUR_SHARD_SAMPLES
    assert [len(wave) for wave in cut_into_waves(plans, samples_max=two_days)] == [2, 2, 2]


def test_progress_knows_its_total_from_the_start_and_counts_every_unit() -> None:
    world, store = grown(5)
    world.retract(source="host")
    seen: list[Progress] = []
    driver = Driver(store, world.clock, watch=seen.append)
    driver.roll(LocalExecutor(store), [APP], now_ms=world.clock.now_ms() + LATER)
    assert [(p.hour_shards, p.hour_shards_total) for p in seen] == [(n, 10) for n in range(1, 11)]
    assert seen[-1].eta_s == 0


def test_the_time_to_go_follows_the_units_done() -> None:
    assert Progress(10, 40, 0, 5.0).eta_s == 15.0
    assert Progress(0, 40, 0, 5.0).eta_s is None
