"""Formatted expressions keep their meaning and look as Prometheus formats them."""

import pytest

from spm.query.formats import promql_format

FORMATTED = {
    "sum(x)by(a,b)": "sum by (a, b) (x)",
    "sum without () (x)": "sum without () (x)",
    "topk(3,rate(x{a='b'}[90s]))": 'topk(3, rate(x{a="b"}[1m30s]))',
    "a+on(x)group_left(y)b": "a + on (x) group_left (y) b",
    "a>bool 1e3": "a > bool 1000",
    "x offset -1d @ end()": "x @ end() offset -1d",
    "max_over_time(x[1h:5m] @ 4)": "max_over_time(x[1h:5m] @ 4.000)",
    "-(x^2)": "-(x ^ 2)",
    '{"a.b","c d"="e"}': '{"a.b","c d"="e"}',
    'label_replace(x,"a","$1","b","(.*)\\n")': 'label_replace(x, "a", "$1", "b", "(.*)\\n")',
    "x[7d]": "x[1w]",
    "x[2*step()]": "x[2s * step()]",
}


@pytest.mark.parametrize(("text", "written"), FORMATTED.items())
def test_expression_is_written_in_one_form_that_stays(text: str, written: str) -> None:
    assert promql_format.format_expression(text) == written


@pytest.mark.parametrize("text", list(FORMATTED))
def test_expression_written_out_has_the_same_tree(text: str) -> None:
    assert promql_format.tree_json(promql_format.format_expression(text)) == promql_format.tree_json(text)


def test_long_expression_is_broken_at_its_parts() -> None:
    text = "sum by (host) (rate(" + "a" * 60 + "[5m])) / on (host) sum by (host) (rate(" + "b" * 60 + "[5m]))"
    lines = promql_format.format_expression(text).splitlines()
    assert (len(lines), lines[1]) == (3, "/ on (host)")
    assert promql_format.tree_json(promql_format.format_expression(text)) == promql_format.tree_json(text)


def test_tree_says_how_sides_are_matched() -> None:
    tree = promql_format.tree_json("a * on (x) group_left (y) b")
    assert tree["matching"]["card"] == "many-to-one"
    assert (tree["matching"]["labels"], tree["matching"]["on"], tree["matching"]["include"]) == (["x"], True, ["y"])
    assert promql_format.tree_json("a * 2")["matching"] is None
    assert promql_format.tree_json("a and b")["matching"]["card"] == "many-to-many"


@pytest.mark.parametrize(
    ("text", "name", "op"),
    [
        ("x[2*step()]", "range", "*"),
        ("x offset -step()", "offset", "*"),
        ("x[5m:min_of(1m,step())]", "step", "min_of"),
        ("x[range():1m]", "range", "range"),
    ],
)
def test_tree_has_numbers_for_durations_and_says_beside_them_how_they_are_computed(
    text: str, name: str, op: str
) -> None:
    tree = promql_format.tree_json(text)
    assert (tree[name], tree[f"{name}Expr"]["op"]) == (0, op)
    assert promql_format.tree_json("x[5m:1m] offset 1h")[f"{name}Expr"] is None


def test_tree_says_of_each_selector_whether_it_is_anchored_or_smoothed() -> None:
    texts = ("x[5m]", "x[5m] anchored", "x smoothed")
    modes = [(tree["anchored"], tree["smoothed"]) for tree in map(promql_format.tree_json, texts)]
    assert modes == [(False, False), (True, False), (False, True)]
