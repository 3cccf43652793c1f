"""Claims about the table of ``--seeds``: each row, its tests, what they compare and what they measured."""

from pathlib import Path

import pytest

from tests.promises.report import SeedTest, read_long_forms, table, wanted_rows, write_long_forms
from tests.promises.rows import ROWS


def test_every_promise_has_its_row() -> None:
    kinds = {"A": 38, "HUT": 13, "WD": 7}
    wanted = {f"{kind}{n}" for kind, most in kinds.items() for n in range(1, most + 1)}
    assert wanted | {"A41", "A42", "A43"} == set(ROWS)


def test_rows_are_named_one_by_one_or_all_at_once() -> None:
    assert wanted_rows(None) is None
    assert wanted_rows("a12,HUT3") == ["A12", "HUT3"]
    assert wanted_rows("all") == list(ROWS)


def test_a_row_that_is_none_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="A99"):
        wanted_rows("A1,A99")


def test_the_table_shows_the_worst_of_the_cases_and_each_figure_once() -> None:
    cases = {"a": "passed", "b": "failed"}
    test = SeedTest("A12", "tests/x.py::test_it", "this with that", cases, ["3 lost", "3 lost"])
    lines = "\n".join(table(["A12", "A13"], [test]))
    assert "failed  tests/x.py::test_it × 2" in lines
    assert "compares this with that" in lines
    assert lines.count("3 lost") == 1
    assert "no test yet" in lines
    assert "1 of 2 rows have a test; failing: A12" in lines


def _report(case: str, figure: str, seconds: float = 90.0) -> pytest.TestReport:
    where = ("x.py", 1, "test_it")
    return pytest.TestReport(
        case, where, {}, "passed", None, "call", duration=seconds, user_properties=[("figure", figure)]
    )


def test_the_table_shows_the_last_figure_of_a_long_form_and_its_day(tmp_path: Path) -> None:
    path, case = tmp_path / "long_forms.json", "tests/x.py::test_it[many]"
    write_long_forms([_report(case, "7 lost")], today="2026-01-02", path=path)
    write_long_forms([_report(case, "0 lost"), _report("tests/x.py::other", "5")], today="2026-02-03", path=path)
    test = SeedTest(
        "A12", "tests/x.py::test_it", "this with that", {"a": "passed"}, [], [case, "tests/x.py::test_it[new]"]
    )
    lines = list(table(["A12"], [test], read_long_forms(path)))
    assert "         long    test_it[many]: passed on 2026-02-03 in 1.5 minutes: 0 lost" in lines
    assert "         long    test_it[new]: no run is on record" in lines


def test_a_row_shown_by_a_long_form_alone_does_not_fail(tmp_path: Path) -> None:
    test = SeedTest("A3", "tests/x.py::test_it", "this with that", {}, [], ["tests/x.py::test_it"])
    lines = "\n".join(table(["A3"], [test], read_long_forms(tmp_path / "none.json")))
    assert "1 of 1 rows have a test; failing: none" in lines


def test_a_run_without_long_forms_leaves_the_record_alone(tmp_path: Path) -> None:
    write_long_forms([], today="2026-01-02", path=tmp_path / "long_forms.json")
    assert not (tmp_path / "long_forms.json").exists()
