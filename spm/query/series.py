"""The reader's half of the dictionary: which series of an app match.

Labels are kept as columns of small numbers (one per series, for each label name) beside the list of that label's
values, so that a matcher looks at distinct values only and then at numbers. The index only grows; new series are read
by key when a block names them, or by a scan when a run has moved data that this process never saw as a block. A row
whose text does not hash to its key is damaged: it is reported and passed over.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from spm import limits
from spm.errors import CorruptBlock, LimitExceeded
from spm.query.select import METRIC_NAME, Matcher
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.columns import strings
from spm.store.dictionary import COLUMN
from spm.store.matchers import mask
from spm.wire import I32, I64, U64, parse_canonical, series_id

_READ_AT_ONCE = 10_000  # rows of one get: some megabytes
_SERIES_BYTES = 400  # of a series beside its text: its place in a dict, its ids, a number for each label


class _Label:
    """One label's column: the number of its value for each series, 0 standing for "absent"."""

    def __init__(self) -> None:
        self.values: list[str] = [""]
        self.number: dict[str, int] = {"": 0}
        self.codes: list[int] = []
        self._array: tuple[I32, pa.Array] | None = None

    def add(self, series: int, value: str) -> None:
        """Series number ``series`` has this value; those between had none."""
        self.codes.extend([0] * (series - len(self.codes)))
        code = self.number.setdefault(value, len(self.values))
        if code == len(self.values):
            self.values.append(value)
        self.codes.append(code)

    def columns(self, count: int) -> tuple[I32, pa.Array]:
        """(codes i32[count], distinct values), built once per growth."""
        if self._array is None or len(self._array[0]) != count:
            codes = np.zeros(count, np.int32)
            codes[: len(self.codes)] = self.codes
            self._array = codes, strings(self.values)
        return self._array


Report = Callable[[bytes, bytes, CorruptBlock], None]  # key, bytes, what is wrong with them


class SeriesIndex:
    """All known series of one app."""

    def __init__(self, app: int, report: Report, bytes_max: int = limits.SERIES_INDEX_BYTES_MAX) -> None:
        self._app, self._report = app, report
        self._bytes, self._bytes_max = 0, bytes_max
        self._position: dict[tuple[int, int], int] = {}  # (metric id, series id) -> row
        self._ids: list[int] = []
        self._metrics: list[int] = []
        self._labels: dict[str, _Label] = {METRIC_NAME: _Label()}
        self._arrays: tuple[U64, U64] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def load(self, reader: Reader) -> None:
        """Read every series of the app that is not known yet; all of them at once when none is."""
        if not self._position:
            for key, cells in scan_ranges(reader, "series", keys.series_ranges(self._app), columns=[COLUMN]):
                self._add(key, cells)
            return
        new = [
            key
            for key, _ in scan_ranges(reader, "series", keys.series_ranges(self._app), keys_only=True)
            if keys.parse_series(key) not in self._position
        ]
        self._read(reader, new)

    def ensure(self, reader: Reader, series: U64, metrics: U64) -> None:
        """Read the rows of those series that are not known yet."""
        pairs = zip(metrics.tolist(), series.tolist(), strict=True)
        missing = [keys.series(self._app, *pair) for pair in pairs if pair not in self._position]
        self._read(reader, missing)

    def _read(self, reader: Reader, names: Sequence[bytes]) -> None:
        for at in range(0, len(names), _READ_AT_ONCE):
            part = names[at : at + _READ_AT_ONCE]
            for key, cells in zip(part, reader.get("series", part), strict=True):
                if cells is not None:
                    self._add(key, cells)

    def _add(self, key: bytes, cells: dict[bytes, bytes]) -> None:
        metric, series = keys.parse_series(key)
        form = cells.get(COLUMN)
        if (metric, series) in self._position or form is None:
            return
        if series_id(form) != series:
            self._report(key, form, CorruptBlock("a series' text is not the one its key was made from", got=form[:80]))
            return
        name, labels = parse_canonical(form)
        row = len(self._ids)
        self._check_size(len(form))
        for label, value in {**labels, METRIC_NAME: name}.items():
            column = self._labels.get(label)
            if column is None:
                column = self._labels[label] = _Label()
            column.add(row, value)
        self._position[metric, series] = row
        self._ids.append(series)
        self._metrics.append(metric)
        self._arrays = None

    def _check_size(self, form_bytes: int) -> None:
        self._bytes += _SERIES_BYTES + form_bytes
        if self._bytes > self._bytes_max:
            raise LimitExceeded(
                "the app has more series than a reading process may hold", got=f"{len(self)} series in {self._bytes} B",
                wanted=f"at most {self._bytes_max} B",
                remedy="Labels with ever new values (ids, times) make a series each: leave them out.",
            )  # fmt: skip

    def columns(self) -> tuple[U64, U64]:
        """(series ids u64[S], metric ids u64[S]) by row."""
        if self._arrays is None:
            self._arrays = np.array(self._ids, np.uint64), np.array(self._metrics, np.uint64)
        return self._arrays

    def select(self, matchers: Sequence[Matcher]) -> I64:
        """Rows of the series that satisfy all matchers."""
        chosen = np.ones(len(self), np.bool_)
        for matcher in matchers:
            label = self._labels.get(matcher.name)
            if label is None:
                if not bool(mask([""], matcher)[0]):
                    return np.empty(0, np.int64)
                continue
            codes, values = label.columns(len(self))
            chosen &= mask(values, matcher)[codes]
        return np.flatnonzero(chosen)

    def labels(self, rows: Iterable[int]) -> list[dict[str, str]]:
        """The labels of rows, each with its metric's name as ``__name__``."""
        columns = [(n, label.codes, label.values) for n, label in sorted(self._labels.items())]
        return [{n: v[c[row]] for n, c, v in columns if row < len(c) and c[row]} for row in rows]

    def values(self, name: str, rows: I64) -> list[str]:
        """The sorted distinct values of one label among rows."""
        label = self._labels.get(name)
        if label is None or not len(rows):
            return []
        codes, _ = label.columns(len(self))
        return sorted(label.values[c] for c in np.unique(codes[rows]) if c)

    def names(self, rows: I64) -> list[str]:
        """The sorted names of labels that any of the rows has."""
        count = len(self)
        return sorted(n for n, label in self._labels.items() if len(rows) and bool(label.columns(count)[0][rows].any()))

    def label_columns(self) -> list[tuple[str, I32, list[str]]]:
        """(name, number of the value for each series, values) of every label; value 0 is "absent"."""
        return [(name, label.columns(len(self))[0], label.values) for name, label in sorted(self._labels.items())]
