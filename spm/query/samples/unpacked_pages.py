"""Pages of packed values that were unpacked a moment ago: a chart that is drawn again asks for the same ones.

What queries unpack at once when they read is kept, up to a number of bytes for all apps of a process; wide queries,
which unpack group by group, neither look here nor push out what is here. Enter by ``process_unpacked_pages``.
"""

from collections.abc import Sequence
from functools import lru_cache

from spm import limits
from spm.arrays import F64
from spm.bounded import LruCache
from spm.store.encoding.paged import PagedValues, TakePlan


class UnpackedPages:
    """A bounded map from (number of packed values, page) to the page's values. Thread-safe."""

    def __init__(self, bytes_max: int = limits.UNPACKED_PAGES_BYTES) -> None:
        self._pages: LruCache[tuple[int, int], F64] = LruCache(bytes_max, share_max=0.25)

    def take(self, values: PagedValues, plan: TakePlan, out: F64) -> None:
        """Copy the planned values to the beginning of ``out``; raise ``CorruptBlock``."""

        def unpacked(pages: Sequence[int]) -> list[F64]:
            keys = [(values.number, page) for page in pages]
            cached = self._pages.get_many(keys)
            missing = [page for page, column in zip(pages, cached, strict=True) if column is None]
            fresh = dict(zip(missing, values.unpacked(missing), strict=True)) if missing else {}
            self._pages.put_many(((values.number, page), column, column.nbytes) for page, column in fresh.items())
            return [fresh[page] if column is None else column for page, column in zip(pages, cached, strict=True)]

        values.take_from(plan, unpacked, out)


@lru_cache(maxsize=1)
def process_unpacked_pages() -> UnpackedPages:
    """Return the unpacked pages of this process."""
    return UnpackedPages()
