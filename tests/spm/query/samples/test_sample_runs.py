"""Sample runs over shared memory give the same numbers as samples copied into one batch."""

from __future__ import annotations

import dataclasses
import math
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.arrays import BOOL, F64, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.query.promql.evaluation.sample_source import samples_of
from spm.query.promql.kernels import over_time, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import SeriesBatch
from spm.query.request.provenance import Provenance
from spm.query.samples.page_selection import CachedTimelines, SelectedPages, SharedPage
from spm.query.samples.sample_runs import SampleRuns, SampleRunsBuilder, Timelines, is_ascending, run_count
from spm.query.series.index import SeriesByMetric
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.rollup.aggregates import compensated

STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
VALUE = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e300, -1e300, np.inf, -np.inf, np.nan, STALE, 0.1, 1e16])
FUNCTIONS = sorted(set(over_time.FUNCTIONS) - {"double_exponential_smoothing", "integral"})


def numbered(rows: I64) -> list[dict[str, str]]:
    """Labels with the number of the row."""
    return [{"row": str(row)} for row in rows.tolist()]


def by_metric_of(series: dict[int, U64]) -> SeriesByMetric:
    """The selection of a query, by metric."""
    ends = [*accumulate(map(len, series.values()), initial=0)]
    ids = np.concatenate([*series.values()])
    metrics = np.repeat(np.fromiter(series, np.uint64), [len(own) for own in series.values()])
    return SeriesByMetric(ids, metrics, np.arange(len(ids)), dict(zip(series, pairwise(ends), strict=True)))


def runs_of(selected: SelectedPages) -> tuple[list[int], SeriesBatch]:
    """Return (rows that have samples, the samples)."""
    runs = selected.runs(numbered, Provenance())
    return [int(each["row"]) for each in runs.labels], runs.batch()


@st.composite
def two_hours(draw: st.DrawFn) -> tuple[SampleRuns, int]:
    """Two hours of three series, some of which share their timeline; the second may be cut."""
    end = draw(st.sampled_from([100, 200, 1_000]))
    builder = SampleRunsBuilder(0, end)
    for hour in range(2):
        times = [sorted(draw(st.sets(st.integers(1, 99), min_size=1, max_size=9))) for _ in range(2)]
        ts = np.array([100 * hour + t for line in times for t in line], np.int64)
        timelines = Timelines.of(ts, np.array(list(map(len, times)), np.int32)).within(0, end)
        rows = np.array(sorted(draw(st.sets(st.integers(0, 2), min_size=1))), np.int64)
        line = np.array([draw(st.integers(0, 1)) for _ in rows], np.int64)
        counts = np.array([len(times[n]) for n in line], np.int64)
        values = np.array([draw(VALUE) for _ in range(int(counts.sum()))])
        columns, owner, first = parted(draw, values, counts)
        builder.add(np.stack((rows, owner, first, line), axis=1), columns, timelines, int(counts.sum()))
    return builder.build(np.arange(3), numbered, Provenance()), end


def parted(draw: st.DrawFn, values: F64, counts: I64) -> tuple[list[F64], I64, I64]:
    """(the values of the runs in two columns, the column of each run, its place there)."""
    cut = draw(st.integers(0, len(counts)))
    owner, first = (np.arange(len(counts)) >= cut).astype(np.int64), np.cumsum(counts) - counts
    border = int(counts[:cut].sum())
    return [values[:border].copy(), values[border:].copy()], owner, first - owner * border


@given(two_hours(), st.sampled_from(FUNCTIONS), st.integers(5, 150))
def test_windows_are_the_same_over_shared_timelines_and_over_one_per_series(
    two_hours_and_end: tuple[SampleRuns, int], function: str, range_ms: int
) -> None:
    runs, _ = two_hours_and_end
    unshared = SampleRuns.of(runs.batch())
    for steps in (Steps(7, 13, 20), Steps(150, 0, 1)):
        pairs = zip(swept(runs, function, steps, range_ms), swept(unshared, function, steps, range_ms), strict=True)
        for (values, present), (expected, expected_present) in pairs:
            np.testing.assert_array_equal(present, expected_present)
            np.testing.assert_array_equal(values[present], expected[expected_present])


