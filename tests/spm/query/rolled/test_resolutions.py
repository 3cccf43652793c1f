"""Claims about resolutions: the coarsest that is exact answers: days, hours or samples (PROTOCOL 11, 22, 23)."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ingest.writer import Writer
from spm.clock import FakeClock
from spm.errors import IntegrityError, QueryTimeout
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.promql.engine import Engine, QueryLimits
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.request.provenance import Provenance
from spm.query.rolled.resolutions import _entries
from spm.store import epochs, keys, manifest
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.manifest import EXPIRED, SEALED, DayPack, HourPack, Manifest, month_of
from spm.wire import metric_id
from tests.bench import month
from tests.model.world import APP, DAY, START, World

FIRST = DAY * DAY_HOURS
M0 = [Matcher("__name__", "=", "m0")]
NAMES = ["sum", "max"]


class Counting:
    """A store that counts the rows it reads, by table."""

    def __init__(self, inner: MemoryBackend) -> None:
        self._inner, self.row_counts = inner, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, table: str, names: Sequence[bytes], columns: Sequence[bytes] | None = None) -> Any:
        self.row_counts[table] = self.row_counts.get(table, 0) + len(names)
        return self._inner.get(table, names, columns)

    def snapshot(self) -> Any:
        return nullcontext(self)


def resolutions(provenance: Provenance) -> list[str]:
    """The resolutions of an answer, in the order of time."""
    return [resolution for resolution, _ in provenance.ranges]


def a_day(world: World | None = None) -> World:
    """Two hours of three series of two metrics, rolled up into hours and a day."""
    world = world or World()
    for at in range(12):
        world.send(*((s, at * 600_000 + 1, float(at + s)) for s in (0, 1, 3)))
    world.roll()
    world.clock.advance(2_000)
    return world


def day_of(storage: AppStorage) -> Any:
    """The whole day of metric m0 as one cell."""
    return storage.select_cells(M0, np.array([FIRST, FIRST + DAY_HOURS]), NAMES)


def change_manifest(world: World, **changes: Any) -> None:
    """Change the day's manifest."""
    now = world.manifest()
    fields = {name: changes.get(name, getattr(now, name)) for name in ("fence", "entries", "hours", "seals")}
    after = manifest.encode(Manifest(now.nonce + 1, **fields))
    assert world.store.check_and_put("manifest", keys.manifest(APP, DAY), b"v", manifest.encode(now), after)


def moved(world: World) -> None:
    """Writers put metric m0 into another shard from now on."""
    ids = np.array([metric_id(b"m0")], np.uint64)
    before = world.placement.place(APP, ids)
    placement = epochs.open_epoch(world.store, APP, function="byte", shards=16, spread=16)
    assert placement.place(APP, ids) != before, "the metric must move"
    world.writer = Writer(world.store, placement)


def test_a_month_of_one_series_reads_few_rows() -> None:
    inner = MemoryBackend()
    month.build(inner, days=30, hosts=8, step_s=7_200, roll_daily=False)
    clock = FakeClock((month.FIRST_DAY + 30) * month.DAY_MS + 26 * HOUR_MS)
    for name, most in {"one series, a point per day": 2, "one series, a point per 4 h": 60}.items():
        expr, step_ms = month.QUERIES[name]
        counting = Counting(inner)
        result = month.ask(month.cold(counting, clock), expr, days=30, step_ms=step_ms)
        assert result.present.sum() == result.values.size > 0
        assert 0 < counting.row_counts.get("hours", 0) + counting.row_counts.get("days", 0) <= most
        assert "chunks" not in counting.row_counts


@pytest.mark.parametrize("spread", [1, 2, 7])
def test_days_and_hours_answer_for_any_spread(spread: int) -> None:
    world = a_day(World(placement=PlacementTable.single(spread=spread)))
    assert resolutions(day_of(world.fresh()).provenance) == ["day aggregates"]
    assert resolutions(world.fresh().select_hours(M0, FIRST, FIRST + 1).provenance) == ["hour aggregates"]


def test_a_retraction_of_another_metric_leaves_hours_and_days_in_use() -> None:
    world = a_day()
    before = day_of(world.fresh())
    world.retract(metric=1)
    after = day_of(world.fresh())
    assert resolutions(after.provenance) == ["day aggregates"]
    assert (after.sum == before.sum).all()
    assert resolutions(world.fresh().select_hours(M0, FIRST, FIRST + 1).provenance) == ["hour aggregates"]
    world.retract(source="host")
    assert resolutions(world.fresh().select_hours(M0, FIRST, FIRST + 1).provenance) == ["raw samples"]
    assert day_of(world.fresh()).count.sum() == 0


def test_a_metric_in_two_shards_is_merged_before_winners_are_chosen() -> None:
    world = a_day()
    moved(world)
    world.send((0, 600_001, 100.0))
    world.clock.advance(2_000)
    hours = world.fresh().select_hours(M0, FIRST, FIRST)
    assert hours.count.tolist() == [[6], [6]]
    assert sorted(hours.max.ravel().tolist()) == [8.0, 100.0]
    assert day_of(world.fresh()).count.tolist() == [[12], [12]]


