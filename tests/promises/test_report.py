"""Claims about the table of ``--seeds``: each row, its tests, what they compare and what they measured."""

import pytest

from tests.promises.report import Shown, table, wanted_rows
from tests.promises.rows import ROWS


def test_every_promise_has_its_row() -> None:
    kinds = {"A": 35, "HUT": 13, "WD": 7}
    assert {f"{kind}{n}" for kind, most in kinds.items() for n in range(1, most + 1)} == set(ROWS)


def test_rows_are_named_one_by_one_or_all_at_once() -> None:
    assert wanted_rows(None) is None
    assert wanted_rows("a12,HUT3") == ["A12", "HUT3"]
    assert wanted_rows("all") == list(ROWS)


def test_a_row_that_is_none_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="A99"):
        wanted_rows("A1,A99")


def test_the_table_shows_the_worst_of_the_cases_and_each_figure_once() -> None:
    shown = Shown("A12", "tests/x.py::test_it", "this with that", {"a": "passed", "b": "failed"}, ["3 lost", "3 lost"])
    lines = "\n".join(table(["A12", "A13"], [shown]))
    assert "failed  tests/x.py::test_it × 2" in lines
    assert "compares this with that" in lines
    assert lines.count("3 lost") == 1
    assert "no test yet" in lines
    assert "1 of 2 rows have a test; failing: A12" in lines