@given(st.data(), st.integers(0, 6), st.integers(0, 9), st.sampled_from(FUNCTIONS), st.integers(5, 150))
def test_runs_of_elements_have_the_samples_of_their_batch(
    data: st.DataObject, series: int, count: int, function: str, range_ms: int
) -> None:
    rows = st.lists(st.booleans(), min_size=count, max_size=count)
    few = [data.draw(rows) for _ in range(2)]  # rows with the same holes share their timelines
    present = np.array([data.draw(st.sampled_from(few)) for _ in range(series)], np.bool_).reshape(series, count)
    values = np.array([data.draw(VALUE) for _ in range(present.size)], np.float64).reshape(present.shape)
    times, labels = 7 + 20 * np.arange(count, dtype=np.int64), [{"n": str(n)} for n in range(series)]
    runs, expected = SampleRuns.where(present, labels, times, values), samples_of(labels, times, values, present)
    assert len(runs.timeline) <= run_count(present)
    batch = runs.batch()
    assert (batch.offsets.tolist(), batch.ts.tolist()) == (expected.offsets.tolist(), expected.ts.tolist())
    assert batch.values.view(np.uint64).tolist() == expected.values.view(np.uint64).tolist()
    for (values_of_runs, present_of_runs), (values_of_batch, present_of_batch) in zip(
        swept(runs, function, Steps(7, 13, 20), range_ms),
        swept(SampleRuns.of(expected), function, Steps(7, 13, 20), range_ms),
        strict=True,
    ):
        np.testing.assert_array_equal(present_of_runs, present_of_batch)
        np.testing.assert_array_equal(values_of_runs[present_of_runs], values_of_batch[present_of_batch])


def test_rows_without_gaps_share_one_timeline() -> None:
    runs = SampleRuns.where(np.ones((3, 4), np.bool_), [{}] * 3, np.arange(4), np.arange(12.0).reshape(3, 4))
    assert (runs.timeline.tolist(), runs.lengths.tolist()) == ([0, 0, 0], [4])


def swept(runs: SampleRuns, function: str, steps: Steps, range_ms: int) -> list[tuple[F64, BOOL]]:
    """The function's values, the newest samples and their times."""
    half = np.full(steps.count, 0.5)
    return [
        windows.sweep(function, runs, steps, range_ms, half, half),
        windows.instants(runs, steps, range_ms),
        windows.stamps(runs, steps, range_ms),
    ]


@given(st.lists(VALUE, min_size=1, max_size=12))
def test_sums_and_extremes_are_those_of_the_plain_formulas(numbers: list[float]) -> None:
    values = np.array(numbers)
    total, lost = 0.0, 0.0
    for each in numbers:
        total, lost = compensated(total, lost, each)
    np.testing.assert_array_equal(over_time._sum(values), total if np.isinf(total) else total + lost)
    for greatest in (True, False):
        computed, expected = over_time._extreme(values, greatest), over_time._extreme_of_all(values, greatest)
        assert np.isnan(computed) == np.isnan(expected)
        assert np.isnan(computed) or (computed == expected and np.signbit(computed) == np.signbit(expected))


def test_values_are_copied_once_pages_with_few_selected_series_hold_too_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spm.limits.SAMPLE_RUNS_IDLE_BYTES_MAX", 8 * 15)
    builder, timelines = SampleRunsBuilder(0, 100), Timelines.of(np.array([10], np.int64), np.array([1], np.int32))
    pages = [np.arange(10.0) + 10 * n for n in range(4)]
    for row, page in enumerate(pages):
        builder.add(np.array([[row, 0, 3, 0]]), [page], timelines, 1)
    buffers = builder.build(np.arange(4), numbered, Provenance()).buffers
    assert [any(each is page for each in buffers) for page in pages] == [True, False, False, False]
    assert builder.build(np.arange(4), numbered, Provenance()).batch().values.tolist() == [3.0, 13.0, 23.0, 33.0]


