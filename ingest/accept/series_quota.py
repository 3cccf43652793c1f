"""The series quota of apps: which series of a message are new and over the app's quota.

Enter by ``SeriesQuota.over_quota``, or by ``over_quota_many`` for many messages. A series is new when neither this
process nor the dictionary knows it. Processes take rights to new series from ``spm.store.ledger.quota`` in portions;
while the store does not answer, every series is admitted, and few bodies ask it (``StorePause``).
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ingest.accept.store_pause import StorePause
from ingest.transport.limits import APART_SERIES
from spm import limits
from spm.arrays import BOOL, I64, U32, U64
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.dictionary import COLUMN
from spm.store.id_set import IdSet
from spm.store.ledger import quota
from spm.wire import SeriesTable, concatenate

_FEW_TABLES = 8  # so many are looked up one by one sooner than their columns are joined


class _AppSeries:
    """What one process knows of one app's series: those rejected recently, and unused rights to new ones."""

    def __init__(self) -> None:
        self.rejected: set[int] = set()
        self.rejected_until = 0.0  # monotonic seconds; after that the rejected series are checked again
        self.rights = 0


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Series of several tables that a process has not admitted before: their apps, ids and rows in their tables.

    Those of table k are from ``cuts[k]`` to ``cuts[k + 1]``.
    """

    apps: U32
    metrics: U64
    ids: U64
    rows: I64
    cuts: list[int]

    def spans(self) -> list[tuple[int, int]]:
        """Return where those of each table start and end."""
        return list(itertools.pairwise(self.cuts))


class RecentApps:
    """The apps that something was noted of within the last so many seconds. Thread-safe."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._until: LruCache[int, float] = LruCache(limits.QUOTA_APPS_MAX)  # app → monotonic seconds

    def add(self, app: int) -> None:
        """Remember the app."""
        self._until.put(app, self._clock.monotonic() + self._seconds)

    def __contains__(self, app: int) -> bool:
        until = self._until.get(app)
        return until is not None and until > self._clock.monotonic()


class SeriesQuota:
    """Checks the series of all apps in one process. Thread-safe."""

    def __init__(self, store: Backend, clock: Clock, pause: StorePause, slow_apps: RecentApps) -> None:
        self._store, self._clock, self._pause, self._slow_apps = store, clock, pause, slow_apps
        self._lock = threading.Lock()
        self._admitted = IdSet()  # ids, each with its app as tag
        self._apps: dict[int, _AppSeries] = {}
        self.apps_over_quota = RecentApps(clock, limits.OVER_QUOTA_CACHE_S)  # their names are not worth caching

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
        if len(tables) <= _FEW_TABLES and all(self._admitted.contains_all(each.ids, app) for app, each, _ in tables):
            return [None] * len(tables)
        unknown = self._unknown(tables)
        if unknown is None or not self._pause.may_ask():
            return [None] * len(tables)
        try:
            self._pause.ask(partial(self._store.get, "config", [b"identity"]))  # many rows may take longer than a pause
            admitted = self._in_dictionary(unknown)
        except StoreUnavailable:
            self._pause.failed()
            return [None] * len(tables)
        self._pause.answered()
        rejected: list[list[int] | None] = []
        try:
            for (app, _, quota_series), (first, end) in zip(tables, unknown.spans(), strict=True):
                numbers = unknown.ids[first:end].tolist()
                rejected.append(self._rejected(app, numbers, quota_series, admitted[app]) if numbers else [])
        finally:  # after an error, too: the rights of what was let in before it are used
            masks = self._settle(tables, unknown, rejected)
        return masks

    def _unknown(self, tables: Sequence[tuple[int, SeriesTable, int]]) -> "_Unknown | None":
        """Return the series of all tables that this process has not admitted before."""
        sizes = np.array([len(table) for _, table, _ in tables], np.int64)
        ids = concatenate([table.ids for _, table, _ in tables], np.uint64)
        apps = np.repeat(np.array([app for app, _, _ in tables], np.uint32), sizes)
        numbers = np.flatnonzero(~self._admitted.contains(ids, apps))
        if not len(numbers):
            return None
        metrics = concatenate([table.metrics for _, table, _ in tables], np.uint64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        cuts = np.searchsorted(numbers, starts)
        rows = numbers - np.repeat(starts[:-1], np.diff(cuts))
        for place in np.flatnonzero(np.diff(cuts) >= APART_SERIES).tolist():
            self._slow_apps.add(tables[place][0])
        return _Unknown(apps[numbers], metrics[numbers], ids[numbers], rows, cuts.tolist())

    def _in_dictionary(self, unknown: "_Unknown") -> dict[int, set[int]]:
        """Return by app the ids of unknown series that the dictionary has, after one look at it.

        Series that were rejected a moment ago are not looked up.
        """
        registered: dict[int, set[int]] = {app: set() for app in set(unknown.apps.tolist())}
        with self._lock:
            rejected = {app: known for app in registered if (known := self._series_of(app).rejected)}
        pairs = list(zip(unknown.apps.tolist(), unknown.ids.tolist(), strict=True))
        places: slice | list[int] = slice(None)
        if rejected:
            places = [place for place, (app, number) in enumerate(pairs) if number not in rejected.get(app, ())]
            pairs = [pairs[place] for place in places]
        names = keys.series_many(unknown.apps[places], unknown.metrics[places], unknown.ids[places])
        stored = self._store.get("series", names, [COLUMN]) if names else []
        for (app, number), row in zip(pairs, stored, strict=True):
            if row is not None:
                registered[app].add(number)
        return registered

    def _rejected(self, app: int, numbers: list[int], quota_series: int, admitted: set[int]) -> list[int] | None:
        """Return the places of rejected series among unknown ones of one message; adds the others to ``admitted``.

        ``None``: all are let in, and not remembered, since the store does not answer.
        """
        with self._lock:
            known = self._series_of(app)
            recently = known.rejected
        again = [place for place, number in enumerate(numbers) if number in recently] if recently else []
        new = [place for place, number in enumerate(numbers) if number not in admitted and number not in recently]
        try:
            allowed = self._take_rights(app, known, len(new), quota_series)
        except StoreUnavailable:
            self._pause.failed()
            return None
        over = new[allowed:]
        admitted.update([numbers[place] for place in new[:allowed]])
        if over:
            self._remember_rejected(known, [numbers[place] for place in over])
        if again or over:
            self.apps_over_quota.add(app)
        return again + over

    def _settle(
        self, tables: Sequence[tuple[int, SeriesTable, int]], unknown: "_Unknown", rejected: Sequence[list[int] | None]
    ) -> list[BOOL | None]:
        """Remember the admitted series of all tables; return the mask of each table."""
        admitted = np.zeros(len(unknown.ids), np.bool_)
        masks: list[BOOL | None] = []
        for (_, table, _), (first, end), places in zip(tables, unknown.spans(), rejected, strict=False):
            admitted[first:end] = places is not None
            mask: BOOL | None = None
            if places:
                admitted[first:end][places] = False
                mask = np.zeros(len(table), np.bool_)
                mask[unknown.rows[first:end][places]] = True
            masks.append(mask)
        self._admit(unknown.ids[admitted], unknown.apps[admitted])
        return masks

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

    def _remember_rejected(self, known: _AppSeries, numbers: list[int]) -> None:
        with self._lock:
            if not known.rejected:
                known.rejected_until = self._clock.monotonic() + limits.QUOTA_REFUSED_S
            if len(known.rejected) + len(numbers) <= limits.QUOTA_REFUSED_MAX:
                known.rejected.update(numbers)
