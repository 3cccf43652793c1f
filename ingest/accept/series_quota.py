"""The series quota of apps: which series of a message are new and over the app's quota.

Enter by ``SeriesQuota.over_quota``. A series is new when neither this process nor the dictionary knows it. A set of
series that was admitted once is recognised by one hash. Processes take rights to new series from
``spm.store.ledger.quota`` in portions; while the store does not answer, every series is admitted.
"""

import threading

import numpy as np

from spm import limits
from spm.arrays import BOOL, I64, U64
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.dictionary import COLUMN
from spm.store.ledger import quota
from spm.wire import SeriesTable

_NO_IDS = np.empty(0, np.uint64)


class _KnownSeries:
    """What one process knows of one app's series: those admitted, those rejected recently, and unused rights."""

    def __init__(self) -> None:
        self.ids: U64 = _NO_IDS  # sorted
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
        self._known: dict[int, _KnownSeries] = {}
        # (app, hash of ids) of tables without a rejected series
        self._admitted_sets: LruCache[tuple[int, int], bool] = LruCache(limits.QUOTA_SETS_MAX)
        self.apps_over_quota = OverQuotaCache(clock)

    def over_quota(self, app: int, table: SeriesTable, quota_series: int) -> BOOL | None:
        """Return a mask of the series that are over the quota; ``None`` if all are admitted."""
        name = (app, hash(table.ids.tobytes()))
        if self._admitted_sets.get(name):
            return None
        rejected = self._rejected(app, table, quota_series)
        if rejected is None:
            self._admitted_sets.put(name, True)
        return rejected

    def _rejected(self, app: int, table: SeriesTable, quota_series: int) -> BOOL | None:
        """Check the series of a table in this order:

        1. those that this process admitted before are admitted;
        2. those that it rejected a moment ago are rejected;
        3. those in the dictionary are admitted;
        4. of the others as many are admitted, in their order, as the app has rights for.
        """
        with self._lock:
            known = self._known_series(app)
            if self._clock.monotonic() >= known.rejected_until:
                known.rejected = set()
            unknown = np.flatnonzero(~_contains(known.ids, table.ids))
            again = [i for i in unknown.tolist() if int(table.ids[i]) in known.rejected] if known.rejected else []
        candidates = np.setdiff1d(unknown, np.array(again, np.int64)) if again else unknown
        try:
            new = self._not_in_dictionary(app, table, candidates)
            over = self._without_rights(app, known, new, quota_series)
        except StoreUnavailable:
            return None
        with self._lock:
            admitted = table.ids[np.setdiff1d(candidates, over)]
            if len(admitted):
                known.ids = np.union1d(known.ids, admitted)
            rejected = [*again, *over.tolist()]
            if not rejected:
                return None
            self._remember_rejected(app, known, table.ids[over])
        mask = np.zeros(len(table), np.bool_)
        mask[rejected] = True
        return mask

    def _known_series(self, app: int) -> _KnownSeries:
        known = self._known.get(app)
        if known is None:
            if sum(len(each.ids) for each in self._known.values()) > limits.QUOTA_KNOWN_MAX:
                self._known = {}  # the store is asked again: slower, never wrong
                self._admitted_sets.clear()
            known = self._known.setdefault(app, _KnownSeries())
        return known

    def _not_in_dictionary(self, app: int, table: SeriesTable, candidates: I64) -> I64:
        names = [keys.series(app, int(table.metrics[i]), int(table.ids[i])) for i in candidates]
        rows = self._store.get("series", names, [COLUMN]) if names else []
        return candidates[np.array([row is None for row in rows], np.bool_)]

    def _without_rights(self, app: int, known: _KnownSeries, new: I64, quota_series: int) -> I64:
        """Return the new series for which the app has no right; rights are taken from the store in portions."""
        with self._lock:
            used = min(known.rights, len(new))
            known.rights -= used
        missing = len(new) - used
        if missing:
            wanted = max(missing, min(limits.QUOTA_SERIES_PORTION, quota_series // 64))
            given = quota.take_series(self._store, app, wanted=wanted, quota=quota_series, now_ms=self._clock.now_ms())
            used += min(given, missing)
            with self._lock:
                known.rights += max(0, given - missing)
        return new[used:]

    def _remember_rejected(self, app: int, known: _KnownSeries, ids: U64) -> None:
        if not known.rejected:
            known.rejected_until = self._clock.monotonic() + limits.QUOTA_REFUSED_S
        if len(known.rejected) + len(ids) <= limits.QUOTA_REFUSED_MAX:
            known.rejected.update(ids.tolist())
        self.apps_over_quota.add(app)


def _contains(known: U64, ids: U64) -> BOOL:
    """Return which of ``ids`` are in the sorted ``known``."""
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    within: BOOL = known[at] == ids
    return within
