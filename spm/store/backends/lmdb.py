"""LMDB, the embedded default store, which several processes of one machine may open.

A row's cells are neighbours under key = row key ‖ column name; every table is a named database of one environment. Each
``put`` is one write transaction (fsynced), or several where it is large; a query reads in one read transaction. Enter
by ``open_url``. This is the only module that imports ``lmdb``; it raises ``StoreUnavailable`` and ``StoreFull``.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import lmdb

from spm import limits
from spm.clock import SystemClock
from spm.errors import StoreDamaged, StoreFull, StoreUnavailable
from spm.store import keys as layout
from spm.store.backends.base import Cells, Reader, Row, RowPut, Step, taken
from spm.store.backends.lmdb_gaps import Gap, GapCursor, find_gaps
from spm.store.backends.lmdb_line import WriterLine

_T = TypeVar("_T")
_ENVIRONMENTS: dict[str, "LmdbBackend"] = {}  # LMDB forbids opening one folder twice in a process
_LOCK = threading.Lock()
_DAMAGE = (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError, lmdb.PageNotFoundError)
_FULL = "the store's disk is full: nothing is stored until it has room again; reads go on"
_FOLDER = re.compile(r"(?:^|(?<=\s))/\S*: ")
_LOOK_S = 0.5  # between two looks at the size of a copy
PART_S = 0.05  # of putting cells where they are absent; then other processes may write
CELLS_AT_ONCE = 200  # of these between two looks at whether another thread waits; its commit alone takes as long
_BYTES_AT_ONCE = 1_000_000  # of their values between two looks
_CELL_BYTES = 4_096  # of a page, which a cell changes that is put where no neighbour of it is put
_UNWRITTEN_PAGES_MAX = 1_024  # pages at the end that a transaction took and gave back are counted, but never written


def open_url(url: str) -> "LmdbBackend":
    """Open the store in the folder of ``lmdb:///folder``; there is one object per folder and process."""
    path = str(Path(urlsplit(url).path).absolute())
    with _LOCK:
        backend = _ENVIRONMENTS.get(path)
        if backend is None or backend.pid != os.getpid():
            backend = _ENVIRONMENTS[path] = LmdbBackend(path)
        return backend


def is_open_here(folder: Path) -> bool:
    """Whether this process has the store of a folder open, by ``open_url``."""
    with _LOCK:
        backend = _ENVIRONMENTS.get(str(folder.absolute()))
    return backend is not None and backend.pid == os.getpid()