def test_a_few_values_of_many_in_a_part_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.limits.SAMPLE_RUNS_PART_IDLE_BYTES", 8 * 15)
    timelines, buffers = Timelines.of(np.array([10, 20], np.int64), np.array([2], np.int32)), []
    for unwanted in (6, 7):
        builder = SampleRunsBuilder(0, 100)
        columns = [np.arange(2.0 + unwanted) + 10 * n for n in range(3)]
        builder.add(np.array([[row, row, 1, 0] for row in range(3)]), columns, timelines, 6)
        runs = builder.build(np.arange(3), numbered, Provenance())
        assert runs.batch().values.tolist() == [1.0, 2.0, 11.0, 12.0, 21.0, 22.0]
        buffers.append(sum(each is column for each in runs.buffers for column in columns))
    assert buffers == [3, 0]


def extreme(values: list[float], *, greatest: bool) -> float:
    """Compare one after the other: NaN never wins unless it is alone; of equal values the first wins."""
    best = values[0]
    for here in values:
        if math.isnan(best) or (here > best if greatest else here < best):
            best = here
    return best


@given(st.lists(VALUE, min_size=1, max_size=11), st.booleans())
def test_the_extreme_of_a_window_is_that_of_its_values_one_after_the_other(values: list[float], greatest: bool) -> None:
    code = over_time.MAX if greatest else over_time.MIN
    computed = over_time.value(code, np.arange(len(values)), np.array(values), 0, 1, 0.0, 0.0)
    expected = extreme(values, greatest=greatest)
    assert (repr(computed), math.copysign(1, computed)) == (repr(expected), math.copysign(1, expected)) or math.isnan(
        expected
    )
    assert math.isnan(computed) == math.isnan(expected)


@given(st.data())
def test_the_selected_series_of_each_page_get_their_values_and_times(data: st.DataObject) -> None:
    """Pages with some of the selected series, with others, and with none."""
    by_metric, chunks, expected = dict[int, U64](), list[tuple[int, SharedPage]](), dict[int, list[float]]()
    number = 0
    for metric in range(data.draw(st.integers(1, 3))):
        ids = sorted(data.draw(st.sets(st.integers(0, 30), min_size=1, max_size=9)))
        present_ids = sorted(data.draw(st.sets(st.integers(0, 30))))
        numbers = np.arange(number, number + len(ids))
        number += len(ids)
        even = data.draw(st.sampled_from([None, 1, 2]))
        counts = [even or data.draw(st.integers(1, 2)) for _ in present_ids]
        values = (np.arange(sum(counts)) + 100 * metric).astype(np.float64)
        for name, row in zip(ids, numbers.tolist(), strict=True):
            if name in present_ids:
                at = sum(counts[: present_ids.index(name)])
                expected[row] = values[at : at + counts[present_ids.index(name)]].tolist()
        timelines = np.array(counts, np.int32) - 1  # the first timeline has one time, the second two
        page = ChunkPage(np.array(present_ids, np.uint64), timelines, np.array(counts, np.int32), values)
        by_metric[metric] = np.array(ids, np.uint64)
        chunks.append((metric, SharedPage.of(page)))
    counts_of_lines = np.array([1, 2], np.int32)
    cached = CachedTimelines(
        Timelines.of(np.array([5, 5, 6], np.int64), counts_of_lines), counts_of_lines, ((0,), (0,))
    )
    selected = SelectedPages(by_metric_of(by_metric), SampleRunsBuilder(0, 100))
    metrics, pages = (tuple(each) for each in zip(*chunks, strict=True))
    selection = selected.selection(metrics, pages, 1)
    assert selection.pages == ((0,) if expected else ())
    if expected:
        selected.add_pages(pages, selection, cached, is_whole=True)
    rows, batch = runs_of(selected)
    got = {row: batch.values[a:b].tolist() for row, a, b in zip(rows, batch.offsets, batch.offsets[1:], strict=False)}
    assert got == expected


