"""Claims about when beat starts a run, and which: tables of what waits. No store, no clock."""

import pytest

from rollups.decide.start import Backlog, PendingColumns, RunStart, decide_start, measure_backlog
from spm import limits
from spm.store.manifest import SEALED, Manifest
from tests.rollups.decide.test_plan import CLOSED, DAY, END, HOUR, ONE, REPLAYS, TWO, holding

WAITING_NOT = PendingColumns.of()
NOW = 10**12


@pytest.mark.parametrize(
    ("waits", "last_spark_ms", "start"),
    [
        pytest.param(Backlog(0, 0, None, None), None, RunStart.NOTHING, id="nothing waits"),
        pytest.param(Backlog(199, 999, NOW - 1, None), None, RunStart.NOTHING, id="little waits, not long"),
        pytest.param(Backlog(200, 999, NOW - 1, None), None, RunStart.MINOR, id="many rows"),
        pytest.param(Backlog(1, 1_000_000, NOW - 1, None), None, RunStart.MINOR, id="many samples"),
        pytest.param(Backlog(1, 1, NOW - 600_000, None), None, RunStart.MINOR, id="old rows"),
        pytest.param(Backlog(1, 5_000_001, NOW - 1, None), NOW, RunStart.SPARK, id="a heap does not wait"),
        pytest.param(Backlog(1, 1, NOW - 1, NOW - 120_000), None, RunStart.SPARK, id="a closed hour"),
        pytest.param(Backlog(1, 1, NOW - 1, NOW - 119_999), None, RunStart.NOTHING, id="late data just came"),
        pytest.param(Backlog(1, 1, NOW - 1, NOW - 120_000), NOW - 599_999, RunStart.NOTHING, id="Spark ran just now"),
        pytest.param(
            Backlog(0, 0, None, NOW - 120_000), NOW - 600_000, RunStart.SPARK, id="a closed hour, Spark rested"
        ),
    ],
)
def test_the_decision_to_start(waits: Backlog, last_spark_ms: int | None, start: RunStart) -> None:
    assert decide_start(waits, now_ms=NOW, last_spark_ms=last_spark_ms) == start


def test_nothing_starts_for_a_while_after_a_run_that_failed() -> None:
    waits = Backlog(999, 99_999, 1, 1)
    starts = [
        decide_start(waits, now_ms=NOW, last_spark_ms=None, last_failure_ms=NOW - ago) for ago in (899_999, 900_000)
    ]
    assert starts == [RunStart.NOTHING, RunStart.SPARK]


@pytest.mark.parametrize(("ago_ms", "start"), [(limits.ROLL_SPARK_GAP_MS - 1, 0), (limits.ROLL_SPARK_GAP_MS, 2)])
def test_a_large_backlog_waits_after_a_failure_only_as_long_as_between_two_runs(ago_ms: int, start: RunStart) -> None:
    waits = Backlog(1, limits.ROLL_LOCAL_SAMPLES_MAX + 1, None, None)
    assert decide_start(waits, now_ms=NOW, last_spark_ms=NOW - ago_ms, last_failure_ms=NOW) == start


def test_pressure_counts_the_fullest_shard_and_all_samples() -> None:
    records = [(4, 1_000), (4, 1_001), (5, 1_002)]
    pending = PendingColumns.of(records, [(0, HOUR, 3), (1, HOUR, 3), (1, HOUR + 1, 3), (2, HOUR, 3)])
    backlog = measure_backlog([(pending, {}), (WAITING_NOT, {})], END)
    assert backlog == Backlog(rows=2, samples=12, oldest_ms=1_000, overdue_ms=None)


@pytest.mark.parametrize(
    ("manifest", "overdue"),
    [
        pytest.param(holding(ONE), END, id="hours are missing"),
        pytest.param(holding(TWO, hours_of=ONE), END, id="hours are stale"),
        pytest.param(holding(ONE, hours_of=ONE), None, id="hours are there"),
        pytest.param(holding(REPLAYS), None, id="rolled back: stays so until more data comes"),
        pytest.param(holding(ONE, seal=SEALED), None, id="sealed"),
    ],
)
def test_a_closed_hour_without_its_hours_is_overdue(manifest: Manifest, overdue: int | None) -> None:
    assert measure_backlog([(WAITING_NOT, {DAY: manifest})], CLOSED).overdue_ms == overdue
    assert measure_backlog([(WAITING_NOT, {DAY: manifest})], CLOSED - 1).overdue_ms is None


@pytest.mark.parametrize(("ingest_ms", "overdue"), [(END + 5, END + 5), (END - 5, END)])
def test_late_data_is_overdue_from_its_own_arrival(ingest_ms: int, overdue: int) -> None:
    pending = PendingColumns.of([(4, ingest_ms)], [(0, HOUR, 3)])
    assert measure_backlog([(pending, {})], CLOSED).overdue_ms == overdue
    assert measure_backlog([(pending, {})], CLOSED - 1).overdue_ms is None


def test_a_record_counts_while_one_of_its_cells_is_of_a_day_that_counts() -> None:
    pending = PendingColumns.of([(4, 1_000), (4, 2_000)], [(0, HOUR, 3), (1, HOUR, 4), (1, HOUR + 24, 5)])
    assert pending.days() == [DAY, DAY + 1]
    backlog = measure_backlog([(pending.of_days([DAY + 1]), {})], END)
    assert backlog == Backlog(rows=1, samples=5, oldest_ms=2_000, overdue_ms=None)
