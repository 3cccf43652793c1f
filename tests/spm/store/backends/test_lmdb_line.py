"""Threads write to LMDB in the order in which they came; many new series go in by parts, between which others write."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lmdb as library
import pytest

from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends import lmdb, lmdb_line
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.lmdb_line import WriterLine

ROWS = [(keys.series(7, 5, number * 0x9E3779B97F4A7C15 & keys.U64), b"text %d" % number) for number in range(2_500)]
BLOCK = (keys.LogKey(1, 7, 1, 1, 1).to_bytes(), {b"v": b"block"})
_T = TypeVar("_T")
PARTS = -(-len(ROWS) // lmdb.CELLS_AT_ONCE)  # where others always wait


class WantedLine(WriterLine):
    """A line in which others seem to wait; ``at`` is called at the end of each transaction."""

    is_wanted = True

    def __init__(self, env: Any, at: Callable[[], object]) -> None:
        super().__init__(env)
        self._at = at

    def write(self, act: Callable[[Any], Any], size: int) -> Any:
        result = super().write(act, size)
        self._at()
        return result


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbBackend]:
    store = LmdbBackend(str(tmp_path / "store"))
    yield store
    store.close()


def in_parts(store: LmdbBackend, at: Callable[[], object]) -> None:
    store._line = WantedLine(store._env, at)


def series_there(store: LmdbBackend) -> int:
    return store.cell_counts()["series"]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's time limit ends it."""
    while not condition():
        threading.Event().wait(0.001)


def test_new_series_are_put_in_parts_while_others_wait_and_the_steps_with_the_last(store: LmdbBackend) -> None:
    states = list[tuple[int, bool]]()
    in_parts(store, lambda: states.append((series_there(store), store.get("log", [BLOCK[0]]) == [BLOCK[1]])))
    assert store.put_new("series", b"c", ROWS, [("log", [BLOCK])]) == [None] * len(ROWS)
    expected = [min(part * lmdb.CELLS_AT_ONCE, len(ROWS)) for part in range(1, PARTS + 1)]
    assert states == [(count, count == len(ROWS)) for count in expected], "no block without all of its series"
    assert store.get("series", [key for key, _ in ROWS]) == [{b"c": value} for _, value in ROWS]


def test_new_series_are_put_in_one_transaction_while_nobody_waits(store: LmdbBackend) -> None:
    before = store._env.info()["last_txnid"]
    store._clock = type("Stopped", (), {"monotonic": staticmethod(lambda: 1.0)})()
    store.put_new("series", b"c", ROWS, [("log", [BLOCK])])
    assert store._env.info()["last_txnid"] == before + 1


def test_a_part_ends_after_its_time_although_nobody_of_this_process_waits(store: LmdbBackend) -> None:
    before, ticks = store._env.info()["last_txnid"], iter(range(10_000))
    store._clock = type("Slow", (), {"monotonic": staticmethod(lambda: float(next(ticks)))})()
    store.put_new("series", b"c", ROWS, [("log", [BLOCK])])
    assert store._env.info()["last_txnid"] == before + PARTS


def test_of_many_series_the_former_values_come_in_the_order_of_the_rows(store: LmdbBackend) -> None:
    in_parts(store, lambda: None)
    store.put([("series", [(ROWS[17][0], {b"c": b"another text"}), (ROWS[2_400][0], {b"c": ROWS[2_400][1]})])])
    before = store.put_new("series", b"c", ROWS, [("log", [BLOCK])])
    former = {row: text for row, text in enumerate(before) if text is not None}
    assert former == {17: b"another text", 2_400: ROWS[2_400][1]}
    assert store.get("log", [BLOCK[0]]) == [None], "a cell holds another value"
    assert store.get("series", [ROWS[17][0]]) == [{b"c": b"another text"}]


def _die_after(folder: str, parts: int) -> None:
    store, done = LmdbBackend(folder), list[int]()

    def at() -> None:
        done.append(1)
        if len(done) == parts:
            os.kill(os.getpid(), signal.SIGKILL)

    in_parts(store, at)
    store.put_new("series", b"c", ROWS, [("log", [BLOCK])])


