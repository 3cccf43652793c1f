"""Converts values and texts of files to text and back, bit by bit.

A value is written as the shortest number that reads back to it. A NaN with a payload (for example Prometheus' stale
marker) is `NaN:` with its sixteen digits; -0 keeps its sign. In tables for spreadsheets, a *text* that a program might
take for a formula gets an apostrophe, which reading removes; numbers stay numbers. Enter by `texts_of`, `values_of`,
`guarded` and `unguarded`.
"""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spm.arrays import BOOL, F64
from spm.query.formats.prometheus import numbers
from spm.store.encoding.arrow import as_mask, bools, ints, strings

_NAN_BITS = int(np.array([np.nan]).view(np.uint64)[0])
_GUARDED = re.compile(r"'*(?:\s*[=+\-@|＝＋－＠]|[\t\r\n])")  # the wide signs, too, begin a formula
_PAYLOAD = re.compile(r"nan:([0-9a-f]{16})", re.IGNORECASE)
_SPECIAL_VALUES = {
    "nan": np.nan,
    "null": np.nan,
    "inf": np.inf,
    "+inf": np.inf,
    "-inf": -np.inf,
    "infinity": np.inf,
    "+infinity": np.inf,
    "-infinity": -np.inf,
}
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_CHARS_SHOWN = 40
T = TypeVar("T", bound=np.generic)


def texts_of(values: F64, *, zero: str = "-0", quote: str = "") -> pa.Array:
    """Write values as texts; `zero` is how -0 is written, `quote` encloses values that are not numbers."""
    texts = numbers(values)
    bits = values.view(np.uint64)
    odd = ~np.isfinite(values) | (bits == np.uint64(1 << 63))
    if odd.any():
        distinct, codes = np.unique(bits[odd], return_inverse=True)
        special = strings([_special_text(int(each), zero, quote) for each in distinct.tolist()])
        texts = pc.replace_with_mask(texts, bools(odd), special.take(ints(codes.astype(np.int64))))
    return texts


def values_of(texts: pa.Array) -> tuple[F64, BOOL]:
    """Read texts as values, and say which texts are valid; `value_fault` explains an invalid one."""
    folded = pc.dictionary_encode(texts)
    distinct = folded.dictionary
    if not len(distinct):
        return np.empty(0), np.empty(0, np.bool_)
    plain = pc.match_substring_regex(distinct, pattern=_NUMBER)
    values, is_plain = np.empty(len(distinct), np.float64), as_mask(plain)
    if is_plain.any():
        bare = pc.replace_substring_regex(distinct.filter(plain), pattern=r"^\+", replacement="")
        values[is_plain] = column(pc.cast(bare, pa.float64()), np.float64)
    good = ~is_plain | np.isfinite(values)  # a number beyond float64 would become an infinity that was never measured
    bits = values.view(np.uint64)
    for row in np.flatnonzero(~is_plain).tolist():
        special = _special_bits(distinct[row].as_py())
        bits[row], good[row] = special or _NAN_BITS, special is not None
    codes = column(folded.indices, np.int32)
    return bits[codes].view(np.float64), good[codes]


def value_fault(text: str) -> str:
    """Say what is wrong with a text that is not a value."""
    if re.fullmatch(_NUMBER, text):
        return f"a number beyond what a float64 holds; got {text[:_CHARS_SHOWN]}"
    return f"not a number; got {text[:_CHARS_SHOWN] or 'nothing'}; wanted a number, NaN, +Inf or -Inf"


def column(values: pa.Array, kind: type[T]) -> npt.NDArray[T]:
    """Return a column of numbers without nulls as a numpy array."""
    array: npt.NDArray[T] = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
    return array


def guarded(text: str) -> str:
    """Write a text as a cell of a spreadsheet."""
    return "'" + text if _GUARDED.match(text) else text


def unguarded(text: str) -> str:
    """Read the text of such a cell."""
    return text[1:] if text.startswith("'") and _GUARDED.match(text) else text


def _special_text(bits: int, zero: str, quote: str) -> str:
    value = float(np.array([bits], np.uint64).view(np.float64)[0])
    if value == 0:
        return zero
    if value == value:
        return f"{quote}{'-' if value < 0 else ''}Infinity{quote}" if quote else "+Inf" if value > 0 else "-Inf"
    return f"{quote}NaN{quote}" if bits == _NAN_BITS else f"{quote}NaN:{bits:016x}{quote}"


def _special_bits(text: str) -> int | None:
    text = text.strip().lower()
    if payload := _PAYLOAD.fullmatch(text):
        bits = int(payload[1], 16)
        if np.isnan(np.array([bits], np.uint64).view(np.float64)[0]):
            return bits
    return int(np.array([_SPECIAL_VALUES[text]]).view(np.uint64)[0]) if text in _SPECIAL_VALUES else None
