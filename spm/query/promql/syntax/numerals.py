"""Writes numbers as Go does, for the labels and messages of an answer.

`plain` never uses an exponent, as in the labels of `count_values`; `short` is Go's %g, as in annotations.
"""

from __future__ import annotations

import math
from decimal import Decimal


def plain(number: float) -> str:
    """Write the shortest digits that read back to the same number, without an exponent."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    text = format(Decimal(repr(float(number))), "f")
    return text.removesuffix(".0")


def short(number: float) -> str:
    """Write the shortest digits, with an exponent for numbers far from 1."""
    if not math.isfinite(number) or number == 0 or 1e-4 <= abs(number) < 1e21:
        return plain(number)
    digits, _, exponent = repr(float(number)).partition("e")
    if not exponent:
        digits, _, exponent = f"{Decimal(repr(float(number))):e}".partition("e")
    return f"{digits.removesuffix('.0')}e{'-' if int(exponent) < 0 else '+'}{abs(int(exponent)):02d}"


def open_metrics(number: float) -> str:
    """Write a bound or quantile as OpenMetrics does: a whole number has a fraction `.0`."""
    text = short(number)
    return text if "." in text or "e" in text or not math.isfinite(number) else f"{text}.0"
