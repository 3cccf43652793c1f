"""Claims about spm/store/encoding/codec.py: every column comes back with equal bytes, whatever its values."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from spm.errors import CorruptBlock, LimitExceeded
from spm.limits import COLUMN_VALUES_MAX
from spm.store.encoding import codec
from tests.support.rows import number
from tests.support.store_columns import compile_kernels

compile_kernels()

STALE = number(0x7FF0000000000002)
ODD = [number(p) for p in (0x7FF8000000000ABC, 0xFFF0000000000001, 1, 0x8000000000000000, 0x000FFFFFFFFFFFFF)]
ODD += [STALE, np.inf, -np.inf, 2.0**53, 2.0**53 + 2, -(2.0**53), 1e300, 5e-324, 0.1 + 0.2, 9007199254740993.0]
ANY_BITS = st.integers(0, 2**64 - 1).map(number)
DECIMAL = st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 9)).map(lambda p: p[0] / 10.0 ** p[1])
WHOLE = st.integers(-(2**54), 2**54).map(float)
MIXED = st.one_of(DECIMAL, WHOLE, st.sampled_from(ODD))
INTEGERS = ["<u8", "<i8", "<u4", "<i4", "<u2", "|u1"]


def back(column: npt.NDArray[np.generic], **how: bool) -> bool:
    """Whether a column comes back equal byte for byte, of the same kind, and writable."""
    got = codec.decode(codec.encode(column, **how))
    return got.dtype == column.dtype and got.tobytes() == column.tobytes() and got.flags.writeable


@given(st.lists(st.one_of(ANY_BITS, MIXED), max_size=300), st.booleans())
def test_floats_of_any_bits_come_back(values: list[float], dense: bool) -> None:
    assert back(np.array(values, np.float64), dense=dense)


BASES = st.sampled_from([1 / 3, 1 / 7, 0.1, 1e-9, 1 / 1024, np.pi, 1e-300, 1e300, 2.0**-1060, 5e-324])
MULTIPLES = st.tuples(st.integers(-(10**6), 10**6), st.integers(1, 1000), st.integers(4, 20_000), BASES)


@settings(max_examples=60)
@given(MULTIPLES, st.booleans(), st.lists(st.tuples(st.integers(0, 19_999), st.sampled_from(ODD)), max_size=40))
def test_multiples_and_narrow_floats_with_odd_values_come_back(
    multiples: tuple[int, int, int, float], narrow: bool, odd: list[tuple[int, float]]
) -> None:
    start, spread, size, base = multiples
    column = (start + np.random.default_rng(size).integers(0, spread, size)) * base
    if narrow:
        column = np.clip(column, -1e38, 1e38).astype(np.float32).astype(np.float64)
    for at, value in odd:
        column[at % size] = value
    assert back(column, dense=True)


SHORT = st.tuples(st.lists(st.integers(-(10**6), 10**6), min_size=128, max_size=400), st.integers(0, 9)).map(
    lambda p: [n / 10.0 ** p[1] for n in p[0]]
)


@given(SHORT, st.lists(st.tuples(st.integers(0, 399), st.sampled_from(ODD)), max_size=2))
def test_decimals_with_a_few_exceptions_come_back_from_integers(
    values: list[float], odd: list[tuple[int, float]]
) -> None:
    column = np.array(values)
    for at, value in odd:
        column[at % len(column)] = value
    assert back(column)
    assert codec.encode(column)[0] in (codec.DECIMAL, codec.CONSTANT)


@given(st.sampled_from(INTEGERS).flatmap(lambda d: arrays.arrays(np.dtype(d), st.integers(0, 300))), st.booleans())
def test_integers_of_every_kind_come_back(column: npt.NDArray[np.generic], hashes: bool) -> None:
    assert back(column, random=hashes)


@settings(max_examples=30)
@given(st.sampled_from(["<f8", *INTEGERS]), st.integers(0, 70_000), st.integers(0, 3))
def test_long_columns_come_back(dtype: str, size: int, shape: int) -> None:
    rng = np.random.default_rng(size)
    raw = rng.integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    column = [raw.view(dtype), np.arange(size), np.zeros(size), rng.integers(0, 9, size)][shape].astype(dtype)
    assert back(column)


def walk(digits: int) -> npt.NDArray[np.float64]:
    steps = np.random.default_rng(3).integers(-1, 2, 36_000)
    return np.cumsum(steps) / 10.0**digits


@pytest.mark.parametrize(
    ("column", "form", "bytes_per_value"),
    [
        (walk(0), codec.DECIMAL, 0.25),
        (walk(2), codec.DECIMAL, 0.25),
        (np.where(np.arange(36_000) % 99 == 5, STALE, walk(1)), codec.DECIMAL, 0.5),
        (np.random.default_rng(3).normal(size=36_000), codec.FLOAT, 8.0),
        (np.full(36_000, STALE), codec.CONSTANT, 0.001),
        (1_700_000_000_000 + 10_000 * np.arange(36_000), codec.PCO, 0.01),
        (np.random.default_rng(3).integers(0, 256, 36_000, np.uint8), codec.ZSTD, 1.01),
        (np.array([1.5, 2.5]), codec.RAW, 8.0),
    ],
    ids=["whole walk", "decimal walk", "decimals and stale marks", "noise", "one odd value", "grid", "bytes", "few"],
)
def test_a_column_takes_the_form_and_the_room_it_should(
    column: npt.NDArray[np.generic], form: int, bytes_per_value: float
) -> None:
    encoded = codec.encode(column)
    assert back(column)
    assert encoded[0] == form
    assert len(encoded[4]) <= bytes_per_value * len(column)


def steps() -> npt.NDArray[np.float64]:
    return np.cumsum(np.random.default_rng(3).normal(size=36_000)) + 50


DENSE = {
    "32-bit floats": (steps().astype(np.float32).astype(np.float64), 3.0),
    "thirds": (np.random.default_rng(3).integers(0, 1000, 36_000) / 3, 1.6),
    "binary fractions": (np.round(steps() * 100) / 1024, 1.3),
    "32-bit floats and stale marks": (
        np.where(np.arange(36_000) % 50 == 5, STALE, steps().astype(np.float32).astype(np.float64)),
        3.2,
    ),
}


@pytest.mark.parametrize(("column", "bytes_per_value"), DENSE.values(), ids=DENSE.keys())
def test_floats_of_runs_take_a_fraction_of_what_an_append_takes(
    column: npt.NDArray[np.float64], bytes_per_value: float
) -> None:
    for size in (1_000, len(column)):  # tried as a whole, and by pieces
        dense, quick = codec.encode(column[:size], dense=True), codec.encode(column[:size])
        assert back(column[:size], dense=True)
        assert dense[0] == quick[0] == codec.FLOAT
        assert len(dense[4]) < 0.6 * len(quick[4])
    assert len(dense[4]) <= bytes_per_value * len(column)


@pytest.mark.parametrize("size", [150, 2_048, 36_000])
@pytest.mark.parametrize("base", [0.1, 1 / 3, np.pi, 1.0])
def test_dense_floats_are_never_larger_by_a_hundredth(base: float, size: int) -> None:
    walk = (np.cumsum(np.random.default_rng(size).integers(-3, 4, size)) + 1_000) * base + 1 / 7
    quick, dense = codec.encode(walk), codec.encode(walk, dense=True)
    assert len(dense[4]) <= 1.01 * len(quick[4])


def test_one_odd_series_does_not_decide_for_a_page() -> None:
    narrow = steps().astype(np.float32).astype(np.float64)
    narrow[:2_048] = np.random.default_rng(3).normal(size=2_048)
    assert len(codec.encode(narrow, dense=True)[4]) < 0.6 * len(codec.encode(narrow)[4])


@pytest.mark.parametrize("count", [-1, COLUMN_VALUES_MAX + 1, 1 << 40])
def test_a_damaged_count_is_refused_before_memory_is_taken(count: int) -> None:
    with pytest.raises(CorruptBlock, match="unknown kind or size"):
        codec.decode((codec.CONSTANT, "<f8", count, 0, b"\0" * 8))


BITES = [
    (codec.RAW, "<f8", 2, 0, b"\0" * 8),
    (codec.RAW, "<f8", 1, 0, b"\0" * 7),
    (codec.CONSTANT, "<f8", 9, 0, b"\0" * 16),
    (codec.CONSTANT, "<f8", 9, 0, b""),
    (codec.PCO, "<i8", 4, 0, b"nonsense"),
    (codec.PCO, "<i4", 36_000, 0, codec.encode(np.arange(36_000))[4]),
    (codec.PCO, "<i8", 35_999, 0, codec.encode(np.arange(36_000))[4]),
    (codec.PCO, "<i8", 36_001, 0, codec.encode(np.arange(36_000))[4]),
    (codec.ZSTD, "|u1", 9, 0, codec.encode(np.arange(200, dtype=np.uint8))[4]),
    (codec.DECIMAL, "<f8", 9, 10, codec.encode(walk(1))[4]),
    (codec.DECIMAL, "<f8", 9, 1, b"\xff" * 30),
    (codec.FLOAT, ">f8", 9, 0, b""),
    (6, "<f8", 9, 0, b"\0" * 72),
]


@pytest.mark.parametrize("encoded", BITES, ids=range(len(BITES)))
def test_bytes_that_do_not_fit_their_claim_are_refused(encoded: codec.Encoded) -> None:
    with pytest.raises(CorruptBlock):
        codec.decode(encoded)


def test_a_column_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(LimitExceeded, match="more values than can be read back"):
        codec.encode(np.broadcast_to(np.uint8(0), COLUMN_VALUES_MAX + 1))
    with pytest.raises(AssertionError, match="BUG"):
        codec.encode(np.zeros(9, np.float32))
