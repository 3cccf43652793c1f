"""The dictionary of series: registers new series, durably and once, before any block uses them (PROTOCOL 3).

``SeriesRegistry`` is for writers: it remembers which ids this process has registered, reads the others from the store
in bulk, and puts the missing ones by check-and-put. An id that already belongs to another canonical form is a
collision: it is reported and never merged. Readers use ``spm.query.series.index``; ``matching`` is for callers without
an index, such as retractions.
"""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from spm import limits
from spm.arrays import I64, U64
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.encoding import kernels
from spm.store.matchers import METRIC_NAME, Matcher, mask
from spm.wire import SeriesTable, metric_id, metric_of, parse_canonical, series_id

COLUMN = b"c"
_NONE = np.empty(0, np.uint64)


class SeriesRegistry:
    """Registers series, and remembers which are in the store. Thread-safe; bounded by ``SERIES_KNOWN_MAX``."""

    def __init__(self, backend: Backend, known_max: int = limits.SERIES_KNOWN_MAX) -> None:
        self._backend = backend
        self._known: dict[int, tuple[U64, U64]] = {}  # app -> ids, sorted, and a second hash of each one's form
        self._known_max = known_max
        self._lock = threading.Lock()

    def register(self, app: int, table: SeriesTable) -> I64:
        """Make every series of the table durable; return the indices of those that collide with another series."""
        checks = kernels.text_checks(table.text, table.starts, table.ends)
        unknown = self._unknown(app, table.ids, checks)
        if not len(unknown):
            return unknown
        forms = [table.canonical(int(i)) for i in unknown]
        names = [keys.series(app, int(table.metrics[i]), int(table.ids[i])) for i in unknown]
        before = self._put_missing(names, forms)
        same = np.array([was is None or was == form for was, form in zip(before, forms, strict=True)], np.bool_)
        self._remember(app, table.ids[unknown[same]], checks[unknown[same]])
        return unknown[~same]

    def _unknown(self, app: int, ids: U64, checks: U64) -> I64:
        """The series to look up in the store: new ids, and known ids that come with another form."""
        known, forms = self._known.get(app, (_NONE, _NONE))
        if not len(known):
            return np.arange(len(ids))
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.flatnonzero((known[at] != ids) | (forms[at] != checks))

    def _put_missing(self, names: Sequence[bytes], forms: Sequence[bytes]) -> list[bytes | None]:
        rows = self._backend.get("series", names, [COLUMN])
        before = [None if row is None else row[COLUMN] for row in rows]
        missing = [i for i, was in enumerate(before) if was is None]
        if missing:
            raced = self._backend.check_and_put_many("series", COLUMN, [(names[i], forms[i]) for i in missing])
            for i, was in zip(missing, raced, strict=True):
                before[i] = was
        return before

    def _remember(self, app: int, ids: U64, checks: U64) -> None:
        with self._lock:
            if sum(len(known) for known, _ in self._known.values()) + len(ids) > self._known_max:
                self._known.clear()  # the store is asked again: slower, never wrong
            known, forms = self._known.get(app, (_NONE, _NONE))
            joined, first = np.unique(np.concatenate([known, ids]), return_index=True)
            self._known[app] = joined, np.concatenate([forms, checks])[first]


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
