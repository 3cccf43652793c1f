"""Labels of many series by column: series are grouped, sorted and written by them without a dict for each series.

A column has the value of one label for each series, as a number into a list of texts; 0 stands for "absent". Dicts are
made only when they are used: a single one for each use, or all at once, which are then kept. ``LabelTable`` is read
like a list of dicts, and the functions below it take either: they group, sort and write the series of any list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar, overload

import numpy as np
import orjson
from numba import njit

from spm.arrays import BOOL, I32, I64, U8
from spm.fast_dataclass import dataclass
from spm.store.matchers import METRIC_NAME

T = TypeVar("T")
Labels = dict[str, str]
METADATA = frozenset({METRIC_NAME, "__type__", "__unit__"})  # labels that say what the numbers of a series mean

# Up to so many keys in all, or for each series, a look-up table is used; beyond them, keys are sorted.
_TABLE_LEAST, _TABLE_SHARE = 4_096, 4
_FEW = 64  # for so few series dicts are made, sorted and written faster than columns
_KEYS_MAX = 1 << 62  # products of keys stay below: they are int64
_SHORT = 1 << 16  # keys below are sorted digit by digit, not by comparing
_OPEN, _CLOSE, _COMMA = b"{},"


@dataclass(frozen=True, slots=True)
class Column:
    """One label: the number of each series' value, and the values; the first means "absent"."""

    name: str
    codes: I32
    values: Sequence[str]

    def numbered(self) -> tuple[I64, list[str]]:
        """(number of each series' value among the values in use, the values in use by number)."""
        if len(self.values) > _table_max(len(self.codes)):
            used, codes = np.unique(self.codes, return_inverse=True)
            return codes.reshape(-1), [self.values[code] for code in used.tolist()]
        in_use = np.zeros(len(self.values), np.bool_)
        in_use[self.codes] = True
        number = np.cumsum(in_use, dtype=np.int64) - 1
        return number[self.codes], [self.values[code] for code in np.flatnonzero(in_use).tolist()]


