"""The HBase back end against a gateway that misbehaves on purpose: time-outs, repeats, connections, parallel scans.

The gateway is Thrift's own server in a thread of this process, with a table in a dict behind it; what a real HBase does
with the same calls is shown in ``test_hbase.py`` and in the contract of all back ends.
"""

import contextlib
import importlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from thriftpy2.rpc import make_server

from spm import limits
from spm.clock import FakeClock
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.hbase import HBaseBackend
from tests.servers.processes import answers, free_ports, wait_until

thrift: Any = importlib.import_module("Hbase_thrift")  # happybase made it, which the back end has imported
TABLES = [f"x_{table}".encode() for table in keys.TABLES]
ROW_BYTES = 1_000


@dataclass(slots=True)
class Gateway:
    """Answers a few calls, notes them all, and hangs up or keeps silent when ``fault`` says so."""

    port: int = field(default_factory=lambda: free_ports(1)[0])
    calls: list[tuple[str, Any]] = field(default_factory=list)
    callers: set[str] = field(default_factory=set)
    fault: Callable[[str, int], None] = lambda name, count: None
    rows: int = 0  # of every scan
    present: set[bytes] = field(default_factory=set)  # rows that are there
    scanners: dict[int, Iterator[bytes]] = field(default_factory=dict)  # the keys that are still to come
    change: Callable[[list[Any], int], list[Any]] = lambda answer, count: answer  # of the rows of a scan
    life: int = 0
    connected: dict[str, int] = field(default_factory=dict)  # thread of a connection → life in which it began
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, what: object = None) -> None:
        with self.lock:
            self.calls.append((name, what))
            caller = threading.current_thread().name
            self.callers.add(caller)
            if self.connected.setdefault(caller, self.life) != self.life:
                raise ConnectionAbortedError("the gateway of this connection was killed")
            count = sum(call == name for call, _ in self.calls)
        self.fault(name, count)

    def count(self, name: str) -> int:
        with self.lock:
            return sum(call == name for call, _ in self.calls)

    def getTableNames(self) -> list[bytes]:
        self.note("getTableNames")
        return TABLES

    def mutateRows(self, table: bytes, batches: list[Any], attributes: object) -> None:
        self.note("mutateRows", [(b.row, [(m.column, m.value) for m in b.mutations]) for b in batches])

    def getRowsWithColumns(self, table: bytes, names: list[bytes], columns: object, attributes: object) -> list[Any]:
        self.note("getRowsWithColumns")
        return []

    def checkAndPut(self, table: bytes, row: bytes, *given: object) -> bool:
        self.note("checkAndPut")
        return row not in self.present

    def scannerOpenWithScan(self, table: bytes, scan: Any, attributes: object) -> int:
        self.note("scannerOpenWithScan", scan.startRow)
        first = scan.startRow[:1]
        names = (first + n.to_bytes(20, "big") for n in range(self.rows))
        with self.lock:
            self.scanners[len(self.scanners) + 1] = (name for name in names if name >= scan.startRow)
            return len(self.scanners)

    def scannerGetList(self, number: int, count: int) -> list[Any]:
        self.note("scannerGetList", number)
        if number not in self.scanners:
            raise thrift.IllegalArgument(message=b"scanner ID is invalid")
        cell = {b"d:v": thrift.TCell(value=bytes(ROW_BYTES), timestamp=1)}
        rows = [thrift.TRowResult(row=name, columns=cell) for name in islice(self.scanners[number], count)]
        return self.change(rows, self.count("scannerGetList"))

    def scannerClose(self, number: int) -> None:
        self.note("scannerClose")

    def start_again(self) -> None:
        """As a gateway that was killed: every connection ends, no scan is known, and numbers begin again."""
        with self.lock:
            self.life += 1
            self.scanners.clear()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    created = Gateway()
    server = make_server(thrift.Hbase, created, "127.0.0.1", created.port, client_timeout=60_000)
    server.daemon = True
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    assert wait_until(lambda: answers(created.port), 10)
    yield created
    server.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000)


@pytest.fixture
def backend(gateway: Gateway, clock: FakeClock) -> Iterator[HBaseBackend]:
    created = HBaseBackend("127.0.0.1", gateway.port, prefix="x", clock=clock)
    created.get("pending", [])  # it knows its tables
    created._table("pending")
    yield created
    created.close()


def hangs_up(*names: str, times: int = 99, only: int | None = None) -> Callable[[str, int], None]:
    def fault(name: str, count: int) -> None:
        if name in names and (count <= times if only is None else count == only):
            raise ConnectionAbortedError("as a gateway that is killed")

    return fault


