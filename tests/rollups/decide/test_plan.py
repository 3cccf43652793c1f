"""Claims about plans: tables of situations and what a run makes of them. No store, no clock."""

import numpy as np
import pytest

from rollups.decide import plan
from rollups.decide.plan import (
    DayPlan,
    MergeKind,
    PendingCommit,
    PlanContext,
    cut_into_waves,
    is_closed,
    plan_day,
)
from spm import limits
from spm.limits import HOUR_MS
from spm.store.encoding.blocks import Messages
from spm.store.keys import PendingKey
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.store.manifest import (
    OPEN,
    SEALED,
    SEALING,
    DayInputs,
    DayPack,
    Entry,
    Generation,
    HourInputs,
    HourPack,
    Manifest,
    Month,
    Replay,
    State,
    day_fingerprint,
    fingerprint,
    first_day_of,
    month_of,
)

DAY = 19_600
HOUR = DAY * 24
END = (HOUR + 1) * HOUR_MS  # of HOUR
CLOSED = END + limits.ROLL_GRACE_MS
ONE = State((Generation(1),))
TWO = State((Generation(1), Generation(2)))
EIGHT = State(tuple(Generation(n) for n in range(1, 9)))
REPLAYS = State((Generation(1),), (Replay(5, 50),))


def waiting(batch: int = 9, hour: int = HOUR, samples: int = 3, ms: int = 1_000, shard: int = 4) -> PendingCommit:
    """One pending cell."""
    one = np.zeros(1, np.int64)
    messages = Messages(one + ms, one, one, np.zeros(1, np.int32), ("host",))
    commit = Commit(messages, one + samples, np.zeros(16, np.uint8), 1, 2, BatchRows.of([(shard, hour)]))
    return PendingCommit(PendingKey(shard, 7, ms, batch), hour, commit)


def holding(state: State, *, hours_of: State | None = None, seal: int = OPEN) -> Manifest:
    """A manifest with one hour shard, and aggregates of some state of it."""
    inputs = {HOUR: HourInputs(fingerprint(hours_of))} if hours_of else {}
    hours = {4: HourPack(Generation(77), inputs)} if inputs else {}
    return Manifest(1, 0, {(4, HOUR): Entry(state)}, hours, {HOUR: seal} if seal else {})


def planned(manifest: Manifest, items: list[PendingCommit], *, now_ms: int = CLOSED, minor: bool = False) -> DayPlan:
    """The plan of that day."""
    return plan_day(7, DAY, cell=b"m0", manifest=manifest, pending=items, context=PlanContext(now_ms, minor))


@pytest.mark.parametrize(
    ("manifest", "waits", "now_ms", "minor", "kind"),
    [
        pytest.param(Manifest(), True, CLOSED, False, MergeKind.FULL, id="first data of a closed hour"),
        pytest.param(Manifest(), True, CLOSED - 1, False, MergeKind.FULL, id="first data of an open hour"),
        pytest.param(holding(ONE), True, CLOSED - 1, False, MergeKind.MINOR, id="more data of an open hour"),
        pytest.param(holding(ONE), True, CLOSED, False, MergeKind.FULL, id="late data of a closed hour"),
        pytest.param(holding(ONE), True, CLOSED, True, MergeKind.MINOR, id="late data, minor run"),
        pytest.param(holding(EIGHT), True, CLOSED - 1, True, MergeKind.FULL, id="eight generations are enough"),
        pytest.param(
            holding(REPLAYS), False, CLOSED, False, MergeKind.FULL, id="a replay list makes a closed hour shard due"
        ),
        pytest.param(holding(REPLAYS), False, CLOSED - 1, False, MergeKind.MINOR, id="and an open one"),
        pytest.param(holding(TWO), False, CLOSED, False, MergeKind.FULL, id="the hour closed on minor generations"),
        pytest.param(holding(TWO), False, CLOSED - 1, False, None, id="minor generations of an open hour may stay"),
        pytest.param(holding(TWO), False, CLOSED, True, None, id="a minor run leaves closed hours alone"),
        pytest.param(holding(ONE), False, CLOSED, False, MergeKind.RECOUNT, id="a closed hour without hours"),
        pytest.param(holding(ONE, hours_of=TWO), False, CLOSED, False, MergeKind.RECOUNT, id="hours of another state"),
        pytest.param(holding(ONE, hours_of=ONE), False, CLOSED, False, None, id="all is done"),
        pytest.param(holding(ONE, seal=SEALING), True, CLOSED, False, None, id="a sealing hour is left alone"),
        pytest.param(holding(ONE, seal=SEALED), True, CLOSED, False, None, id="a sealed hour too"),
    ],
)
def test_the_plan_of_a_unit(manifest: Manifest, waits: bool, now_ms: int, minor: bool, kind: MergeKind | None) -> None:
    units = planned(manifest, [waiting()] if waits else [], now_ms=now_ms, minor=minor).hour_shards
    assert [unit.kind for unit in units] == ([] if kind is None else [kind])


