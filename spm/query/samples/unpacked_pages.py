"""Pages of packed values that were unpacked a moment ago: a chart that is drawn again asks for the same ones.

What queries unpack at once when they read is kept, up to a number of bytes for all apps of a process; wide queries,
which unpack group by group, neither look here nor push out what is here. Sample runs refer to the values here without
a copy, and nobody writes to them. Enter by ``process_unpacked_pages``.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from spm import limits
from spm.arrays import F64
from spm.bounded import LruCache
from spm.query.samples.pointers import address_of
from spm.store.encoding.paged import PagedValues

PageKey = tuple[int, int]  # number of the packed values, page


class UnpackedPage(NamedTuple):
    """The values of a page, and the address of the first one."""

    values: F64
    address: int


class UnpackedPages:
    """A bounded map from the key of a page to its values. Thread-safe."""

    def __init__(self, bytes_max: int = limits.UNPACKED_PAGES_BYTES) -> None:
        self._pages: LruCache[PageKey, UnpackedPage] = LruCache(bytes_max, share_max=0.25)

    def cached(self, keys: Sequence[PageKey]) -> list[UnpackedPage | None]:
        """Return the pages in the order of their keys; ``None`` for those that are not here."""
        return self._pages.get_many(keys)

    def unpack(self, values: PagedValues, pages: Sequence[int]) -> Iterable[UnpackedPage]:
        """Unpack these pages and keep them; raise ``CorruptBlock``."""
        unpacked = [UnpackedPage(column, address_of(column)) for column in values.unpacked(pages)]
        self._pages.put_many(
            ((values.number, page), column, column.values.nbytes) for page, column in zip(pages, unpacked, strict=True)
        )
        return unpacked

    def clear(self) -> None:
        """Forget all pages."""
        self._pages.clear()


@lru_cache(maxsize=1)
def process_unpacked_pages() -> UnpackedPages:
    """Return the unpacked pages of this process."""
    return UnpackedPages()