PUT = [("pending", [(b"k" * 21, {b"a": b"1"})])]


def test_a_put_is_sent_again_with_the_same_bytes_over_a_new_connection(gateway: Gateway, backend: HBaseBackend) -> None:
    gateway.fault = hangs_up("mutateRows", times=2)
    backend.put(PUT)
    sent = [what for name, what in gateway.calls if name == "mutateRows"]
    assert sent == [[(b"k" * 21, [(b"d:a", b"1")])]] * 3


def test_a_call_is_repeated_after_longer_and_longer_waits_and_then_given_up(
    gateway: Gateway, backend: HBaseBackend, clock: FakeClock
) -> None:
    gateway.fault = hangs_up("mutateRows")
    before = clock.monotonic()
    with pytest.raises(StoreUnavailable) as failed:
        backend.put(PUT)
    assert gateway.count("mutateRows") == 1 + len(limits.HBASE_BACK_OFF_S)
    assert clock.monotonic() - before == pytest.approx(sum(limits.HBASE_BACK_OFF_S))
    assert list(limits.HBASE_BACK_OFF_S) == sorted(limits.HBASE_BACK_OFF_S)
    assert failed.value.rest == PUT


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (None, "HBase ended the connection"),
        ("org.apache.hadoop.hbase.NotServingRegionException: x_pending on node-1,16020", "NotServingRegionException"),
        ("node-1.inside:16020 is away", "it refused the call"),
    ],
    ids=["a broken connection", "an exception of HBase", "other words"],
)
def test_errors_that_senders_read_name_nothing_of_ours(
    gateway: Gateway, backend: HBaseBackend, caplog: pytest.LogCaptureFixture, words: str | None, text: str
) -> None:
    def refuse(name: str, _count: int) -> None:
        if name == "checkAndPut":
            raise thrift.IOError(message=words)

    gateway.fault = hangs_up("checkAndPut") if words is None else refuse
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as failed:
            backend.check_and_put("pending", b"k" * 21, b"a", None, b"1")
        assert text in str(failed.value)
        assert not re.search(r"127\.0\.0\.1|node-1|x_pending|\d{4}", str(failed.value))
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"127.0.0.1:{gateway.port}" in line
    assert (words or "") in line


def test_a_check_and_put_is_never_sent_twice(gateway: Gateway, backend: HBaseBackend) -> None:
    gateway.fault = hangs_up("checkAndPut")
    with pytest.raises(StoreUnavailable):
        backend.check_and_put("pending", b"k" * 21, b"a", None, b"1")
    assert gateway.count("checkAndPut") == 1


