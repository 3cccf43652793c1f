"""Writers of one process take turns at LMDB: many new series are put in parts, between which others write."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spm.store import keys
from spm.store.backends import lmdb
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.lmdb_turns import WriterTurns

ROWS = [(keys.series(7, 5, number * 0x9E3779B97F4A7C15 & keys.U64), b"text %d" % number) for number in range(2_500)]
BLOCK = (keys.LogKey(1, 7, 1, 1, 1).to_bytes(), {b"v": b"block"})


class Noted(WriterTurns):
    """Turns that are counted, and wanted by others or not, as a test says."""

    def __init__(self, *, is_wanted: bool) -> None:
        super().__init__()
        self.count, self._is_wanted = 0, is_wanted

    @property
    def is_wanted(self) -> bool:
        return self._is_wanted

    def __enter__(self) -> None:
        super().__enter__()
        self.count += 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbBackend]:
    store = LmdbBackend(str(tmp_path / "store"))
    yield store
    store.close()


def until_wanted(turns: WriterTurns, waiting: int) -> None:
    """Wait until so many threads wait."""
    while len(turns._waiting) < waiting:
        threading.Event().wait(0.001)


@pytest.mark.parametrize(
    ("is_wanted", "turns"),
    [(False, -(-len(ROWS) // lmdb.NEW_CELLS_MAX)), (True, -(-len(ROWS) // lmdb.NEW_CELLS_WANTED_MAX))],
    ids=["nobody waits", "others wait"],
)
def test_many_new_series_are_put_in_parts_and_the_steps_with_the_last(
    store: LmdbBackend, monkeypatch: pytest.MonkeyPatch, is_wanted: bool, turns: int
) -> None:
    noted = Noted(is_wanted=is_wanted)
    monkeypatch.setattr(store, "_turns", noted)
    assert store.put_new("series", b"v", ROWS, [("log", [BLOCK])]) == [None] * len(ROWS)
    assert noted.count == turns
    assert store.get("series", [key for key, _ in ROWS]) == [{b"v": value} for _, value in ROWS]
    assert store.get("log", [BLOCK[0]]) == [BLOCK[1]]


def test_of_many_series_the_former_values_come_in_the_order_of_the_rows(store: LmdbBackend) -> None:
    key = ROWS[17][0]
    store.put([("series", [(key, {b"v": b"another text"}), (ROWS[2_400][0], {b"v": ROWS[2_400][1]})])])
    before = store.put_new("series", b"v", ROWS, [("log", [BLOCK])])
    assert {row: text for row, text in enumerate(before) if text is not None} == {
        17: b"another text",
        2_400: ROWS[2_400][1],
    }
    assert store.get("log", [BLOCK[0]]) == [None], "a cell holds another value"
    assert store.get("series", [key]) == [{b"v": b"another text"}]


def test_threads_write_in_the_order_in_which_they_came() -> None:
    turns, order = WriterTurns(), list[int]()

    def write(number: int) -> None:
        with turns:
            order.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    with turns:
        assert not turns.is_wanted
        for place, thread in enumerate(threads):
            thread.start()
            until_wanted(turns, place + 1)
        assert turns.is_wanted
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    assert not turns.is_wanted


def test_a_thread_that_writes_again_at_once_waits_behind_those_that_waited() -> None:
    turns, order = WriterTurns(), list[str]()

    def write() -> None:
        with turns:
            order.append("other")

    thread = threading.Thread(target=write)
    with turns:
        thread.start()
        until_wanted(turns, 1)
    with turns:
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


@pytest.mark.parametrize("was_given", [False, True], ids=["it still waits", "it has just been given"])
def test_a_turn_that_is_given_up_holds_nobody_up(was_given: bool) -> None:
    turns, lock = WriterTurns(), threading.Lock()
    turns.__enter__()
    if not was_given:
        turns._waiting.append(lock)
    turns._give_up(lock)  # as a signal does between the two; a given turn is the one that we hold
    if not was_given:
        turns.__exit__()
    with turns:
        assert not turns.is_wanted
