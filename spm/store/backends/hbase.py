"""HBase through its Thrift gateway, the store of the full stack.

All cells are in one family, ``d``. Tables that were not created before (``hbase_tables``) are created at their first
use, with one region each. Calls that may be repeated without harm (puts, reads, deletes, registrations) are repeated a
few times over a new connection. A check-and-put is not repeated, since its outcome is unknown: the caller reads again
and decides. A call without an answer within ``STORE_TIMEOUT_S`` is not repeated either, since its caller has waited
long enough.

Enter by ``open_url``. Puts and deletes never share a call, because the gateway applies the deletes of a call first.
"""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, cycle, islice
from operator import methodcaller
from typing import Any, TypeVar
from urllib.parse import urlsplit

from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import LimitExceeded, StoreUnavailable
from spm.store.backends.base import Reader, Row, RowPut, Step, put_new_apart, put_then_get_apart
from spm.store.backends.hbase_gateway import AlreadyThere, Gateway, thrift
from spm.store.backends.hbase_pipeline import pipelined
from spm.store.backends.hbase_scans import Scanner, first_rows, next_rows, pages, to_columns, to_row
from spm.store.backends.hbase_tables import FAMILY, layout_of

Part = TypeVar("Part")
Result = TypeVar("Result")

PORT = 9090


def open_url(url: str) -> "HBaseBackend":
    """Open the store behind the gateway of ``hbase://host:port/table_prefix``."""
    parts = urlsplit(url)
    return HBaseBackend(parts.hostname or "localhost", parts.port or PORT, prefix=parts.path.strip("/") or "spm")


