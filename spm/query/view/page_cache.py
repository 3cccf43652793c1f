"""Caches decoded rows by their keys, so that a page is read and decoded once per process.

Rows of `chunks`, `timelines`, `inputs`, `hours` and `days` are write-once: a key names the same bytes for ever, so no
entry is ever stale. Manifests do change: their key is their bytes. The least recently used entries are dropped when the
byte limit is reached.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from spm import limits
from spm.bounded import LruCache

Key = tuple[str, bytes]


class PageCache:
    """A bounded map from (table, row key) to the decoded row."""

    def __init__(self, bytes_max: int = limits.PAGE_CACHE_BYTES) -> None:
        self._pages: LruCache[Key, object] = LruCache(bytes_max, share_max=0.25)

    def fetch(
        self,
        table: str,
        keys: Sequence[bytes],
        load: Callable[[Sequence[bytes]], list[object | None]],
        weigh: Callable[[bytes, Any], int] | None = None,
    ) -> list[object | None]:
        """The decoded rows in order, from the cache or by one ``load`` of the missing ones; absent rows are not cached.

        ``weigh`` gives a row's bytes from its key and itself, where measuring it would take longer than decoding it.
        """
        cached = self.cached(table, keys)
        missing = list(dict.fromkeys([key for key, page in zip(keys, cached, strict=True) if page is None]))
        if not missing:
            return cached
        loaded = dict(zip(missing, load(missing), strict=True))
        self._pages.put_many(
            ((table, key), page, weigh(key, page) if weigh else _weight(page))
            for key, page in loaded.items()
            if page is not None
        )
        return [loaded[key] if page is None else page for key, page in zip(keys, cached, strict=True)]

    def cached(self, table: str, keys: Sequence[bytes]) -> list[object | None]:
        """The decoded rows in order, as far as they are cached; ``None`` for all others."""
        return self._pages.get_many([(table, key) for key in keys])

    def clear(self) -> None:
        """Forget everything: another store's rows may have equal keys."""
        self._pages.clear()


def _weight(page: Any) -> int:
    """Bytes of the arrays inside, and a guess for every other object."""
    if is_dataclass(page):
        return 200 + sum(_weight(getattr(page, f.name)) for f in fields(page))
    if isinstance(page, msgspec.Struct):
        return 200 + sum(_weight(getattr(page, name)) for name in page.__struct_fields__)
    if isinstance(page, tuple | list):
        return 64 + sum(map(_weight, page))
    if isinstance(page, dict):
        return 64 + sum(100 + _weight(value) for value in page.values())
    return int(getattr(page, "nbytes", 64))
