"""Samples that stay where they lie give the same numbers as samples that are brought together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.query.promql import overtime, windows
from spm.query.promql.windows import Steps
from spm.query.strips import Lines, Strips, Weaver, ascending
from spm.query.weaving import Known, Pages, SharedPage, Woven
from spm.store.blocks import ChunkPage

STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
VALUE = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e300, -1e300, np.inf, -np.inf, np.nan, STALE, 0.1, 1e16])
FUNCTIONS = sorted(set(overtime.FUNCTIONS) - {"double_exponential_smoothing", "integral"})


@st.composite
def woven(draw: st.DrawFn) -> tuple[Strips, int]:
    """Two slots of three series, some of which share their line; the second may be cut."""
    end = draw(st.sampled_from([100, 200, 1_000]))
    weaver = Weaver(0, end)
    for slot in range(2):
        times = [sorted(draw(st.sets(st.integers(1, 99), min_size=1, max_size=9))) for _ in range(2)]
        ts = np.array([100 * slot + t for line in times for t in line], np.int64)
        lines = Lines.of(ts, np.array(list(map(len, times)), np.int32)).within(0, end)
        rows = np.array(sorted(draw(st.sets(st.integers(0, 2), min_size=1))), np.int64)
        line = np.array([draw(st.integers(0, 1)) for _ in rows], np.int64)
        counts = np.array([len(times[n]) for n in line], np.int64)
        values = np.array([draw(VALUE) for _ in range(int(counts.sum()))])
        weaver.add(rows, *parted(draw, values, counts), line, lines, int(counts.sum()))
    return weaver.woven(3)[1], end


def parted(
    draw: st.DrawFn, values: windows.F64, counts: windows.I64
) -> tuple[list[windows.F64], windows.I64, windows.I64]:
    """The values of the strips in one column or in two; in which of them those of each lie, and where."""
    cut = draw(st.integers(0, len(counts)))
    owner, first = (np.arange(len(counts)) >= cut).astype(np.int64), np.cumsum(counts) - counts
    border = int(counts[:cut].sum())
    return [values[:border].copy(), values[border:].copy()], owner, first - owner * border


@given(woven(), st.sampled_from(FUNCTIONS), st.integers(5, 150))
def test_windows_are_the_same_over_shared_lines_and_over_lines_of_each_series(
    made: tuple[Strips, int], function: str, range_ms: int
) -> None:
    strips, _ = made
    apart = Strips.of(strips.batch())
    for steps in (Steps(7, 13, 20), Steps(150, 0, 1)):
        pairs = zip(swept(strips, function, steps, range_ms), swept(apart, function, steps, range_ms), strict=True)
        for (values, present), (wanted, there) in pairs:
            np.testing.assert_array_equal(present, there)
            np.testing.assert_array_equal(values[present], wanted[there])


def swept(found: Strips, function: str, steps: Steps, range_ms: int) -> list[tuple[windows.F64, windows.Bool]]:
    """The function's values, the newest samples and their times."""
    half = np.full(steps.count, 0.5)
    return [
        windows.sweep(function, found, steps, range_ms, half, half),
        windows.instants(found, steps, range_ms),
        windows.stamps(found, steps, range_ms),
    ]


@given(st.lists(VALUE, min_size=1, max_size=12))
def test_sums_and_extremes_are_those_of_the_plain_formulas(numbers: list[float]) -> None:
    values = np.array(numbers)
    total, lost = 0.0, 0.0
    for each in numbers:
        total, lost = overtime.compensated(total, lost, each)
    np.testing.assert_array_equal(overtime._sum(values), total if np.isinf(total) else total + lost)
    for greatest in (True, False):
        found, wanted = overtime._extreme(values, greatest), overtime._extreme_of_all(values, greatest)
        assert np.isnan(found) == np.isnan(wanted)
        assert np.isnan(found) or (found == wanted and np.signbit(found) == np.signbit(wanted))


def test_pages_of_which_little_is_wanted_are_copied_once_they_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.limits.STRIPS_IDLE_BYTES_MAX", 8 * 15)
    weaver, lines = Weaver(0, 100), Lines.of(np.array([10], np.int64), np.array([1], np.int32))
    pages = [np.arange(10.0) + 10 * n for n in range(4)]
    for row, page in enumerate(pages):
        weaver.add(np.array([row]), [page], np.array([0]), np.array([3]), np.array([0]), lines, 1)
    held = weaver.woven(4)[1].held
    assert [any(each is page for each in held) for page in pages] == [True, False, False, False]
    assert weaver.woven(4)[1].batch().values.tolist() == [3.0, 13.0, 23.0, 33.0]


def test_pages_that_look_alike_find_their_times_however_timelines_are_cut_into_pages() -> None:
    numbers = np.array([0, 1], np.int32), np.array([1, 1], np.int32)
    page = SharedPage.of(ChunkPage(np.array([5, 6], np.uint64), *numbers, np.array([1.0, 2.0])))
    woven = Woven({9: (page.series, np.arange(2))}, 2, Weaver(0, 100))
    counts, asked = np.array([1, 1], np.int32), list[Pages]()

    def lines_of(pages: Pages, ts: list[int]) -> Known:
        asked.append(pages)
        return Known(Lines.of(np.array(ts, np.int64), counts), counts, (pages, tuple(range(len(pages)))))

    assert woven.opened([(9, page)], 1, lambda pages: lines_of(pages, [10, 11]), whole=True)
    assert woven.opened([(9, page)], 0, lambda pages: lines_of(pages, [20, 21]), whole=True)
    assert asked == [(0,), (0, 1)]
    found = woven.strips()[1].batch()
    assert (found.ts.tolist(), found.values.tolist()) == ([10, 20, 11, 21], [1.0, 1.0, 2.0, 2.0])


def test_a_line_with_two_versions_of_a_time_is_noticed() -> None:
    counts = np.array([2, 2], np.int32)
    assert ascending(np.array([1, 2, 1, 2]), counts)
    assert not ascending(np.array([1, 2, 2, 2]), counts)
