"""The compiled reading of numbers agrees with the spellings that decide, and reads the common ones itself."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ingest.protocols.common.number_kernels import read_number
from ingest.protocols.influx.exact import BOOLEANS, DECIMAL, INFINITE_OR_NAN, INTEGER

decimals = st.from_regex(DECIMAL.pattern.decode(), fullmatch=True)
integers = st.from_regex(INTEGER.pattern.decode(), fullmatch=True)
booleans = st.sampled_from([text.decode() for text in BOOLEANS])
near_misses = st.text("0123456789+-.eEiutrfalsn", max_size=12)


def read(text: str) -> float | None:
    """The value that the kernel reads from the whole text; ``None``: it leaves the text to an exact reader."""
    body = np.frombuffer(text.encode() + b"\n", np.uint8)
    end, value = read_number(body, 0)
    return value if end == len(text) else None


def decided(raw: bytes) -> float | None:
    """The value by the spellings; ``None``: it is not one of them, or is no float64."""
    if raw in BOOLEANS:
        return BOOLEANS[raw]
    if INTEGER.fullmatch(raw):
        return float(int(raw[:-1]))
    return float(raw) if DECIMAL.fullmatch(raw) else None


@given(st.one_of(decimals, integers, booleans, near_misses))
@example("-0")
@example("-0i")
@example("1.")
@example("9007199254740993")
@example("18446744073709551615u")
@example("1e23")
def test_what_the_kernel_reads_is_a_spelling_and_has_its_value(text: str) -> None:
    value = read(text)
    assume(value is not None)
    expected = decided(text.encode())
    assert expected is not None
    assert np.float64(value).tobytes() == np.float64(expected).tobytes()


@given(
    st.one_of(
        st.floats(1e-40, 1e40).map(repr),
        st.floats(-1e40, -1e-40).map(repr),
        st.integers(1 - 2**63, 2**63 - 1).map("{}i".format),
        st.integers(0, 10**19 - 1).map("{}u".format),
        st.sampled_from(["t", "f", "true", "false"]),
    )
)
def test_the_kernel_reads_what_senders_write(text: str) -> None:
    assert read(text) == decided(text.encode())


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "+Inf", "-infinity", "INF"])
def test_what_is_not_finite_is_left_to_the_exact_readers(text: str) -> None:
    assert INFINITE_OR_NAN.fullmatch(text.encode())
    assert read(text) is None