def test_a_plan_names_its_parents_and_exact_batches() -> None:
    [unit] = planned(holding(REPLAYS), [waiting(9, ms=2_000), waiting(3, ms=1_000)]).hour_shards
    assert unit.parent.state == REPLAYS
    assert unit.fresh == (Replay(1_000, 3), Replay(2_000, 9))
    assert unit.samples == 6
    assert unit.wants_hours


def test_hours_are_due_for_closed_hours_of_full_runs_only() -> None:
    assert not planned(holding(ONE), [waiting()], now_ms=CLOSED - 1).hour_shards[0].wants_hours
    assert not planned(holding(ONE), [waiting()], minor=True).hour_shards[0].wants_hours


def test_waves_are_bounded_and_never_cut_a_day() -> None:
    days = [planned(Manifest(), [waiting(samples=n)]) for n in (3, 3, 5, 1, 9)]
    sizes = [[day.samples for day in wave] for wave in cut_into_waves(days, samples_max=6)]
    assert sizes == [[3, 3], [5, 1], [9]]


def test_a_hour_is_closed_after_its_end_and_some_grace() -> None:
    assert not is_closed(HOUR, CLOSED - 1)
    assert is_closed(HOUR, CLOSED)


@pytest.mark.parametrize(("day", "month"), [(0, 0), (30, 0), (31, 1), (19_600, 643), (-1, -1)])
def test_months_count_from_1970(day: int, month: int) -> None:
    assert month_of(day) == month
    assert month_of(first_day_of(month)) == month
    assert month_of(first_day_of(month) - 1) == month - 1


class TestStaleDays:
    """Which days are built."""

    over = (DAY + 1) * 24 * HOUR_MS + limits.ROLL_GRACE_MS
    full = holding(ONE, hours_of=ONE)
    of = day_fingerprint([(HOUR, fingerprint(ONE))])

    def days_to_build(self, month: Month, manifest: Manifest, now_ms: int) -> list[int]:
        """Their numbers."""
        return [stale.day for stale in plan.find_stale_days(month, {DAY: manifest}, PlanContext(now_ms))]

    def test_a_closed_day_with_exact_hours_is_built(self) -> None:
        assert self.days_to_build(Month(), self.full, self.over) == [DAY]

    def test_an_open_day_is_not(self) -> None:
        assert self.days_to_build(Month(), self.full, self.over - 1) == []

    def test_a_day_with_a_stale_hour_is_not(self) -> None:
        assert self.days_to_build(Month(), holding(TWO, hours_of=ONE), self.over) == []

    def test_an_equal_one_in_force_is_left_alone(self) -> None:
        assert (
            self.days_to_build(Month(1, {4: DayPack(Generation(5), {DAY: DayInputs(self.of)})}), self.full, self.over)
            == []
        )

    def test_one_of_another_state_is_built_anew(self) -> None:
        assert self.days_to_build(
            Month(1, {4: DayPack(Generation(5), {DAY: DayInputs(b"other")})}), self.full, self.over
        ) == [DAY]
