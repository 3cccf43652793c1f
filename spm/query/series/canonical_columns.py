"""Takes the canonical forms of many series apart into columns: which series has which value of which label.

1. A kernel finds names and values in the joined text, and hashes each. 2. Equal hashes are assumed to mean equal texts,
and every text is compared with the one that represents its hash. 3. If two different texts share a hash, all forms are
parsed one by one. Enter by ``columns_of``.
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
    """One label: the series (rows, ascending) that have it, and the number of each one's value among distinct texts."""

    name: str
    rows: I64
    number: I64
    texts: list[bytes]


def columns_of(forms: Sequence[bytes]) -> Iterator[LabelColumn]:
    """Yield the labels of these forms by column, metric names too; raises ``CorruptBlock`` for malformed ones."""
    text = np.frombuffer(b"".join(forms), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, forms), np.int64, len(forms)))
    parts = _count(text, ends)
    if parts < 0:
        yield from _parse_each(forms)  # raises with the reason
        return
    series, begin, size = np.empty(parts, np.int32), np.empty(parts, np.int64), np.empty(parts, np.int64)
    name_hash = np.empty(parts, np.uint64)  # 0 for the metric's name
    value_hash = np.empty(parts, np.uint64)
    name_begin, name_size = np.empty(parts, np.int64), np.empty(parts, np.int64)
    _take_apart(text, ends, series, begin, size, name_hash, value_hash, name_begin, name_size)
    columns: list[LabelColumn] = []
    for name in np.unique(name_hash):
        own = np.flatnonzero(name_hash == name)
        first = int(own[0])
        _, example, number = np.unique(value_hash[own], return_index=True, return_inverse=True)
        example = own[example]
        equal = _are_equal(text, begin, size, own, example, number)
        if name and not _are_equal(text, name_begin, name_size, own, own[:1], np.zeros(len(own), np.int64)):
            equal = False
        if not equal:
            yield from _parse_each(forms)
            return
        label = METRIC_NAME if not name else _cut(text, name_begin[first], name_size[first]).decode("utf-8", "replace")
        texts = [_cut(text, b, s) for b, s in zip(begin[example].tolist(), size[example].tolist(), strict=True)]
        if name and label == METRIC_NAME:
            continue  # the metric's own name takes precedence
        columns.append(LabelColumn(label, series[own].astype(np.int64), number.astype(np.int64), texts))
    yield from columns


def _parse_each(forms: Sequence[bytes]) -> Iterator[LabelColumn]:
    by_name: dict[str, tuple[list[int], list[int], dict[bytes, int]]] = {}
    for row, form in enumerate(forms):
        metric, labels = parse_canonical(form)
        for name, value in {**labels, METRIC_NAME: metric}.items():
            rows, numbers, texts = by_name.setdefault(name, ([], [], {}))
            rows.append(row)
            numbers.append(texts.setdefault(value.encode(), len(texts)))
    for name, (rows, numbers, texts) in by_name.items():
        yield LabelColumn(name, np.array(rows, np.int64), np.array(numbers, np.int64), list(texts))


def _cut(text: U8, begin: int, size: int) -> bytes:
    return text[begin : begin + size].tobytes()


@njit(cache=True, nogil=True)
def _count(text: U8, ends: I64) -> int:
    """The number of labels, the metric's name included; -1 if any of the bytes is no canonical form."""
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
    hashed = np.uint64(14695981039346656037) ^ np.uint64(size)
    for i in range(begin, begin + size):
        hashed = (hashed ^ np.uint64(text[i])) * np.uint64(1099511628211)
    hashed ^= hashed >> np.uint64(32)
    return hashed if hashed != 0 else np.uint64(1)


@njit(cache=True, nogil=True)
def _take_apart(
    text: U8,
    ends: I64,
    series: I32,
    begin: I64,
    size: I64,
    name_hash: U64,
    value_hash: U64,
    name_begin: I64,
    name_size: I64,
) -> None:
    at, pair = 0, 0
    for form in range(len(ends)):
        first = True
        while at < ends[form]:
            name_begin[pair], name_size[pair], name_hash[pair] = 0, 0, 0
            if not first:
                length = (np.int64(text[at]) << 8) + text[at + 1]
                name_begin[pair], name_size[pair], name_hash[pair] = at + 2, length, _hash(text, at + 2, length)
                at += 2 + length
            length = (np.int64(text[at]) << 8) + text[at + 1]
            series[pair], begin[pair], size[pair] = form, at + 2, length
            value_hash[pair] = _hash(text, at + 2, length)
            at += 2 + length
            pair += 1
            first = False


@njit(cache=True, nogil=True)
def _are_equal(text: U8, begin: I64, size: I64, places: I64, example: I64, number: I64) -> bool:
    """Whether each text equals the example of its number."""
    for i in range(len(places)):
        own, other = places[i], example[number[i]]
        if size[own] != size[other]:
            return False
        for k in range(size[own]):
            if text[begin[own] + k] != text[begin[other] + k]:
                return False
    return True