@pytest.mark.parametrize("parts", [1, PARTS - 1, PARTS], ids=["the first", "the last but one", "the last"])
def test_a_process_killed_after_a_part_leaves_series_without_samples_and_the_retry_does_the_rest(
    tmp_path: Path, parts: int
) -> None:
    folder = str(tmp_path / "store")
    process = multiprocessing.get_context("spawn").Process(target=_die_after, args=(folder, parts))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    store = LmdbBackend(folder)
    assert series_there(store) == min(parts * lmdb.CELLS_AT_ONCE, len(ROWS))
    assert store.get("log", [BLOCK[0]]) == [BLOCK[1] if parts == PARTS else None]
    assert set(store.put_new("series", b"c", ROWS, [("log", [BLOCK])])) <= {None, *(value for _, value in ROWS)}
    assert series_there(store) == len(ROWS)
    assert store.get("log", [BLOCK[0]]) == [BLOCK[1]]
    store.close()


# --- the line ---------------------------------------------------------------------------------------------------------


class Bell(threading.Semaphore):
    """Wakes a thread, and remembers that it did."""

    is_rung = False

    def release(self, n: int = 1) -> None:
        self.is_rung = True
        super().release(n)


class HeardWrite(lmdb_line._Write[_T]):
    """A write of which a test knows whether its thread was woken."""

    def __init__(self, act: Callable[[Any], _T], size: int, *, woken: threading.Semaphore | None = None) -> None:
        super().__init__(act, size, woken=woken or Bell(0))


