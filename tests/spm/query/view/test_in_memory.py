"""A read from memory never decodes or waits; it equals the read before it, or says that it cannot.

After a write it reads a few rows that were just read, and nothing else.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spm import limits
from spm.clock import FakeClock
from spm.errors import NotInMemory
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request import limits as light_limits
from spm.query.samples.unpacked_pages import process_unpacked_pages
from spm.store import epochs, keys
from spm.store.backends import lmdb, open_backend
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import paged
from spm.store.keys import PlacementTable
from spm.store.matchers import Matcher
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope
from tests.support import store_reader
from tests.support.rows import APP, START, envelope, plain, stored
from tests.support.store_reader import NOW, reader, roll

SENT = [
    envelope([(s, START + q * 900_000, float(q)) for s in (1, 2) for q in range(-8, 9)]),
    envelope([(1, START + 900_000, 7.0)], sequence=1),
]


def look(storage: AppStorage) -> dict[tuple[bytes, int], int]:
    """All samples, of few days."""
    return store_reader.look(storage, START - 3 * HOUR_MS, START + 3 * HOUR_MS)


class Case:
    """A store, and a reading process that has answered once."""

    def __init__(self, folder: Path, *sent: Envelope) -> None:
        self.sent = sent
        self.backend: Backend = stored(*sent, backend=open_backend(f"lmdb://{folder}/store"))
        self.clock = FakeClock(NOW)
        self.storage = reader(self.backend, clock=self.clock)

    def begin(self) -> None:
        """Answer once from the store."""
        assert look(self.storage) == plain(self.sent)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path, *SENT)


@pytest.fixture
def forbid_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, nobody may read the store."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    def forbid() -> None:
        for name in ("get", "scan"):
            monkeypatch.setattr(lmdb._Snapshot, name, refuse)

    return forbid


@pytest.mark.parametrize("is_rolled", [False, True])
def test_it_answers_as_the_read_before_it(is_rolled: bool, tmp_path: Path, forbid_reads: Callable[[], None]) -> None:
    case = Case(tmp_path, *(SENT[:1] if is_rolled else SENT))  # a page with two versions of a time is not kept
    if is_rolled:
        roll(case.backend, 5)
    case.begin()
    case.begin()
    forbid_reads()
    assert look(case.storage.in_memory()) == plain(case.sent)


def test_it_answers_about_as_many_series_as_a_light_query_may_have(tmp_path: Path) -> None:
    widest = range(1, light_limits.LIGHT_SERIES_MAX + 1)
    case = Case(tmp_path, envelope([(series, START, float(series)) for series in widest]))
    case.begin()
    assert look(case.storage.in_memory()) == plain(case.sent)


def test_a_process_that_has_read_nothing_cannot(case: Case) -> None:
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())
    case.begin()


def test_a_store_without_versions_cannot() -> None:
    storage = reader(stored(*SENT, backend=MemoryBackend()))
    assert look(storage) == plain(SENT)
    with pytest.raises(NotInMemory):
        look(storage.in_memory())


def wait(case: Case) -> None:
    case.clock.advance(limits.TAIL_AGE_MS + 1)


NEWER = envelope([(1, START + 1, 7.0)], sequence=2)


def write(case: Case) -> None:
    stored(NEWER, backend=case.backend)


def roll_up(case: Case) -> None:
    roll(case.backend, 6)


def register(case: Case) -> None:
    """Another query has met new series: the selection was made without them."""
    case.storage._state.index._count += 1


def write_and_wait(case: Case) -> None:
    write(case)
    wait(case)


def retract_and_write(case: Case) -> None:
    one = Retraction(1, NOW, 0, 0, START, 0, START, "other", (), "a test", "me")  # of another metric
    row = keys.retraction(APP, one.number), {retractions.COLUMN: retractions.encode(one)}
    case.backend.put([("retractions", [row])])


def move(case: Case) -> None:
    """The app gets a placement table of its own."""
    case.backend.put([("config", [(epochs.row_key(APP), {epochs.COLUMN: epochs.encode(PlacementTable.single(2))})])])


@pytest.mark.parametrize("change", [write_and_wait, roll_up, register, retract_and_write, move])
def test_what_has_changed_since_is_left_to_a_read_that_waits(change: Callable[[Case], None], case: Case) -> None:
    case.begin()
    change(case)
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())


@pytest.mark.parametrize("is_rolled", [False, True])
def test_after_a_write_it_looks_at_a_few_rows_that_were_just_read(
    is_rolled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, *SENT[:1])
    if is_rolled:
        roll(case.backend, 5)
    case.begin()
    case.begin()
    tables: list[str] = []
    for name in ("get", "scan"):
        call = getattr(lmdb._Snapshot, name)

        def noted(self: object, table: str, *more: Any, _call: Any = call, **how: Any) -> Any:
            tables.append(table)
            return _call(self, table, *more, **how)

        monkeypatch.setattr(lmdb._Snapshot, name, noted)
    write(case)
    tables.clear()
    assert look(case.storage.in_memory()) == plain(case.sent)  # as the read that waits, within the age of its tail
    assert sorted(tables) == ["config", "manifest", "retractions"]
    tables.clear()
    assert look(case.storage) == plain(case.sent)
    assert look(case.storage.in_memory()) == plain(case.sent)
    assert not tables  # until the next write


@pytest.mark.parametrize(("name", "most"), [("LIGHT_DAYS_MAX", 0), ("LIGHT_RETRACTIONS_MAX", -1)])
def test_many_rows_are_left_to_a_read_that_waits(
    name: str, most: int, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.begin()
    write(case)
    monkeypatch.setattr(light_limits, name, most)
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_tail_stays_new_while_nobody_writes(at_once: bool, case: Case, forbid_reads: Callable[[], None]) -> None:
    case.begin()
    before = case.storage.notes()
    wait(case)
    forbid_reads()
    assert look(case.storage.in_memory() if at_once else case.storage) == plain(case.sent)
    assert case.storage.notes() != before  # it says how new it is


def test_an_old_tail_is_kept_for_the_next_read_that_waits(case: Case) -> None:
    case.begin()
    view = case.storage._state.tail.view()
    write_and_wait(case)
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())
    assert case.storage._state.tail.view() is view
    case.sent = (*case.sent, NEWER)
    case.begin()


def test_it_does_not_wait_for_the_lock(case: Case) -> None:
    case.begin()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with case.storage._state.lock:
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert entered.wait(20)
        with pytest.raises(NotInMemory):
            look(case.storage.in_memory())
    finally:
        leave.set()
        thread.join()
    assert look(case.storage.in_memory()) == plain(SENT)


def test_another_selection_is_left_to_a_read_that_waits(case: Case) -> None:
    case.begin()
    with pytest.raises(NotInMemory):
        case.storage.in_memory().select([Matcher("__name__", "!=", "x")], 0, 2 * START)


def test_a_large_tail_is_left_to_a_read_that_waits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.begin()
    for most, can in ((36, True), (34, False)):
        monkeypatch.setattr(light_limits, "LIGHT_TAIL_ROWS_MAX", most)
        if can:
            assert look(case.storage.in_memory()) == plain(SENT)
        else:
            with pytest.raises(NotInMemory):
                look(case.storage.in_memory())


def test_packed_values_are_used_once_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbid_reads: Callable[[], None]
) -> None:
    monkeypatch.setattr(paged, "PAGED_FROM", 1)
    case = Case(tmp_path, SENT[0])
    roll(case.backend, 5)
    case.begin()
    process_unpacked_pages().clear()
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())
    case.begin()
    forbid_reads()
    assert look(case.storage.in_memory()) == plain(case.sent)


def test_a_retraction_is_left_to_a_read_that_waits(case: Case) -> None:
    case.begin()
    one = Retraction(1, NOW, 0, 0, 2 * START, START, START + HOUR_MS, "", (), "a test", "me")
    row = keys.retraction(APP, one.number), {retractions.COLUMN: retractions.encode(one)}
    case.backend.put([("retractions", [row])])
    hidden = look(case.storage)
    assert 0 < len(hidden) < len(plain(SENT))
    with pytest.raises(NotInMemory):
        look(case.storage.in_memory())
