"""A small cache of series for apps over their quota, so that their names do not displace those of all other apps.

Such an app sends names of new series with every body. In the cache that all apps share, its names would fill one
generation after another, and every full generation is discarded with the entries of all other apps. Enter by
``OverQuotaCache``.
"""

import threading

from ingest.protocols.common.series_cache import CacheGeneration, SeriesCache
from spm.limits import OVER_QUOTA_CACHE_BYTES_MAX


class OverQuotaCache(SeriesCache):
    """A series cache for all over-quota apps of a process; ``OVER_QUOTA_CACHE_BYTES_MAX`` bounds its names."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._current = CacheGeneration()

    def generation(self) -> CacheGeneration:
        """Returns the generation for one message: all its series numbers are of this one."""
        with self._lock:
            if self._current.form_bytes >= OVER_QUOTA_CACHE_BYTES_MAX:
                self._current = CacheGeneration()
            return self._current