@pytest.mark.timed
def test_a_gateway_that_keeps_silent_is_given_up_after_one_time_out(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    monkeypatch.setattr(limits, "STORE_TIMEOUT_S", 0.3)
    asleep = threading.Event()
    gateway.fault = lambda name, _: name == "mutateRows" and asleep.wait(60)  # type: ignore[assignment]
    backend = HBaseBackend("127.0.0.1", gateway.port, prefix="x", clock=clock)
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        backend.put(PUT)
    assert time.monotonic() - begun < 3
    assert gateway.count("mutateRows") == 1
    asleep.set()
    backend.close()


def test_registrations_are_answered_in_their_order_however_many_are_under_way(
    gateway: Gateway, backend: HBaseBackend
) -> None:
    rows = [(bytes([n % 16]) + n.to_bytes(20, "big"), b"form") for n in range(2_000)]
    gateway.present = {key for key, _ in rows[::7]}
    was_set = backend._set_absent(b"x_series", b"c", rows)
    assert was_set == {key: key not in gateway.present for key, _ in rows}
    assert gateway.count("checkAndPut") == len(rows)
    assert 1 < len(gateway.callers) <= limits.HBASE_LANES + 1


def test_registrations_that_the_gateway_hangs_up_on_are_made_again(gateway: Gateway, backend: HBaseBackend) -> None:
    rows = [(n.to_bytes(21, "big"), b"form") for n in range(100)]
    gateway.fault = hangs_up("checkAndPut", only=50)
    assert backend._set_absent(b"x_series", b"c", rows) == {key: True for key, _ in rows}
    assert gateway.count("checkAndPut") > len(rows)


def test_every_thread_has_a_connection_of_its_own(gateway: Gateway, backend: HBaseBackend) -> None:
    together = threading.Barrier(5)

    def work() -> None:
        together.wait()
        for _ in range(5):
            backend.put(PUT)

    gateway.callers.clear()
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(gateway.callers) == 5, "the gateway has a thread for each connection"


def test_a_connection_that_was_silent_is_replaced_before_the_gateway_closes_it(
    gateway: Gateway, backend: HBaseBackend, clock: FakeClock
) -> None:
    backend.put(PUT)
    gateway.callers.clear()
    backend.put(PUT)
    clock.advance(1000 * (limits.HBASE_IDLE_S + 1))
    backend.put(PUT)
    assert len(gateway.callers) == 2


def test_ranges_are_read_ahead_but_only_so_many(gateway: Gateway, backend: HBaseBackend) -> None:
    gateway.rows = 10
    ranges = [(bytes([n]), bytes([n + 1])) for n in range(40)]
    scanned = backend.scan_ranges("pending", ranges)
    seen = [next(scanned)[0]]
    time.sleep(0.2)
    opened = Counter(name for name, _ in gateway.calls)
    assert 1 < opened["scannerOpenWithScan"] <= limits.HBASE_SCANS_AHEAD + 1, "in parallel, with bounded memory"
    seen += [key for key, _ in scanned]
    assert seen == sorted(seen), "and in order"
    assert len(seen) == 400
    assert gateway.count("scannerOpenWithScan") == 40


def test_a_scan_asks_for_no_more_at_once_than_fits_a_call(gateway: Gateway, backend: HBaseBackend) -> None:
    gateway.rows = 5_000
    rows = sum(1 for _ in backend.scan("pending", b"\0", b"\1"))
    assert rows == 5_000
    assert gateway.count("scannerGetList") >= 5_000 // limits.HBASE_READ_ROWS


def test_a_scan_is_never_continued_as_another_scan_by_a_gateway_that_was_started_again(
    gateway: Gateway, backend: HBaseBackend
) -> None:
    """Its numbers begin again, so that the number of this scan soon stands for somebody else's."""
    gateway.rows = 1_000
    mine = backend.scan("pending", b"\1", b"\2", keys_only=True)
    seen = [next(mine)[0]]
    gateway.start_again()
    other = threading.Thread(target=lambda: next(backend.scan("pending", b"\5", b"\6", keys_only=True)))
    other.start()
    other.join()
    with contextlib.suppress(StoreUnavailable):
        backend.check_and_put("pending", b"k" * 21, b"a", None, b"1")  # this thread has a new connection now
    seen += [key for key, _ in mine]
    assert seen == [b"\1" + n.to_bytes(20, "big") for n in range(1_000)]


def test_a_scan_that_another_thread_takes_over_is_opened_again_behind_its_last_row(
    gateway: Gateway, backend: HBaseBackend
) -> None:
    """The other connection may lead to another gateway behind the same address."""
    gateway.rows = 600
    scanned = backend.scan("pending", b"\1", b"\2", keys_only=True)
    seen = [next(scanned)[0]]
    other = threading.Thread(target=lambda: seen.extend(key for key, _ in scanned))
    other.start()
    other.join()
    assert seen == [b"\1" + n.to_bytes(20, "big") for n in range(600)]
    assert gateway.count("scannerOpenWithScan") == 2


@pytest.mark.parametrize("stray", [b"\0" * 21, b"\2" * 21, b"\1" + bytes(20)], ids=["before", "behind", "seen before"])
def test_an_answer_with_rows_outside_the_range_is_not_used(
    stray: bytes, gateway: Gateway, backend: HBaseBackend
) -> None:
    gateway.rows = 300

    def change(answer: list[Any], count: int) -> list[Any]:
        if count == 2:
            answer[-1 if stray > b"\1" * 21 else 0].row = stray
        return answer

    gateway.change = change
    seen = [key for key, _ in backend.scan("pending", b"\1", b"\2", keys_only=True)]
    assert seen == [b"\1" + n.to_bytes(20, "big") for n in range(300)]


def test_a_gateway_that_only_gives_rows_of_another_range_is_unavailable(
    gateway: Gateway, backend: HBaseBackend
) -> None:
    gateway.change = lambda answer, count: [thrift.TRowResult(row=b"\7" * 21, columns={})]
    with pytest.raises(StoreUnavailable, match="rows of another range"):
        list(backend.scan("pending", b"\1", b"\2"))
    with pytest.raises(StoreUnavailable, match="rows of another range"):
        list(backend.scan_ranges("pending", [(b"\1", b"\2"), (b"\3", b"\4")]))


def test_parallel_scans_stay_on_their_connections(gateway: Gateway, backend: HBaseBackend) -> None:
    gateway.rows = 1_000
    ranges = [(bytes([n]), bytes([n + 1])) for n in range(8)]
    assert sum(1 for _ in backend.scan_ranges("pending", ranges)) == 8_000
    assert gateway.count("scannerOpenWithScan") == 8
