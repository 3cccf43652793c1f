"""Claims about spm/store/ledger/watermarks.py: announcements go forward, watermarks name the dead, and E never changes
its answer.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm import limits
from spm.arrays import U64
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import (
    AdoptionRecord,
    Announcement,
    OutcomeTotals,
    ProcessWatermarks,
    Watermark,
    WatermarkVector,
    announce,
    lag_ms,
    pack,
    pack_place,
)
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.visibility import Visibility
from spm.wire import Stamp
from tests.support.faults import Faulty, flip
from tests.support.rows import APP, messages, piece

PROCESS = 3
NONE = np.empty(0, np.uint64)


def word(ms: int, n: int, *, sequence: int = 0, at_ms: int | None = None, ended: bool = False) -> Announcement:
    return Announcement(ms, sequence, n, 10 * n, 0, 0, 0, ms if at_ms is None else at_ms, ended)


def row(store: Backend, process: int = PROCESS) -> ProcessWatermarks:
    return watermarks.read(store, APP)[process]


def stamps(*places: tuple[int, int]) -> U64:
    return np.array([pack_place(place) for place in places], np.uint64)


def moved(store: Backend, to: Announcement, *, out: U64 = NONE) -> bool:
    """Move the watermark of the process from its present place."""
    return watermarks.move(store, APP, row(store), to, totals=OutcomeTotals(messages=1), dead_stamps=out)


# --- announcing -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=12))
def test_the_newest_announcement_is_the_furthest_ever_made(places: list[tuple[int, int]]) -> None:
    store = MemoryBackend()
    for ms, sequence in places:
        announce(store, APP, PROCESS, word(ms, ms, sequence=sequence))
    newest = row(store).newest
    assert newest is not None
    assert newest.place == max(places)


def test_an_end_is_not_revoked_by_an_earlier_announcement() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1, ended=True))
    announce(store, APP, PROCESS, word(5, 1))
    assert row(store).newest == word(5, 1, ended=True)


def test_a_process_learns_whether_all_it_said_is_held() -> None:
    store = MemoryBackend()
    assert not announce(store, APP, PROCESS, word(5, 1))
    assert moved(store, word(5, 1))
    assert announce(store, APP, PROCESS, word(5, 1))
    assert not announce(store, APP, PROCESS, word(6, 2))


def test_a_late_announcement_that_the_watermark_has_reached_succeeds() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    assert moved(store, word(5, 1))
    announce(store, APP, PROCESS, word(6, 2))
    assert [announce(store, APP, PROCESS, late) for late in (word(4, 1), word(5, 1))] == [True, True]


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_an_announcement_that_failed_is_made_again(lost: bool) -> None:
    store = Faulty(MemoryBackend(), fails_at=1, lost_answer=lost)
    with pytest.raises(StoreUnavailable):
        announce(store, APP, PROCESS, word(5, 1))
    store.fails_at = None
    announce(store, APP, PROCESS, word(6, 2))
    assert row(store).newest == word(6, 2)


def test_of_many_announcements_the_oldest_and_the_newest_stay_and_never_too_many() -> None:
    store = MemoryBackend()
    for ms in range(1, 500):
        announce(store, APP, PROCESS, word(ms, ms))
        assert len(row(store).announcements) <= limits.ANNOUNCEMENTS_MAX
    words = [w.ms for w in row(store).announcements]
    assert words[0] == 1  # else one that is settled some day might always be dropped before that
    assert words[-8:] == list(range(492, 500))
    assert words == sorted(words)


def test_announcements_that_are_held_go_when_the_next_one_is_made() -> None:
    store = MemoryBackend()
    for ms in (1, 2, 3):
        announce(store, APP, PROCESS, word(ms, ms))
    moved(store, word(2, 2))
    announce(store, APP, PROCESS, word(4, 4))
    assert [w.ms for w in row(store).announcements] == [3, 4]


# --- marks ------------------------------------------------------------------------------------------------------------


def test_of_two_keepers_with_equal_views_one_moves_the_watermark() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    seen = row(store)
    assert watermarks.move(store, APP, seen, word(5, 1), totals=OutcomeTotals(messages=1), dead_stamps=stamps((4, 0)))
    assert not watermarks.move(store, APP, seen, word(5, 1), totals=OutcomeTotals(messages=1), dead_stamps=NONE)
    assert not watermarks.adopt(store, APP, seen, AdoptionRecord(stamps((4, 0)), NONE, OutcomeTotals(1)))
    assert (row(store).watermark.totals.messages, row(store).dead_stamps.tolist(), row(store).adoptions) == (
        1,
        [pack_place((4, 0))],
        (),
    )


def test_very_many_dead_stamps_are_all_named_in_cells_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATERMARK_DEAD_STAMPS_MAX", 10)
    monkeypatch.setattr(limits, "STAMPS_PER_CELL", 25)
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(1, 1))
    dead = pack(np.arange(100, dtype=np.int64), np.zeros(100, np.int64))
    moved(store, word(200, 100), out=dead)
    moved(store, word(300, 101), out=stamps((250, 0)))
    present = row(store)
    assert present.dead_stamps.tolist() == [*dead.tolist(), pack_place((250, 0))]
    assert len(present.watermark.dead_stamps) <= 10
    assert len(present.watermark.pages) == 4


def test_a_watermark_without_its_pages_is_damage() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(1, 1))
    watermarks.adopt(store, APP, row(store), AdoptionRecord(stamps((4, 0)), NONE, OutcomeTotals(1)))
    store.delete("marks", [(keys.watermark(APP, PROCESS), list(row(store).watermark.records))])
    assert "names cells" in row(store).damaged
    assert row(store).adoptions == ()


@pytest.mark.parametrize(("column", "left"), [(b"a", ((), (5, 0))), (b"m", ((6,), (0, 0)))], ids=["words", "mark"])
def test_a_flipped_bit_in_a_watermark_is_reported_and_damages_nothing_else(
    column: bytes, left: tuple[tuple[int, ...], tuple[int, int]]
) -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    moved(store, word(5, 1))
    for process in (PROCESS, 4):
        announce(store, APP, process, word(6, 2))
    flip(store, "marks", keys.watermark(APP, PROCESS), column)
    assert "fails its checksum" in row(store).damaged
    assert (tuple(w.ms for w in row(store).announcements), row(store).watermark.place) == left
    assert row(store, 4).newest == word(6, 2)
    assert not row(store, 4).damaged


def test_a_process_replaces_announcements_that_cannot_be_read() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    flip(store, "marks", keys.watermark(APP, PROCESS), b"a")
    announce(store, APP, PROCESS, word(6, 2))
    assert (row(store).announcements, row(store).damaged) == ((word(6, 2),), "")


def test_a_process_whose_watermark_cannot_be_read_goes_on_announcing() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    moved(store, word(5, 1))
    flip(store, "marks", keys.watermark(APP, PROCESS), b"m")
    assert not announce(store, APP, PROCESS, word(6, 2))
    assert row(store).newest == word(6, 2)


def test_a_vector_excludes_a_process_with_an_unreadable_watermark_and_an_older_vector_fails() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    moved(store, word(5, 1))
    before = WatermarkVector.of(watermarks.read(store, APP)).to_bytes()
    flip(store, "marks", keys.watermark(APP, PROCESS), b"m")
    assert not WatermarkVector.of(watermarks.read(store, APP)).knows(messages([Stamp(4, PROCESS, 0)])).any()
    with pytest.raises(CorruptBlock, match="not there"):
        WatermarkVector.from_bytes(before, watermarks.read(store, APP))


def test_a_row_with_only_leftovers_of_a_killed_keeper_is_no_process() -> None:
    store = MemoryBackend()
    broken = Faulty(store, fails_at=1)
    with pytest.raises(StoreUnavailable):
        watermarks.adopt(
            broken,
            APP,
            ProcessWatermarks(PROCESS, watermark=Watermark(PROCESS)),
            AdoptionRecord(stamps((4, 0)), NONE, OutcomeTotals(1)),
        )
    assert watermarks.read(store, APP) == {}


def test_watermarks_belong_to_one_app() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    assert watermarks.read(store, APP + 1) == {}
    assert watermarks.read(store, APP - 1) == {}


def test_the_lag_is_the_age_of_the_oldest_unreached_announcement_of_a_live_process() -> None:
    def of(*words: Announcement, present: int = 0) -> ProcessWatermarks:
        return ProcessWatermarks(1, words, Watermark(1, present))

    now, silent = 10**9, 10**9 - limits.PROCESS_GONE_S * 1000 - 1
    waits = of(word(1, 1, at_ms=now - 7_000), word(2, 2, at_ms=now - 5_000))
    assert lag_ms({1: waits}, now) == 7_000
    assert lag_ms({1: of(word(2, 2, at_ms=now), present=2)}, now) == 0
    assert lag_ms({1: of(word(2, 2, at_ms=silent))}, now) == 0
    assert lag_ms({1: of(word(2, 2, at_ms=now - 9_000, ended=True)), 2: waits}, now) == 7_000
    assert lag_ms({}, now) == 0


# --- what is known ----------------------------------------------------------------------------------------------------

places = st.tuples(st.integers(1, 9), st.integers(0, 2))
some_stamps = st.lists(places, max_size=4, unique=True).map(lambda drawn: stamps(*sorted(drawn)))
processes = st.dictionaries(
    st.integers(1, 4), st.tuples(places, some_stamps, st.lists(some_stamps, max_size=3)), max_size=3
)


def process_watermarks(process: int, place: tuple[int, int], out: U64, adopted: list[U64]) -> ProcessWatermarks:
    records = tuple(AdoptionRecord(values, NONE, OutcomeTotals()) for values in adopted)
    return ProcessWatermarks(process, (), Watermark(process, *place), records, out[out <= np.uint64(pack_place(place))])


def later(before: dict[int, ProcessWatermarks], more: dict[int, ProcessWatermarks]) -> dict[int, ProcessWatermarks]:
    """Return the watermarks some time later: moved on, with more records and more dead stamps above them."""
    result = dict(more)
    for process, m in before.items():
        n = more.get(process, m)
        place = max(m.watermark.place, n.watermark.place)
        fresh = n.dead_stamps[
            (n.dead_stamps > np.uint64(pack_place(m.watermark.place))) & (n.dead_stamps <= np.uint64(pack_place(place)))
        ]
        out = np.concatenate([m.dead_stamps, fresh])
        result[process] = ProcessWatermarks(process, (), Watermark(process, *place), (*m.adoptions, *n.adoptions), out)
    return result


@settings(max_examples=200)
@given(processes, processes, st.lists(st.tuples(st.integers(1, 5), places), min_size=1, max_size=12))
def test_the_answer_of_e_about_a_stamp_never_changes_while_watermarks_move(
    first: dict[int, tuple[tuple[int, int], U64, list[U64]]],
    second: dict[int, tuple[tuple[int, int], U64, list[U64]]],
    places_of: list[tuple[int, tuple[int, int]]],
) -> None:
    then = {p: process_watermarks(p, *state) for p, state in first.items()}
    now = later(then, {p: process_watermarks(p, *state) for p, state in second.items()})
    table = messages([Stamp(place[0], process, place[1]) for process, place in places_of])
    vector = WatermarkVector.of(then)
    plain = [
        process in then
        and (
            (place <= then[process].watermark.place and pack_place(place) not in then[process].dead_stamps.tolist())
            or any(pack_place(place) in record.stamps.tolist() for record in then[process].adoptions)
        )
        for process, place in places_of
    ]
    assert vector.knows(table).tolist() == plain
    assert WatermarkVector.from_bytes(vector.to_bytes(), now).knows(table).tolist() == plain


def test_a_vector_without_its_watermarks_is_refused() -> None:
    raw = WatermarkVector.of({1: process_watermarks(1, (5, 0), NONE, [])}).to_bytes()
    for values in ({}, {1: process_watermarks(1, (4, 0), NONE, [])}):
        with pytest.raises(CorruptBlock, match="not there"):
            WatermarkVector.from_bytes(raw, values)


def test_a_vector_whose_records_are_gone_is_refused() -> None:
    raw = WatermarkVector.of({1: process_watermarks(1, (5, 0), NONE, [stamps((7, 0)), stamps((9, 0))])}).to_bytes()
    with pytest.raises(CorruptBlock, match="not there"):
        WatermarkVector.from_bytes(raw, {1: process_watermarks(1, (5, 0), NONE, [stamps((7, 0))])})


def test_an_adoption_record_distinguishes_stored_from_dead_stamps() -> None:
    store = MemoryBackend()
    announce(store, APP, PROCESS, word(5, 1))
    assert watermarks.adopt(
        store, APP, row(store), AdoptionRecord(stamps((6, 0), (8, 0)), stamps((7, 0)), OutcomeTotals(messages=3))
    )
    [record] = row(store).adoptions
    assert (record.stamps.tolist(), record.others.tolist()) == (
        stamps((6, 0), (8, 0)).tolist(),
        stamps((7, 0)).tolist(),
    )


def test_a_visibility_with_an_e_shows_only_known_stamps() -> None:
    vector = WatermarkVector.of({1: process_watermarks(1, (5, 0), stamps((4, 0)), [stamps((7, 0))])})
    values = piece(
        [(1, ts, 0, (ms, process, 0, "h")) for ts, (ms, process) in enumerate([(3, 1), (4, 1), (6, 1), (7, 1), (3, 2)])]
    )
    visible = Visibility(knowledge=Knowledge(vector, frozenset())).visible_rows(values)
    assert visible is not None
    assert values.ts[visible].tolist() == [0, 3]


def test_a_visibility_whose_e_knows_every_stamp_costs_nothing() -> None:
    vector = WatermarkVector.of({1: process_watermarks(1, (5, 0), NONE, [])})
    assert Visibility(knowledge=Knowledge(vector, frozenset())).visible_rows(piece([(1, 1, 0, (3, 1, 0, "h"))])) is None
