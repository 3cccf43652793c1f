"""A small cache of series for apps over their quota, so that their names do not displace those of all other apps.

Such an app names new series with every body. In the cache that all apps share, its names would fill generation after
generation, and every full generation is thrown away with the entries of all others. Enter by ``OverQuotaCache``.
"""

import threading

from ingest.protocols.common.series_cache import Generation, SeriesCache
from spm.limits import CROWD_CACHE_BYTES_MAX


class OverQuotaCache(SeriesCache):
    """A series cache for all over-quota apps of a process: ``CROWD_CACHE_BYTES_MAX`` of names, and what one body adds."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._current = Generation()

    def generation(self) -> Generation:
        """Returns the generation for one message: all its series numbers are of this one."""
        with self._lock:
            if self._current.form_bytes >= CROWD_CACHE_BYTES_MAX:
                self._current = Generation()
            return self._current
