"""Labels of many series by column: what they are grouped, sorted and written by, without a dict for each series.

A column has one label's value of each series as a number into a list of texts, 0 standing for "absent". Dicts are made
when somebody asks for them: one, or all at once, kept. Enter by ``LabelTable``, which is read like a list of dicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any, overload

import numpy as np
import orjson
from numba import njit

from spm.arrays import BOOL, I32, I64, U8
from spm.fast_dataclass import dataclass

Labels = dict[str, str]

_TABLE_LEAST, _TABLE_SHARE = 4_096, 4  # places for each series, up to which they are looked up, not sorted
_FEW = 64  # series whose dicts are sooner made and written than their columns
_WHOLE = 1 << 62
_SHORT = 1 << 16  # keys below are sorted digit by digit, not by comparing
_OPEN, _CLOSE, _COMMA = b"{},"


@dataclass(frozen=True, slots=True)
class Column:
    """One label: the number of each series' value, and the values; the first stands for "absent"."""

    name: str
    codes: I32
    values: Sequence[str]

    def numbered(self) -> tuple[I64, list[str]]:
        """(number of each series' value among those in use, these in the order of their numbers)."""
        if len(self.values) > _room(len(self.codes)):
            used, codes = np.unique(self.codes, return_inverse=True)
            return codes.reshape(-1), [self.values[code] for code in used.tolist()]
        held = np.zeros(len(self.values), np.bool_)
        held[self.codes] = True
        number = np.cumsum(held, dtype=np.int64) - 1
        return number[self.codes], [self.values[code] for code in np.flatnonzero(held).tolist()]


