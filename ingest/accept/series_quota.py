"""The series quota of apps: which series of a message are new and over the app's quota.

Enter by ``SeriesQuota.over_quota``, or by ``over_quota_many`` for many messages. A series is new when neither this
process nor the dictionary knows it. Processes take rights to new series from ``spm.store.ledger.quota`` in portions;
while the store does not answer, every series is admitted.
"""

import threading
from collections.abc import Sequence

import numpy as np

from spm import limits
from spm.arrays import BOOL, U32, U64
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.dictionary import COLUMN
from spm.store.id_set import IdSet
from spm.store.ledger import quota
from spm.wire import SeriesTable, concatenate


class _AppSeries:
    """What one process knows of one app's series: those rejected recently, and unused rights to new ones."""

    def __init__(self) -> None:
        self.rejected: set[int] = set()
        self.rejected_until = 0.0  # monotonic seconds; after that the rejected series are checked again
        self.rights = 0


class OverQuotaCache:
    """The apps that recently sent series over their quota; the names in their messages are not worth caching."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: LruCache[int, float] = LruCache(limits.QUOTA_APPS_MAX)  # app → monotonic seconds

    def add(self, app: int) -> None:
        """Remember the app for ``OVER_QUOTA_CACHE_S``."""
        self._until.put(app, self._clock.monotonic() + limits.OVER_QUOTA_CACHE_S)

    def __contains__(self, app: int) -> bool:
        until = self._until.get(app)
        return until is not None and until > self._clock.monotonic()


class SeriesQuota:
    """Checks the series of all apps in one process. Thread-safe."""

    def __init__(self, store: Backend, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._admitted = IdSet()  # ids, each with its app as tag
        self._apps: dict[int, _AppSeries] = {}
        self.apps_over_quota = OverQuotaCache(clock)

    def over_quota(self, app: int, table: SeriesTable, quota_series: int) -> BOOL | None:
        """Return a mask of the series that are over the quota; ``None`` if all are admitted."""
        if self._admitted.contains_all(table.ids, app):
            return None
        return self.over_quota_many([(app, table, quota_series)])[0]

    def over_quota_many(self, tables: Sequence[tuple[int, SeriesTable, int]]) -> list[BOOL | None]:
        """Return for each (app, table, quota) what ``over_quota`` of it returns, one after the other.

        1. Series that this process admitted before are admitted;
        2. those that it rejected a moment ago are rejected;
        3. those in the dictionary are admitted;
        4. of the others as many are admitted, in their order, as the app has rights for.
        """
        unknown = self._unknown(tables)
        try:
            in_dictionary = self._in_dictionary(tables, unknown)
        except StoreUnavailable:
            return [None] * len(tables)
        results: list[BOOL | None] = []
        for (app, table, quota_series), rows in zip(tables, unknown, strict=True):
            results.append(self._rejected(app, table, rows, quota_series, in_dictionary) if rows else None)
        return results

    def _unknown(self, tables: Sequence[tuple[int, SeriesTable, int]]) -> list[list[int]]:
        """Return the rows of each table whose series this process has not admitted before."""
        sizes = [len(table) for _, table, _ in tables]
        ends = np.cumsum(sizes)
        ids = concatenate([table.ids for _, table, _ in tables], np.uint64)
        apps = np.repeat(np.array([app for app, _, _ in tables], np.uint32), sizes)
        unknown = np.flatnonzero(~self._admitted.contains(ids, apps))
        if not len(unknown):
            return [[] for _ in tables]
        pieces = np.split(unknown, np.searchsorted(unknown, ends[:-1]))
        return [(rows - (end - size)).tolist() for rows, size, end in zip(pieces, sizes, ends.tolist(), strict=True)]

    def _in_dictionary(
        self, tables: Sequence[tuple[int, SeriesTable, int]], unknown: Sequence[list[int]]
    ) -> set[tuple[int, int]]:
        """Return the unknown series that the dictionary has, as (app, id), after one look at it."""
        names: dict[tuple[int, int], bytes] = {}
        for (app, table, _), rows in zip(tables, unknown, strict=True):
            if not rows:
                continue
            with self._lock:
                rejected = self._series_of(app).rejected
            for metric, number in zip(table.metrics[rows].tolist(), table.ids[rows].tolist(), strict=True):
                if number not in rejected:
                    names[app, number] = keys.series(app, metric, number)
        stored = self._store.get("series", list(names.values()), [COLUMN]) if names else []
        return {pair for pair, row in zip(names, stored, strict=True) if row is not None}

    def _rejected(
        self, app: int, table: SeriesTable, rows: list[int], quota_series: int, admitted: set[tuple[int, int]]
    ) -> BOOL | None:
        """Return a mask of the rejected series among these unknown rows; adds the others to ``admitted``."""
        numbers = table.ids[rows].tolist()
        with self._lock:
            known = self._series_of(app)
            again = [row for row, number in zip(rows, numbers, strict=True) if number in known.rejected]
            new = [
                row
                for row, number in zip(rows, numbers, strict=True)
                if number not in known.rejected and (app, number) not in admitted
            ]
        try:
            allowed = self._take_rights(app, known, len(new), quota_series)
        except StoreUnavailable:
            return None
        rejected = again + new[allowed:]
        over = set(rejected)
        taken = [row for row in rows if row not in over]
        ids = table.ids[taken]
        self._admit(ids, np.full(len(ids), app, np.uint32))
        admitted.update((app, number) for number in ids.tolist())
        if not rejected:
            return None
        self._remember_rejected(app, known, table.ids[new[allowed:]])
        mask = np.zeros(len(table), np.bool_)
        mask[rejected] = True
        return mask

    def _series_of(self, app: int) -> _AppSeries:
        """Return what is known of an app; under the lock."""
        known = self._apps.get(app)
        if known is None:
            if len(self._apps) >= limits.QUOTA_APPS_MAX:
                self._apps = {}  # rights that are forgotten come back with the next count of the dictionary
            known = self._apps[app] = _AppSeries()
        if self._clock.monotonic() >= known.rejected_until:
            known.rejected = set()
        return known

    def _admit(self, ids: U64, apps: U32) -> None:
        if len(self._admitted) + len(ids) > limits.QUOTA_KNOWN_MAX:
            self._admitted.clear()  # the store is asked again: slower, never wrong
        self._admitted.add(ids, apps)

    def _take_rights(self, app: int, known: _AppSeries, new: int, quota_series: int) -> int:
        """Return for how many new series the app has rights; these are taken from the store in portions."""
        with self._lock:
            used = min(known.rights, new)
            known.rights -= used
        missing = new - used
        if missing:
            wanted = max(missing, min(limits.QUOTA_SERIES_PORTION, quota_series // 64))
            given = quota.take_series(self._store, app, wanted=wanted, quota=quota_series, now_ms=self._clock.now_ms())
            used += min(given, missing)
            with self._lock:
                known.rights += max(0, given - missing)
        return used

    def _remember_rejected(self, app: int, known: _AppSeries, ids: U64) -> None:
        with self._lock:
            if not known.rejected:
                known.rejected_until = self._clock.monotonic() + limits.QUOTA_REFUSED_S
            if len(known.rejected) + len(ids) <= limits.QUOTA_REFUSED_MAX:
                known.rejected.update(ids.tolist())
        self.apps_over_quota.add(app)
