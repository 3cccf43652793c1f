"""Claims about ingest/accept/stamper.py: stamps only grow, process numbers are never used twice (PROTOCOL 1)."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.accept.stamper import Stamper, take_process
from spm.clock import FakeClock
from spm.errors import BadMessage, StoreUnavailable
from spm.limits import HOUR_MS, MESSAGE_HOURS_MAX, SEQUENCE_MAX
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.wire import Parsed, SeriesTable, Stamp
from tests.support.faults import Faulty
from tests.support.rows import form


@given(st.lists(st.one_of(st.just(0), st.integers(-(10**9), 10**9)), max_size=50))
def test_stamps_only_grow_whatever_the_clock_does(jumps: list[int]) -> None:
    clock = FakeClock()
    acceptor = Stamper(5, clock)
    stamps = [acceptor.next_stamp()]
    for jump in jumps:
        clock.jump(jump)
        stamps.append(acceptor.next_stamp())
    assert all(a < b for a, b in itertools.pairwise(stamps))
    assert {s.process for s in stamps} == {5}


def test_a_full_millisecond_borrows_from_the_next_one() -> None:
    clock = FakeClock(1000)
    acceptor = Stamper(5, clock)
    stamps = [acceptor.next_stamp() for _ in range(SEQUENCE_MAX + 2)]
    assert stamps[-2:] == [Stamp(1000, 5, SEQUENCE_MAX), Stamp(1001, 5, 0)]
    clock.advance(1)
    assert acceptor.next_stamp() == Stamp(1001, 5, 1)


def test_threads_never_get_the_same_stamp() -> None:
    acceptor = Stamper(5, FakeClock())
    got: list[Stamp] = []

    def many() -> None:
        got.extend([acceptor.next_stamp() for _ in range(2000)])

    threads = [threading.Thread(target=many) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(got)) == 12_000


@pytest.mark.parametrize("url", ["memory://new", "lmdb://{}/store"])
def test_process_numbers_are_unique_under_a_race(url: str, tmp_path: object) -> None:
    backend = open_backend(url.format(tmp_path))
    numbers: list[int] = []

    def many() -> None:
        numbers.extend([take_process(backend) for _ in range(20)])

    threads = [threading.Thread(target=many) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(numbers) == list(range(1, 121))
    backend.close()


def test_a_number_whose_answer_was_lost_is_not_used_again() -> None:
    backend = Faulty(MemoryBackend(), fails_at=1, lost_answer=True)
    with pytest.raises(StoreUnavailable):
        take_process(backend)
    assert take_process(backend.inner) == 2


def parsed(ts: list[int]) -> Parsed:
    table = SeriesTable.from_canonical([form(1)])
    return Parsed(table, np.zeros(len(ts), np.int32), np.array(ts, np.int64), np.ones(len(ts)), rejected=2)


def test_an_accepted_message_carries_what_was_parsed_and_one_stamp() -> None:
    got = Stamper(5, FakeClock(1000)).stamp_message(app=7, source="h", parsed=parsed([1, 2]), message_id=b"i" * 16)
    assert (got.app, got.source, got.stamp, got.message_id, got.rejected) == (7, "h", Stamp(1000, 5, 0), b"i" * 16, 2)
    assert (got.ts.tolist(), got.values.tolist(), got.series_index.tolist()) == ([1, 2], [1.0, 1.0], [0, 0])


@pytest.mark.parametrize(
    ("hours", "taken"), [(MESSAGE_HOURS_MAX, True), (MESSAGE_HOURS_MAX + 1, False)], ids=["the limit", "one over"]
)
def test_a_message_may_touch_so_many_hours(hours: int, taken: bool) -> None:
    body = parsed([h * HOUR_MS * 3 + 1 for h in range(hours)])
    acceptor = Stamper(5, FakeClock())
    if taken:
        assert len(acceptor.stamp_message(app=7, source="h", parsed=body, message_id=b"i" * 16)) == hours
    else:
        with pytest.raises(BadMessage, match="too many hours"):
            acceptor.stamp_message(app=7, source="h", parsed=body, message_id=b"i" * 16)
