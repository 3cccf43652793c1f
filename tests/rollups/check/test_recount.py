"""Claims about counting a second time: it agrees with the kernels on anything, and sees any aggregate that is off."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollups.check.recount import RecountedRows, differences, recount_day, recount_hour
from spm.store.encoding.blocks import Messages
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.versions.merge import Piece, merge, pick
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility
from tests.support.store_columns import merge_aggregates

STALE = np.array([0x7FF0_0000_0000_0002], np.uint64).view(np.float64)[0]
ODD = [0.0, -0.0, STALE, np.nan, np.inf, -np.inf, 5e-324, 1.7e308, 0.1, -3.25]
VALUES = st.one_of(st.integers(-50, 50).map(float), st.sampled_from(ODD), st.floats(width=64))
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), VALUES, st.integers(0, 3)), min_size=1, max_size=25)


def piece_of(rows: Sequence[tuple[int, int, float, int]]) -> Piece:
    """A block of (series, ts, value, message); series 2 and 3 are of another metric, message 3 of another source."""
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    series = np.array(sorted({r[0] for r in rows}), np.uint64)
    messages = Messages(
        np.array([5, 5, 6, 6], np.int64),
        np.array([1, 2, 1, 1], np.int64),
        np.zeros(4, np.int64),
        np.array([0, 0, 0, 1], np.int32),
        ("a", "b"),
    )
    return Piece(
        messages,
        series,
        series // np.uint64(2) + np.uint64(100),
        np.array([sum(r[0] == s for r in rows) for s in series.tolist()], np.int32),
        np.array([rows[i][3] for i in order], np.int32),
        np.array([rows[i][1] for i in order], np.int64),
        np.array([rows[i][2] for i in order], np.float64),
    )


def by_kernels(pieces: Sequence[Piece], visibility: Visibility) -> tuple[np.ndarray, Aggregates]:
    """What a run stores."""
    piece = merge(pieces)
    won = pick(piece, visibility.visible_rows(piece))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(won.counts, dtype=np.int64)])
    aggregated = aggregates.aggregate_all(won.series, starts, won.ts, won.values)
    return won.metrics[aggregated.count > 0], aggregated.take(aggregated.count > 0)


HIDING = Visibility((Retraction(1, 1, 0, 6, 6, 2, 5, "b", (), "a test", "somebody"),))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=3), st.booleans())
def test_a_recount_agrees_with_what_runs_store_on_any_samples(
    blocks: list[list[tuple[int, int, float, int]]], hiding: bool
) -> None:
    pieces = [piece_of(rows) for rows in blocks]
    visibility = HIDING if hiding else Visibility()
    assert differences(*by_kernels(pieces, visibility), recount_hour(pieces, visibility)) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
@example([[(1, 1, 0.0, 0), (1, 2, 1.0, 0)], [(1, 2, np.nan, 0), (1, 3, -9007199254740994.0, 0)], [(1, 1, 0.0, 0)]])
def test_a_day_agrees_with_what_runs_make_of_its_hours(hours: list[list[tuple[int, int, float, int]]]) -> None:
    aggregated = [by_kernels([piece_of(rows)], Visibility()) for rows in hours]
    metrics = np.unique(np.concatenate([m for m, _ in aggregated]))
    parts = [(m, merge_aggregates([rows.take(names == m) for names, rows in aggregated])) for m in metrics.tolist()]
    stored = aggregates.concatenate([rows for _, rows in parts]) if parts else Aggregates.empty()
    names = np.repeat(metrics, [len(rows) for _, rows in parts])
    assert differences(names, stored, recount_day(aggregated)) == []


ONE = [(0, n, float(v), 0) for n, v in enumerate([3, 5, 2, 8], 1)] + [(2, 1, 4.0, 0), (2, 2, 0.5, 0)]


def whole() -> tuple[np.ndarray, Aggregates, RecountedRows]:
    """An hour as it is stored, and as it is counted."""
    pieces = [piece_of(ONE)]
    return *by_kernels(pieces, Visibility()), recount_hour(pieces)


@pytest.mark.parametrize("name", [name for name, _ in COLUMNS])
@pytest.mark.parametrize("row", [0, 1])
def test_an_aggregate_that_is_off_is_named(name: str, row: int) -> None:
    metrics, stored, counted = whole()
    column = getattr(stored, name).copy()
    column[row] += 1
    differing = differences(metrics, dataclasses.replace(stored, **{name: column}), counted)
    assert [(d.name, d.series) for d in differing] == [(name, int(stored.series[row]))]


def test_sums_of_whole_numbers_are_compared_exactly() -> None:
    metrics, stored, counted = whole()
    column = stored.sum.copy()
    column[0] = np.nextafter(column[0], np.inf)
    assert [d.name for d in differences(metrics, dataclasses.replace(stored, sum=column), counted)] == ["sum"]


@pytest.mark.parametrize("what", ["a value elsewhere", "one too many"])
def test_a_sketch_that_stands_for_other_values_is_named(what: str) -> None:
    metrics, stored, counted = whole()
    keys, counts = stored.sketch.keys.copy(), stored.sketch.counts.copy()
    if what == "one too many":
        counts[0] += 1
    else:
        keys[0] -= 2
    broken = dataclasses.replace(stored.sketch, keys=keys, counts=counts)
    differing = differences(metrics, dataclasses.replace(stored, sketch=broken), counted)
    assert [(d.name, d.series) for d in differing] == [("sketch", 0)]


def test_rows_without_sketches_are_no_fault() -> None:
    metrics, stored, counted = whole()
    assert differences(metrics, dataclasses.replace(stored, sketch=type(stored.sketch).empty()), counted) == []


@pytest.mark.parametrize("side", ["stored", "counted"])
def test_a_series_on_one_side_alone_is_named(side: str) -> None:
    metrics, stored, counted = whole()
    if side == "stored":
        counted = recount_hour([piece_of([row for row in ONE if row[0] == 0])])
    else:
        stored, metrics = stored.take(np.array([0])), metrics[:1]
    [differing] = differences(metrics, stored, counted)
    assert (differing.series, differing.name) == (2, "count")


def test_a_day_whose_sketch_lost_a_shard_is_named() -> None:
    aggregated = [by_kernels([piece_of(ONE)], Visibility()), by_kernels([piece_of(ONE)], Visibility())]
    metric = aggregated[0][0][0]
    stored = merge_aggregates([rows.take(names == metric) for names, rows in aggregated])
    counts = stored.sketch.counts.copy()
    counts[-1] += 1
    broken = dataclasses.replace(stored, sketch=dataclasses.replace(stored.sketch, counts=counts))
    of_metric = [(names[names == metric], rows.take(names == metric)) for names, rows in aggregated]
    names = np.repeat(metric, len(stored))
    assert differences(names, stored, recount_day(of_metric)) == []
    assert [d.name for d in differences(names, broken, recount_day(of_metric))] == ["sketch"]
