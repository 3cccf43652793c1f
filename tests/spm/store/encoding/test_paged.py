"""Values that are opened in part: every series comes back, alone or with others; damage stays in its page."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.arrays import F64, I32, I64
from spm.errors import CorruptBlock
from spm.store.encoding import codec, paged
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.encoding.paged import PagedValues, TakePlan, page_sizes

ODD = (np.nan, -0.0, np.inf, -np.inf, 5e-324, 1.5e308, 0.1)
KINDS = ("whole numbers", "decimals", "floats", "32-bit floats")


def column(kind: str, size: int, seed: int, odd: int = 0) -> F64:
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.normal(size=size))
    values = {
        "whole numbers": np.round(walk),
        "decimals": np.round(walk, 2),
        "floats": walk,
        "32-bit floats": walk.astype(np.float32).astype(np.float64),
    }[kind]
    values[rng.integers(0, size, odd)] = rng.choice(ODD, odd)
    return np.asarray(values, np.float64)


def packed(values: F64, counts: I32) -> PagedValues:
    directory, pages = paged.pack(values, counts)
    return PagedValues.of(directory, pages, len(values))


def taken(values: PagedValues, counts: I32, rows: I64) -> F64:
    starts = np.cumsum(counts, dtype=np.int64) - counts
    out = np.full(int(counts[rows].sum()), 7.0)
    values.take(TakePlan.of(starts[rows], counts[rows], values.ends), out)
    return out


def of_rows(values: F64, counts: I32, rows: I64) -> F64:
    parts = np.split(values, np.cumsum(counts)[:-1])
    return np.concatenate([parts[row] for row in rows]) if len(rows) else np.empty(0)


COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=40).filter(any)


@given(COUNTS, st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 40), st.data())
def test_any_series_come_back_bit_for_bit(
    counts: list[int], kind: str, seed: int, odd: int, data: st.DataObject
) -> None:
    own = np.array(counts, np.int32)
    values = column(kind, int(own.sum()), seed, odd)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(own) - 1)))), np.int64)
    pages = packed(values, own)
    assert pages.whole().tobytes() == values.tobytes()
    assert taken(pages, own, rows).tobytes() == of_rows(values, own, rows).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_series_that_are_longer_than_a_page_come_back(kind: str) -> None:
    own = np.array([3, 200_000, 70_000, 5], np.int32)
    values = column(kind, int(own.sum()), 1, odd=300)
    pages = packed(values, own)
    for rows in ([1], [0, 2], [2, 3], [0, 1, 2, 3]):
        wanted = np.array(rows, np.int64)
        assert taken(pages, own, wanted).tobytes() == of_rows(values, own, wanted).tobytes()


def test_a_page_ends_with_a_series_and_has_enough_values() -> None:
    counts = np.array([360] * 10 + [5_000] + [1] * 10, np.int32)
    assert page_sizes(counts, 2_048, 65_536).tolist() == [2_160, 6_440, 10]
    assert page_sizes(np.array([200_000, 10], np.int32), 2_048, 65_536).tolist() == [65_536] * 3 + [3_392, 10]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_take_little_more_room_than_one_column(kind: str) -> None:
    counts = np.full(1_000, 360, np.int32)
    values = column(kind, 360_000, 5)
    directory, pages = paged.pack(values, counts)
    size = len(pages) + sum(len(codec.encode(each)[4]) for each in directory.values())
    assert size <= 1.03 * len(codec.encode(values, dense=True)[4])


def test_threads_take_from_one_page_at_once() -> None:
    counts = np.full(300, 360, np.int32)
    values = column("decimals", 108_000, 2)
    pages = packed(values, counts)

    def take(seed: int) -> bool:
        rows = np.sort(np.random.default_rng(seed).choice(300, 30, replace=False))
        return taken(pages, counts, rows).tobytes() == of_rows(values, counts, rows).tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(take, range(200)))


def chunk(kind: str = "decimals", series: int = 60) -> ChunkPage:
    counts = np.full(series, 360, np.int32)
    ids = np.arange(series, dtype=np.uint64) << np.uint64(32)
    return ChunkPage(ids, np.zeros(series, np.int32), counts, column(kind, 360 * series, 3, odd=20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_pages_is_read_as_it_was_written(kind: str) -> None:
    page = chunk(kind)
    again = ChunkPage.from_bytes(page.to_bytes())
    assert isinstance(again.values, PagedValues)
    assert again.unpacked().tobytes() == page.unpacked().tobytes()
    assert again.to_bytes() == page.to_bytes()
    rows = np.array([1, 17, 59])
    assert again.values_of(rows).tobytes() == page.values_of(rows).tobytes()


def test_a_row_of_few_values_is_one_frame_that_older_programs_read() -> None:
    raw = chunk(series=3).to_bytes()
    assert raw[1] == 1
    assert isinstance(ChunkPage.from_bytes(raw).values, np.ndarray)


def test_damage_of_a_page_takes_its_series_alone() -> None:
    page = chunk()
    raw, sound = bytearray(page.to_bytes()), ChunkPage.from_bytes(page.to_bytes())
    raw[-1] ^= 1  # in the last page
    with pytest.raises(CorruptBlock, match="pages of a chunk fail their checksum"):
        ChunkPage.from_bytes(bytes(raw))
    rest, damage = ChunkPage.undamaged(bytes(raw))
    assert isinstance(sound.values, PagedValues)
    in_last = int(sound.values.ends[-1] - sound.values.ends[-2]) // 360
    assert damage is not None
    assert rest.series.tolist() == page.series[:-in_last].tolist()
    assert rest.unpacked().tobytes() == page.unpacked()[: -in_last * 360].tobytes()


@pytest.mark.parametrize("kind", ["decimals", "floats"])
def test_no_flipped_bit_becomes_a_number(kind: str) -> None:
    page = chunk(kind, series=12)
    raw, values = page.to_bytes(), page.unpacked().reshape(12, 360)
    for place in [*range(300), *range(300, len(raw), 41)]:
        damaged = bytearray(raw)
        damaged[place] ^= 1 << place % 8
        try:
            rest, damage = ChunkPage.undamaged(bytes(damaged))
        except CorruptBlock:
            continue
        assert damage is not None
        rows = np.searchsorted(page.series, rest.series)
        assert rest.unpacked().tobytes() == values[rows].tobytes()


@pytest.mark.parametrize("cut", [1, 7, 400])
def test_a_row_that_ends_early_is_damaged(cut: int) -> None:
    raw = chunk().to_bytes()
    for part in (raw[:-cut], raw[:cut], raw + b"x"):
        with pytest.raises(CorruptBlock):
            ChunkPage.from_bytes(part)