class HeardLine(WriterLine):
    """A line that knows which threads wait in it, or waited."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.waits = dict[threading.Thread, Any]()

    def _wait(self, own: Any) -> None:
        self.waits[threading.current_thread()] = own.woken
        super()._wait(own)


@pytest.fixture(autouse=True)
def heard_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_line, "_Write", HeardWrite)


class Line:
    """A line over a store, whose first write waits until ``go``, and threads that write into it."""

    def __init__(self, store: LmdbBackend) -> None:
        self.store, self.line, self.go = store, HeardLine(store._env), threading.Event()
        self.order, self.failed = list[str](), list[str]()
        self._threads = list[threading.Thread]()

    def write(
        self,
        name: str,
        size: int = 0,
        *,
        fails: int = 0,
        by: type[BaseException] = library.MapFullError,
        first: bool = False,
    ) -> None:
        """Write in a thread of its own, which stands in the line when this returns; its first ``fails`` tries fail."""
        left = [fails]

        def act(transaction: Any) -> str:
            if first:
                self.go.wait()
            if left[0]:
                left[0] -= 1
                raise by
            transaction.put(name.encode(), b"1", db=self.store._tables["config"])
            self.order.append(name)
            return name

        def work() -> None:
            try:
                assert self.line.write(act, size) == name
            except (library.MapFullError, KeyboardInterrupt):
                self.failed.append(name)

        before = len(self.line._waiting)
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()
        until(lambda: self.line._is_taken if first else len(self.line._waiting) == before + 1)

    def end(self) -> None:
        """Wait for all writes; fails at once when those that are left wait for nobody."""
        self.go.set()
        until(self._stands_still)
        assert [thread.name for thread in self._threads if thread.is_alive()] == [], "nobody wakes them"

    def _stands_still(self) -> bool:
        """Whether each thread is over, or waits and was not woken: the thread that had to do it is over too."""
        alive = [thread for thread in self._threads if thread.is_alive()]  # before their waits are looked at
        bells = [self.line.waits.get(thread) for thread in alive]
        return all(bell is not None and not bell.is_rung for bell in bells)

    def transactions(self) -> int:
        return int(self.store._env.info()["last_txnid"])


LARGE = lmdb_line.JOINED_BYTES_MAX + 1


def test_large_writes_are_done_in_the_order_in_which_they_came(store: LmdbBackend) -> None:
    line, before = Line(store), store._env.info()["last_txnid"]
    line.write("0", LARGE, first=True)
    for number in range(1, 8):
        line.write(str(number), LARGE)
    line.end()
    assert line.order == [str(number) for number in range(8)]
    assert line.transactions() == before + 8
    assert not line.line.is_wanted


def test_small_writes_join_the_one_that_is_on_and_share_its_transaction(store: LmdbBackend) -> None:
    line, before = Line(store), store._env.info()["last_txnid"]
    line.write("on", LARGE, first=True)
    line.write("large", LARGE)
    for number in range(3):
        line.write(f"small {number}", 100)
    line.end()
    assert line.order == ["on", "small 0", "small 1", "small 2", "large"]
    assert line.transactions() == before + 2


def test_so_many_small_writes_join_that_nobody_waits_long(store: LmdbBackend) -> None:
    line, before = Line(store), store._env.info()["last_txnid"]
    line.write("on", first=True)
    for number in range(3):
        line.write(str(number), lmdb_line.JOINED_BYTES_MAX // 2)
    line.end()
    assert line.transactions() == before + 2, "two joined, the third had its own turn"


def test_a_thread_that_writes_again_at_once_waits_behind_those_that_waited(store: LmdbBackend) -> None:
    line = Line(store)
    line.write("on", LARGE, first=True)
    line.write("waits", LARGE)
    line.write("again", LARGE)
    line.end()
    assert line.order == ["on", "waits", "again"]


@pytest.mark.parametrize(
    ("fails", "stored", "failed", "transactions"),
    [(0, {"on", "a", "b"}, [], 1), (1, {"on", "a", "b"}, [], 3), (9, {"on", "b"}, ["a"], 2)],
    ids=["never", "once", "always"],
)
def test_a_write_that_fails_among_others_fails_alone(
    store: LmdbBackend, fails: int, stored: set[str], failed: list[str], transactions: int
) -> None:
    line, before = Line(store), store._env.info()["last_txnid"]
    line.write("on", first=True)
    line.write("a", fails=fails)
    line.write("b")
    line.end()
    assert {key.decode() for key, in_store in _config(store) if in_store} == stored
    assert line.failed == failed
    assert line.transactions() == before + transactions
    assert not line.line._is_taken


def test_writes_that_joined_one_that_is_interrupted_are_done_by_themselves(store: LmdbBackend) -> None:
    line = Line(store)
    line.write("on", first=True)
    line.write("a", fails=1, by=KeyboardInterrupt)
    line.write("b")
    line.end()
    assert line.failed == ["on"]
    assert {key.decode() for key, _ in _config(store)} == {"a", "b"}


def _config(store: LmdbBackend) -> list[tuple[bytes, bytes]]:
    with store._env.begin(db=store._tables["config"]) as transaction:
        return list(transaction.cursor())


def test_a_write_that_leads_and_fails_is_an_error_of_its_own_and_the_next_goes_on(store: LmdbBackend) -> None:
    line = Line(store)
    line.write("on", first=True, fails=9)
    line.write("a")
    line.end()
    assert line.failed == ["on"]
    assert line.order == ["a"]


@pytest.mark.parametrize("state", ["waiting", "leading"])
def test_a_write_that_is_given_up_holds_nobody_up(store: LmdbBackend, state: str) -> None:
    line = WriterLine(store._env)
    line._is_taken = True

    class Interrupted:
        """What a signal of the main thread does to a wait."""

        def acquire(self) -> None:
            if state == "leading":
                with line._lock:
                    line._pass_on()
            raise KeyboardInterrupt

        def release(self) -> None:
            """Wake nobody."""

    write = lmdb_line._Write(lambda transaction: None, LARGE, woken=Interrupted())  # type: ignore[arg-type]
    line._waiting.append(write)
    with pytest.raises(KeyboardInterrupt):
        line._wait(write)
    if state == "waiting":
        line._pass_on()  # the one before ends
    assert line.write(lambda transaction: 7, 0) == 7


def test_an_error_of_the_disk_is_one_of_the_store_for_each_that_joined(
    store: LmdbBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(transaction: Any, piece: object) -> None:
        raise library.DiskError("Input/output error")

    monkeypatch.setattr(store, "_put", fail)
    with pytest.raises(StoreUnavailable):
        store.put([("log", [BLOCK])])
    monkeypatch.undo()
    store.put([("log", [BLOCK])])
    assert store.get("log", [BLOCK[0]]) == [BLOCK[1]]
