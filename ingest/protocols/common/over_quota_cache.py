"""A small cache of series for apps that bring more of them than they may: theirs must not push out everybody's.

An app over its quota names new series with every body. Remembered, they would fill the cache that all apps share, and
each full cache is thrown away with what the others have in it. Enter by ``Crowd``, a ``SeriesCache`` of few bytes.
"""

import threading

from ingest.protocols.common.series_cache import Generation, SeriesCache
from spm.limits import CROWD_CACHE_BYTES_MAX


class Crowd(SeriesCache):
    """One for all such apps of a process; it may hold ``CROWD_CACHE_BYTES_MAX`` of names, and what one body adds."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Lock()
        self._present = Generation()

    def generation(self) -> Generation:
        """The generation for one message."""
        with self._turn:
            if self._present.form_bytes >= CROWD_CACHE_BYTES_MAX:
                self._present = Generation()
            return self._present
