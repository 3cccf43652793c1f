"""Converts columns from numpy to Arrow and back by their buffers.

`pa.array`, `to_numpy` and a bare Python argument of a compute function import pandas, where it is installed, only to
check their argument's type: that costs a second and 40 MB in every process that answers queries. This module copies no
more than Arrow's format needs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spm.arrays import BOOL


def strings(values: Sequence[str]) -> pa.Array:
    """Convert texts to a column."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def string(value: str) -> pa.Scalar:
    """Convert one text to an Arrow scalar, which stands for every row."""
    return strings([value])[0]


def floats(values: npt.NDArray[np.float64]) -> pa.Array:
    """Convert float64 values to a column."""
    return _plain(values, pa.float64())


def ints(values: npt.NDArray[np.int64]) -> pa.Array:
    """Convert int64 values to a column."""
    return _plain(values, pa.int64())


def bools(values: BOOL) -> pa.Array:
    """Convert booleans to a column, eight to a byte."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def as_mask(values: pa.BooleanArray) -> BOOL:
    """Convert a column of booleans without nulls to numpy."""
    packed = np.frombuffer(values.buffers()[1], np.uint8)
    bits = np.unpackbits(packed, count=values.offset + len(values), bitorder="little")
    return bits[values.offset :].view(np.bool_)


def _plain(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
