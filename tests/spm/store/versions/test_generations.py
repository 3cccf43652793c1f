"""Claims about spm/store/versions/generations.py: what is cut into pages comes back, and a missing page is never taken
for no data.
"""

import functools
import operator
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.errors import CorruptBlock, IntegrityError
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.manifest import Replay
from spm.store.versions import generations
from spm.store.versions.generations import HourShard, PageRequest, Pages
from spm.store.versions.merge import Piece, merge
from tests.support.rows import piece, versions_of
from tests.support.store_columns import compile_kernels

compile_kernels()

UNIT = HourShard(3, 7, 472_000)
STAMP = st.sampled_from([(5, 1, 0, "b"), (5, 1, 1, "b"), (5, 2, 0, "a"), (6, 1, 0, "c")])
TS = st.integers(1, 6)
FREE = st.tuples(st.integers(0, 2**64 - 1), TS, st.sampled_from([1, 2]), STAMP)
# several series at the same times from the same messages: shared timelines
SHARED = st.tuples(
    st.lists(st.tuples(TS, STAMP), min_size=1, max_size=4), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9)
).map(lambda p: [(s, t, s % 5, stamp) for s in p[1] for t, stamp in p[0]])
MERGED = st.tuples(st.lists(FREE, max_size=20), st.lists(SHARED, max_size=4)).map(
    lambda p: merge([piece(p[0] + functools.reduce(operator.iadd, p[1], []))])
)


def paginate(merged: Piece, samples_max: int = 10**6) -> Pages:
    return generations.paginate(
        UNIT, 99, merged, parents=[4, 2], batches=[Replay(7, 8), Replay(1, 2), Replay(7, 8)], samples_max=samples_max
    )


def written(pages: Pages) -> MemoryBackend:
    backend = MemoryBackend()
    backend.put([("chunks", pages.chunks), ("timelines", pages.timelines), ("inputs", [pages.inputs])])
    return backend


def read(
    backend: MemoryBackend, pages: Pages, wanted: PageRequest | None, damaged: Sequence[bytes] = ()
) -> list[Piece]:
    forms = {"chunks": ChunkPage.from_bytes, "timelines": TimelinesPage.from_bytes}

    def decoded(table: str, key: bytes, row: dict[bytes, bytes] | None) -> object | None:
        return None if row is None else CorruptBlock("damaged") if key in damaged else forms[table](row[b"v"])

    def fetch(table: str, names: Sequence[bytes]) -> list[object | None]:
        return [decoded(table, key, row) for key, row in zip(names, backend.get(table, names), strict=True)]

    generation = pages.generation
    return generations.read_generation(
        fetch, lambda: generations.read_inputs(backend, UNIT, generation), UNIT, generation, wanted
    )


@settings(deadline=None)
@given(MERGED, st.sampled_from([1, 2, 5, 13, 10**6]))
def test_an_hour_shard_reads_back_as_written_at_any_page_size(merged: Piece, samples_max: int) -> None:
    pages = paginate(merged, samples_max)
    assert versions_of(merge(read(written(pages), pages, None))) == versions_of(merged)


@settings(deadline=None)
@given(MERGED, st.sampled_from([1, 5, 10**6]), st.data())
def test_only_wanted_series_come_back(merged: Piece, samples_max: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(merged.series.tolist() or [1])))
    pages = paginate(merged, samples_max)
    wanted = PageRequest({m: np.array(sorted(s for s in chosen if s % 3 == m), np.uint64) for m in range(4)})
    got = versions_of(merge(read(written(pages), pages, wanted)))
    assert got == [v for v in versions_of(merged) if v[0] in chosen]


@given(MERGED)
def test_a_whole_metric_can_be_asked_for(merged: Piece) -> None:
    pages = paginate(merged, 3)
    got = versions_of(merge(read(written(pages), pages, PageRequest({1: None}))))
    assert got == [v for v in versions_of(merged) if v[0] % 3 == 1]


@given(MERGED)
def test_parts_of_a_generation_are_merged_already_and_have_no_series_in_common(merged: Piece) -> None:
    pages = paginate(merged, 3)
    parts = read(written(pages), pages, None)
    assert sum(len(p.series) for p in parts) == len(merged.series)
    assert sorted(functools.reduce(operator.iadd, (versions_of(p) for p in parts), [])) == sorted(versions_of(merged))
    for part in parts:
        assert versions_of(part) == versions_of(merge([part]))