class LabelTable(Sequence[Labels]):
    """See the module. Never changed."""

    def __init__(self, columns: Sequence[Column], count: int) -> None:
        """Columns in the order of their names."""
        self.columns, self._count = tuple(columns), count
        self._dicts: list[Labels] | None = None

    # --- like a list

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Labels: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Labels]: ...
    def __getitem__(self, place: int | slice) -> Labels | Sequence[Labels]:
        if isinstance(place, slice):
            return self.take(np.arange(self._count)[place])
        place = range(self._count)[place]
        if self._dicts is not None:
            return self._dicts[place]
        found = ((column.name, column.values[int(column.codes[place])]) for column in self.columns)
        return {name: value for name, value in found if value}

    def __iter__(self) -> Iterator[Labels]:
        return iter(self.dicts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.dicts() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.dicts())

    def dicts(self) -> list[Labels]:
        """All of them."""
        if self._dicts is None:
            columns = [list(map(c.values.__getitem__, c.codes.tolist())) for c in self.columns]
            self._dicts = _dicts([c.name for c in self.columns], columns) if columns else [{} for _ in range(len(self))]
        return self._dicts

    # --- by column

    def codes(self, name: str) -> I32:
        """The numbers of one label."""
        found = next((column.codes for column in self.columns if column.name == name), None)
        return np.zeros(len(self), np.int32) if found is None else found

    def take(self, rows: I64 | BOOL) -> LabelTable:
        """These series, in this order."""
        columns = [Column(column.name, column.codes[rows], column.values) for column in self.columns]
        return LabelTable(columns, int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows))

    def only(self, names: Collection[str]) -> LabelTable:
        """With no other labels than these."""
        return LabelTable([column for column in self.columns if column.name in names], len(self))

    def without(self, names: Collection[str]) -> LabelTable:
        """Without these labels."""
        return LabelTable([column for column in self.columns if column.name not in names], len(self))

    def used_values(self, name: str) -> set[str]:
        """The values of one label; "" where a series has none."""
        column = next((column for column in self.columns if column.name == name), None)
        return {""} if column is None else {column.values[code] for code in np.unique(column.codes).tolist()}

    def grouped(self) -> tuple[I64, I64]:
        """(number of each series' group of equal labels, in the order of their first series; these first series)."""
        key, size = np.zeros(len(self), np.int64), 1
        room = _room(len(self))
        for column in self.columns:
            width, codes = len(column.values), column.codes.astype(np.int64)
            if size * width > room:
                held, inverse = np.unique(codes, return_inverse=True)
                width, codes = len(held), inverse.reshape(-1)
            if size * width > room:
                before, inverse = np.unique(key, return_inverse=True)
                size, key = len(before), inverse.reshape(-1)
            key, size = key * width + codes, size * width
            assert size < _WHOLE, "BUG: more groups than series squared"
        if size > room:
            before, inverse = np.unique(key, return_inverse=True)
            size, key = len(before), inverse.reshape(-1)
        found: tuple[I64, I64] = _numbered(key, np.full(size, -1, np.int64))
        return found

    def order(self) -> I64:
        """The series sorted by their labels, as lists of (name, value) in the order of names are."""
        if len(self.columns) == 1 and len(self) <= _FEW:
            [column] = self.columns
            texts = list(map(column.values.__getitem__, column.codes.tolist()))
            return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        key, size = np.zeros(len(self), np.int64), 1
        ranks: list[I64] = []
        more = np.zeros(len(self), np.bool_)  # whether a later label is there
        for column in reversed(self.columns):
            numbers, texts = column.numbered()
            place = np.empty(len(texts), np.int64)
            place[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(1, len(texts) + 1)
            present = column.codes != 0
            # Who lacks a label comes after those that have it if it has another one, and before them if it has none.
            ranks.append(np.where(present, place[numbers], np.where(more, len(texts) + 1, 0)))
            more |= present
        for rank in reversed(ranks):
            width = int(rank.max(initial=0)) + 1
            if size > _WHOLE // width:
                _, inverse = np.unique(key, return_inverse=True)
                key, size = inverse.reshape(-1), len(key)
            key, size = key * width + rank, size * width
        return np.argsort(key.astype(np.uint16) if size <= _SHORT else key, kind="stable")

    def json(self) -> tuple[U8, I64]:
        """(each series' labels as an object, one behind the other; where each begins, and the last one ends)."""
        texts: list[bytes] = []
        numbers = np.empty((len(self.columns), len(self)), np.int32)
        for row, column in enumerate(self.columns):
            codes, values = column.numbered()
            numbers[row] = np.where(column.codes == 0, -1, codes + len(texts))
            head = orjson.dumps(column.name) + b":"
            texts += [head + orjson.dumps(value) for value in values]
        return _objects(numbers, texts, len(self))


def json_of(labels: Sequence[Labels]) -> tuple[U8, I64]:
    """The same of any list."""
    if isinstance(labels, LabelTable) and len(labels) > _FEW:
        return labels.json()
    texts = list(map(orjson.dumps, labels))
    return np.frombuffer(b"".join(texts) or b" ", np.uint8), np.array([0, *accumulate(map(len, texts))], np.int64)


def take_labels(labels: Sequence[Labels], rows: I64) -> Sequence[Labels]:
    """These series of a list, in this order."""
    return labels.take(rows) if isinstance(labels, LabelTable) else [labels[row] for row in rows.tolist()]


def concatenate_labels(parts: Sequence[Sequence[Labels]]) -> Sequence[Labels]:
    """The series of all parts, one part behind the other; by column where all are tables of the same index."""
    tables = [part for part in parts if isinstance(part, LabelTable)]
    values = {column.name: column.values for table in tables for column in table.columns}
    shared = all(values[column.name] is column.values for table in tables for column in table.columns)
    if len(tables) < len(parts) or not shared:
        return [labels for part in parts for labels in part]
    columns = [
        Column(name, np.concatenate([table.codes(name) for table in tables]), values[name]) for name in sorted(values)
    ]
    return LabelTable(columns, sum(map(len, tables)))


def used_values(labels: Sequence[Labels], name: str) -> set[str]:
    """The values of one label; "" where a series has none."""
    return labels.used_values(name) if isinstance(labels, LabelTable) else {each.get(name, "") for each in labels}


def _room(series: int) -> int:
    return max(_TABLE_LEAST, _TABLE_SHARE * series)


def _dicts(names: list[str], columns: list[list[str]]) -> list[Labels]:
    if all(map(all, columns)):
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [{n: v for n, v in zip(names, values, strict=True) if v} for values in zip(*columns, strict=True)]


def _objects(numbers: I32, texts: list[bytes], count: int) -> tuple[U8, I64]:
    raw = np.frombuffer(b"".join(texts) or b" ", np.uint8)
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    borders = np.zeros(count + 1, np.int64)
    out = np.empty(_sizes(numbers, ends, borders), np.uint8)
    _write(numbers, raw, ends, out)
    out.flags.writeable = False  # as what is not made here: kernels are compiled for one kind of array
    return out, borders


@njit(cache=True, nogil=True)
def _numbered(key: I64, known: I64) -> Any:
    """Numbers of groups by their keys, in the order of their first members, and these."""
    codes, first = np.empty(len(key), np.int64), np.empty(min(len(key), len(known)), np.int64)
    count = 0
    for i in range(len(key)):
        if known[key[i]] < 0:
            known[key[i]] = count
            first[count] = i
            count += 1
        codes[i] = known[key[i]]
    return codes, first[:count]


@njit(cache=True, nogil=True)
def _sizes(numbers: I32, ends: I64, borders: I64) -> int:
    """Where each object begins; returns the bytes of all."""
    at = 0
    for row in range(len(borders) - 1):
        at += 2
        written = 0
        for column in range(numbers.shape[0]):
            number = numbers[column, row]
            if number >= 0:
                at += ends[number + 1] - ends[number]
                written += 1
        at += max(written - 1, 0)
        borders[row + 1] = at
    return at


@njit(cache=True, nogil=True)
def _write(numbers: I32, raw: U8, ends: I64, out: U8) -> None:
    at = 0
    for row in range(numbers.shape[1]):
        out[at] = _OPEN
        at += 1
        written = 0
        for column in range(numbers.shape[0]):
            number = numbers[column, row]
            if number < 0:
                continue
            if written > 0:
                out[at] = _COMMA
                at += 1
            for k in range(ends[number], ends[number + 1]):
                out[at] = raw[k]
                at += 1
            written += 1
        out[at] = _CLOSE
        at += 1
