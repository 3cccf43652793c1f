"""Claims about spm/web/byte_budget.py: what is held is bounded, and nobody takes all of it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import QueueUnavailable
from spm.web.byte_budget import ByteBudget

TOTAL, OF_KEY = 1_000, 600


def budget() -> ByteBudget:
    return ByteBudget("bodies", total_max=TOTAL, per_key_max=OF_KEY)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 700), st.booleans()), max_size=60))
def test_no_order_of_requests_passes_a_bound_or_forgets_a_byte(acts: list[tuple[int, int, bool]]) -> None:
    bytes_, sizes, taken = budget(), Counter[int](), list[tuple[int, int]]()
    for key, size, ends in acts:
        if ends and taken:
            before = taken.pop(size % len(taken))
            bytes_.remove(*before)
            sizes[before[0]] -= before[1]
            continue
        try:
            bytes_.add(key, size)
        except QueueUnavailable:
            assert sizes[key] + size > min(OF_KEY, TOTAL - sizes.total())
            continue
        taken.append((key, size))
        sizes[key] += size
        assert sizes.total() == bytes_.total <= TOTAL
        assert sizes[key] <= OF_KEY
    for key, size in taken:
        bytes_.remove(key, size)
    assert (bytes_.total, dict(bytes_._by_key)) == (0, {})


def test_however_much_some_hold_the_next_one_has_room() -> None:
    bytes_, largest = budget(), []
    for key in range(5):
        largest.append(0)
        while True:
            try:
                bytes_.add(key, 1)
            except QueueUnavailable:
                break
            largest[-1] += 1
    assert largest == [500, 250, 125, 63, 31]


def test_an_error_says_what_is_full_and_how_much_there_is() -> None:
    with pytest.raises(QueueUnavailable, match="bodies fill their room: 0 bytes of one user are held, of at most 600"):
        budget().add(1, 601)
