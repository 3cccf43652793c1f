"""Claims about damaged rows: left out, named in the notes, copied to `dead`, never shown as numbers."""

import pytest

from spm.clock import FakeClock
from spm.errors import CorruptBlock, StoreUnavailable
from spm.query.reader import AppStorage
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import dead_letters
from spm.store.versions.quarantine import Quarantine
from tests.support.faults import Faulty, flip, keys_of
from tests.support.rows import START, envelope, plain, stored
from tests.support.store_reader import NOW, look, reader, roll

ONE = envelope([(s, START + t, float(s)) for s in (0, 1, 2) for t in range(1, 9)], sequence=1)
TWO = envelope([(s, START + t, float(s)) for s in (3, 4, 5) for t in range(1, 9)], sequence=2)
BOTH = plain([ONE, TWO])
BITS = [0, 5, 15, 40, 60, 100, 333, 1001]


def damaged(table: str, at: int, bit: int, *, rolled: bool) -> tuple[MemoryBackend, bytes]:
    """A store with two messages, of which one bit of one row has changed."""
    backend = MemoryBackend()
    stored(ONE, TWO, backend=backend)
    if rolled:
        roll(backend, 5)
    key = keys_of(backend, table)[at]
    flip(backend, table, key, b"c" if table == "series" else b"v", bit)
    return backend, key


def dead_letters_of(backend: MemoryBackend) -> list[dead_letters.DeadLetter]:
    return [dead_letters.decode(row[b"v"]) for _, row in backend.scan("dead", b"", b"\xff" * 40)]


CASES = [("log", False), ("series", False), ("chunks", True), ("timelines", True), ("series", True)]


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("at", [0, 1, -1])
@pytest.mark.parametrize(("table", "rolled"), CASES, ids=[f"{t}{' after a run' * r}" for t, r in CASES])
def test_a_flipped_bit_leaves_its_row_out_and_touches_nothing_else(table: str, rolled: bool, at: int, bit: int) -> None:
    if table == "timelines" and at == 1:
        at = 0
    backend, key = damaged(table, at, bit, rolled=rolled)
    [row] = backend.get(table, [key])
    assert row is not None
    storage = reader(backend)
    for _ in range(2):
        answer = look(storage)
        assert answer.items() < BOTH.items()
        assert f"1 damaged row(s) of {table} are quarantined and left out" in storage.damage()
        [dead_letter] = dead_letters_of(backend)
        assert (dead_letter.kind, dead_letter.table, dead_letter.key, dead_letter.body) == (
            dead_letters.ROW,
            table,
            key,
            b"".join(row.values()),
        )
    missing = {series for series, _ in BOTH} - {series for series, _ in answer}
    expected = {at_: v for at_, v in BOTH.items() if at_[0] not in missing}
    assert answer == expected


def test_only_the_series_of_a_damaged_block_are_missing() -> None:
    backend, _ = damaged("log", 0, 100, rolled=False)
    assert look(reader(backend)) in (plain([ONE]), plain([TWO]))


@pytest.mark.parametrize("bit", BITS)
def test_with_a_damaged_directory_all_readable_samples_are_answered(bit: int) -> None:
    backend, _ = damaged("inputs", 0, bit, rolled=True)
    sent = envelope([(7, START + 1, 7.0)], sequence=3)  # one more series, so that a missing page is requested
    stored(sent, backend=backend)
    storage = reader(backend)
    assert look(storage).items() <= {**BOTH, **plain([sent])}.items()
    assert look(storage).items() >= plain([sent]).items()


@pytest.mark.parametrize("bit", BITS)
def test_a_damaged_manifest_is_an_error_and_never_an_answer(bit: int) -> None:
    backend, _ = damaged("manifest", 0, bit, rolled=True)
    with pytest.raises(CorruptBlock):
        look(reader(backend))


@pytest.mark.parametrize("bit", BITS)
def test_a_damaged_pending_cell_hides_no_block(bit: int) -> None:
    backend = MemoryBackend()
    stored(ONE, TWO, backend=backend)
    key = keys_of(backend, "pending")[0]
    [row] = backend.get("pending", [key])
    assert row is not None
    flip(backend, "pending", key, next(iter(row)), bit)
    assert look(reader(backend)) == BOTH


def test_a_damaged_row_stays_out_when_its_page_leaves_the_cache() -> None:
    backend, _ = damaged("chunks", 0, 100, rolled=True)
    clock = FakeClock(NOW)
    storage = reader(backend, clock=clock)
    answer = look(storage)
    storage._state.rows._cache.clear()
    clock.advance(5000)
    assert look(storage) == answer
    assert len(dead_letters_of(backend)) == 1


def test_a_store_that_takes_no_copy_does_not_stop_the_answer() -> None:
    backend, _ = damaged("log", 0, 100, rolled=False)
    refusing = Faulty(backend)

    def full(call: str) -> None:
        if call == "put dead":
            raise StoreUnavailable("full")

    refusing.hook = full
    storage: AppStorage = reader(refusing)
    assert look(storage).items() < BOTH.items()
    assert len(storage.damage()) == 1


def test_a_process_remembers_a_bounded_number_of_damaged_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.store.versions.quarantine._ROWS_MAX", 3)
    backend = MemoryBackend()
    quarantine = Quarantine(backend, FakeClock(NOW))
    for i in range(9):
        quarantine.report(7, "log", bytes([i]), b"raw", CorruptBlock("damaged"))
    assert quarantine.notes() == ["3 damaged row(s) of log are quarantined and left out"]
    assert len(dead_letters_of(backend)) == 3


def test_a_dead_letter_belongs_to_the_app_of_its_row() -> None:
    backend, _ = damaged("log", 0, 100, rolled=False)
    look(reader(backend))
    [key] = keys_of(backend, "dead")
    start, stop = keys.prefix_range((7).to_bytes(4, "big"))
    assert start <= key < stop
