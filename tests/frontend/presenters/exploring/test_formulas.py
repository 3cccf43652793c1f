"""Formulas of a chart's queries: texts with other texts in them."""

from typing import Any

import pytest

from frontend.presenters.exploring.formulas import expand_formulas
from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse


def expanded(*formulas: str, **queries: str) -> dict[str, str | BadQuery]:
    """Expand formulas C, D … of the queries."""
    rows: list[dict[str, Any]] = [{"name": name, "expr": text} for name, text in queries.items()]
    rows += [{"name": name, "expr": text, "formula": True} for name, text in zip("CDEFGH", formulas, strict=False)]
    return expand_formulas(rows)


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        ("A / B", "(x + 1) / (y)"),
        ("100 * A / (A + B)", "100 * (x + 1) / ((x + 1) + (y))"),
        ("A{a='b'} + B[5m:1m]", None),
        ("sum(A) by (B)", "sum((x + 1)) by (B)"),
        ("rate(A[5m])", "rate(A[5m])"),
        ('label_replace(A, "B", "A", "", "")', 'label_replace((x + 1), "B", "A", "", "")'),
        ("Z * A", "Z * (x + 1)"),
    ],
)
def test_a_name_that_stands_alone_is_the_query_of_that_name(formula: str, same: str | None) -> None:
    result = expanded(formula, A="x + 1 # why", B="y")["C"]
    if same is None:
        assert result == "A{a='b'} + (y\n)[5m:1m]"
    else:
        assert isinstance(result, str)
        assert parse(result.replace("\n", " ").replace("# why ", "")) == parse(same)


def test_variables_stay_where_they_are() -> None:
    assert expanded("A", A="rate(x[$__rate_interval])")["C"] == "(rate(x[$__rate_interval])\n)"
    assert expanded("avg_over_time(x[$window]) / A", A="y")["C"] == "avg_over_time(x[$window]) / (y\n)"


def test_formulas_use_formulas_in_any_order_but_not_themselves() -> None:
    rows = expanded("D + 1", "A * 2", "F", "E", "E", A="x")
    assert rows["C"] == "((x\n) * 2\n) + 1"
    assert all("uses it again" in str(rows[name]) for name in "EFG")
    assert rows["A"] == "x"


def test_formulas_that_double_each_other_have_a_bound() -> None:
    names = [f"N{at}" for at in range(40)]
    rows: list[dict[str, Any]] = [{"name": "N", "expr": "x"}]
    rows += [{"name": name, "expr": f"{used} + {used}", "formula": True}
             for name, used in zip(names, ["N", *names], strict=False)]  # fmt: skip
    result = expand_formulas(rows)
    assert isinstance(result["N3"], str)
    assert isinstance(result["N39"], BadQuery)


def test_a_formula_that_cannot_be_parsed_says_so() -> None:
    assert "parse error" in str(expanded("A /", A="x")["C"])