class HBaseBackend:
    """An ordered store on a cluster. Thread-safe; survives forks and restarts of the gateway."""

    def __init__(self, host: str, port: int, *, prefix: str, clock: Clock | None = None) -> None:
        self._gateway = Gateway(host, port, clock or SystemClock())
        self._prefix = prefix
        self._known: set[str] = set()
        self._creating = threading.Lock()
        self._lanes: tuple[int, list[ThreadPoolExecutor], Iterator[ThreadPoolExecutor]] | None = None

    def put(self, steps: Sequence[Step]) -> None:
        for number, (table, rows) in enumerate(steps):
            confirmed = 0
            try:
                name = self._table(table)
                for batch in _put_batches(rows):
                    self._mutate(name, batch)
                    confirmed += len(batch)
            except StoreUnavailable as error:
                error.rest = [(table, rows[confirmed:]), *steps[number + 1 :]]
                raise

    def _mutate(self, name: bytes, batch: list[Any]) -> None:
        self._gateway.repeat(lambda client: client.mutateRows(name, batch, {}))

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        name, wanted = self._table(table), to_columns(columns)
        by_key: dict[bytes, dict[bytes, bytes]] = {}
        at, count = 0, first_rows(table)
        while at < len(keys):
            rows = self._rows(name, keys[at : at + count], wanted)
            by_key.update(map(to_row, rows))
            at, count = at + count, next_rows(table, count, rows)
        return [by_key.get(key) or None for key in keys]

    def _rows(self, name: bytes, keys: Sequence[bytes], columns: list[bytes] | None) -> list[Any]:
        rows: list[Any] = self._gateway.repeat(lambda client: client.getRowsWithColumns(name, list(keys), columns, {}))
        return rows

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
        remaining = sys.maxsize if limit is None else limit
        if start >= stop:  # HBase would read an empty range as "to the end", or as one row
            return
        scanner = Scanner(self._gateway, self._table(table), start, stop, to_columns(columns), keys_only=keys_only)
        count = first_rows(table)
        with contextlib.closing(scanner):
            while remaining > 0 and (rows := scanner.read(min(count, remaining))):
                yield from scanner.to_rows(rows)
                count, remaining = next_rows(table, count, rows), remaining - len(rows)

    def scan_ranges(
        self,
        table: str,
        ranges: Sequence[tuple[bytes, bytes]],
        *,
        columns: Sequence[bytes] | None = None,
        keys_only: bool = False,
    ) -> Iterator[Row]:
        """Scan several ranges (``ParallelReader``), with at most ``HBASE_SCANS_AHEAD`` + 1 answers in memory."""
        name, wanted = self._table(table), to_columns(columns)
        scanners = [
            Scanner(self._gateway, name, *one, wanted, keys_only=keys_only) for one in ranges if one[0] < one[1]
        ]
        later = zip(self._next_lanes(len(scanners)), scanners, strict=True)
        started: deque[tuple[ThreadPoolExecutor, Scanner, Future[list[Any]]]] = deque()

        def start(count: int) -> None:
            started.extend((lane, s, lane.submit(s.read, first_rows(table))) for lane, s in islice(later, count))

        start(limits.HBASE_SCANS_AHEAD)
        try:
            while started:
                lane, scanner, coming = started[0]
                start(1)
                yield from pages(lane, scanner, coming, table)
                started.popleft()
                lane.submit(scanner.close)
        finally:
            for lane, scanner, coming in started:
                coming.cancel()
                lane.submit(scanner.close)

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        assert b"" not in (expected, value), "BUG: HBase takes an empty expectation for an absent cell"
        name, mutation = self._table(table), _mutation(column, value)
        call = methodcaller("checkAndPut", name, key, mutation.column, expected, mutation, {})
        return bool(self._gateway.once(call))

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """Set absent cells, with many calls under way at once.

        A call that is repeated after a lost answer returns its own value as the former one; callers treat it as set.
        """
        first: dict[bytes, bytes] = {}
        for key, value in rows:
            first.setdefault(key, value)
        is_ours = self._set_absent(self._table(table), column, list(first.items()))
        present = [key for key, ours in is_ours.items() if not ours]
        former = dict(zip(present, self.get(table, present, [column]), strict=True))
        return list(_former_values(rows, former, column))

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        return put_new_apart(self, table, column, rows, steps)

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        return put_then_get_apart(self, steps, table, keys, columns)

    def _set_absent(self, name: bytes, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        """For each key, whether its cell was absent and was set."""
        lanes = max(1, min(limits.HBASE_LANES, len(rows) // limits.HBASE_PIPELINE))
        parts = [rows[i::lanes] for i in range(lanes)]

        def work(part: Sequence[tuple[bytes, bytes]]) -> list[bool]:
            return self._gateway.repeat(lambda client: _set_if_absent(client, name, column, part))

        answers = [work(parts[0])] if lanes == 1 else self._in_lanes(work, parts)
        pairs = zip(chain.from_iterable(parts), chain.from_iterable(answers), strict=True)
        return {key: ours for (key, _), ours in pairs}

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        name = self._table(table)
        batches = [_removal(key, columns) for key, columns in cells]
        for at in range(0, len(batches), limits.HBASE_ROWS_PER_CALL):
            part = batches[at : at + limits.HBASE_ROWS_PER_CALL]
            self._mutate(name, part)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return nullcontext(self)

    def close(self) -> None:
        if self._lanes is not None and self._lanes[0] == os.getpid():
            for lane in self._lanes[1]:
                lane.shutdown()
        self._lanes = None
        self._gateway.close()

    def _in_lanes(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        lanes = self._next_lanes(len(parts))
        return [
            future.result() for future in [lane.submit(work, part) for lane, part in zip(lanes, parts, strict=True)]
        ]

    def _next_lanes(self, count: int) -> list[ThreadPoolExecutor]:
        """So many lanes in turn: threads with a connection each. New ones after a fork, which does not copy threads."""
        with self._creating:
            if self._lanes is None or self._lanes[0] != os.getpid():
                lanes = [ThreadPoolExecutor(1, f"hbase-lane-{number}") for number in range(limits.HBASE_LANES)]
                self._lanes = os.getpid(), lanes, cycle(lanes)
            return list(islice(self._lanes[2], count))

    def _table(self, table: str) -> bytes:
        """The table's name on the cluster; a missing table is created."""
        name = f"{self._prefix}_{table}".encode()
        if table in self._known:
            return name
        with self._creating:
            if name not in self._gateway.repeat(lambda client: client.getTableNames()):
                self._create(table, name)
            self._known.add(table)
        return name

    def _create(self, table: str, name: bytes) -> None:
        for compression in dict.fromkeys((layout_of(table).codec.encode(), b"NONE")):
            try:
                self._gateway.once(partial(_create_table, name, compression))
                return
            except AlreadyThere:
                self._gateway.wait(lambda client: client.isTableEnabled(name))
                return
            except StoreUnavailable as error:
                if compression == b"NONE" or "ompress" not in str(error):  # the servers may lack the codec
                    raise


def _create_table(name: bytes, compression: bytes, client: Any) -> None:
    family = thrift.ColumnDescriptor(
        name=FAMILY + b":", maxVersions=1, compression=compression, bloomFilterType=b"ROW", blockCacheEnabled=True
    )
    client.createTable(name, [family])


def _set_if_absent(client: Any, name: bytes, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bool]:
    """Check-and-put each row, with ``HBASE_PIPELINE`` calls under way at a time; return whether each was set."""
    answers: list[bool] = []
    for at in range(0, len(rows), limits.HBASE_PIPELINE):
        puts = [(key, _mutation(column, value)) for key, value in rows[at : at + limits.HBASE_PIPELINE]]
        calls = [
            thrift.Hbase.checkAndPut_args(tableName=name, row=key, column=put.column, mput=put, attributes={})
            for key, put in puts
        ]
        answers += map(bool, pipelined(client, client.wire.sock, "checkAndPut", calls))
    return answers


def _former_values(
    rows: Sequence[tuple[bytes, bytes]], former: dict[bytes, dict[bytes, bytes] | None], column: bytes
) -> Iterator[bytes | None]:
    """Yield each cell's former value; for the second row of a key that is the value of its first."""
    now: dict[bytes, bytes] = {}
    for key, value in rows:
        if key in now:
            yield now[key]
        elif key in former:
            row = former[key]
            if row is None:
                raise StoreUnavailable(f"HBase: a cell that was set is missing: {key!r}")
            now[key] = row[column]
            yield now[key]
        else:
            now[key] = value
            yield None


def _put_batches(rows: Sequence[RowPut]) -> Iterator[list[Any]]:
    """Split rows into calls of bounded bytes and number; a row is never split."""
    batch: list[Any] = []
    size = 0
    for key, cells in rows:
        weight = sum(len(c) + len(v) + len(key) + 32 for c, v in cells.items())
        full = size + weight > limits.HBASE_CALL_BYTES_MAX or len(batch) >= limits.HBASE_ROWS_PER_CALL
        if batch and full:
            yield batch
            batch, size = [], 0
        batch.append(thrift.BatchMutation(row=key, mutations=[_mutation(c, v) for c, v in cells.items()]))
        size += weight
    if batch:
        yield batch


def _mutation(column: bytes, value: bytes) -> Any:
    if len(value) > limits.CELL_BYTES_MAX:
        raise LimitExceeded("a cell is too large for HBase", got=len(value), wanted=limits.CELL_BYTES_MAX)
    return thrift.Mutation(column=FAMILY + b":" + column, value=value)


def _removal(key: bytes, columns: Sequence[bytes] | None) -> Any:
    names = [FAMILY] if columns is None else [FAMILY + b":" + c for c in columns]
    return thrift.BatchMutation(row=key, mutations=[thrift.Mutation(isDelete=True, column=n) for n in names])
