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


@given(st.lists(st.one_of(ANY_BITS, MIXED), max_size=300))
def test_floats_of_any_bits_come_back(values: list[float]) -> None:
    assert back(np.array(values, np.float64))


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