def test_an_expired_day_is_answered_whole_from_its_day_and_never_in_part() -> None:
    world = a_day()
    before = day_of(world.fresh())
    change_manifest(world, seals={FIRST + i: EXPIRED for i in range(DAY_HOURS)})
    for table in ("hours", "chunks", "timelines"):
        world.store.delete(table, [(key, None) for key, _ in world.store.scan(table, b"", b"\xff" * 64)])
    day = day_of(world.fresh())
    assert (day.sum == before.sum).all()
    assert not day.provenance.warnings()
    part = world.fresh().select_hours(M0, FIRST, FIRST + 1)
    assert part.count.sum() == 0
    assert len(part.provenance.warnings()) == 2
    then = day_of(world.fresh().asof(world.clock.now_ms()))
    assert then.count.sum() == 0
    assert then.provenance.warnings()


def test_a_missing_row_of_a_sealed_hour_is_an_error_and_not_no_data() -> None:
    world = a_day()
    change_manifest(world, seals={FIRST: SEALED})
    assert world.fresh().select_hours(M0, FIRST, FIRST).count.tolist() == [[6], [6]]
    world.store.delete("hours", [(key, None) for key, _ in world.store.scan("hours", b"", b"\xff" * 64)])
    with pytest.raises(IntegrityError, match="no finer data"):
        world.fresh().select_hours(M0, FIRST, FIRST)
    open_one = world.fresh().select_hours(M0, FIRST + 1, FIRST + 1)
    assert resolutions(open_one.provenance) == ["raw samples"]


def test_pending_samples_of_a_sealed_hour_are_ignored() -> None:
    world = a_day()
    change_manifest(world, seals={FIRST: SEALED})
    world.send((0, 5, 1e9))
    world.clock.advance(2_000)
    assert world.fresh().select_hours(M0, FIRST, FIRST).count.tolist() == [[6], [6]]
    raw = world.fresh().select(M0, START, START + 2 * HOUR_MS)
    assert int(raw.ts.min()) > START + HOUR_MS
    assert raw.provenance.warnings() == [
        "raw data up to 2023-08-31T01:00Z has expired: only whole hours are answered there"
    ]


def test_a_new_placement_is_noticed_in_the_middle_of_a_query() -> None:
    world = a_day()
    storage = world.fresh()
    storage.select(M0, START, START + HOUR_MS)
    moved(world)
    world.send(*((s, 1_800_001, 777.0) for s in (0, 1, 3)))
    assert not storage._state.tail.due
    result = storage.select(M0, START, START + HOUR_MS)  # the tail is less than a second old, but of another placement
    assert (result.values == 777.0).any()


