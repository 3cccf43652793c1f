"""Reads samples and evaluates PromQL. Enter by ``configure`` once per process, then ``storage_for(app)``.

The package imports the store and the foundation, never Django: views and rules pass it an app's number and a query.
"""

import threading
from functools import partial

from spm import limits
from spm.bounded import LruCache
from spm.clock import Clock, SystemClock
from spm.errors import Refused
from spm.query.promql.result_cache.entries import ResultCache
from spm.query.promql.result_cache.reuse import AppResultCache
from spm.query.reader import AppStorage
from spm.query.request.limits import APPS_BYTES_MAX
from spm.query.view.decoded_rows import PageCache
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable

_LOCK = threading.Lock()
_SETTINGS: dict[str, str] = {}
_STORAGES: LruCache[int, AppStorage] = LruCache(APPS_BYTES_MAX, count_max=limits.QUERY_APPS_MAX)
_CACHE = PageCache()
_RESULTS = ResultCache()


def configure(url: str) -> None:
    """Set the store that this process reads; a changed URL clears all caches."""
    with _LOCK:
        if _SETTINGS.get("url") != url:
            _SETTINGS["url"] = url
            _STORAGES.clear()
            _CACHE.clear()
            _RESULTS.clear()


def result_cache_of(storage: AppStorage) -> AppResultCache:
    """The result cache of this process, for the app of one storage."""
    return AppResultCache(_RESULTS, storage)


def storage_for(app: int, clock: Clock | None = None) -> AppStorage:
    """The app's storage in this process; raises ``Refused`` before ``configure``."""
    with _LOCK:
        storage = _STORAGES.get(app)
        if storage is None:
            if "url" not in _SETTINGS:
                raise Refused("no store is configured for queries", remedy="Call spm.query.configure(url) first.")
            storage = AppStorage(
                open_backend(_SETTINGS["url"]),
                app,
                placement=PlacementTable(),
                clock=clock or SystemClock(),
                cache=_CACHE,
                note_bytes=partial(_note_bytes, app),
            )
            _STORAGES.put(app, storage, 0)
        return storage


def _note_bytes(app: int, size_bytes: int) -> None:
    """Note what is remembered of an app. Beyond the bound of all apps those used least recently are forgotten.

    Queries that read them now end with what they have.
    """
    _STORAGES.reweigh(app, size_bytes)
