"""The digits of floats equal those of Python's repr, which uses another algorithm."""

from decimal import Decimal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.query.formats.schubfach import POWERS, decimal

FINITE = st.integers(1, 0x7FEF_FFFF_FFFF_FFFF)
SUBNORMAL = st.integers(1, (1 << 52) - 1)
NEAR_POWER_OF_TWO = st.builds(lambda n, k: (n << 52) + k, st.integers(1, 0x7FE), st.integers(-40, 40))
NEAR_POWER_OF_TEN = st.builds(lambda n, k: bits_of(float(f"1e{n}")) + k, st.integers(-320, 307), st.integers(-40, 40))
WHOLE = st.integers(1, 1 << 60).map(lambda n: bits_of(float(n)))


def bits_of(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


def shortest(bits: int) -> Decimal:
    digits, exponent = decimal(np.uint64(bits), POWERS)
    return Decimal(int(digits)).scaleb(int(exponent)).normalize()


def by_repr(bits: int) -> Decimal:
    return Decimal(repr(float(np.uint64(bits).view(np.float64)))).normalize()


@settings(deadline=None, max_examples=2_000)
@given(st.one_of(FINITE, SUBNORMAL, NEAR_POWER_OF_TWO, NEAR_POWER_OF_TEN, WHOLE))
def test_digits_are_those_of_repr(bits: int) -> None:
    assert shortest(bits).as_tuple() == by_repr(bits).as_tuple()


def test_digits_of_all_powers_of_two_and_ten_are_those_of_repr() -> None:
    powers = [*(2.0**n for n in range(-1074, 1024)), *(float(f"1e{n}") for n in range(-323, 309))]
    wrong = [value for value in powers if shortest(bits_of(value)).as_tuple() != by_repr(bits_of(value)).as_tuple()]
    assert wrong == []


def test_of_two_shortest_decimals_the_nearer_is_written() -> None:
    assert shortest(bits_of(2.0**-44)) == Decimal("5.684341886080802e-14")
    assert shortest(bits_of(9007199254740993.0)) == Decimal(9007199254740992)
    assert shortest(bits_of(5e-324)) == Decimal("5e-324")
