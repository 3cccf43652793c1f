"""Every row is new once, in whatever order transactions end, if none takes longer than the time for gaps."""

from hypothesis import given
from hypothesis import strategies as st

from frontend.events.row_numbers import RowNumbers
from spm.limits import EVENTS_GAP_S, EVENTS_GAPS_MAX


def look(numbers: RowNumbers, visible: set[int], now_s: float) -> list[int]:
    """What a query for new rows returns; they are noted."""
    gaps = set(numbers.gaps)
    new = sorted(row for row in visible if row > numbers.highest or row in gaps)
    numbers.note(new, now_s)
    return new


@given(st.permutations(range(1, 30)), st.lists(st.integers(0, 4), max_size=40), st.integers(0, 10))
def test_row_is_new_once_in_whatever_order_transactions_end(order: list[int], pieces: list[int], before: int) -> None:
    visible = set(order[:before])
    numbers, received = RowNumbers(sorted(visible), 0.0), list[int]()
    settled = [numbers.settled]
    pending = order[before:]
    for count in pieces:
        visible |= set(pending[:count])
        pending = pending[count:]
        received += look(numbers, visible, 1.0)
        settled.append(numbers.settled)
        assert visible >= set(range(1, numbers.settled + 1))
    assert sorted(received) == sorted(visible - set(order[:before]))
    assert settled == sorted(settled)


def test_missing_number_is_given_up_after_a_while() -> None:
    numbers = RowNumbers([*range(1, 8)], 0.0)
    assert look(numbers, {7, 10}, 0.0) == [10]
    assert (numbers.gaps, numbers.settled) == ([8, 9], 7)
    assert look(numbers, {7, 10, 9}, EVENTS_GAP_S - 1) == [9]
    assert look(numbers, {7, 10, 9}, EVENTS_GAP_S) == []
    assert (numbers.gaps, numbers.settled) == ([], 10)


def test_numbers_that_a_database_leaves_out_cost_a_bounded_search() -> None:
    numbers = RowNumbers([1], 0.0)
    for number in range(10_000, 60_000, 10_000):
        look(numbers, {number}, 0.0)
        assert len(numbers.gaps) == EVENTS_GAPS_MAX
    assert numbers.gaps[-1] == 49_999
