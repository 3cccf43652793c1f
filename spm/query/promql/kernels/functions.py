"""Elementwise functions and the operators between numbers, over whole arrays.

Each takes and returns float64 arrays of one shape (a parameter, one number per step, broadcasts over the series). NaN
behaves as in Go: a comparison with it is false, `!=` is true. Never deals with labels, or with which elements are
present.
"""

from collections.abc import Callable

import numpy as np

from spm.arrays import BOOL, F64
from spm.query.promql.kernels.dates import CALENDAR


def _round(values: F64, to: F64 | float = 1.0) -> F64:
    # Ties round up. It multiplies by the inverse, because the inverse of 0.1 is whole while 0.1 itself is not exact.
    inverse = 1.0 / np.asarray(to)
    rounded: F64 = np.floor(values * inverse + 0.5) / inverse
    return rounded


def _greater(a: F64 | float, b: F64 | float) -> F64:
    # As in Go's math.Max, +Inf wins over NaN.
    return np.where(np.isposinf(a) | np.isposinf(b), np.inf, np.maximum(a, b))


def _lesser(a: F64 | float, b: F64 | float) -> F64:
    return np.where(np.isneginf(a) | np.isneginf(b), -np.inf, np.minimum(a, b))


def _clamp(values: F64, low: F64 | float, high: F64 | float) -> F64:
    return _greater(low, _lesser(high, values))


def _sign(values: F64) -> F64:
    # np.sign loses the sign of zero; Go returns NaN and both zeros as they are.
    return np.where(values < 0, -1.0, np.where(values > 0, 1.0, values))


ELEMENTWISE: dict[str, Callable[..., F64]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": _round,
    "clamp": _clamp,
    "clamp_min": lambda values, low: _clamp(values, low, np.inf),
    "clamp_max": lambda values, high: _clamp(values, -np.inf, high),
    "sqrt": np.sqrt,
    "exp": np.exp,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sgn": _sign,
    "deg": np.degrees,
    "rad": np.radians,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    **CALENDAR,
}

ARITHMETIC: dict[str, Callable[[F64, F64], F64]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
    "max_of": _greater,
    "min_of": _lesser,
}

COMPARISON: dict[str, Callable[[F64, F64], BOOL]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}


def scalar_binary(op: str, left: F64, right: F64) -> F64:
    """Apply an operator between scalars; a comparison gives 0 or 1."""
    if op in COMPARISON:
        return COMPARISON[op](left, right).astype(np.float64)
    return ARITHMETIC[op](left, right)


def clamp_is_empty(low: F64, high: F64) -> BOOL:
    """Mark the steps at which `clamp` has no elements: its lower bound lies above its upper one."""
    return np.greater(low, high)
