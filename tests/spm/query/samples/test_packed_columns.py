"""Values that stay packed until their group of series is evaluated give the same answers as unpacked ones."""

import pickle

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from spm import limits
from spm.clock import FakeClock
from spm.errors import CorruptBlock, QueryTooLarge
from spm.limits import HOUR_MS
from spm.query.promql.kernels import over_time, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.reader import AppStorage
from spm.query.request.budget import SAMPLE_BYTES
from spm.query.samples import sample_runs
from spm.query.samples.packed_columns import PackedColumns
from spm.query.samples.sample_runs import SampleRuns
from spm.query.samples.unpacked_pages import UnpackedPages
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import paged
from tests.support.rows import START, envelope, stored
from tests.support.store_reader import EVERY, reader, roll

HOURS = 3
NOW = START + (HOURS + 1) * HOUR_MS
STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
VALUE = st.sampled_from([0.0, -0.0, 1.5, -3.25, 1e300, np.inf, np.nan, STALE, 0.1])
PLAIN = sorted(set(over_time.FUNCTIONS) - {"double_exponential_smoothing", "integral", "predict_linear"})
NOT_PACKED = 10**9


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a few values, so that groups and pages overlap in all ways."""
    monkeypatch.setattr(paged, "PAGED_FROM", 1)
    monkeypatch.setattr(paged, "PAGE_VALUES", 5)
    monkeypatch.setattr(paged, "SERIES_VALUES_MAX", 7)


@st.composite
def stores(draw: st.DrawFn) -> MemoryBackend:
    """Hours of up to nine series of three metrics, each with its own times; one hour may have a late message."""
    backend = MemoryBackend()
    for hour in range(HOURS):
        rows = []
        for series in sorted(draw(st.sets(st.integers(0, 8), min_size=1))):
            minutes = sorted(draw(st.sets(st.integers(1, 59), min_size=1, max_size=9)))
            rows += [(series, START + hour * HOUR_MS + 60_000 * minute, draw(VALUE)) for minute in minutes]
        stored(envelope(rows, sequence=hour), backend=backend)
    roll(backend, HOURS + 1)
    if draw(st.booleans()):
        stored(envelope([(draw(st.integers(0, 8)), START + HOUR_MS + 90_000, 7.0)], sequence=99), backend=backend)
    return backend


def swept(runs: SampleRuns, function: str, steps: Steps, range_ms: int) -> bytes:
    parameter = [np.full(steps.count, 0.5)] if function == "quantile_over_time" else []
    values, present = windows.sweep(function, runs, steps, range_ms, *parameter)
    return present.tobytes() + np.where(present, values, 0.0).tobytes()


@settings(max_examples=60)
@given(
    stores(), st.integers(0, 90), st.integers(60, 200), st.sampled_from([0, 9, 25]), st.sampled_from([1, 4, 30, 10**6])
)
def test_all_functions_and_copies_are_equal_bit_for_bit(
    backend: MemoryBackend, first: int, last: int, unpacked: int, group: int
) -> None:
    storage = reader(backend, clock=FakeClock(NOW))
    start, end = START + 60_000 * first, START + 60_000 * last
    whole = storage.select_runs(EVERY, start, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_runs, "UNPACKED_SAMPLES", unpacked)
        patch.setattr(sample_runs, "GROUP_SAMPLES", group)
        runs = storage.select_runs(EVERY, start, end)
        assert whole.packed is None
        if not unpacked and last > first + 60:
            event(f"{len(runs.groups())} groups, {runs.packed_samples > 0} packed")
        expected, copied = whole.batch(), runs.batch()
        assert list(copied.labels) == list(expected.labels)
        assert pickle.dumps([copied.offsets, copied.ts]) == pickle.dumps([expected.offsets, expected.ts])
        assert copied.values.tobytes() == expected.values.tobytes()
        steps = Steps(start, 7 * 60_000, 12)
        for function in PLAIN:
            assert swept(runs, function, steps, 1_800_000) == swept(whole, function, steps, 1_800_000), function
        for kernel in (windows.instants, windows.stamps):
            ours, theirs = kernel(runs, steps, 600_000), kernel(whole, steps, 600_000)
            assert ours[1].tobytes() == theirs[1].tobytes()
            assert np.where(ours[1], ours[0], 0.0).tobytes() == np.where(theirs[1], theirs[0], 0.0).tobytes()


def many(series: int = 40, samples: int = 300) -> AppStorage:
    """An hour of many series, rolled up."""
    backend = MemoryBackend()
    rows = [(s, START + 10_000 * n + 1, float(n % 17)) for s in range(series) for n in range(samples)]
    stored(envelope(rows), backend=backend)
    roll(backend, 3)
    return reader(backend, clock=FakeClock(NOW))


def test_packed_samples_take_a_fraction_of_the_memory_until_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "PAGE_VALUES", 2_048)
    monkeypatch.setattr(paged, "SERIES_VALUES_MAX", 65_536)
    storage = many()
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    runs = storage.select_runs(EVERY, START, START + HOUR_MS)
    assert runs.samples == runs.packed_samples == 12_000
    assert runs.nbytes < runs.samples * SAMPLE_BYTES / 8


def test_a_query_holds_one_group_beside_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, group_sizes = many(), list[int]()
    take = PackedColumns.take

    def recording(self: PackedColumns, first: int, end: int) -> object:
        result = take(self, first, end)
        group_sizes.append(len(result[2]))
        return result

    monkeypatch.setattr(PackedColumns, "take", recording)
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    monkeypatch.setattr(sample_runs, "GROUP_SAMPLES", 900)
    windows.sweep("sum_over_time", storage.select_runs(EVERY, START, START + HOUR_MS), Steps(START, 60_000, 60), 60_000)
    assert sum(group_sizes) == 12_000
    assert max(group_sizes) <= 900 + 300


def test_a_query_is_refused_for_the_bytes_that_it_holds_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = many()
    monkeypatch.setattr(limits, "QUERY_BYTES_MAX", 100_000)
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", NOT_PACKED)
    with pytest.raises(QueryTooLarge, match="take more than 0 MB: ask for less time or fewer series"):
        storage.select_runs(EVERY, START, START + HOUR_MS)
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    assert storage.select_runs(EVERY, START, START + HOUR_MS).samples == 12_000
    with pytest.raises(QueryTooLarge, match="copies samples of 0 MB; one query gets at most 0 MB"):
        storage.select(EVERY, START, START + HOUR_MS)


def test_a_deadline_ends_a_sweep_between_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = many()
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    monkeypatch.setattr(sample_runs, "GROUP_SAMPLES", 900)
    runs, checks = storage.select_runs(EVERY, START, START + HOUR_MS), list[None]()

    def check() -> None:
        checks.append(None)
        if len(checks) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        windows.sweep("sum_over_time", runs, Steps(START, 60_000, 60), 60_000, check_deadline=check)
    assert len(checks) == 2


def test_a_page_that_does_not_unpack_is_an_error_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = many()
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    runs = storage.select_runs(EVERY, START, START + HOUR_MS)

    def broken(*_: object) -> None:
        raise CorruptBlock("a page does not unpack", got=1)

    monkeypatch.setattr(paged.PagedValues, "take", broken)
    with pytest.raises(CorruptBlock, match="does not unpack"):
        windows.sweep("sum_over_time", runs, Steps(START, 60_000, 60), 60_000)


def test_pages_that_a_query_unpacks_at_once_are_kept_for_the_next_and_those_of_groups_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = list[int]()
    unpack = paged.PagedValues._unpack

    def recording(self: paged.PagedValues, chunk: object, pages: list[int], into: object) -> None:
        calls.append(len(pages))
        unpack(self, chunk, pages, into)  # type: ignore[arg-type]

    monkeypatch.setattr(paged, "SERIES_VALUES_MAX", 65_536)  # no series is cut
    monkeypatch.setattr(paged.PagedValues, "_unpack", recording)
    storage = many()
    first = storage.select(EVERY, START, START + HOUR_MS)
    unpacked = sum(calls)
    again = storage.select(EVERY, START, START + HOUR_MS)
    assert unpacked == sum(calls) > 1
    assert again.values.tobytes() == first.values.tobytes()
    monkeypatch.setattr(sample_runs, "UNPACKED_SAMPLES", 0)
    assert storage.select(EVERY, START, START + HOUR_MS).values.tobytes() == first.values.tobytes()
    assert sum(calls) == 2 * unpacked


def test_unpacked_pages_have_a_bound() -> None:
    cache = UnpackedPages(8 * 5 * 40)
    values = np.arange(1_000.0)
    directory, packed = paged.pack(values, np.full(1_000, 1, np.int32))
    pages = paged.PagedValues.of(directory, packed, 1_000)
    for _ in range(2):
        unpacked = cache.unpack(pages, range(len(pages.ends)))
        assert [value for page in unpacked for value in page.values.tolist()] == values.tolist()
    assert 0 < cache._pages.weight <= 8 * 5 * 40
