"""Every pair of a last word and a level has its line, and telling it makes the receiver believe what is true."""

import pytest

from alerts.telling.decide.difference import after_delivery, difference
from alerts.telling.decide.episodes import LastWord, Level, LineKind

N, P, E, V = Level.NOTHING, Level.OPEN, Level.ENDED, Level.VOID
TABLE = {
    (N, P): LineKind.FIRING,
    (N, E): LineKind.BRIEF,
    (N, V): None,
    (P, P): None,
    (P, E): LineKind.RESOLVED,
    (P, V): LineKind.RETRACTED,
    (E, P): LineKind.REOPENED,
    (E, E): None,
    (E, V): LineKind.RETRACTED,
    (V, P): LineKind.REINSTATED,
    (V, E): LineKind.REINSTATED,
    (V, V): None,
}


@pytest.mark.parametrize(("pair", "line"), TABLE.items())
def test_each_last_word_and_level_has_its_line(pair: tuple[Level, Level], line: LineKind | None) -> None:
    assert difference(LastWord(pair[0]), pair[1]) is line


@pytest.mark.parametrize(("level", "line"), [(P, LineKind.FIRING), (E, LineKind.RESOLVED), (V, LineKind.RETRACTED)])
def test_a_word_in_doubt_is_said_again(level: Level, line: LineKind) -> None:
    assert difference(LastWord(level, doubtful=True), level) is line


def test_the_end_of_a_word_in_doubt_is_told_as_of_any_other() -> None:
    assert difference(LastWord(P, doubtful=True), E) is LineKind.RESOLVED


@pytest.mark.parametrize("pair", [pair for pair, line in TABLE.items() if line])
def test_after_a_line_that_arrived_there_is_no_difference(pair: tuple[Level, Level]) -> None:
    word = after_delivery(pair[1], LastWord(pair[0]), arrived=True, perhaps=False)
    assert difference(word, pair[1]) is None


@pytest.mark.parametrize("before", [LastWord(N), LastWord(P), LastWord(E, doubtful=True)])
def test_what_surely_did_not_arrive_changes_no_last_word(before: LastWord) -> None:
    assert after_delivery(E, before, arrived=False, perhaps=False) == before


def test_what_perhaps_arrived_is_a_word_in_doubt() -> None:
    assert after_delivery(P, LastWord(N), arrived=False, perhaps=True) == LastWord(P, doubtful=True)
