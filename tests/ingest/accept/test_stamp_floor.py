"""Claims about spm/store/ledger/stamp_floor.py: what is accepted later wins, although a clock was ahead meanwhile."""

import pytest

from ingest.accept.announcer import StampAnnouncer
from spm.clock import FakeClock
from spm.limits import STAMP_AHEAD_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import stamp_floor
from spm.wire import Stamp
from tests.ingest.accept.test_announcer import push
from tests.support.acceptors import silent_announcer
from tests.support.faults import Faulty

AHEAD_MS = 2 * 3_600_000


def place(stamp: Stamp) -> tuple[int, int, int]:
    """What decides which of two messages wins."""
    return stamp.ms, stamp.process, stamp.sequence


def was_ahead(store: MemoryBackend, clock: FakeClock) -> tuple[StampAnnouncer, Stamp]:
    """A process that stamped while its clock was ahead; the clock is right again."""
    announcer = silent_announcer(clock, store)
    push(announcer)
    clock.jump(AHEAD_MS)
    stamp = push(announcer).stamp
    clock.jump(-AHEAD_MS)
    return announcer, stamp


def test_a_correction_through_a_new_process_wins_over_a_stamp_that_was_ahead() -> None:
    store, clock = MemoryBackend(), FakeClock(1_000_000)
    announcer, ahead = was_ahead(store, clock)
    announcer.announce()
    clock.advance(10)
    assert place(push(silent_announcer(clock, store)).stamp) > place(ahead)


def test_a_correction_through_a_running_process_wins_once_it_has_announced() -> None:
    store, clock = MemoryBackend(), FakeClock(1_000_000)
    other = silent_announcer(clock, store)
    push(other)
    announcer, ahead = was_ahead(store, clock)
    announcer.announce()
    other.announce()
    assert place(push(other).stamp) > place(ahead)


def test_of_two_processes_that_stamp_above_the_floor_the_later_one_wins() -> None:
    store, clock = MemoryBackend(), FakeClock(1_000_000)
    one, ahead = was_ahead(store, clock)
    one.announce()
    two = silent_announcer(clock, store)
    stamps = [ahead]
    for announcer in (two, one, two, one, one):
        stamps.append(push(announcer).stamp)
        for each in (announcer, one, two):
            each.announce()
    assert sorted(stamps, key=place) == stamps


def test_a_process_that_was_killed_while_its_clock_was_ahead_loses_to_the_next() -> None:
    store, clock = MemoryBackend(), FakeClock(1_000_000)
    clock.jump(AHEAD_MS)
    announcer = silent_announcer(clock, store)
    ahead = push(announcer).stamp
    announcer.announce()
    clock.jump(-AHEAD_MS)
    assert place(push(silent_announcer(clock, store)).stamp) > place(ahead)


@pytest.mark.parametrize("back_ms", [0, 1, STAMP_AHEAD_MS - 1])
def test_clocks_that_differ_a_little_leave_no_floor(back_ms: int) -> None:
    store, clock = MemoryBackend(), FakeClock(1_000_000)
    announcer = silent_announcer(clock, store)
    push(announcer)
    clock.jump(-back_ms)
    announcer.announce()
    assert stamp_floor.read(store) == 0


def test_the_floor_only_grows() -> None:
    store = MemoryBackend()
    for floor_ms in (5, 9, 7):
        stamp_floor.lift(store, floor_ms)
    assert stamp_floor.read(store) == 9


def test_a_store_that_is_away_stops_no_stamp() -> None:
    inner, clock = MemoryBackend(), FakeClock(1_000_000)
    store = Faulty(inner)
    announcer = StampAnnouncer(store, clock, every_s=None)
    first = push(announcer).stamp
    store.fails_at = len(store.calls)
    announcer.announce()
    assert place(push(announcer).stamp) > place(first)
