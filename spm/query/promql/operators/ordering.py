"""Sorts vectors by value, or by labels in natural order (`host9` before `host10`).

Only the results of instant queries have an order. NaN comes last in both directions. Labels are compared chunk by
chunk, numbers as numbers; series with equal values of the given labels are sorted by all their labels.
"""

from __future__ import annotations

import re
from functools import cmp_to_key
from itertools import zip_longest

import numpy as np

from spm.query.promql.operators.vector import Vector
from spm.query.series.label_table import Labels

_CHUNK = re.compile(r"\d+|\D+")
_DIGITS_MAX = 18  # longer numbers are compared as text, as they do not fit 64 bits


def sort_by_value(vector: Vector, *, descending: bool) -> Vector:
    """Sorts the rows of an instant vector by value."""
    keys = vector.values[:, 0]
    return vector.take(np.lexsort((-keys if descending else keys, np.isnan(keys))))


def sort_by_labels(vector: Vector, names: tuple[str, ...], *, descending: bool) -> Vector:
    """Sorts the rows of an instant vector by these labels."""

    def compare(a: int, b: int) -> int:
        return _compare(vector.labels[a], vector.labels[b], names)

    rows = sorted(range(len(vector.labels)), key=cmp_to_key(compare), reverse=descending)
    return vector.take(np.array(rows, np.int64))


def _compare(a: Labels, b: Labels, names: tuple[str, ...]) -> int:
    for name in names:
        here, there = a.get(name, ""), b.get(name, "")
        if here != there:
            return -1 if _is_before(here, there) else 1
    first, second = sorted(a.items()), sorted(b.items())
    return (first > second) - (first < second)


def _is_before(a: str, b: str) -> bool:
    for here, there in zip_longest(_CHUNK.findall(a), _CHUNK.findall(b), fillvalue=""):
        if here == there:
            continue
        if _is_number(here) and _is_number(there):
            if int(here) != int(there):
                return int(here) < int(there)
        else:
            return bool(here < there)
    return a < b


def _is_number(chunk: str) -> bool:
    return chunk.isascii() and chunk.isdigit() and len(chunk) <= _DIGITS_MAX
