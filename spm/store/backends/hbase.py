"""HBase through its Thrift gateway, the store of the full stack. The only module that imports ``happybase``.

All cells are in one family, ``d``. Tables that were not created before (``hbase_tables``) are created at their first
use, with one region each. A connection belongs to one thread of one process; it is replaced after idle time and after
any failure, so that no answer is taken for that of another call. Calls that may be repeated without harm (puts, reads,
deletes, registrations) are repeated a few times over a new connection. A check-and-put is not repeated, since its
outcome is unknown: the caller reads again and decides. A call without an answer within ``STORE_TIMEOUT_S`` is not
repeated either, since its caller has waited long enough.

Enter by ``open_url``. Puts and deletes never share a call, because the gateway applies the deletes of a call first.
"""

import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, islice
from operator import methodcaller
from typing import Any, TypeVar
from urllib.parse import urlsplit

import happybase
import Hbase_thrift as thrift  # type: ignore[import-not-found]  # made by the import above
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import TSocket

from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import LimitExceeded, StoreUnavailable
from spm.store.backends.base import Reader, Row, RowPut, Step, put_new_apart
from spm.store.backends.hbase_pipeline import pipelined
from spm.store.backends.hbase_tables import FAMILY, LARGE, layout_of

Result = TypeVar("Result")

PORT = 9090


def open_url(url: str) -> "HBaseBackend":
    """Open the store behind the gateway of ``hbase://host:port/table_prefix``."""
    parts = urlsplit(url)
    return HBaseBackend(parts.hostname or "localhost", parts.port or PORT, prefix=parts.path.strip("/") or "spm")


