"""Canonical forms of many series at once, taken apart into columns: which series has which value of which label.

1. A kernel finds names and values in the joined text, and hashes each. 2. Equal hashes are taken for equal texts, and
every text is compared with the one that stands for its hash. 3. Where two texts share a hash all are read one by one.
Enter by ``columns_of``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spm.arrays import I32, I64, U64
from spm.store.matchers import METRIC_NAME
from spm.wire import parse_canonical

U8 = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label: the series (rows, ascending) that have it, and for each which of the distinct texts is its value."""

    name: str
    rows: I64
    number: I64
    texts: list[bytes]


def columns_of(forms: Sequence[bytes]) -> Iterator[LabelColumn]:
    """The labels of these forms, the metric's name as one of them; raises ``CorruptBlock`` for bytes that are none."""
    text = np.frombuffer(b"".join(forms), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, forms), np.int64, len(forms)))
    parts = _count(text, ends)
    if parts < 0:
        yield from _one_by_one(forms)  # says what is wrong
        return
    series, begin, size = np.empty(parts, np.int32), np.empty(parts, np.int64), np.empty(parts, np.int64)
    named = np.empty(parts, np.uint64)  # hash of the label's name; 0 for the metric's
    hashed = np.empty(parts, np.uint64)  # of the value
    name_begin, name_size = np.empty(parts, np.int64), np.empty(parts, np.int64)
    _take_apart(text, ends, series, begin, size, named, hashed, name_begin, name_size)
    found: list[LabelColumn] = []
    for name in np.unique(named):
        mine = np.flatnonzero(named == name)
        first = int(mine[0])
        _, stands, number = np.unique(hashed[mine], return_index=True, return_inverse=True)
        stands = mine[stands]
        same = _equal(text, begin, size, mine, stands, number)
        if name and not _equal(text, name_begin, name_size, mine, mine[:1], np.zeros(len(mine), np.int64)):
            same = False
        if not same:
            yield from _one_by_one(forms)
            return
        label = METRIC_NAME if not name else _cut(text, name_begin[first], name_size[first]).decode("utf-8", "replace")
        texts = [_cut(text, b, s) for b, s in zip(begin[stands].tolist(), size[stands].tolist(), strict=True)]
        if name and label == METRIC_NAME:
            continue  # the metric's own name counts
        found.append(LabelColumn(label, series[mine].astype(np.int64), number.astype(np.int64), texts))
    yield from found


def _one_by_one(forms: Sequence[bytes]) -> Iterator[LabelColumn]:
    held: dict[str, tuple[list[int], list[int], dict[bytes, int]]] = {}
    for row, form in enumerate(forms):
        metric, labels = parse_canonical(form)
        for name, value in {**labels, METRIC_NAME: metric}.items():
            rows, numbers, texts = held.setdefault(name, ([], [], {}))
            rows.append(row)
            numbers.append(texts.setdefault(value.encode(), len(texts)))
    for name, (rows, numbers, texts) in held.items():
        yield LabelColumn(name, np.array(rows, np.int64), np.array(numbers, np.int64), list(texts))


def _cut(text: U8, begin: int, size: int) -> bytes:
    return text[begin : begin + size].tobytes()


@njit(cache=True, nogil=True)
def _count(text: U8, ends: I64) -> int:
    """How many pairs there are, the metric's name one of them; -1 where any form is none."""
    parts, at = 0, 0
    for form in range(len(ends)):
        own = 0
        while at < ends[form]:
            if at + 2 > ends[form]:
                return -1
            at += 2 + (np.int64(text[at]) << 8) + text[at + 1]
            own += 1
        if at != ends[form] or own % 2 == 0:
            return -1
        parts += own // 2 + 1
    return parts


@njit(cache=True, nogil=True)
def _hash(text: U8, begin: int, size: int) -> Any:
    found = np.uint64(14695981039346656037) ^ np.uint64(size)
    for i in range(begin, begin + size):
        found = (found ^ np.uint64(text[i])) * np.uint64(1099511628211)
    found ^= found >> np.uint64(32)
    return found if found != 0 else np.uint64(1)


@njit(cache=True, nogil=True)
def _take_apart(
    text: U8, ends: I64, series: I32, begin: I64, size: I64, named: U64, hashed: U64, name_begin: I64, name_size: I64
) -> None:
    at, pair = 0, 0
    for form in range(len(ends)):
        first = True
        while at < ends[form]:
            name_begin[pair], name_size[pair], named[pair] = 0, 0, 0
            if not first:
                length = (np.int64(text[at]) << 8) + text[at + 1]
                name_begin[pair], name_size[pair], named[pair] = at + 2, length, _hash(text, at + 2, length)
                at += 2 + length
            length = (np.int64(text[at]) << 8) + text[at + 1]
            series[pair], begin[pair], size[pair] = form, at + 2, length
            hashed[pair] = _hash(text, at + 2, length)
            at += 2 + length
            pair += 1
            first = False


@njit(cache=True, nogil=True)
def _equal(text: U8, begin: I64, size: I64, mine: I64, stands: I64, number: I64) -> bool:
    """Whether each text is the one that stands for it."""
    for i in range(len(mine)):
        own, other = mine[i], stands[number[i]]
        if size[own] != size[other]:
            return False
        for k in range(size[own]):
            if text[begin[own] + k] != text[begin[other] + k]:
                return False
    return True
