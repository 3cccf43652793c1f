"""The series index of an app, and what a query selects from it: the series that match, in the order of their keys.

Each label is a column of small numbers with its inverse (``label_index``): the matcher that the fewest series satisfy
gives the candidates, and the other matchers are applied to these only. The index only grows. New series are read by key
when a block names them, or by a scan when a run has compacted blocks that this process never read. A row whose text
does not hash to its key is damaged: it is reported and skipped. Enter by ``SeriesIndex.select``, whose rows
``SeriesSelection.of`` takes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np
from numba import njit

from spm import limits
from spm.arrays import BOOL, I32, I64, U64
from spm.errors import CorruptBlock, LimitExceeded, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.query.request.batches import METRIC_NAME, DeadlineCheck, Matcher, no_deadline
from spm.query.series.canonical_columns import columns_of
from spm.query.series.label_index import Hits, LabelIndex, NamedValues
from spm.query.series.label_table import Column, LabelTable
from spm.store import keys
from spm.store.backends.base import Reader, scan_ranges
from spm.store.dictionary import COLUMN
from spm.store.matchers import matches_empty
from spm.wire import series_id

_READ_AT_ONCE = 10_000  # rows of one get: some megabytes
_ADDED_AT_ONCE = 50_000  # rows of a scan: the cost of Arrow and numpy per call is negligible then
# Of a series besides its text: ids, value numbers, entries of the inverses; measured with a million series.
_SERIES_BYTES = 600
_NARROW = 1_000  # so few series are examined in less time than the series of another matcher are counted
# New series are looked up in a set; beyond so many, and beyond this part of the sorted ones, all are sorted anew.
_UNSORTED_LEAST, _UNSORTED_SHARE = 5_000, 8

Report = Callable[[bytes, bytes, CorruptBlock], None]  # key and bytes of a damaged row, the error


@dataclass(frozen=True, slots=True)
class SeriesByMetric:
    """Selected series in the order of (metric, id): ids, metrics, their numbers, and the span of each metric."""

    ids: U64
    metrics: U64
    numbers: I64  # in the selection
    spans: Mapping[int, tuple[int, int]]
    plans: dict[object, object] = field(default_factory=dict)  # the last one that was made of them

    @property
    def ranks(self) -> I64:
        """The place here of each series of the selection."""
        ranks = np.empty_like(self.numbers)
        ranks[self.numbers] = np.arange(len(ranks))
        return ranks

    def __contains__(self, metric: int) -> bool:
        return metric in self.spans

    def __getitem__(self, metric: int) -> tuple[U64, I64]:
        first, end = self.spans[metric]
        return self.ids[first:end], self.numbers[first:end]


@dataclass(slots=True)
class _Derived:
    """What follows from a selection, once it was asked for: a process keeps small selections."""

    by_metric: SeriesByMetric | None = None
    labels: LabelTable | None = None


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """The series of a query: rows of the index, their ids and metric ids. An id names a series within its metric."""

    index: I64
    series: U64
    metrics: U64
    in_order: bool = True  # whether they are in the order of their keys: (metric, id)
    _derived: _Derived = field(default_factory=_Derived)

    @classmethod
    def of(cls, rows: I64, ids: U64, metrics: U64) -> "SeriesSelection":
        """These rows of an index, in the order of their keys, which does not depend on how the index was filled."""
        rows = rows[np.lexsort((ids[rows], metrics[rows]))]
        if len(rows) > limits.QUERY_SERIES_MAX:
            raise QueryTooLarge(f"{len(rows)} series match; at most {limits.QUERY_SERIES_MAX}: narrow the selector")
        return cls(rows, ids[rows], metrics[rows])

    def __len__(self) -> int:
        return len(self.index)

    def part(self, places: slice | BOOL) -> "SeriesSelection":
        """Some of the series, in the same order."""
        return SeriesSelection(self.index[places], self.series[places], self.metrics[places], self.in_order)

    def take(self, rows: I64) -> "SeriesSelection":
        """The series with these numbers, in this order."""
        return SeriesSelection(self.index[rows], self.series[rows], self.metrics[rows], in_order=False)

    def rows(self, series: U64, metrics: U64) -> I32:
        """The number in the selection of each of these pairs; all of them are selected."""
        ids, names = np.unique(self.series), np.unique(self.metrics)

        def codes(s: U64, m: U64) -> I64:
            return np.searchsorted(names, m) * len(ids) + np.searchsorted(ids, s)

        own = codes(self.series, self.metrics)
        order = np.argsort(own)
        return order[np.searchsorted(own[order], codes(series, metrics))].astype(np.int32)

    def labels(self, table: Callable[[I64], LabelTable]) -> LabelTable:
        """The labels of all series; ``table`` gives those of some rows of the index, and is asked once."""
        if self._derived.labels is None:
            self._derived.labels = table(self.index)
        return self._derived.labels.again()

    def by_metric(self) -> SeriesByMetric:
        """The selection in the order of keys."""
        if self._derived.by_metric is None:
            self._derived.by_metric = self._by_metric()
        return self._derived.by_metric

    def _by_metric(self) -> SeriesByMetric:
        names, series, numbers = self.metrics, self.series, np.arange(len(self), dtype=np.int64)
        if not self.in_order:
            numbers = np.lexsort((series, names))
            names, series = names[numbers], series[numbers]
        borders = _borders(names)
        spans = dict(zip(names[borders[:-1]].tolist(), pairwise(borders.tolist()), strict=True))
        return SeriesByMetric(series, names, numbers, spans)


@njit(cache=True, nogil=True)
def _borders(column: U64) -> I64:
    """Where each stretch of equal values begins, and the end of the last."""
    borders, size = np.zeros(len(column) + 1, np.int64), 0
    for place in range(1, len(column)):
        if column[place] != column[place - 1]:
            size += 1
            borders[size] = place
    size += min(len(column), 1)
    borders[size] = len(column)
    return borders[: size + 1]


class SeriesIndex:
    """The series of one app that this process has read."""

    def __init__(self, app: int, report: Report, bytes_max: int = limits.SERIES_INDEX_BYTES_MAX) -> None:
        self._app, self._report = app, report
        self._bytes, self._bytes_max = 0, bytes_max
        self._count = 0
        self._ids: U64 = np.empty(0, np.uint64)  # with room for more series at the end
        self._metrics: U64 = np.empty(0, np.uint64)
        self._labels: dict[str, LabelIndex] = {METRIC_NAME: LabelIndex()}  # sorted by name; replaced as a whole
        self._sorted: tuple[U64, U64] = (self._ids, self._metrics)  # most of them, by (metric, id)
        self._unsorted: set[tuple[int, int]] = set()  # (metric, id) of the others

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def load(self, reader: Reader) -> None:
        """Read every series of the app that is not known yet, by one scan if none is."""
        if not self._count:
            try:
                self._load_all(reader)
            finally:
                self._sort()
            return
        listing = [key for key, _ in scan_ranges(reader, "series", keys.series_ranges(self._app), keys_only=True)]
        metrics, series = keys.parse_series_many(listing)
        self._read(reader, [listing[row] for row in np.flatnonzero(self._unknown(metrics, series)).tolist()])

    def _load_all(self, reader: Reader) -> None:
        row_keys: list[bytes] = []
        forms: list[bytes | None] = []
        for key, cells in scan_ranges(reader, "series", keys.series_ranges(self._app), columns=[COLUMN]):
            row_keys.append(key)
            forms.append(cells.get(COLUMN))
            if len(row_keys) == _ADDED_AT_ONCE:
                self._add(row_keys, forms)
                row_keys, forms = [], []
        self._add(row_keys, forms)

    def ensure(self, reader: Reader, series: U64, metrics: U64) -> None:
        """Read the rows of those series that are not known yet."""
        if not len(series):
            return
        missing = np.flatnonzero(self._unknown(metrics, series))
        pairs = {(int(metrics[row]), int(series[row])) for row in missing.tolist()}
        self._read(reader, [keys.series(self._app, *pair) for pair in sorted(pairs)])

    def _read(self, reader: Reader, row_keys: Sequence[bytes]) -> None:
        for at in range(0, len(row_keys), _READ_AT_ONCE):
            part = row_keys[at : at + _READ_AT_ONCE]
            rows = reader.get("series", part)
            self._unsorted.update(self._add(part, [None if cells is None else cells.get(COLUMN) for cells in rows]))
            if len(self._unsorted) > max(_UNSORTED_LEAST, len(self._sorted[0]) // _UNSORTED_SHARE):
                self._sort()

    def _add(self, row_keys: Sequence[bytes], forms: Sequence[bytes | None]) -> Iterable[tuple[int, int]]:
        """Add the undamaged of these rows, whose series are not known yet; returns their (metric, id)."""
        metrics, series = keys.parse_series_many(row_keys)
        undamaged = self._undamaged(row_keys, forms, series)
        texts = [form for form in (forms[row] for row in undamaged) if form is not None]
        if not texts:
            return ()
        self._check_size(len(texts), sum(map(len, texts)))
        before, count = self._count, self._count + len(texts)
        self._ids, self._metrics = _grown(self._ids, count), _grown(self._metrics, count)
        self._ids[before:count], self._metrics[before:count] = series[undamaged], metrics[undamaged]
        for column in columns_of(texts):
            if column.name not in self._labels:
                self._labels = dict(sorted([*self._labels.items(), (column.name, LabelIndex())]))
            self._labels[column.name].add(column.rows + before, column.number, column.texts, count)
        self._count = count
        return zip(metrics[undamaged].tolist(), series[undamaged].tolist(), strict=True)

    def _undamaged(self, row_keys: Sequence[bytes], forms: Sequence[bytes | None], series: U64) -> list[int]:
        undamaged = []
        for row, (form, expected) in enumerate(zip(forms, series.tolist(), strict=True)):
            if form is not None and series_id(form) == expected:
                undamaged.append(row)
            elif form is not None:
                error = CorruptBlock("a series' text is not the one its key was made from", got=form[:80])
                self._report(row_keys[row], form, error)
        return undamaged

    def _check_size(self, count: int, text_bytes: int) -> None:
        self._bytes += _SERIES_BYTES * count + text_bytes
        if self._bytes > self._bytes_max:
            raise LimitExceeded(
                "the app has more series than a reading process may hold",
                got=f"{len(self) + count} series in {self._bytes} B",
                wanted=f"at most {self._bytes_max} B",
                remedy="Labels with ever new values (ids, times) make a series each: leave them out.",
            )

    def _sort(self) -> None:
        ids, metrics = self.columns()
        order = np.lexsort((ids, metrics))
        self._sorted = ids[order], metrics[order]
        self._unsorted.clear()

    def _unknown(self, metrics: U64, series: U64) -> np.ndarray:
        """bool[N]: which of these pairs are not known."""
        unknown = np.empty(len(series), np.bool_)
        _absent(*self._sorted, series, metrics, unknown)
        if self._unsorted:
            pairs = zip(metrics.tolist(), series.tolist(), strict=True)
            unknown &= np.fromiter((pair not in self._unsorted for pair in pairs), np.bool_, len(series))
        return unknown

    def columns(self) -> tuple[U64, U64]:
        """(series ids u64[S], metric ids u64[S]) by row."""
        return self._ids[: self._count], self._metrics[: self._count]

    def select(self, matchers: Sequence[Matcher], check_deadline: DeadlineCheck = no_deadline) -> I64:
        """Rows of the series that satisfy all matchers, ascending."""
        candidates: list[tuple[LabelIndex, Hits]] = []
        for matcher in matchers:
            label = self._labels.get(matcher.name)
            if label is not None:
                candidates.append((label, label.hits(matcher, check_deadline)))
            elif not matches_empty(matcher):
                return np.empty(0, np.int64)
        if not candidates:
            return np.arange(self._count)
        first = self._narrowest(candidates)
        rows = candidates[first][0].rows(candidates[first][1], self._count)
        for place, (label, hits) in enumerate(candidates):
            if place != first:
                rows = rows[label.among(rows, hits)]
        return rows

    def _narrowest(self, candidates: Sequence[tuple[LabelIndex, Hits]]) -> int:
        """The matcher that the fewest series satisfy, estimated; one that names values is preferred if it is narrow."""
        best, least = 0, self._count + 1
        for names_values in (True, False):
            for place, (label, hits) in enumerate(candidates):
                if len(candidates) > 1 and isinstance(hits, NamedValues) is names_values and least > _NARROW:
                    size = label.size(hits, self._count)
                    if size < least:
                        best, least = place, size
        return best

    def labels(self, rows: Iterable[int] | I64) -> list[dict[str, str]]:
        """The labels of rows, each with its metric's name as ``__name__``."""
        return self.table(np.fromiter(rows, np.int64) if not isinstance(rows, np.ndarray) else rows).dicts()

    def table(self, rows: I64) -> LabelTable:
        """The labels of rows by column."""
        columns = [Column(n, label.codes(self._count)[rows], label.values) for n, label in self._labels.items()]
        return LabelTable([column for column in columns if _has_any(column.codes)], len(rows))

    def values(self, name: str, rows: I64) -> list[str]:
        """The sorted distinct values of one label among rows."""
        label = self._labels.get(name)
        if label is None or not len(rows):
            return []
        return label.used_values(None if len(rows) == self._count else rows, self._count)

    def names(self, rows: I64) -> list[str]:
        """The sorted names of the labels that any of the rows has."""
        return [n for n, label in self._labels.items() if _has_any(label.codes(self._count)[rows])]

    def label_columns(self) -> list[tuple[str, I32, list[str]]]:
        """(name, number of the value for each series, values) of every label; value 0 is "absent"."""
        return [(name, label.codes(self._count), label.values) for name, label in self._labels.items()]


@njit(cache=True, nogil=True)
def _has_any(codes: I32) -> bool:
    """Whether any series has a value of a label."""
    for code in codes:  # noqa: SIM110  # no generators in a kernel
        if code != 0:
            return True
    return False


def _grown(column: U64, count: int) -> U64:
    if len(column) >= count:
        return column
    grown = np.empty(max(count, 2 * len(column)), np.uint64)
    grown[: len(column)] = column
    return grown


@njit(cache=True, nogil=True)
def _absent(ids: U64, metrics: U64, series: U64, of: U64, out: np.ndarray) -> None:
    """Write for each (metric, id) whether it is missing among sorted pairs."""
    for i in range(len(series)):
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if metrics[middle] < of[i] or (metrics[middle] == of[i] and ids[middle] < series[i]):
                low = middle + 1
            else:
                high = middle
        out[i] = low == len(ids) or ids[low] != series[i] or metrics[low] != of[i]