def test_a_query_that_is_out_of_time_ends_within_the_storage() -> None:
    world = a_day()
    clock = FakeClock()
    storage = world.fresh()
    reads = storage.select_runs

    def slow(*arguments: Any, **options: Any) -> Any:
        clock.advance(31_000)
        return reads(*arguments, **options)

    storage.select_runs = slow  # type: ignore[method-assign]
    with pytest.raises(QueryTimeout):
        Engine(storage, QueryLimits(timeout_s=30), clock).instant("m0", START // 1 + HOUR_MS)


def test_late_samples_take_a_day_down_to_hours_and_their_hour_down_to_samples() -> None:
    world = a_day()
    world.send((0, 5, 50.0))
    world.clock.advance(2_000)
    result = day_of(world.fresh())
    assert resolutions(result.provenance) == ["raw samples", "hour aggregates"]
    assert sorted(result.count.ravel().tolist()) == [12, 13]


def test_cells_are_those_of_their_hours_where_a_day_is_whole_and_where_it_is_not() -> None:
    world = World()
    world.clock.advance(96 * HOUR_MS)
    for day in range(3):
        world.send(*((s, day * 24 * HOUR_MS + at * 1_500_000 + 1, float(at + s)) for at in range(50) for s in (0, 3)))
    world.roll(now_ms=START + 100 * HOUR_MS)
    world.send((0, 25 * HOUR_MS + 5, 50.0))  # the second day is answered from its hours
    world.clock.advance(2_000)
    borders = np.array([*range(FIRST + 5, FIRST + 24), FIRST + 24, FIRST + 48, *range(FIRST + 49, FIRST + 55)])
    hours = world.fresh().select_hours(M0, FIRST, FIRST + 71)
    mixed = world.fresh().select_cells(M0, borders, NAMES)
    assert resolutions(mixed.provenance) == ["hour aggregates", "raw samples", "hour aggregates"]
    for labels, counts, most in zip(mixed.labels, mixed.count, mixed.max, strict=True):
        row = list(hours.labels).index(labels)
        parts = [slice(a - FIRST, b - FIRST) for a, b in pairwise(borders.tolist())]
        assert counts.tolist() == [hours.count[row, part].sum() for part in parts]
        np.testing.assert_array_equal(most, [np.fmax.reduce(hours.max[row, part]) for part in parts])


@pytest.mark.parametrize("ids", [[1, 2, 3], [2], [5, 9], [9, 10], [0, 11], [0, 4]])
@pytest.mark.parametrize("steps", [{7}, {7, 9}, {3, 4}, {11, 12}])
def test_only_the_requested_series_and_steps_of_a_row_are_taken(ids: list[int], steps: set[int]) -> None:
    row = [(series, step) for series in (1, 2, 5, 9, 10) for step in (4, 7, 8, 9, 11) if (series, step) != (2, 7)]
    series, step = np.array(row).T
    used = np.isin(np.arange(min(steps), max(steps) + 1), list(steps))
    numbers = np.arange(len(ids))[::-1].copy()
    rows, at = _entries(series.astype(np.uint64), step.copy(), np.array(ids, np.uint64), numbers, min(steps), used)
    expected = [i for i, (one, when) in enumerate(row) if one in ids and when in steps]
    assert at.tolist() == expected
    assert rows.tolist() == [numbers[ids.index(row[i][0])] for i in expected]


def test_hours_and_days_that_were_made_of_other_inputs_are_not_used() -> None:
    world = a_day()
    other = {
        shard: HourPack(pack.generation, {s: replace(of, inputs=b"another!") for s, of in pack.hours.items()})
        for shard, pack in world.manifest().hours.items()
    }
    change_manifest(world, hours=other)
    assert resolutions(day_of(world.fresh()).provenance) == ["day aggregates"]
    assert resolutions(world.fresh().select_hours(M0, FIRST, FIRST + 1).provenance) == ["raw samples"]
    key = keys.manifest_month(APP, month_of(DAY))
    [row] = world.store.get("manifest", [key])
    assert row is not None
    now = manifest.decode_month(row[b"v"])
    days = {
        shard: DayPack(pack.generation, {d: replace(of, inputs=b"another!") for d, of in pack.days.items()})
        for shard, pack in now.days.items()
    }
    changed = manifest.encode_month(replace(now, nonce=now.nonce + 1, days=days))
    assert world.store.check_and_put("manifest", key, b"v", row[b"v"], changed)
    assert resolutions(day_of(world.fresh()).provenance) == ["raw samples"]


def test_a_retraction_takes_a_day_down_to_samples_and_a_run_brings_it_back() -> None:
    world = a_day()
    number = world.retract(series=0, data_to=START + HOUR_MS)
    world.clock.advance(2_000)
    result = day_of(world.fresh())
    assert resolutions(result.provenance) == ["raw samples", "hour aggregates"]
    world.roll()
    world.clock.advance(2_000)
    again = day_of(world.fresh())
    assert resolutions(again.provenance) == ["day aggregates"]
    assert (again.sum == result.sum).all()
    world.undo(number)
    assert sorted(day_of(world.fresh()).count.ravel().tolist()) == [12, 12]


def test_a_day_that_leaves_out_other_samples_than_its_hours_is_not_used() -> None:
    world = a_day()
    key = keys.manifest_month(APP, month_of(DAY))
    [row] = world.store.get("manifest", [key])
    assert row is not None
    now = manifest.decode_month(row[b"v"])
    days = {
        shard: DayPack(pack.generation, {d: replace(of, retractions=b"another!") for d, of in pack.days.items()})
        for shard, pack in now.days.items()
    }
    changed = manifest.encode_month(replace(now, nonce=now.nonce + 1, days=days))
    assert world.store.check_and_put("manifest", key, b"v", row[b"v"], changed)
    assert resolutions(day_of(world.fresh()).provenance) == ["hour aggregates"]


def test_a_retraction_hides_series_that_were_registered_after_it_was_first_applied() -> None:
    world = a_day()
    storage = world.fresh()
    world.retract(metric=0, write_to=1 << 50)
    assert storage.select(M0, START, START + 2 * HOUR_MS).labels == []
    world.send((6, 5, 1.0))
    world.clock.advance(2_000)
    assert storage.select(M0, START, START + 2 * HOUR_MS).labels == []


def test_a_sealed_hour_answers_from_where_a_closed_epoch_put_it() -> None:
    world = a_day()
    change_manifest(world, seals={FIRST: SEALED, FIRST + 1: SEALED})
    before = world.fresh().select_hours(M0, FIRST, FIRST + 1)
    moved(world)
    epochs.set_state(world.store, APP, 0, keys.CLOSING)
    epochs.set_state(world.store, APP, 0, keys.CLOSED)
    after = world.fresh().select_hours(M0, FIRST, FIRST + 1)
    assert (after.sum == before.sum).all()
    assert after.count.sum() == before.count.sum() == 24
    assert day_of(world.fresh()).count.sum() == 24
