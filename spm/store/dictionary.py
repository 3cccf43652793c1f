"""The dictionary of series: new series are registered once, with the first batch that has them (PROTOCOL 3).

``SeriesRegistry`` is for writers: it remembers which ids are in the store, reads the others in bulk, and says which
rows a batch must put, each by check-and-put, before its blocks. An id that already belongs to another canonical form is
a collision: it is reported and never merged. Readers use ``spm.query.series.index``; ``matching`` is for callers
without an index, such as retractions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spm import limits
from spm.arrays import I64, U32, U64
from spm.clock import random_u64
from spm.store import keys
from spm.store.backends.base import Backend, Reader, scan_ranges, taken
from spm.store.encoding.byte_kernels import text_tags
from spm.store.id_set import IdSet
from spm.store.matchers import METRIC_NAME, Matcher, mask
from spm.wire import SeriesTable, metric_id, metric_of, parse_canonical, series_id

COLUMN = b"c"


@dataclass(frozen=True, slots=True)
class NewSeries:
    """Series that the store lacks: the rows (key, canonical form) to be put with a batch, and their ids and tags."""

    rows: tuple[tuple[bytes, bytes], ...]
    ids: U64
    tags: U32

    def __len__(self) -> int:
        return len(self.rows)


class SeriesRegistry:
    """Says which series are new, and remembers which are in the store. Thread-safe; bounded by ``SERIES_KNOWN_MAX``.

    A caller that puts the rows of new series calls ``remember`` once they are durable.
    """

    def __init__(self, backend: Backend, known_max: int = limits.SERIES_KNOWN_MAX) -> None:
        self._backend = backend
        self._seed, self._multiplier = np.uint64(random_u64()), np.uint64(random_u64() | 1)
        self._known = IdSet()  # ids, each with a tag made of its app and a second hash of its form
        self._known_max = known_max

    def look_up(self, apps: U32, table: SeriesTable) -> tuple[I64, NewSeries]:
        """Return (the indices of series that collide with another one, the series that the store lacks).

        ``apps`` is the app of each series. Of two new series with one id the first one counts.
        """
        tags = apps.copy()
        text_tags(self._seed, self._multiplier, table.text, table.starts, table.ends, tags)
        unknown = np.flatnonzero(~self._known.contains(table.ids, tags))
        if not len(unknown):
            return np.empty(0, np.int64), _NOTHING_NEW
        own, own_tags = table.rows(unknown), tags[unknown]
        names = keys.series_many(apps[unknown], own.metrics, own.ids)
        stored = self._backend.get("series", names, [COLUMN])
        forms = own.canonicals()
        rows = dict(zip(names, forms, strict=True))
        if not any(stored) and len(rows) == len(names):
            return np.empty(0, np.int64), NewSeries(tuple(rows.items()), own.ids, own_tags)
        present, new, collided, rows = _compared(names, forms, stored)
        if present:
            self._remember(own.ids[present], own_tags[present])
        return unknown[collided], NewSeries(tuple(rows.items()), own.ids[new], own_tags[new])

    def remember(self, new: NewSeries) -> None:
        """Remember series whose rows are in the store now."""
        self._remember(new.ids, new.tags)

    def register(self, app: int, table: SeriesTable) -> I64:
        """Make every series of the table durable; return the indices of those that collide with another series."""
        while True:
            collided, new = self.look_up(np.full(len(table), app, np.uint32), table)
            if not new or not taken(new.rows, self._backend.check_and_put_many("series", COLUMN, new.rows)):
                self.remember(new)
                return collided

    def _remember(self, ids: U64, tags: U32) -> None:
        if len(self._known) + len(ids) > self._known_max:
            self._known.clear()  # the store is asked again: slower, never wrong
        self._known.add(ids, tags)


def _compared(
    names: Sequence[bytes], forms: Sequence[bytes], stored: Sequence[dict[bytes, bytes] | None]
) -> tuple[list[int], list[int], list[int], dict[bytes, bytes]]:
    """Return the places of series that are in the store, are new, or collide, and the rows of the new ones."""
    present, new, collided = list[int](), list[int](), list[int]()
    rows: dict[bytes, bytes] = {}
    for place, (name, form, row) in enumerate(zip(names, forms, stored, strict=True)):
        first = rows.get(name) if row is None else row[COLUMN]
        if first is None:
            rows[name] = form
            new.append(place)
        elif first != form:
            collided.append(place)
        elif row is not None:
            present.append(place)
    return present, new, collided, rows


_NOTHING_NEW = NewSeries((), np.empty(0, np.uint64), np.empty(0, np.uint32))


_SERIES_AT_ONCE = 10_000  # some megabytes of labels


def matching(reader: Reader, app: int, matchers: Sequence[Matcher]) -> tuple[U64, U64]:
    """Find every series of the app that satisfies all matchers: (series ids, metric ids), sorted by (metric, id).

    With a matcher ``__name__="x"`` only the rows of that metric are read. A row whose text does not hash to its key is
    damaged and never matches.
    """
    pairs: list[tuple[int, int]] = []
    for names, forms in _scan_rows(reader, app, matchers):
        fine = [i for i, form in enumerate(forms) if _hashes_to(names[i], form)]
        labels = [parse_canonical(forms[i]) for i in fine]
        matches = _select([{**own, METRIC_NAME: metric} for metric, own in labels], matchers)
        pairs += [keys.parse_series(names[i]) for i, match in zip(fine, matches, strict=True) if match]
    table = np.array(sorted(pairs), np.uint64).reshape(-1, 2)
    return table[:, 1].copy(), table[:, 0].copy()


def _scan_rows(reader: Reader, app: int, matchers: Sequence[Matcher]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield (keys, canonical forms) of the rows that may match, some thousands at a time."""
    named = next((m.value for m in matchers if m.name == METRIC_NAME and m.op == "="), None)
    ranges = keys.series_ranges(app) if named is None else [_metric_range(app, metric_id(named.encode()))]
    names: list[bytes] = []
    forms: list[bytes] = []
    for key, cells in scan_ranges(reader, "series", ranges):
        names.append(key)
        forms.append(cells[COLUMN])
        if len(names) == _SERIES_AT_ONCE:
            yield names, forms
            names, forms = [], []
    yield names, forms


def _metric_range(app: int, metric: int) -> tuple[bytes, bytes]:
    return keys.series(app, metric, 0), keys.series(app, metric, keys.U64) + b"\0"


def _hashes_to(key: bytes, form: bytes) -> bool:
    return keys.parse_series(key) == (metric_id(metric_of(form)), series_id(form))


def _select(labels: Sequence[dict[str, str]], matchers: Sequence[Matcher]) -> npt.NDArray[np.bool_]:
    matches = np.ones(len(labels), np.bool_)
    for matcher in matchers:
        values = [own.get(matcher.name, "") for own in labels]
        matches &= mask(values, matcher)
    return matches
