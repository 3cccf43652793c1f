"""Reads and decodes rows by key, once per process, and puts damaged ones into quarantine.

``PageCache`` holds the decoded rows of all apps; ``DecodedRows`` reads those of one. Never decides which rows a query
needs: ``view.view`` does. Enter by ``DecodedRows.fetch``.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from spm import limits
from spm.bounded import LruCache
from spm.errors import CorruptBlock
from spm.query.samples.page_selection import CachedTimelines, Pages, SharedPage
from spm.store import keys, manifest
from spm.store.backends.base import Reader
from spm.store.encoding.blocks import TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.manifest import Generation, Manifest, Month, month_of
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import generations
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import EMPTY, Piece
from spm.store.versions.quarantine import Quarantine

COLUMN = b"v"
_MANIFEST_GROWTH = 12  # bytes of a decoded manifest for each byte of its cell
TIMELINES_OF_PAGES = "lines"  # the cache's name of ``CachedTimelines``, beside the names of tables
Decoder = Callable[[Mapping[bytes, bytes]], object]


class _Damaged(NamedTuple):
    """What is left of a page of which parts are damaged."""

    page: SharedPage
    error: CorruptBlock


def _shared_page(raw: bytes) -> SharedPage | _Damaged:
    page, damage = ChunkPage.undamaged(raw)
    shared = SharedPage.of(page)
    return shared if damage is None else _Damaged(shared, damage)


_DECODERS: dict[str, Decoder] = {
    "chunks": lambda row: _shared_page(row[COLUMN]),
    "timelines": lambda row: TimelinesPage.from_bytes(row[COLUMN]),
    "inputs": lambda row: generations.decode_inputs(row[COLUMN]),
    "log": Piece.of_row,
}


class PageCache:
    """A bounded map from (table, row key) to the decoded row, for all apps of a process.

    Rows of `chunks`, `timelines`, `inputs`, `hours` and `days` are write-once: a key names the same bytes for ever, so
    no entry is ever stale. Manifests do change: their key is their bytes. The least recently used entries are dropped
    when the byte limit is reached.
    """

    def __init__(self, bytes_max: int = limits.PAGE_CACHE_BYTES) -> None:
        self._pages: LruCache[tuple[str, bytes], object] = LruCache(bytes_max, share_max=0.25)

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


class DecodedRows:
    """Reads and decodes the rows of one app."""

    def __init__(self, app: int, cache: PageCache, quarantine: Quarantine) -> None:
        self._app, self._cache, self._quarantine = app, cache, quarantine

    def fetch(self, reader: Reader, table: str, row_keys: Sequence[bytes]) -> list[object | None]:
        """Decoded rows; ``None`` where there is no row, a ``CorruptBlock`` in the place of a damaged one."""
        return self._cache.fetch(table, row_keys, lambda missing: self._load(reader, table, missing, _DECODERS[table]))

    def cached(self, table: str, row_keys: Sequence[bytes]) -> list[object | None]:
        """Those of these rows that are in the cache, in order; ``None`` for all others."""
        return self._cache.cached(table, row_keys)

    def aggregates(
        self, reader: Reader, table: str, row_keys: Sequence[bytes], columns: Sequence[str]
    ) -> list[object | None]:
        """As ``fetch``, for rows of `hours` and `days`, of which only these columns are read and decoded."""
        cells = [rollup_rows.SHAPE, *(rollup_rows.CELLS[name] for name in columns)]

        def load(missing: Sequence[bytes]) -> list[object | None]:
            return self._load(reader, table, missing, lambda row: rollup_rows.decode_row(row, columns), cells)

        return self._cache.fetch(f"{table} {' '.join(columns)}", row_keys, load)

    def manifests(self, reader: Reader, days: Sequence[int]) -> dict[int, Manifest]:
        """The manifests of these days; absent ones are left out. Raises ``CorruptBlock``."""
        cells = self._manifest_cells(reader, days)
        manifests = self._cache.fetch(
            "manifest", list(cells.values()), lambda new: [*map(manifest.decode, new)], _manifest_weight
        )
        return {day: value for day, value in zip(cells, manifests, strict=True) if isinstance(value, Manifest)}

    def has_manifests(self, reader: Reader, days: Sequence[int], manifests: Mapping[int, Manifest]) -> bool:
        """Whether the store still has exactly these manifests of some days, which were read before; decodes nothing."""
        cells = self._manifest_cells(reader, days)
        present = self._cache.cached("manifest", list(cells.values()))
        return cells.keys() == manifests.keys() and all(
            value is manifests[day] for day, value in zip(cells, present, strict=True)
        )

    def _manifest_cells(self, reader: Reader, days: Sequence[int]) -> dict[int, bytes]:
        rows = reader.get("manifest", [keys.manifest(self._app, day) for day in days], [COLUMN])
        return {day: row[COLUMN] for day, row in zip(days, rows, strict=True) if row is not None}

    def month(self, reader: Reader, month: int) -> Month:
        """The manifest of a month; an empty one where there is none. Raises ``CorruptBlock``."""
        [row] = reader.get("manifest", [keys.manifest_month(self._app, month)], [COLUMN])
        if row is None:
            return Month()
        [value] = self._cache.fetch(
            "month", [row[COLUMN]], lambda new: [*map(manifest.decode_month, new)], _manifest_weight
        )
        assert isinstance(value, Month), "BUG: the row of a month is no month"
        return value

    def timelines(
        self, reader: Reader, hour_shard: HourShard, generation: Generation, pages: Pages
    ) -> CachedTimelines | None:
        """The timelines of these pages of a generation's pool; ``None`` where they cannot be used as they are."""

        def load(_: Sequence[bytes]) -> list[object | None]:
            def fetch(table: str, row_keys: Sequence[bytes]) -> list[object | None]:
                return self._load(reader, table, row_keys, _DECODERS[table])

            pool = generations.open_pool(fetch, hour_shard, generation, np.array(pages, np.int32))
            return [CachedTimelines.of(pool)]

        key = timelines_key(hour_shard.shard, self._app, hour_shard.hour, generation, pages)
        [timelines] = self._cache.fetch(TIMELINES_OF_PAGES, [key], load)
        assert timelines is None or isinstance(timelines, CachedTimelines), "BUG: timelines of another kind"
        return timelines

    def log(self, reader: Reader, row_keys: Sequence[bytes]) -> list[Piece | None]:
        """Blocks as pieces; ``None`` where there is no row, an empty piece for a damaged one. Not cached."""
        loaded = self._load(reader, "log", row_keys, _DECODERS["log"])
        return [piece if piece is None or isinstance(piece, Piece) else EMPTY for piece in loaded]

    def _load(
        self,
        reader: Reader,
        table: str,
        row_keys: Sequence[bytes],
        decoder: Decoder,
        columns: Sequence[bytes] | None = None,
    ) -> list[object | None]:
        rows = reader.get(table, row_keys, columns)
        return [
            None if row is None else self._decode(table, key, row, decoder)
            for key, row in zip(row_keys, rows, strict=True)
        ]

    def _decode(self, table: str, key: bytes, row: Mapping[bytes, bytes], decoder: Decoder) -> object:
        try:
            decoded = decoder(row)
            if isinstance(decoded, _Damaged):
                self._quarantine.report(self._app, table, key, b"".join(row.values()), decoded.error)
                return decoded.page
            return decoded
        except CorruptBlock as error:
            self._quarantine.report(self._app, table, key, b"".join(row.values()), error)
            return error


class MonthManifests:
    """The manifests of months, each read when a query first needs it: after those of the days."""

    def __init__(self, rows: DecodedRows, reader: Reader) -> None:
        self._rows, self._reader = rows, reader
        self._months: dict[int, Month] = {}

    def of(self, day: int) -> tuple[int, Month]:
        """(number of the month a day lies in, its manifest)."""
        number = month_of(day)
        if number not in self._months:
            self._months[number] = self._rows.month(self._reader, number)
        return number, self._months[number]


def timelines_key(shard: int, app: int, hour: int, generation: Generation, pages: Pages) -> bytes:
    """The key by which the cache holds the timelines of these pages of a generation's pool."""
    return keys.inputs(shard, app, hour, generation.number) + array("H", pages).tobytes()


def _manifest_weight(key: bytes, _: object) -> int:
    return 1_000 + _MANIFEST_GROWTH * len(key)


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
    return 40 + len(page) if isinstance(page, bytes | str) else int(getattr(page, "nbytes", 64))