class LmdbBackend:
    """An ordered store in one folder. ``alone``: the caller holds LMDB's lock for itself, which is left as it is."""

    def __init__(self, path: str, map_bytes: int | None = None, *, alone: bool = False) -> None:
        self.path, self.pid = path, os.getpid()
        try:
            os.makedirs(path, exist_ok=True)
            tables = len(layout.TABLES)
            map_size = map_bytes or limits.LMDB_MAP_BYTES
            self._env = lmdb.open(path, map_size=map_size, max_dbs=tables, max_readers=1024, lock=not alone)
            self._env.reader_check()
            self._check_length()
            self._tables = {t: self._env.open_db(t.encode()) for t in layout.TABLES}
            self._gaps: dict[str, list[Gap]] = {}  # by table: what reads pass by
            self._line, self._clock = WriterLine(self._env), SystemClock()
        except (lmdb.Error, OSError) as error:
            raise _translate(error) from error

    def _check_length(self) -> None:
        """Raise ``StoreDamaged`` for a file that ends early: reading a page that is not there would end the process."""
        needed = (self._env.info()["last_pgno"] + 1 - _UNWRITTEN_PAGES_MAX) * self._env.stat()["psize"]
        length = os.stat(os.path.join(self.path, "data.mdb")).st_size
        if length < needed:
            self._env.close()
            raise StoreDamaged(
                f"the store's file data.mdb has lost its end: {length:,} bytes are there, {needed:,} were written."
                " Put a copy back that is whole."
            )

    def put(self, steps: Sequence[Step]) -> None:
        for piece in _transactions(steps):
            self._write(piece)

    def _write(self, piece: Sequence[Step]) -> None:
        self._writing(lambda transaction: self._put(transaction, piece), _size(piece))

    def _writing(self, act: Callable[[Any], _T], size: int) -> _T:
        """Return what ``act`` returns, which may be called again; it writes some ``size`` bytes in a transaction."""
        try:
            return self._line.write(act, size)
        except lmdb.Error as error:
            raise self._failed_write(error) from error

    def _failed_write(self, error: lmdb.Error) -> StoreUnavailable:
        """The error of a write. One that the disk takes in part only is an input/output error to LMDB."""
        disk = os.statvfs(self.path)
        has_room = disk.f_bavail * disk.f_frsize > limits.LMDB_TRANSACTION_BYTES_MAX
        return _translate(error) if has_room or "Input/output" not in str(error) else StoreFull(_FULL)

    def _put(self, transaction: Any, piece: Sequence[Step]) -> None:
        for table, rows in piece:
            cursor = transaction.cursor(self._tables[table])
            cursor.putmulti([(_cell(table, key, c), v) for key, cells in rows for c, v in cells.items()])

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        with self.snapshot() as reader:
            return reader.get(table, keys, columns)

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
        with self.snapshot() as reader:
            yield from reader.scan(table, start, stop, columns=columns, keys_only=keys_only, limit=limit)

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        cell, db = _cell(table, key, column), self._tables[table]

        def act(transaction: Any) -> bool:
            if transaction.get(cell, db=db) != expected:
                return False
            transaction.put(cell, value, db=db)
            return True

        return self._writing(act, len(value))

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        return self.put_new(table, column, rows, [])

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        pieces = list(_transactions(steps))
        order = sorted(range(len(rows)), key=lambda row: rows[row][0])  # neighbours share a page
        cells = [(_cell(table, rows[row][0], column), rows[row][1]) for row in order]
        former: list[bytes | None] = []

        def act(transaction: Any) -> list[bytes | None]:
            part = self._put_absent(transaction, table, cells[len(former) :])
            all_former = [*former, *part]
            if len(all_former) == len(cells) and pieces and not taken(cells, all_former):
                self._put(transaction, pieces[0])  # in the transaction of the last cells
            return part

        size = sum(_CELL_BYTES + len(value) for _, value in cells) + _size(pieces[0] if pieces else [])
        former += self._writing(act, size)
        while len(former) < len(cells):
            former += self._writing(act, size)
        if not taken(cells, former):
            for piece in pieces[1:]:
                self._write(piece)
        before: list[bytes | None] = [None] * len(rows)
        for row, value in zip(order, former, strict=True):
            before[row] = value
        return before

    def _put_absent(self, transaction: Any, table: str, cells: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """Put absent cells, as far as others need not wait long for them; return the former values of those looked at.

        Their keys lie anywhere, so that each of them may change a page of its own.
        """
        db, until = self._tables[table], self._clock.monotonic() + PART_S
        former: list[bytes | None] = []
        size = looked = 0
        for cell, value in cells:
            if len(former) - looked == CELLS_AT_ONCE or size > _BYTES_AT_ONCE:
                if self._line.is_wanted or self._clock.monotonic() > until:
                    break
                looked, size = len(former), 0
            is_new = transaction.put(cell, value, overwrite=False, db=db)
            former.append(None if is_new else transaction.get(cell, db=db))
            size += len(value)
        return former

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        *pieces, last = list(_transactions(steps)) or [[]]
        for piece in pieces:
            self._write(piece)

        def act(transaction: Any) -> list[dict[bytes, bytes] | None]:  # nobody else writes until it has ended
            self._put(transaction, last)
            return _Snapshot(transaction, self._tables, self._gaps).get(table, keys, columns)

        return self._writing(act, _size(last))

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        db = self._tables[table]

        def act(transaction: Any) -> None:
            for key, columns in cells:
                for cell in _row_cells(transaction, db, table, key) if columns is None else columns:
                    transaction.delete(_cell(table, key, cell), db=db)

        self._writing(act, _CELL_BYTES * len(cells))

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Opened(self._env, self._tables, self._gaps)

    def pass_by_damage(self) -> list[Gap]:
        """Find the cells that cannot be reached; this object's reads pass them by from now on, as if absent."""
        gaps: list[Gap] | None = None
        while gaps is None:  # writers may go on: those of two transactions leave nothing of the one we began with
            with self._env.begin() as transaction:
                gaps = find_gaps(Path(self.path) / "data.mdb", transaction.id())
        self._gaps = {table: [gap for gap in gaps if gap.table == table] for table in {gap.table for gap in gaps}}
        return gaps

    def used_bytes(self) -> int:
        return int((self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"])

    def live_bytes(self) -> int:
        """Return the bytes of all pages that hold rows; the others are free, or name free ones."""
        stats = [self._env.stat(), *self._table_stats().values()]
        pages = sum(stat[kind] for stat in stats for kind in ("branch_pages", "leaf_pages", "overflow_pages"))
        return int(pages * stats[0]["psize"])

    def cell_counts(self) -> dict[str, int]:
        """Return the number of cells of each table."""
        return {table: int(stat["entries"]) for table, stat in self._table_stats().items()}

    def _table_stats(self) -> dict[str, Any]:
        with self._env.begin() as transaction:
            return {table: transaction.stat(db) for table, db in self._tables.items()}

    def copy_to(self, folder: str, watch: Callable[[int], None]) -> None:
        ended, copy = threading.Event(), Path(folder) / "data.mdb"

        def look() -> None:
            while not ended.wait(_LOOK_S):
                watch(copy.stat().st_size if copy.exists() else 0)

        looker = threading.Thread(target=look, name="copy of the store", daemon=True)
        looker.start()
        try:
            self._env.copy(folder, compact=True)
        except (lmdb.Error, OSError) as error:
            raise _translate(error) from error
        finally:
            ended.set()
            looker.join()

    def close(self) -> None:
        with _LOCK:
            if _ENVIRONMENTS.get(self.path) is self:
                del _ENVIRONMENTS[self.path]
        self._env.close()


class _Opened:
    """A snapshot while the context lasts. Its transaction begins with the context, and ends with it."""

    __slots__ = ("_env", "_gaps", "_tables", "_transaction")

    def __init__(self, env: Any, tables: Mapping[str, Any], gaps: Mapping[str, Sequence[Gap]]) -> None:
        self._env, self._tables, self._gaps = env, tables, gaps

    def __enter__(self) -> Reader:
        try:
            self._transaction = self._env.begin()
        except lmdb.Error as error:
            raise _translate(error) from error
        return _Snapshot(self._transaction, self._tables, self._gaps)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._transaction.abort()
        if isinstance(error, lmdb.Error):
            raise _translate(error) from error


class _Snapshot:
    """One read transaction, which writes after its begin do not change."""

    def __init__(self, transaction: Any, tables: Mapping[str, Any], gaps: Mapping[str, Sequence[Gap]]) -> None:
        self._transaction, self._tables, self._gaps = transaction, tables, gaps
        self.version: int = transaction.id()  # of the last write that it includes

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        with self._cursor(table) as cursor:
            if columns is not None and len(columns) == 1:
                return _rows_of_one_cell(cursor, table, keys, columns[0])
            return [self._row(cursor, table, key, columns) for key in keys]

    def _cursor(self, table: str) -> Any:
        cursor = self._transaction.cursor(self._tables[table])
        return GapCursor(cursor, self._gaps[table]) if table in self._gaps else cursor

    def _row(self, cursor: Any, table: str, key: bytes, columns: Sequence[bytes] | None) -> dict[bytes, bytes] | None:
        row = {}
        if columns is not None:
            for column in columns:
                value = cursor.get(_cell(table, key, column))
                if value is not None:
                    row[column] = value
            return row or None
        prefix = _cell(table, key, b"")
        if cursor.set_range(prefix):
            for cell, value in cursor.iternext():
                if not cell.startswith(prefix):
                    break
                row[cell[len(prefix) :]] = value
        return row or None

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
        with self._cursor(table) as cursor:
            if not cursor.set_range(start):
                return
            width = layout.TABLES[table]
            if keys_only and columns is None and limit is None and width is not None:
                # Reads only the names: readers list thousands of pending records a second.
                cells_of = takewhile(stop.__gt__, cursor.iternext(keys=True, values=False))
                yield from ((key, {}) for key in dict.fromkeys([cell[:width] for cell in cells_of]))
                return
            for key, cells in _read_rows(cursor, table, stop, values=not keys_only):
                row = cells if columns is None else {c: cells[c] for c in columns if c in cells}
                if not row:
                    continue
                if limit is not None and count >= limit:
                    return
                count += 1
                yield key, {} if keys_only else row


def _rows_of_one_cell(cursor: Any, table: str, keys: Sequence[bytes], column: bytes) -> list[dict[bytes, bytes] | None]:
    """Return the rows of ``keys`` with one of their cells, after one call for all: writers ask for many series."""
    cells = [_cell(table, key, column) for key in keys]
    values: dict[bytes, bytes] = dict(cursor.getmulti(cells))
    if not values:
        return [None] * len(cells)
    return [{column: values[cell]} if cell in values else None for cell in cells]


def _read_rows(cursor: Any, table: str, stop: bytes, *, values: bool) -> Iterator[Row]:
    """Yield rows from the cells from the cursor on, up to ``stop``."""
    now: bytes | None = None
    cells: dict[bytes, bytes] = {}
    for item in cursor.iternext(keys=True, values=values):
        cell, value = item if values else (item, b"")
        key, column = _split(table, cell)
        if key != now:
            if now is not None:
                yield now, cells
            if key >= stop:
                return
            now, cells = key, {}
        cells[column] = value
    if now is not None:
        yield now, cells


def _cell(table: str, key: bytes, column: bytes) -> bytes:
    return key + column if layout.TABLES[table] is not None else key + b"\0" + column


def _split(table: str, cell: bytes) -> tuple[bytes, bytes]:
    width = layout.TABLES[table]
    if width is not None:
        return cell[:width], cell[width:]
    key, _, column = cell.partition(b"\0")
    return key, column


def _row_cells(transaction: Any, db: Any, table: str, key: bytes) -> list[bytes]:
    prefix = _cell(table, key, b"")
    columns = []
    cursor = transaction.cursor(db)
    if cursor.set_range(prefix):
        for cell in cursor.iternext(keys=True, values=False):
            if not cell.startswith(prefix):
                break
            columns.append(cell[len(prefix) :])
    return columns


def _transactions(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Split the steps, in their order, into transactions of bounded size; a row is never split."""
    piece: list[tuple[str, list[RowPut]]] = []
    size = 0
    for table, rows in steps:
        for row in rows:
            weight = _bytes(row[1])
            if piece and size + weight > limits.LMDB_TRANSACTION_BYTES_MAX:
                yield list(piece)
                piece, size = [], 0
            if not piece or piece[-1][0] != table:
                piece.append((table, []))
            piece[-1][1].append(row)
            size += weight
    if piece:
        yield list(piece)


def _size(piece: Sequence[Step]) -> int:
    return sum(_bytes(cells) for _, rows in piece for _, cells in rows)


def _bytes(cells: Cells) -> int:
    return sum(map(len, cells.values())) + 64 * len(cells)


def _translate(error: Exception) -> StoreUnavailable:
    """The error in words that any client may read: without the folder of the store."""
    text = _FOLDER.sub("", str(error))
    if isinstance(error, lmdb.MapFullError) or "No space left" in text:
        return StoreFull(_FULL)
    if isinstance(error, _DAMAGE):
        return StoreDamaged(f"the store's file data.mdb is damaged ({text}). Put a copy back that is whole.")
    return StoreUnavailable(f"LMDB: {text}")