class LabelTable(Sequence[Labels]):
    """The labels of many series, by column. Never changes."""

    def __init__(self, columns: Sequence[Column], count: int) -> None:
        """Columns in the order of their names."""
        self.columns, self._count = tuple(columns), count
        self._dicts: list[Labels] | None = None
        self._derived: dict[str, Any] = {}  # what the functions below have found about a few series

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
        pairs = ((column.name, column.values[int(column.codes[place])]) for column in self.columns)
        return {name: value for name, value in pairs if value}

    def __iter__(self) -> Iterator[Labels]:
        return iter(self.dicts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.dicts() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.dicts())

    def dicts(self) -> list[Labels]:
        """The labels of all series as dicts."""
        if self._dicts is None:
            columns = [list(map(c.values.__getitem__, c.codes.tolist())) for c in self.columns]
            self._dicts = _dicts([c.name for c in self.columns], columns) if columns else [{} for _ in range(len(self))]
        return self._dicts

    def again(self) -> LabelTable:
        """The same labels with dicts of their own: another query may change those that it gets."""
        table = LabelTable(self.columns, self._count)
        table._derived = self._derived
        return table

    def derived(self, name: str, find: Callable[[], T]) -> T:
        """What follows from the labels, found once where they are few: a process keeps small selections."""
        if len(self) > _FEW:
            return find()
        if name not in self._derived:
            self._derived[name] = find()
        result: T = self._derived[name]
        return result

    # --- by column

    def codes(self, name: str) -> I32:
        """The value numbers of one label."""
        codes = next((column.codes for column in self.columns if column.name == name), None)
        return np.zeros(len(self), np.int32) if codes is None else codes

    def take(self, rows: I64 | BOOL) -> LabelTable:
        """The labels of these series, in this order."""
        columns = [Column(column.name, column.codes[rows], column.values) for column in self.columns]
        return LabelTable(columns, int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows))

    def only(self, names: Collection[str]) -> LabelTable:
        """The table with only these labels."""
        return LabelTable([column for column in self.columns if column.name in names], len(self))

    def without(self, names: Collection[str]) -> LabelTable:
        """The table without these labels."""
        return LabelTable([column for column in self.columns if column.name not in names], len(self))

    def used_values(self, name: str) -> set[str]:
        """The values of one label; "" where a series has none."""
        column = next((column for column in self.columns if column.name == name), None)
        return {""} if column is None else {column.values[code] for code in np.unique(column.codes).tolist()}

    def grouped(self) -> tuple[I64, I64]:
        """(number of each series' group of equal labels, first series of each group).

        Groups are numbered in the order of their first series.
        """
        key, size = np.zeros(len(self), np.int64), 1
        table_max = _table_max(len(self))
        for column in self.columns:
            width, codes = len(column.values), column.codes.astype(np.int64)
            if size * width > table_max:
                distinct, inverse = np.unique(codes, return_inverse=True)
                width, codes = len(distinct), inverse.reshape(-1)
            if size * width > table_max:
                before, inverse = np.unique(key, return_inverse=True)
                size, key = len(before), inverse.reshape(-1)
            key, size = key * width + codes, size * width
            assert size < _KEYS_MAX, "BUG: more groups than series squared"
        if size > table_max:
            before, inverse = np.unique(key, return_inverse=True)
            size, key = len(before), inverse.reshape(-1)
        groups: tuple[I64, I64] = _number_groups(key, np.full(size, -1, np.int64))
        return groups

    def order(self) -> I64:
        """The series sorted by their labels, compared as lists of (name, value) in the order of names."""
        if len(self.columns) == 1 and len(self) <= _FEW:
            [column] = self.columns
            texts = list(map(column.values.__getitem__, column.codes.tolist()))
            return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        key, size = np.zeros(len(self), np.int64), 1
        ranks: list[I64] = []
        has_later = np.zeros(len(self), np.bool_)  # whether a series has a label with a later name
        for column in reversed(self.columns):
            numbers, texts = column.numbered()
            place = np.empty(len(texts), np.int64)
            place[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(1, len(texts) + 1)
            present = column.codes != 0
            # A series without a label comes after those that have it if it has a later one, otherwise before them.
            ranks.append(np.where(present, place[numbers], np.where(has_later, len(texts) + 1, 0)))
            has_later |= present
        for rank in reversed(ranks):
            width = int(rank.max(initial=0)) + 1
            if size > _KEYS_MAX // width:
                _, inverse = np.unique(key, return_inverse=True)
                key, size = inverse.reshape(-1), len(key)
            key, size = key * width + rank, size * width
        return np.argsort(key.astype(np.uint16) if size <= _SHORT else key, kind="stable")

    def json(self) -> tuple[U8, I64]:
        """(the labels of all series as JSON objects, joined; where each begins, and the end of the last)."""
        texts: list[bytes] = []
        numbers = np.empty((len(self.columns), len(self)), np.int32)
        for row, column in enumerate(self.columns):
            codes, values = column.numbered()
            numbers[row] = np.where(column.codes == 0, -1, codes + len(texts))
            head = orjson.dumps(column.name) + b":"
            texts += [head + orjson.dumps(value) for value in values]
        return _objects(numbers, texts, len(self))


@dataclass(frozen=True, slots=True)
class Groups:
    """`codes[i]` is the group of series i; `labels[g]` identifies group g."""

    codes: I64
    labels: Sequence[Labels]

    def members(self) -> tuple[I64, I64]:
        """Return the series sorted by group, and where each group begins among them (and the end of the last)."""
        order = np.argsort(self.codes, kind="stable")
        sizes = np.bincount(self.codes, minlength=len(self.labels))
        return order, np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def group_by(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Group series by the values of these labels; a missing label equals an empty one."""
    return _group(series, sorted(set(names)))


def group_without(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Group series by all labels except these and those that say what their numbers mean."""
    return _group(series, sorted(_names(series) - set(names) - METADATA))


def group_equal(series: Sequence[Labels]) -> Groups:
    """Group series with equal labels."""
    return _group(series, sorted(_names(series)))


def label_order(series: Sequence[Labels]) -> I64:
    """Return the numbers of the series, sorted by labels."""
    if isinstance(series, LabelTable) and (len(series) > _FEW or len(series.columns) <= 1):
        return series.order()
    keys = [sorted(labels.items()) for labels in series]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def without_metadata(series: Sequence[Labels], drop: BOOL) -> Sequence[Labels]:
    """Return the labels of all series, for those in ``drop`` without the ones that say what their numbers mean."""
    if isinstance(series, LabelTable) and drop.all():
        return series.derived("without metadata", lambda: series.without(METADATA)).again()
    return [without_name(labels) if dropped else labels for labels, dropped in zip(series, drop, strict=True)]


def has_one_metric(series: Sequence[Labels]) -> bool:
    """Whether all series agree in the labels that say what their numbers mean."""

    def compare() -> bool:
        return all(len(used_values(series, name)) == 1 for name in METADATA)

    return series.derived("has one metric", compare) if isinstance(series, LabelTable) else compare()


def without_name(labels: Labels) -> Labels:
    """Return the labels without the metric's name and the type and unit that belong to it."""
    return {name: value for name, value in labels.items() if name not in METADATA}


def labels_text(labels: Labels) -> str:
    """Write labels as Prometheus does in its messages."""
    return "{" + ", ".join(f"{name}={_quote(value)}" for name, value in sorted(labels.items())) + "}"


def json_of(labels: Sequence[Labels]) -> tuple[U8, I64]:
    """The labels of any list as JSON objects, as ``LabelTable.json`` gives them."""
    if isinstance(labels, LabelTable):
        return labels.json() if len(labels) > _FEW else labels.derived("json", lambda: _json_of_few(labels))
    return _json_of_few(labels)


def _json_of_few(labels: Sequence[Labels]) -> tuple[U8, I64]:
    texts = list(map(orjson.dumps, labels))
    return np.frombuffer(b"".join(texts) or b" ", np.uint8), np.array([0, *accumulate(map(len, texts))], np.int64)


def take_labels(labels: Sequence[Labels], rows: I64) -> Sequence[Labels]:
    """The labels of these series of a list, in this order."""
    return labels.take(rows) if isinstance(labels, LabelTable) else [labels[row] for row in rows.tolist()]


def concatenate_labels(parts: Sequence[Sequence[Labels]]) -> Sequence[Labels]:
    """The series of all parts, one part after the other; by column if all are tables of one index."""
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


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _names(series: Sequence[Labels]) -> set[str]:
    if isinstance(series, LabelTable):
        return {column.name for column in series.columns}
    return set().union(*series)


def _group(series: Sequence[Labels], names: list[str]) -> Groups:
    if isinstance(series, LabelTable):
        by_name = series.only(names)
        codes, first = by_name.grouped()
        return Groups(codes, by_name.take(first))
    if not names:
        return Groups(np.zeros(len(series), np.int64), [{}] if series else [])
    columns = [[labels.get(name, "") for labels in series] for name in names]
    numbers: dict[tuple[str, ...], int] = {}
    codes = np.fromiter(
        (numbers.setdefault(key, len(numbers)) for key in zip(*columns, strict=True)), np.int64, len(series)
    )
    named = [{name: value for name, value in zip(names, key, strict=True) if value} for key in numbers]
    return Groups(codes, named)


def _table_max(series: int) -> int:
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
    out.flags.writeable = False  # as with arrays from elsewhere: kernels are compiled for one kind of array
    return out, borders


@njit(cache=True, nogil=True)
def _number_groups(key: I64, group_of: I64) -> Any:
    """(number of each series' group, first series of each group); ``group_of`` maps keys to groups, -1 at first."""
    codes, first = np.empty(len(key), np.int64), np.empty(min(len(key), len(group_of)), np.int64)
    count = 0
    for i in range(len(key)):
        if group_of[key[i]] < 0:
            group_of[key[i]] = count
            first[count] = i
            count += 1
        codes[i] = group_of[key[i]]
    return codes, first[:count]


@njit(cache=True, nogil=True)
def _sizes(numbers: I32, ends: I64, borders: I64) -> int:
    """Write where each object ends; returns the bytes of all."""
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
