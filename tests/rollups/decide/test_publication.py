"""Claims about an hour shard's entry after it is published: its order, stamps and sources (PROTOCOL 14, 16)."""

import pytest

from rollups.decide.publication import EntryChange, entry_after
from spm.store.manifest import Entry, Generation, PreviousState, Replay, State, day_fingerprint
from tests.model.world import START, World

OLD, NEW, OTHER = Generation(1), Generation(2), Generation(3)
ENTRY = Entry(State((OLD,), (Replay(5, 7),)), (), 20, 30, ("b",))


def change(replaced: tuple[Generation, ...] = (), *, stamps: tuple[int, int] = (40, 50)) -> EntryChange:
    return EntryChange(3, 4, NEW, replaced, (Replay(5, 7),), *stamps, ("a",))


def test_what_a_minor_run_adds_is_the_newest_generation_and_a_full_merge_the_oldest() -> None:
    """Beside a full merge may stand what a minor run has added since it was planned: that is newer."""
    assert entry_after(ENTRY, change(), 9).state.generations == (OLD, NEW)
    both = Entry(State((OLD, OTHER), ()), (), 20, 30, ("b",))
    assert entry_after(both, change((OLD,)), 9).state.generations == (NEW, OTHER)


@pytest.mark.parametrize(
    ("stamps", "wanted"),
    [((40, 50), (20, 50)), ((1, 2), (1, 30)), ((25, 26), (20, 30)), ((0, 0), (20, 30))],
    ids=["newer", "older", "within", "nothing that has a stamp"],
)
def test_an_entry_covers_the_stamps_of_all_that_it_holds(stamps: tuple[int, int], wanted: tuple[int, int]) -> None:
    """By these a retraction is found to reach it: narrower, and what is taken out would stay in its hours."""
    after = entry_after(ENTRY, change(stamps=stamps), 9)
    assert (after.stamp_min_ms, after.stamp_max_ms) == wanted


def test_an_entry_names_the_sources_of_all_that_it_holds_and_keeps_its_former_state_whole() -> None:
    after = entry_after(ENTRY, change(), 9)
    assert after.sources == ("a", "b")
    assert after.state.replay == ()
    assert after.history == (PreviousState(9, ENTRY.state),)


def test_what_an_older_write_brought_is_deleted_for_good_from_a_unit_that_newer_ones_joined() -> None:
    world = World()
    world.send((0, 1, 1.0), source="wrong")
    then = world.clock.now_ms()
    world.roll(minor=True, now_ms=START)
    world.clock.advance(60_000)
    world.send((0, 2, 2.0))
    world.roll(minor=True, now_ms=START)
    number = world.retract(write_to=then)
    world.erase_retracted(number)
    assert world.answer() == world.truth == {(0, START + 2): 2.0}
    assert {e.stamp_min_ms > then for e in world.manifest().entries.values()} == {True}


def test_the_fingerprint_of_a_day_tells_the_same_data_of_another_hour_apart() -> None:
    mark = b"8 bytes!"
    assert day_fingerprint([(1, mark)]) != day_fingerprint([(2, mark)])
    assert day_fingerprint([(2, mark), (1, mark)]) == day_fingerprint([(1, mark), (2, mark)])
    assert day_fingerprint([(1, mark), (2, b"")]) == day_fingerprint([(1, mark)]), "an hour without data"
