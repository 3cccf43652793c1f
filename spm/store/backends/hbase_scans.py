"""Scans through HBase's gateway.

The gateway knows a scan by a number, and counts from 0 at each start. A number is therefore only good on the connection
on which its scan was opened: on another one, to a gateway that was started again or to a second gateway behind one
address, it may stand for somebody else's scan. ``Scanner`` opens its scan again, behind its last row, whenever it is
read on another connection; ``lane`` reads one scanner always in one thread, so that this is rare. An answer with rows
outside the range is never used.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from spm import limits
from spm.errors import StoreUnavailable
from spm.store.backends.base import Row
from spm.store.backends.hbase_gateway import Broken, Gateway, Refused, thrift
from spm.store.backends.hbase_tables import FAMILY, LARGE


class Scanner:
    """One scan. It is opened again after its last row when its connection or its lease is lost."""

    def __init__(
        self,
        gateway: Gateway,
        name: bytes,
        start: bytes,
        stop: bytes,
        columns: list[bytes] | None,
        *,
        keys_only: bool,
    ) -> None:
        self._gateway, self._name, self._at, self._stop, self._columns = gateway, name, start, stop, columns
        self._keys_only = keys_only
        self._opened: tuple[Any, int] | None = None  # the client of the connection, the scan's number on it
        self._ended = False

    def to_rows(self, rows: Sequence[Any]) -> Iterator[Row]:
        """Convert HBase's rows."""
        return ((row.row, {}) for row in rows) if self._keys_only else map(to_row, rows)

    def read(self, count: int) -> list[Any]:
        """Read the next rows, at most ``count``; none at the end."""
        if self._ended:
            return []
        rows = self._read(count)
        if rows:
            self._at = rows[-1].row + b"\0"
        self._ended = len(rows) < count
        return rows

    def _read(self, count: int) -> list[Any]:
        for wait_s in limits.HBASE_BACK_OFF_S:
            try:
                return self._gateway.once(lambda client: self._next(client, count))
            except Refused:
                self._opened = None  # its lease has ended
            except Broken:
                self._gateway.sleep(wait_s)
        return self._gateway.once(lambda client: self._next(client, count))

    def _next(self, client: Any, count: int) -> list[Any]:
        if self._opened is None or self._opened[0] is not client:
            self._opened = client, int(client.scannerOpenWithScan(self._name, self._request(), {}))
        rows: list[Any] = client.scannerGetList(self._opened[1], count)
        if rows and not self._at <= rows[0].row <= rows[-1].row < self._stop:
            raise Broken(f"HBase: the answer to a scan of {self._name.decode()} has rows of another range")
        return rows

    def _request(self) -> Any:
        return thrift.TScan(
            startRow=self._at,
            stopRow=self._stop,
            columns=self._columns,
            caching=limits.HBASE_READ_ROWS,  # the servers limit their answers to 2 MB anyway
            filterString=b"FirstKeyOnlyFilter() AND KeyOnlyFilter()" if self._keys_only else None,
        )

    def close(self) -> None:
        """End the scan at the gateway, on the connection on which it was opened."""
        if self._opened is not None:
            client, number = self._opened
            with contextlib.suppress(StoreUnavailable):  # its lease ends by itself
                self._gateway.once(lambda mine: mine.scannerClose(number) if mine is client else None)


def pages(lane: ThreadPoolExecutor, scanner: Scanner, first: Future[list[Any]], table: str) -> Iterator[Row]:
    """Yield the rows of a scan whose first answer is under way; while one answer is used, the next is fetched."""
    count, rows = first_rows(table), first.result()
    while rows:
        count = next_rows(table, count, rows)
        coming = lane.submit(scanner.read, count)
        try:
            yield from scanner.to_rows(rows)
        finally:
            wait([coming])
        rows = coming.result()


def first_rows(table: str) -> int:
    """The number of rows that the first call of a read requests, while their size is unknown."""
    return 4 if table in LARGE else limits.HBASE_READ_ROWS


def next_rows(table: str, count: int, rows: Sequence[Any]) -> int:
    """The number that the next call requests: as many as make ``HBASE_CALL_BYTES_MAX``, at most four times the last."""
    size = sum(len(cell.value) + 64 for row in rows for cell in row.columns.values())
    fitting = limits.HBASE_CALL_BYTES_MAX * max(1, len(rows)) // max(1, size)
    most = limits.HBASE_READ_ROWS_LARGE if table in LARGE else limits.HBASE_READ_ROWS
    return max(1, min(4 * count, fitting, most))


def to_columns(columns: Sequence[bytes] | None) -> list[bytes] | None:
    """HBase's names of columns."""
    return None if columns is None else [FAMILY + b":" + c for c in columns]


def to_row(row: Any) -> Row:
    """A row of HBase's as ours."""
    cut = len(FAMILY) + 1
    return row.row, {name[cut:]: cell.value for name, cell in row.columns.items()}
