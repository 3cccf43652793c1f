"""The account by hour and source, and the gaps in a source's own numbering."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm import limits, message_ids
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.store.ledger.balance_hours import HourBalance, NumberGap, final_before, find_gaps, read_hours
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.watermarks import Announcement
from tests.model.balance_world import DEAD, STORED, World
from tests.support.rows import APP, envelope, stored

NOW = 1_699_300_000_000
LAST = message_ids.NUMBER_MAX
HOUR = NOW // HOUR_MS
Numbered = list[tuple[int, int]]  # (spool, number), in order of acceptance


def seen(numbered: Numbered, *, step_ms: int = 60_000) -> list[HourBalance]:
    """The hours of messages with these numbers, one per minute, all stored."""
    store = MemoryBackend()
    envelopes = [
        envelope(
            [(0, NOW, 1.0)],
            ms=HOUR * HOUR_MS + i * step_ms,
            message_id=message_ids.make(bytes(5) + bytes([spool]), number),
        )
        for i, (spool, number) in enumerate(numbered)
    ]
    stored(*envelopes, backend=store)
    return list(read_hours(store, APP, HOUR, HOUR + 3))


def named(gaps: list[NumberGap]) -> list[tuple[int, int, int]]:
    """(spool, first, last) of gaps."""
    return [(int(gap.spool, 16), gap.first, gap.last) for gap in gaps]


@pytest.mark.parametrize(
    ("numbered", "missing"),
    [
        ([], []),
        ([(1, 5)], []),
        ([(1, 5), (1, 6), (1, 7)], []),
        ([(1, 5), (1, 7)], [(1, 6, 6)]),
        ([(1, 5), (1, 9)], [(1, 6, 8)]),
        ([(1, 9), (1, 5), (1, 7)], [(1, 6, 6), (1, 8, 8)]),
        ([(1, 5), (1, 5), (1, 6)], []),
        ([(1, 1), (2, 9)], []),
        ([(1, 1), (2, 1), (1, 3), (2, 2)], [(1, 2, 2)]),
        ([(1, LAST - 2), (1, LAST)], [(1, LAST - 1, LAST - 1)]),
    ],
    ids=[
        "none",
        "one",
        "a row",
        "one missing",
        "several missing",
        "out of order",
        "sent twice",
        "two spools, each new",
        "two spools mixed",
        "the greatest numbers",
    ],
)
def test_numbers_between_the_first_and_the_last_that_never_came_are_gaps(
    numbered: Numbered, missing: list[tuple[int, int, int]]
) -> None:
    assert named(list(find_gaps(seen(numbered)))) == missing


@given(st.sets(st.integers(1, 60), min_size=1), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_gaps_are_the_complement_in_any_order_and_over_hours(present: set[int], seed: int) -> None:
    order = sorted(present)
    random.Random(seed).shuffle(order)
    result = find_gaps(seen([(1, number) for number in order], step_ms=3 * 60_000))
    missing = {number for gap in result for number in range(gap.first, gap.last + 1)}
    assert missing == set(range(min(present), max(present))) - present


def test_a_gap_says_between_which_stamps_its_messages_were_expected() -> None:
    [gap] = find_gaps(seen([(1, 1), (1, 2), (1, 5)]))
    start = HOUR * HOUR_MS
    assert (gap.source, gap.count, gap.after_ms, gap.before_ms) == ("host", 2, start + 60_000, start + 120_000)


def test_ids_that_are_no_numbers_are_in_no_gap() -> None:
    store = MemoryBackend()
    ids = [b"\0SEQ"[:3] + b"x" * 13, bytes(16), b"m" * 16]
    stored(*[envelope([(0, NOW, 1.0)], ms=NOW + i, message_id=name) for i, name in enumerate(ids)], backend=store)
    [result] = read_hours(store, APP, HOUR, HOUR)
    assert (result.runs, result.messages.tolist()) == ((), [3])


def test_runs_beyond_the_limit_are_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BALANCE_RUNS_MAX", 2)
    result = seen([(1, 1), (2, 1), (3, 1)])
    assert (result[0].runs_cut, result[0].runs) == (True, ())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_hours_of_a_random_history_add_up_to_the_settled_samples(seed: int) -> None:
    world = World(random.Random(seed))
    world.ACTS = {**World.ACTS, "redeliver": 0}  # rows know of a late delivery, marks that have passed do not
    for _ in range(50):
        world.act()
    first, last = NOW // HOUR_MS, world.clock.now_ms() // HOUR_MS
    wanted: Counter[tuple[int, str, str]] = Counter()
    for message in world.messages:
        if message.place in (STORED, DEAD):
            wanted[message.envelope.stamp.ms // HOUR_MS, message.envelope.source, message.place] += len(
                message.envelope
            )
    got: Counter[tuple[int, str, str]] = Counter()
    for hour in read_hours(world.store, APP, first, last, CommitCellCache()):
        for i, source in enumerate(hour.sources):
            got[hour.number, source, STORED] += int(hour.stored[i])
            got[hour.number, source, DEAD] += int(hour.dead[i])
    assert +got == +wanted


def test_a_stretch_is_read_at_once_whatever_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BALANCE_STRETCH_HOURS", 1)
    one = [hour.messages.tolist() for hour in seen([(1, i) for i in range(1, 130)])]
    monkeypatch.setattr(limits, "BALANCE_STRETCH_HOURS", 24)
    assert [hour.messages.tolist() for hour in seen([(1, i) for i in range(1, 130)])] == one == [[60], [60], [9], []]


def test_hours_are_final_below_the_oldest_lagging_watermark() -> None:
    store, clock = MemoryBackend(), FakeClock(NOW)
    assert final_before({}, NOW) == (NOW - limits.BALANCE_SLACK_MS) // HOUR_MS
    word = Announcement(NOW - 5 * HOUR_MS, 0, 1, 1, 0, 0, 0, clock.now_ms())
    watermarks.announce(store, APP, 1, word)
    assert final_before(watermarks.read(store, APP), NOW) == (NOW - 5 * HOUR_MS) // HOUR_MS