MANY = merge([piece([(s << 58, t, s, (5 + t % 2, 1, 0, "a")) for s in range(60) for t in range(1, 2 + s % 4)])])


def test_small_pages_are_many_and_their_directory_names_each() -> None:
    pages = paginate(MANY, 8)
    inputs = generations.decode_inputs(pages.inputs[1][b"v"])
    named = [keys.chunk(3, 7, m, 472_000, 99, p) for m, listed in inputs.pages.items() for p in listed]
    assert sorted(named) == sorted(key for key, _ in pages.chunks)
    assert (len(pages.chunks) > 12, len(pages.timelines) > 1, inputs.timeline_pages) == (
        True,
        True,
        len(pages.timelines),
    )
    assert (inputs.parents, inputs.batches) == ((2, 4), (Replay(1, 2), Replay(7, 8)))
    assert (inputs.samples, inputs.stamp_min_ms, inputs.stamp_max_ms, inputs.sources) == (len(MANY), 5, 6, ("a",))


@pytest.mark.parametrize("samples_max", [8, 10**6], ids=["many pages", "one page"])
@pytest.mark.parametrize("table", ["chunks", "timelines", "inputs"])
def test_a_missing_row_is_an_integrity_error_when_all_is_read(table: str, samples_max: int) -> None:
    pages = paginate(MANY, samples_max)
    for key in [k for k, _ in {"chunks": pages.chunks, "timelines": pages.timelines, "inputs": [pages.inputs]}[table]]:
        backend = written(pages)
        backend.delete(table, [(key, None)])
        with pytest.raises(IntegrityError):
            read(backend, pages, None)


def test_a_missing_page_is_an_integrity_error_when_a_series_of_it_is_wanted() -> None:
    pages = paginate(MANY, 8)
    for key, _ in pages.chunks:
        backend = written(pages)
        backend.delete("chunks", [(key, None)])
        with pytest.raises(IntegrityError, match="is missing"):
            read(backend, pages, PageRequest({keys.parse_chunk(key)[2]: None}))


def test_a_page_that_the_directory_does_not_list_holds_no_data() -> None:
    pages = paginate(MANY, 8)
    assert read(written(pages), pages, PageRequest({77: np.array([5], np.uint64)})) == []


def test_without_its_directory_a_missing_page_is_not_taken_for_no_data() -> None:
    pages = paginate(MANY, 8)
    backend = written(pages)
    backend.delete("inputs", [(pages.inputs[0], None)])
    with pytest.raises(IntegrityError):
        read(backend, pages, PageRequest({77: np.array([5], np.uint64)}))


@pytest.mark.parametrize("table", ["chunks", "timelines"])
def test_a_damaged_page_takes_only_its_own_series_along(table: str) -> None:
    pages = paginate(MANY, 8)
    backend = written(pages)
    lost = set()
    for key in [k for k, _ in {"chunks": pages.chunks, "timelines": pages.timelines}[table]]:
        got = [v for p in read(backend, pages, None, [key]) for v in versions_of(p)]
        gone = {v[0] for v in versions_of(MANY)} - {v[0] for v in got}
        assert set(got) == {v for v in versions_of(MANY) if v[0] not in gone}
        assert 0 < len(gone) < 60
        lost |= gone
    assert len(lost) == 60


def test_a_chunk_that_disagrees_with_its_timelines_is_an_integrity_error() -> None:
    pages, other = paginate(MANY), paginate(merge([piece([(s << 58, 1, s, (5, 1, 0, "a")) for s in range(60)])]))
    backend = written(pages)
    backend.put([("timelines", [(pages.timelines[0][0], other.timelines[0][1])])])
    with pytest.raises((IntegrityError, IndexError)):
        read(backend, pages, None)


def test_series_with_equal_times_share_a_timeline() -> None:
    same = [(s, t, s + t, (5, 1, 0, "a")) for s in range(50) for t in (1, 2, 3)]
    other = [(s, t, s + t, (5, 1, 0, "a")) for s in (70, 71) for t in (1, 2)]
    [(_, row)] = paginate(merge([piece(same + other)])).timelines
    assert sorted(TimelinesPage.from_bytes(row[b"v"]).counts.tolist()) == [2, 3]


def test_one_long_series_beside_many_short_ones_never_needs_more_pages_than_a_key_can_name() -> None:
    lengths = np.ones(70_000, np.int32)
    lengths[5] = 2_000_000
    shift = generations._shift(lengths, 800_000)
    assert (len(lengths) >> shift) < 1 << 16