class HBaseBackend:
    """An ordered store on a cluster. Thread-safe; survives forks and restarts of the gateway."""

    def __init__(self, host: str, port: int, *, prefix: str, clock: Clock | None = None) -> None:
        self._gateway = _Gateway(host, port, clock or SystemClock())
        self._prefix = prefix
        self._known: set[str] = set()
        self._creating = threading.Lock()
        self._threads: tuple[int, ThreadPoolExecutor] | None = None

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
        name, wanted = self._table(table), _columns(columns)
        by_key: dict[bytes, dict[bytes, bytes]] = {}
        at, count = 0, _first_rows(table)
        while at < len(keys):
            rows = self._rows(name, keys[at : at + count], wanted)
            by_key.update(map(_row, rows))
            at, count = at + count, _next_rows(table, count, rows)
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
        scanner = _Scanner(self._gateway, self._table(table), start, stop, _columns(columns), keys_only=keys_only)
        count = _first_rows(table)
        with contextlib.closing(scanner):
            while remaining > 0 and (rows := scanner.read(min(count, remaining))):
                yield from scanner.to_rows(rows)
                count, remaining = _next_rows(table, count, rows), remaining - len(rows)

    def scan_ranges(
        self,
        table: str,
        ranges: Sequence[tuple[bytes, bytes]],
        *,
        columns: Sequence[bytes] | None = None,
        keys_only: bool = False,
    ) -> Iterator[Row]:
        """Scan several ranges (``ParallelReader``), with at most ``HBASE_SCANS_AHEAD`` + 1 answers in memory."""
        name, wanted, threads = self._table(table), _columns(columns), self._pool()
        scanners = [
            _Scanner(self._gateway, name, *one, wanted, keys_only=keys_only) for one in ranges if one[0] < one[1]
        ]
        later = iter(scanners)
        started = deque(
            (s, threads.submit(s.read, _first_rows(table))) for s in islice(later, limits.HBASE_SCANS_AHEAD)
        )
        try:
            while started:
                scanner, coming = started[0]
                started.extend((s, threads.submit(s.read, _first_rows(table))) for s in islice(later, 1))
                yield from _pages(threads, scanner, coming, table)
                started.popleft()[0].close()
        finally:
            for scanner, coming in started:
                coming.cancel() or wait([coming])
                scanner.close()

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

    def _set_absent(self, name: bytes, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bool]:
        """For each key, whether its cell was absent and was set."""
        lanes = max(1, min(limits.HBASE_LANES, len(rows) // limits.HBASE_PIPELINE))
        parts = [rows[i::lanes] for i in range(lanes)]

        def work(part: Sequence[tuple[bytes, bytes]]) -> list[bool]:
            return self._gateway.repeat(lambda client: _set_if_absent(client, name, column, part))

        answers = [work(parts[0])] if lanes == 1 else list(self._pool().map(work, parts))
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
        if self._threads is not None and self._threads[0] == os.getpid():
            self._threads[1].shutdown()
        self._threads = None
        self._gateway.close()

    def _pool(self) -> ThreadPoolExecutor:
        """The threads for parallel calls; new ones after a fork, which does not copy threads."""
        with self._creating:
            if self._threads is None or self._threads[0] != os.getpid():
                self._threads = os.getpid(), ThreadPoolExecutor(limits.HBASE_LANES, "hbase-lane")
            return self._threads[1]

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
            except _AlreadyThere:
                self._gateway.wait(lambda client: client.isTableEnabled(name))
                return
            except StoreUnavailable as error:
                if compression == b"NONE" or "ompress" not in str(error):  # the servers may lack the codec
                    raise


class _AlreadyThere(StoreUnavailable):
    """Another process created the table first."""


class _NoAnswer(StoreUnavailable):
    """A call ran into its time-out."""


class _Broken(StoreUnavailable):
    """The connection could not be opened, or it ended during a call."""


class _Refused(StoreUnavailable):
    """The gateway answered with an error. The connection is sound."""


class _Connection(happybase.Connection):  # type: ignore[misc]
    """A connection that a forked child drops without closing it for its parent."""

    def __init__(self, host: str, port: int) -> None:
        self.pid = os.getpid()
        super().__init__(host, port, timeout=limits.STORE_TIMEOUT_S * 1000)

    def _refresh_thrift_client(self) -> None:
        """Create the client as happybase does, but store the socket in it."""
        wire = TSocket(host=self.host, port=self.port, socket_timeout=self.timeout)  # type: ignore[no-untyped-call]
        self.transport = self._transport_class(wire)
        client: Any = TClient(thrift.Hbase, self._protocol_class(self.transport, decode_response=False))
        client.wire = wire
        self.client = client

    def close(self) -> None:
        if self.pid == os.getpid():
            super().close()


class _Gateway:
    """Calls to the Thrift gateway: connections per thread, foreign errors translated, repeats bounded."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host, self._port, self._clock = host, port, clock
        self._local = threading.local()
        self._all: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._lock = threading.Lock()

    def repeat(self, call: Callable[[Any], Result]) -> Result:
        """Make a call, several times over new connections if necessary, and return its answer."""
        for wait_s in limits.HBASE_BACK_OFF_S:
            try:
                return self.once(call)
            except _Broken:
                self._clock.sleep(wait_s)
        return self.once(call)

    def once(self, call: Callable[[Any], Result]) -> Result:
        """Make a call once and return its answer; raise a ``StoreUnavailable`` that says how it failed."""
        client = self._client()
        try:
            result = call(client)
        except thrift.AlreadyExists as error:  # an older table; one created at this moment is an IOError
            raise _AlreadyThere(f"HBase: {error.message!r}") from error
        except (thrift.IOError, thrift.IllegalArgument) as error:
            self._drop()  # sound, but a pipelined call may have left answers in it
            kind = _AlreadyThere if "TableExistsException" in str(error) else _Refused
            raise kind(f"HBase: {_first_line(error.message)}") from error
        except TimeoutError as error:
            self._drop()
            raise _NoAnswer(f"HBase at {self._host}:{self._port} did not answer in time") from error
        except (TException, OSError) as error:
            self._drop()
            raise _Broken(f"HBase at {self._host}:{self._port}: {error}") from error
        except BaseException:
            self._drop()
            raise
        self._local.used = self._clock.monotonic()
        return result

    def wait(self, condition: Callable[[Any], bool]) -> None:
        """Wait until ``condition`` holds; raise ``StoreUnavailable`` when it does not within a call's time-out."""
        end = self._clock.monotonic() + limits.STORE_TIMEOUT_S
        while not self.repeat(condition):
            if self._clock.monotonic() > end:
                raise _NoAnswer("HBase: a table that is being created does not become ready")
            self._clock.sleep(0.1)

    def close(self) -> None:
        with self._lock:
            connections = list(self._all)
        for connection in connections:
            connection.close()

    def _client(self) -> Any:
        connection = getattr(self._local, "connection", None)
        now = self._clock.monotonic()
        if connection is not None and connection.pid == os.getpid() and connection.transport.is_open():
            if now - self._local.used < limits.HBASE_IDLE_S:
                return connection.client
            self._drop()
        try:
            self._local.connection = _Connection(self._host, self._port)
        except (TException, OSError) as error:
            raise _Broken(f"HBase at {self._host}:{self._port}: {error}") from error
        self._local.used = now
        with self._lock:
            self._all.add(self._local.connection)
        return self._local.connection.client

    def _drop(self) -> None:
        connection = self._local.connection
        self._local.connection = None
        connection.close()


class _Scanner:
    """One scan. It is opened again after its last row when its connection or its lease is lost."""

    def __init__(
        self,
        gateway: _Gateway,
        name: bytes,
        start: bytes,
        stop: bytes,
        columns: list[bytes] | None,
        *,
        keys_only: bool,
    ) -> None:
        self._gateway, self._name, self._at, self._stop, self._columns = gateway, name, start, stop, columns
        self._keys_only = keys_only
        self._id: int | None = None
        self._ended = False

    def to_rows(self, rows: Sequence[Any]) -> Iterator[Row]:
        """Convert HBase's rows."""
        return ((row.row, {}) for row in rows) if self._keys_only else map(_row, rows)

    def read(self, count: int) -> list[Any]:
        """Read the next rows, at most ``count``; none at the end."""
        if self._ended:
            return []
        for _ in limits.HBASE_BACK_OFF_S:
            try:
                return self._read(count)
            except (_Broken, _Refused):
                self._id = None
        return self._read(count)

    def _read(self, count: int) -> list[Any]:
        if self._id is None:
            self._id = self._open()
        number = self._id
        rows: list[Any] = self._gateway.once(lambda client: client.scannerGetList(number, count))
        if rows:
            self._at = rows[-1].row + b"\0"
        self._ended = len(rows) < count
        return rows

    def _open(self) -> int:
        how = thrift.TScan(
            startRow=self._at,
            stopRow=self._stop,
            columns=self._columns,
            caching=limits.HBASE_READ_ROWS,  # the servers limit their answers to 2 MB anyway
            filterString=b"FirstKeyOnlyFilter() AND KeyOnlyFilter()" if self._keys_only else None,
        )
        return int(self._gateway.repeat(lambda client: client.scannerOpenWithScan(self._name, how, {})))

    def close(self) -> None:
        if self._id is not None:
            number = self._id
            with contextlib.suppress(StoreUnavailable):  # its lease ends by itself
                self._gateway.once(lambda client: client.scannerClose(number))


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


def _columns(columns: Sequence[bytes] | None) -> list[bytes] | None:
    return None if columns is None else [FAMILY + b":" + c for c in columns]


def _row(row: Any) -> Row:
    cut = len(FAMILY) + 1
    return row.row, {name[cut:]: cell.value for name, cell in row.columns.items()}


def _pages(threads: ThreadPoolExecutor, scanner: _Scanner, first: Future[list[Any]], table: str) -> Iterator[Row]:
    """Yield the rows of a scan whose first answer is under way; while one answer is used, the next is fetched."""
    count, rows = _first_rows(table), first.result()
    while rows:
        count = _next_rows(table, count, rows)
        coming = threads.submit(scanner.read, count)
        try:
            yield from scanner.to_rows(rows)
        finally:
            wait([coming])
        rows = coming.result()


def _first_rows(table: str) -> int:
    """The number of rows that the first call of a read requests, while their size is unknown."""
    return 4 if table in LARGE else limits.HBASE_READ_ROWS


def _next_rows(table: str, count: int, rows: Sequence[Any]) -> int:
    """The number that the next call requests: as many as make ``HBASE_CALL_BYTES_MAX``, at most four times the last."""
    size = sum(len(cell.value) + 64 for row in rows for cell in row.columns.values())
    fitting = limits.HBASE_CALL_BYTES_MAX * max(1, len(rows)) // max(1, size)
    most = limits.HBASE_READ_ROWS_LARGE if table in LARGE else limits.HBASE_READ_ROWS
    return max(1, min(4 * count, fitting, most))


def _first_line(message: Any) -> str:
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return text.splitlines()[0] if text else "no reason given"
