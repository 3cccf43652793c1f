"""Episodes follow what judging says now, and keep their identity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.judging.reconciliation import EpisodeStatus, Span, Stretch, reconcile

OPEN, ENDED, VOID, MERGED = EpisodeStatus
Known = tuple[int, int, int | None, EpisodeStatus]
TABLE: dict[str, tuple[list[Known], list[tuple[int, int | None]], list[Known]]] = {
    "a new stretch is a new episode": ([], [(10, None)], [(0, 10, None, OPEN)]),
    "an episode ends": ([(1, 10, None, OPEN)], [(10, 40)], [(1, 10, 40, ENDED)]),
    "an episode that stays is not written": ([(1, 10, None, OPEN)], [(10, None)], []),
    "late data moves a start": ([(1, 20, None, OPEN)], [(10, None)], [(1, 10, None, OPEN)]),
    "what never was is void": ([(1, 20, 40, ENDED)], [], [(1, 20, 40, VOID)]),
    "an open one that never was ends where judging was": ([(1, 20, None, OPEN)], [], [(1, 20, 100, VOID)]),
    "two that became one": (
        [(1, 10, 30, ENDED), (2, 50, None, OPEN)],
        [(10, None)],
        [(1, 10, 30, MERGED), (2, 10, None, OPEN)],
    ),
    "one that became two": ([(1, 10, 90, ENDED)], [(10, 30), (60, 90)], [(1, 60, 90, ENDED), (0, 10, 30, ENDED)]),
    "a void one is real again": ([(1, 20, 40, VOID)], [(20, 40)], [(1, 20, 40, ENDED)]),
    "not void before void": (
        [(1, 10, 60, VOID), (2, 20, 50, ENDED)],
        [(20, 60)],
        [(2, 20, 60, ENDED), (1, 10, 60, MERGED)],
    ),
    "touching is overlap": ([(1, 10, 30, ENDED)], [(30, None)], [(1, 30, None, OPEN)]),
    "what ended before the steps is left alone": ([(1, 0, 5, ENDED)], [], []),
}


def changes(known: list[Known], stretches: list[tuple[int, int | None]], after_ms: int = 5) -> set[Known]:
    spans = [Span(number, start, end, status) for number, start, end, status in known]
    changed = reconcile(spans, [Stretch(*each) for each in stretches], after_ms=after_ms, position_ms=100)
    return {(each.id or 0, each.start_ms, each.end_ms, each.status) for each in changed}


@pytest.mark.parametrize(("known", "stretches", "expected"), TABLE.values(), ids=TABLE.keys())
def test_episodes_follow_the_stretches(
    known: list[Known], stretches: list[tuple[int, int | None]], expected: list[Known]
) -> None:
    assert changes(known, stretches) == set(expected)


BORDERS = st.lists(st.integers(1, 30), unique=True, max_size=8).map(sorted)


@given(BORDERS, BORDERS)
def test_a_second_reconciliation_changes_nothing_and_episodes_equal_stretches(old: list[int], new: list[int]) -> None:
    known: dict[int, Known] = {}
    for borders in (old, new, new):
        stretches = [(a, borders[i + 1] if i + 1 < len(borders) else None) for i, a in enumerate(borders) if i % 2 == 0]
        fresh = changes(list(known.values()), stretches, after_ms=0)
        number = len(known)
        for id_, *rest in sorted(fresh, key=lambda each: each[1]):
            number += not id_
            known[id_ or number] = (id_ or number, *rest)  # type: ignore[assignment]
        real = sorted((s, e or 99) for _, s, e, status in known.values() if status in (OPEN, ENDED))
        assert real == sorted((s, e or 99) for s, e in stretches)
    assert not fresh
