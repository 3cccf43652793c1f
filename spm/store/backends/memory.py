"""A store in a dict, for tests and for the state machines that explore histories.

It keeps the contract of LMDB and HBase, except for durability. One lock makes each call atomic; scans copy one row at a
time, so that writers may interleave as they would on HBase. Enter by ``open_url``.
"""

import bisect
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from spm.store import keys
from spm.store.backends.base import Cells, Reader, Row, Step, put_new_apart, put_then_get_apart


class MemoryBackend:
    """An ordered store without durability."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rows: dict[str, dict[bytes, dict[bytes, bytes]]] = {table: {} for table in keys.TABLES}
        self._order: dict[str, list[bytes]] = {table: [] for table in keys.TABLES}

    def put(self, steps: Sequence[Step]) -> None:
        with self._lock:
            for table, rows in steps:
                for key, cells in rows:
                    self._put(table, key, cells)

    def _put(self, table: str, key: bytes, cells: Cells) -> None:
        if key not in self._rows[table]:
            bisect.insort(self._order[table], key)
            self._rows[table][key] = {}
        self._rows[table][key].update(cells)

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        with self._lock:
            return [_pick(self._rows[table].get(key), columns) for key in keys]

    def scan(
        self,
        table: str,
        start: bytes,
        stop: bytes,
        *,
        columns: Sequence[bytes] | None = None,
        keys_only: bool = False,
        limit: int | None = None,
    ) -> Iterator[Row]:
        count = 0
        at = start
        while limit is None or count < limit:
            with self._lock:
                order = self._order[table]
                i = bisect.bisect_left(order, at)
                if i >= len(order) or order[i] >= stop:
                    return
                key = order[i]
                cells = _pick(self._rows[table][key], columns)
            at = key + b"\0"
            if cells is not None:
                count += 1
                yield key, {} if keys_only else cells

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self._rows[table].get(key, {}).get(column) != expected:
                return False
            self._put(table, key, {column: value})
            return True

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        with self._lock:
            before = []
            for key, value in rows:
                before.append(self._rows[table].get(key, {}).get(column))
                self.check_and_put(table, key, column, None, value)
            return before

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        return put_new_apart(self, table, column, rows, steps)

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        return put_then_get_apart(self, steps, table, keys, columns)

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        with self._lock:
            for key, columns in cells:
                row = self._rows[table].get(key)
                if row is None:
                    continue
                for column in list(row) if columns is None else columns:
                    row.pop(column, None)
                if not row:
                    del self._rows[table][key]
                    self._order[table].pop(bisect.bisect_left(self._order[table], key))

    def snapshot(self) -> AbstractContextManager[Reader]:
        return nullcontext(self)

    def close(self) -> None:
        return


def _pick(row: dict[bytes, bytes] | None, columns: Sequence[bytes] | None) -> dict[bytes, bytes] | None:
    if row is None:
        return None
    if columns is None:
        return dict(row)
    return {c: row[c] for c in columns if c in row} or None


_SHARED = MemoryBackend()


def open_url(url: str) -> MemoryBackend:
    """Open a store: ``memory://`` is one per process, ``memory://new`` a new one."""
    return MemoryBackend() if url.endswith("new") else _SHARED
