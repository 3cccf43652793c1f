"""Claims about the frames of Spark's jobs: their columns, and that they say what the plain functions say."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rollups.check import comparison
from rollups.check.findings import Report
from rollups.crash_points import ignore_point
from rollups.decide.plan import MergeKind
from rollups.decide.superseded import COVERED, ORPHAN, SUPERSEDED, ListedRows, References, find_superseded
from rollups.decide.work import HourShardTask, PackTask
from rollups.delete.listing import Listing
from rollups.delete.purge import purge
from rollups.spark import frames
from rollups.spark.job import find_differences
from rollups.spark.purge_listing import list_superseded
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from spm.store.encoding import blocks
from spm.store.keys import PlacementTable
from spm.store.rollup import rows as rollup_rows
from tests.bench.rolled import hourly
from tests.model.world import APP, DAY, FIRST, Crash, World, crash_at
from tests.rollups.spark.test_job import schema_of, session

pytestmark = [pytest.mark.spark, pytest.mark.slow]
__all__ = ["session"]  # the fixture of the module that starts Spark


def rolled(path: Path) -> tuple[World, str]:
    """Three series over four hours, rolled up, and the address of their store."""
    url = f"lmdb://{path}"
    world = World(open_backend(url))
    for i in range(8):
        world.send(*((s, i * HOUR_MS // 2 + 1 + s, float(i + s)) for s in range(3)))
    world.roll()
    return world, url


def units_of(world: World) -> list[HourShardTask]:
    """The units in force of the first day, to be counted."""
    return [
        HourShardTask(APP, shard, hour, MergeKind.RECOUNT, entry.state.generations, entry.state.replay, (), 0, True)
        for (shard, hour), entry in world.manifest().entries.items()
    ]


def packs_of(world: World) -> list[PackTask]:
    """The packs of hours in force of the first day."""
    rows = world.manifest().hours.items()
    return [PackTask(APP, shard, DAY, pack.generation, tuple(sorted(pack.hours)), {}) for shard, pack in rows]


def table(session: SparkSession, columns: str, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    """A frame of these rows."""
    return session.createDataFrame(list(rows), columns)


def test_a_recount_of_what_a_run_made_finds_no_difference(session: SparkSession, tmp_path: Path) -> None:
    world, url = rolled(tmp_path)
    counted = frames.recounted(session, url, units_of(world))
    in_force = frames.in_force(session, url, packs_of(world))
    rows = frames.mismatches(counted, in_force)
    assert schema_of(counted) == schema_of(in_force) == frames.HOURS
    assert schema_of(rows) == frames.MISMATCHES
    assert counted.count() == in_force.count() == len(world.recount())
    assert sorted(map(tuple, counted.collect())) == sorted(map(tuple, in_force.collect()))
    assert rows.collect() == []


def test_a_recount_names_the_series_and_what_differs(session: SparkSession) -> None:
    numbers = [*range(10)]
    row = (APP, 1, FIRST, 5, 6)
    ours = [(*row, *numbers), (APP, 1, FIRST + 1, 5, 6, *numbers)]
    theirs = [(*row, 7, *numbers[1:]), (APP, 1, FIRST + 2, 5, 6, *numbers)]
    rows = frames.mismatches(table(session, frames.HOURS, ours), table(session, frames.HOURS, theirs))
    assert {(r.hour - FIRST, r.differs) for r in rows.collect()} == {(0, "count"), (1, "missing"), (2, "surplus")}


def test_a_purge_list_says_what_the_plain_verdict_says(session: SparkSession) -> None:
    numbers = range(1, 6)
    listing = [
        ListedRows(name, shard, hour, number)
        for name in ("log", "chunks", "timelines", "inputs", "hours")
        for shard in (0, 1)
        for hour in (48, 49)
        for number in numbers
    ]
    references = References(
        named=frozenset({(0, 48, 1), (1, 49, 2), (0, 49, 3)}),
        parents=frozenset({(0, 48, 2), (1, 49, 3), (0, 49, 3)}),
        sealed=frozenset({49}),
        covered={(0, 48): frozenset({4, 5}), (1, 49): frozenset({1})},
    )
    named = [("named", *place) for place in references.named] + [("parent", *place) for place in references.parents]
    named += [("sealed", 0, hour, 0) for hour in references.sealed]
    named += [("covered", *place, number) for place, batches in references.covered.items() for number in batches]
    frame = frames.superseded_rows(
        table(session, frames.LISTED, list(listing)), table(session, frames.REFERENCES, named)
    )
    assert schema_of(frame) == frames.SUPERSEDED
    rows = [(ListedRows(r.table, r.shard, r.hour, r.number, r.rows, r.size_bytes), r.reason) for r in frame.collect()]
    assert len(rows) == len(dict(rows))
    assert dict(rows) == find_superseded(listing, references)


def in_ruins(path: Path) -> tuple[World, str]:
    """A store with something of every kind to purge: former runs, a run that died, one rolled back, a moved hour."""
    world, url = rolled(path)
    for i in range(3):
        world.send((0, i * HOUR_MS + 2, 50.0 + i))
        world.roll()
    world.send((1, 3, 60.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("pages written"))
    with pytest.raises(Crash):
        world.roll(at=crash_at("inputs written"))
    world.roll()
    return world, url


@pytest.mark.parametrize("keep", [0, 1])
def test_a_purge_listed_on_spark_deletes_what_a_plain_purge_would(
    session: SparkSession, tmp_path: Path, keep: int
) -> None:
    world, url = in_ruins(tmp_path)
    plain = purge(world.store, APP, keep=keep, dry_run=True)
    rows = list_superseded(session, world.store, url, APP, keep)
    listed = purge(world.store, APP, keep=keep, dry_run=True, listings=rows)
    assert listed.tallies == plain.tallies
    assert {ORPHAN, SUPERSEDED, COVERED} <= {reason for _, reason in plain.tallies}
    assert purge(world.store, APP, keep=keep, listings=rows).tallies == plain.tallies
    assert list_superseded(session, world.store, url, APP, keep) == {}
    assert purge(world.store, APP, keep=keep, dry_run=True).tallies == {}
    assert (world.answer(), world.hours()) == (world.truth, world.recount())


def test_what_a_run_names_after_the_list_was_made_on_spark_stays(session: SparkSession, tmp_path: Path) -> None:
    world, url = rolled(tmp_path)
    world.send((0, 2, 50.0))
    rows: dict[int, Listing] = {}

    def listed_meanwhile(point: str) -> None:
        if point == "compacted":
            rows.update(list_superseded(session, world.store, url, APP, 0))
        ignore_point(point)

    world.roll(at=listed_meanwhile)
    assert any(listing.generations for listing in rows.values())
    purge(world.store, APP, keep=0, listings=rows)
    assert (world.answer(), world.hours()) == (world.truth, world.recount())


def test_the_frames_of_a_purge_have_their_columns(session: SparkSession, tmp_path: Path) -> None:
    _, url = rolled(tmp_path)
    assert schema_of(frames.listed_rows(session, url, APP, ["log"], [0])) == frames.LISTED
    assert schema_of(frames.references(session, url, APP, [DAY], [0], 0)) == frames.REFERENCES
    assert schema_of(frames.keys_of(session, url, APP, {("log", 0): [(0, FIRST, 1)]})) == frames.KEYS


def test_every_task_of_a_frame_has_its_columns(session: SparkSession) -> None:
    assert schema_of(frames.one_partition_each(session, [b"1", b"2"])) == frames.TASKS


def test_the_plain_job_counts_as_the_kernels_do(session: SparkSession, tmp_path: Path) -> None:
    world, _ = rolled(tmp_path)
    rows = [(series, ts, value) for (series, ts), value in world.truth.items()]
    columns = {"series": pa.int64(), "ts": pa.int64(), "value": pa.float64()}
    samples = session.createDataFrame(pa.table(list(map(list, zip(*rows, strict=True))), schema=pa.schema(columns)))
    frame = hourly(samples)
    assert schema_of(frame) == (
        "series long, hour long, count long, sum double, min double, max double, first double, last double"
    )
    names = ("count", "sum", "min", "max", "first", "last")
    plain = {(r.series, r.hour): tuple(r[name] for name in names) for r in frame.collect()}
    assert plain == {key: tuple(row[name] for name in names) for key, row in world.hours().items()}


def test_a_comparison_names_the_hour_whose_aggregate_was_changed(session: SparkSession, tmp_path: Path) -> None:
    world, url = rolled(tmp_path)
    world.retract(source="host", data_from=0, data_to=HOUR_MS)
    world.roll()
    report = Report()
    question = comparison.plan_recount(world.store, APP, None, report)
    assert (len(question.tasks), report.stale, report.findings) == (len(world.manifest().entries), 0, [])
    assert find_differences(session, url, question) == []
    [key, row] = next(iter(world.store.scan("hours", b"", b"\xff" * 40)))
    maxima = blocks.decode_columns(blocks.HOURS, row[rollup_rows.CELLS["max"]])[0]["values"].copy()
    maxima[0] += 1.0
    changed = blocks.encode_columns(blocks.HOURS, {"values": maxima})
    world.store.put([("hours", [(key, {**row, rollup_rows.CELLS["max"]: changed})])])
    rows = find_differences(session, url, question)
    comparison.report_differences(APP, question, rows, report)
    assert [d.what for d in rows] == ["max"]
    assert (report.hours, report.status, report.findings[0].table) == (len(question.tasks), 1, "hours")


def test_only_the_hours_that_are_named_and_that_readers_use_are_compared(tmp_path: Path) -> None:
    world, _ = rolled(tmp_path)
    assert {u.hour for u in comparison.plan_recount(world.store, APP, [FIRST + 1], Report()).tasks} == {FIRST + 1}
    world.send((0, 2, 99.0))
    world.roll(minor=True)
    report = Report()
    question = comparison.plan_recount(world.store, APP, None, report)
    assert report.stale == 1
    assert len(question.tasks) == len(world.manifest().entries) - 1


BOUNDS = {"bounded": (1, 3), "unbounded": (0, 24), "from a start": (2, 24), "up to an end": (0, 2), "nothing": (9, 24)}


@pytest.mark.seed("A27", compares="rows and order of Spark's reader over 16 shards with those over one, any bounds")
def test_rows_over_many_shards_are_those_over_one_in_order(
    session: SparkSession, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    by_bounds: list[dict[str, list[tuple[object, ...]]]] = []
    for spread in (1, 16):
        url = f"lmdb://{tmp_path}/{spread}"
        world = World(open_backend(url), placement=PlacementTable.single(spread=spread))
        for i in range(8):
            world.send(*((s, i * HOUR_MS // 2 + 1 + s, float(i + s)) for s in range(9)))
        world.roll()
        assert (len({unit.shard for unit in units_of(world)}) > 1) == (spread > 1)
        frame = frames.recounted(session, url, units_of(world)).drop("shard").orderBy("hour", "metric", "series")
        collected = list(map(tuple, frame.collect()))
        by_bounds.append({n: [row for row in collected if a <= row[1] - FIRST < b] for n, (a, b) in BOUNDS.items()})
    assert by_bounds[0] == by_bounds[1]
    assert {name: len(rows) for name, rows in by_bounds[0].items()} == {
        "bounded": 18,
        "unbounded": 36,
        "from a start": 18,
        "up to an end": 18,
        "nothing": 0,
    }
    figure(f"{len(BOUNDS)} kinds of bounds, {len(by_bounds[0]['unbounded'])} rows")