@pytest.mark.parametrize("column", ["series", "timeline", "counts", "values"])
def test_a_page_with_a_column_of_another_kind_is_damaged(column: str) -> None:
    one = np.array([1], np.int32)
    page = ChunkPage(np.array([5], np.uint64), one, one, np.array([1.0]))
    with pytest.raises(CorruptBlock, match="wrong kind"):
        SharedPage.of(dataclasses.replace(page, **{column: np.array([1], np.int16)}))  # type: ignore[arg-type]


def test_pages_with_equal_layouts_get_their_times_however_timelines_are_paged() -> None:
    numbers = np.array([0, 1], np.int32), np.array([1, 1], np.int32)
    page = SharedPage.of(ChunkPage(np.array([5, 6], np.uint64), *numbers, np.array([1.0, 2.0])))
    selected = SelectedPages(by_metric_of({9: page.series}), SampleRunsBuilder(0, 100))
    counts = np.array([1, 1], np.int32)
    for shift, pages, ts in ((1, (0,), [10, 11]), (0, (0, 1), [20, 21])):
        selection = selected.selection((9,), [page], shift)
        assert selection.pages == pages
        cached = CachedTimelines(
            Timelines.of(np.array(ts, np.int64), counts), counts, (pages, tuple(range(len(pages))))
        )
        selected.add_pages([page], selection, cached, is_whole=True)
    _, batch = runs_of(selected)
    assert (batch.ts.tolist(), batch.values.tolist()) == ([10, 20, 11, 21], [1.0, 1.0, 2.0, 2.0])


def test_pages_with_equal_layouts_are_distinguished_by_their_metrics() -> None:
    one = np.array([0], np.int32), np.array([1], np.int32)
    pages = [SharedPage.of(ChunkPage(np.array([5], np.uint64), *one, np.array([value]))) for value in (1.0, 2.0)]
    selected = SelectedPages(by_metric_of({8: pages[0].series, 9: pages[1].series}), SampleRunsBuilder(0, 100))
    for metric, page in zip((8, 9), pages, strict=True):  # as where the other page of each hour is damaged
        cached = CachedTimelines(Timelines.of(np.array([10], np.int64), one[1]), one[1], ((0,), (0,)))
        selected.add_pages([page], selected.selection((metric,), [page], 1), cached, is_whole=True)
    rows, batch = runs_of(selected)
    assert (rows, batch.values.tolist()) == ([0, 1], [1.0, 2.0])


def test_pages_of_one_metric_have_room_for_all_its_series_each() -> None:
    numbers = np.array([0, 1], np.int32), np.array([1, 1], np.int32)
    page = SharedPage.of(ChunkPage(np.array([5, 6], np.uint64), *numbers, np.array([1.0, 2.0])))
    selection = SelectedPages(by_metric_of({9: page.series}), SampleRunsBuilder(0, 100)).selection(
        (9, 9), [page, page], 1
    )
    assert selection.entries[:, :2].tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize(("timeline", "count"), [(0, 2), (2, 1), (3, 1), (-1, 1)])
def test_values_without_a_timeline_of_their_length_are_an_integrity_error(timeline: int, count: int) -> None:
    """The pool has one page with two timelines of one time each."""
    columns = np.array([timeline], np.int32), np.array([count], np.int32), np.ones(count)
    page = SharedPage.of(ChunkPage(np.array([5], np.uint64), *columns))
    selected, counts = (
        SelectedPages(by_metric_of({9: page.series}), SampleRunsBuilder(0, 100)),
        np.array([1, 1], np.int32),
    )
    cached = CachedTimelines(Timelines.of(np.array([10, 11], np.int64), counts), counts, ((0,), (0,)))
    with pytest.raises(IntegrityError, match="differ in length"):
        selected.add_pages([page], selected.selection((9,), [page], 1), cached, is_whole=True)


def test_a_timeline_with_two_versions_of_a_time_is_noticed() -> None:
    counts = np.array([2, 2], np.int32)
    assert is_ascending(np.array([1, 2, 1, 2]), counts)
    assert not is_ascending(np.array([1, 2, 2, 2]), counts)
