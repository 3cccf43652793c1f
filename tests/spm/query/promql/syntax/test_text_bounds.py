"""Claims about the bounds of a query's text: no text reaches the parser that would take it long or end the process."""

from __future__ import annotations

import contextlib

import hypothesis
import pytest
from hypothesis import strategies as st

from spm import limits
from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse
from spm.query.promql.syntax import text_bounds

OVER_A_LIMIT = {
    "long text": "x" * (limits.QUERY_TEXT_CHARS_MAX + 1),
    "chained operators": "x" + "+x" * (limits.QUERY_OPERATORS_MAX + 1),
    "chained word operators": "x" + " or x" * (limits.QUERY_OPERATORS_MAX + 1),
    "chained signs": "-" * (limits.QUERY_OPERATORS_MAX + 1) + "x",
    "nested parentheses": "(" * (limits.QUERY_DEPTH_MAX + 1) + "x" + ")" * (limits.QUERY_DEPTH_MAX + 1),
    "nested calls": "abs(" * (limits.QUERY_DEPTH_MAX + 1) + "x" + ")" * (limits.QUERY_DEPTH_MAX + 1),
    "operators after an open string": "'a' + x" * 202,
}
AT_THE_LIMITS = {
    "chained operators": "x" + "+x" * limits.QUERY_OPERATORS_MAX,
    "nested parentheses": "(" * limits.QUERY_DEPTH_MAX + "x" + ")" * limits.QUERY_DEPTH_MAX,
    "operators in a string": 'x{a="' + "+" * (limits.QUERY_OPERATORS_MAX + 9) + '"}',
    "operators in a comment": "x # " + "+" * (limits.QUERY_OPERATORS_MAX + 9),
    "brackets in a string": "x{a='" + "(" * (limits.QUERY_DEPTH_MAX + 9) + "'}",
    "many matchers": "x{" + ",".join(f'l{i}="v"' for i in range(limits.QUERY_OPERATORS_MAX + 9)) + "}",
    "escaped quotes": 'x{a="\\"+\\""}',
    "signs and parentheses together": "-" * 130 + "(" * 60 + "-" * 70 + "x" + ")" * 60,
}


@pytest.mark.parametrize("text", OVER_A_LIMIT.values(), ids=OVER_A_LIMIT.keys())
def test_a_text_one_over_a_limit_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        text_bounds.check(text)


@pytest.mark.parametrize("text", AT_THE_LIMITS.values(), ids=AT_THE_LIMITS.keys())
def test_a_text_at_the_limits_is_parsed(text: str) -> None:
    parse(text)


@hypothesis.settings(max_examples=500, deadline=1_000)
@hypothesis.given(st.text(alphabet="x1 +-*/()[]{}\"'`#\\\n=~!<>,", max_size=400))
def test_any_text_is_parsed_or_refused_with_bad_query(text: str) -> None:
    with contextlib.suppress(BadQuery):
        parse(text)


@pytest.mark.parametrize("operator", ["and", "OR", "Unless", "atan2", "==", "=~", "^", "%"])
def test_every_operator_counts(operator: str) -> None:
    """The quick check for small texts never counts too few operators."""
    most = limits.QUERY_OPERATORS_MAX
    text_bounds.check(f"x {operator} " * most)
    with pytest.raises(BadQuery, match=f"more than {most} operators"):
        text_bounds.check(f"x {operator} " * (most + 1))


@pytest.mark.parametrize("brackets", ["()", "[]", "{}"])
def test_every_bracket_counts(brackets: str) -> None:
    with pytest.raises(BadQuery, match=f"deeper than {limits.QUERY_DEPTH_MAX}"):
        text_bounds.check(brackets[0] * (limits.QUERY_DEPTH_MAX + 1) + brackets[1])


def test_a_string_without_an_end_is_scanned_once() -> None:
    text_bounds.check('"' + '\\"' * (limits.QUERY_TEXT_CHARS_MAX // 2 - 1))
