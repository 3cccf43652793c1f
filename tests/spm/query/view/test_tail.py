"""Claims about the tail and the page cache: what a reading process keeps, and for how long."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm import limits
from spm.clock import FakeClock
from spm.errors import LimitExceeded
from spm.limits import HOUR_MS
from spm.query.view.decoded_rows import DecodedRows, PageCache
from spm.query.view.tail import Tail
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.keys import PendingKey, PlacementTable, hour_column
from spm.store.versions.merge import Piece, merge
from spm.store.versions.quarantine import Quarantine
from tests.model.world import ALL, World
from tests.model.world import START as DAY_START
from tests.support.faults import keys_of
from tests.support.rows import APP, HOUR, START, envelope, stored, versions_of

[SHARD] = PlacementTable().all_shards(APP)


class CountedTail:
    """A tail over a store, and the keys of every block it read."""

    def __init__(self, backend: MemoryBackend, rows_max: int = limits.TAIL_SAMPLES_MAX) -> None:
        self.clock = FakeClock()
        self.keys_read: list[bytes] = []
        self.backend = backend
        rows = DecodedRows(APP, PageCache(), Quarantine(backend, self.clock))

        def log(reader: Reader, row_keys: Sequence[bytes]) -> list[Piece | None]:
            self.keys_read += row_keys
            return rows.log(reader, row_keys)

        self.tail = Tail(APP, [SHARD], self.clock, log, rows_max)

    def refresh(self) -> None:
        """List what is pending, and read the blocks of all hours."""
        self.clock.advance(limits.TAIL_AGE_MS)
        self.list_and_load()

    def list_and_load(self, *, force: bool = False, hours: tuple[int, int] = (0, 1 << 40)) -> None:
        """Read the blocks of these hours; the list is read if it is due."""
        self.tail.refresh(self.backend, force=force)
        self.tail.load(self.backend, self.tail.unread(hours))

    def versions(self, hour: int = HOUR) -> list[object]:
        return list(versions_of(merge(self.tail.view().pieces(SHARD, hour))))


def batch(number: int, hours: int = 1) -> object:
    return envelope(
        [(s, START + h * 3_600_000 + number + 1, float(number)) for s in (1, 2) for h in range(hours)],
        sequence=number,
        ms=1000 + number,
    )


def filled(count: int, hours: int = 1, rows_max: int = limits.TAIL_SAMPLES_MAX) -> CountedTail:
    return CountedTail(stored(*(batch(i, hours) for i in range(count))), rows_max)  # type: ignore[arg-type]


def compact(backend: MemoryBackend, count: int) -> None:
    """Delete the oldest records, as after a run has compacted them."""
    backend.delete("pending", [(key, None) for key in keys_of(backend, "pending")[-count:]])


def test_a_block_is_read_once() -> None:
    counted = filled(3)
    counted.refresh()
    stored(batch(3), backend=counted.backend)  # type: ignore[arg-type]
    counted.refresh()
    counted.refresh()
    assert len(counted.keys_read) == len(set(counted.keys_read)) == 4
    assert len(counted.versions()) == 8


def test_the_list_of_records_is_not_read_again_before_its_time_unless_forced() -> None:
    counted = filled(1)
    counted.refresh()
    stored(batch(1), backend=counted.backend)  # type: ignore[arg-type]
    counted.clock.advance(limits.TAIL_AGE_MS - 1)
    counted.list_and_load()
    assert len(counted.keys_read) == 1
    counted.list_and_load(force=True)
    assert len(counted.keys_read) == 2


def test_a_clock_that_jumps_back_does_not_stop_the_tail() -> None:
    counted = filled(1)
    counted.refresh()
    counted.clock.jump(-(10**9))
    stored(batch(1), backend=counted.backend)  # type: ignore[arg-type]
    counted.refresh()
    assert len(counted.versions()) == 4


def test_an_hour_without_pending_records_is_forgotten() -> None:
    counted = filled(4, hours=2)
    counted.refresh()
    compact(counted.backend, 4)
    counted.refresh()
    assert list(counted.tail.view().hour_shards()) == []


def test_an_hour_that_is_mostly_compacted_is_read_anew() -> None:
    counted = filled(9)
    counted.refresh()
    compact(counted.backend, 4)
    counted.refresh()
    assert len(counted.versions()) == 18
    compact(counted.backend, 1)
    counted.refresh()
    assert len(counted.versions()) == 8


def test_only_the_compacted_cell_of_a_record_is_left_out_when_its_hour_is_read_anew() -> None:
    counted = filled(3, hours=2)
    counted.refresh()
    oldest, second, newest = reversed(keys_of(counted.backend, "pending"))
    counted.backend.delete("pending", [(oldest, None), (second, None), (newest, [hour_column(HOUR)])])
    counted.refresh()
    assert counted.versions() == []
    assert len(counted.versions(HOUR + 1)) == 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_a_query_reads_few_pieces_each_at_least_twice_as_large_as_the_next(rounds: list[int]) -> None:
    counted, number = CountedTail(MemoryBackend()), 0
    for count in rounds:
        for _ in range(count):
            stored(batch(number), backend=counted.backend)  # type: ignore[arg-type]
            number += 1
        counted.refresh()
        sizes = [len(p) for p in counted.tail.view().pieces(SHARD, HOUR)]
        assert all(a >= 2 * b for a, b in itertools.pairwise(sizes))
        assert sum(sizes) == 2 * number


def test_a_view_does_not_change_with_later_refreshes() -> None:
    counted = filled(2)
    counted.refresh()
    view = counted.tail.view()
    compact(counted.backend, 2)
    counted.refresh()
    assert len(merge(view.pieces(SHARD, HOUR))) == 4


def test_a_block_that_no_longer_exists_counts_as_missing_until_its_record_is_deleted() -> None:
    counted = filled(2)
    missing = keys.LogKey.parse(keys_of(counted.backend, "log")[0])
    counted.backend.delete("log", [(missing.to_bytes(), None)])
    for _ in range(3):
        counted.refresh()
        assert counted.tail.view().missing == {(SHARD, HOUR): (missing.batch,)}
    counted.backend.delete("pending", [(PendingKey(SHARD, APP, missing.ingest_ms, missing.batch).to_bytes(), None)])
    counted.refresh()
    assert counted.tail.view().missing == {}


# --- pages ------------------------------------------------------------------------------------------------------------


def page(size: int) -> ChunkPage:
    return ChunkPage(*(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int32)), np.zeros(size))


def test_a_page_is_loaded_once_and_an_absent_one_every_time() -> None:
    cache, requests = PageCache(), []

    def load(row_keys: Sequence[bytes]) -> list[object | None]:
        requests.append(list(row_keys))
        return [None if name == b"no" else page(1) for name in row_keys]

    for _ in range(2):
        rows = cache.fetch("chunks", [b"a", b"no", b"b"], load)
        assert [f is None for f in rows] == [False, True, False]
    assert requests == [[b"a", b"no", b"b"], [b"no"]]
    cache.fetch("hours", [b"a"], load)
    cache.clear()
    cache.fetch("chunks", [b"a"], load)
    assert requests[2:] == [[b"a"], [b"a"]]


@pytest.mark.parametrize(
    ("size", "pages"), [(100, 10), (2_000, 0)], ids=["the least recently used are dropped", "a giant is not cached"]
)
def test_the_cache_keeps_within_its_bound(size: int, pages: int) -> None:
    cache = PageCache(bytes_max=10_000)
    for i in range(50):
        cache.fetch("chunks", [bytes([i])], lambda names: [page(size)])
    assert len(cache._pages) == pages
    assert cache._pages.weight <= 10_000


@pytest.mark.parametrize("cached", [False, True], ids=["fetched", "looked up"])
def test_a_page_that_was_used_again_outlasts_older_ones(cached: bool) -> None:
    cache = PageCache(bytes_max=10_000)
    for i in range(30):
        cache.fetch("chunks", [bytes([i])], lambda names: [page(100)])
        assert (cache.cached if cached else cache_only(cache))("chunks", [b"\0"]) != [None]


def cache_only(cache: PageCache) -> Callable[[str, Sequence[bytes]], list[object | None]]:
    """``fetch`` with a loader that has no rows."""
    return lambda table, names: cache.fetch(table, names, lambda missing: [None for _ in missing])


# --- a tail that is too large -----------------------------------------------------------------------------------------


def test_of_a_tail_that_is_too_large_the_largest_hours_are_left_out_and_all_others_are_held() -> None:
    tail = CountedTail(stored(batch(0, hours=3), *(batch(i) for i in range(1, 6))), rows_max=8)  # type: ignore[arg-type]
    tail.refresh()
    view = tail.tail.view()
    assert (view.left_out, tail.versions(), len(tail.versions(HOUR + 1))) == (frozenset({HOUR}), list[object](), 2)
    view.check_held((HOUR + 1, HOUR + 3))
    view.check_held(None)
    for hours in ((HOUR, HOUR + 1), (HOUR - 5, HOUR + 9)):
        with pytest.raises(LimitExceeded, match="un-compacted"):
            view.check_held(hours)


def test_an_hour_that_is_left_out_is_not_read_again_and_comes_back_once_it_is_compacted() -> None:
    tail = filled(6, rows_max=8)
    backend = tail.backend
    tail.refresh()
    keys_read = len(tail.keys_read)
    stored(batch(6), backend=backend)  # type: ignore[arg-type]
    tail.refresh()
    assert (tail.tail.view().left_out, len(tail.keys_read)) == (frozenset({HOUR}), keys_read)
    for key in keys_of(backend, "pending"):
        backend.delete("pending", [(key, None)])
    stored(batch(7), backend=backend)  # type: ignore[arg-type]
    tail.refresh()
    assert (tail.tail.view().left_out, len(tail.versions())) == (frozenset(), 2)


def test_a_query_beside_an_hour_that_is_left_out_is_answered() -> None:
    world = World()
    world.send((0, 5, 1.0))
    world.send(*((0, HOUR_MS + at, 2.0) for at in range(1, 20)))
    storage = world.fresh()
    storage._state.tail._rows_max = 10
    assert len(storage.select(ALL, DAY_START, DAY_START + HOUR_MS).ts) == 1
    with pytest.raises(LimitExceeded, match="other hours are answered"):
        storage.select(ALL, DAY_START, DAY_START + 2 * HOUR_MS)
