"""A text whose shape is cached gets the plan that it has without the cache, with equal positions of its nodes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.errors import BadQuery
from spm.query.promql.planning.plan import Context, Plan
from spm.query.promql.planning.planner import parse, plan_from_template
from spm.query.promql.planning.tree_planner import plan_text
from spm.query.promql.syntax import grammar
from spm.query.promql.syntax.tree import Node
from tests.spm.query.promql.generated import ExpressionMaker

VALUES = (
    "a",
    "h0|h1",
    ".*",
    "",
    "x.+",
    "[",
    "a{2,1}",
    r"\C",
    "é",
    "a'b",
    "`",
    "#",
    "(?i)A",
    "rate",
    "|",
    "=",
    "~",
    " ",
)
_STRING = re.compile(r'"[^"]*"')
TEXTS = r"""
m{a="1"}
{a="1",b!="2"}
m{a = "1"}
m{a='1',b="2"}
m{a="1"} # "2"
label_replace(m{a="1"}, "b", "$1", "a", "(.*)")
absent(m{a="1",b=~"2",a!="3"})
absent_over_time({a="1"}[5m])
info(m{a="1"}, {b=~"2"})
m == "1"
m{a="1"} offset 1m and on (a) n{a="22"}
count_values("v", m{a="1"})
sum by (a) (rate(m{a="1",b=~"2|3"}[5m] @ end()))
m{"a"="1"}
{"m",a="1"}
m{__name__="1"}
{__name__="1"}
m{a="1"
m{a="1"}}
m{a="1",a="1"} > bool 1
m{a=~"1"}[step() : 1m]
topk(2, m{a="1"}) or m{a="1"}
m{a!="1"}
{a!~"1"}
{a=~"1"}
label_replace(m{a="1"}, "b=", "x", "a", "")
"b=" == "c"
m{a='b="1"'}
m{a=`="1"`}
""".strip().splitlines()
NO_CONTEXT = Context()


def judged(text: str, context: Context = NO_CONTEXT, *, alone: bool) -> str:
    """Return the plan with the positions of its nodes, or the error."""
    try:
        return repr(plan_text(text, context) if alone else parse(text, context))
    except BadQuery as error:
        return f"{error} {error.position}"


def from_shape(text: str, context: Context = NO_CONTEXT) -> Plan | None:
    """Return the plan from the cache of shapes."""
    return plan_from_template(text, context)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_with_these_values_have_the_plans_that_they_have_uncached(text: str) -> None:
    for value in VALUES:
        string = f'"{value}"'.replace("\\", r"\\")  # as a pattern's replacement
        for other in (_STRING.sub(string, text, count=1), _STRING.sub(string, text)):
            assert judged(other, alone=False) == judged(other, alone=True)


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(TEXTS), st.lists(st.one_of(st.sampled_from(VALUES), st.text(max_size=4)), min_size=6, max_size=6)
)
def test_texts_of_one_shape_have_the_plans_that_they_have_uncached(text: str, values: list[str]) -> None:
    own = iter(values)
    other = _STRING.sub(lambda match: f'"{next(own)}"' if match.start() else match[0], text)
    for each in (text, other, text):
        assert judged(each, alone=False) == judged(each, alone=True)


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_have_the_plans_that_they_have_uncached(seed: int) -> None:
    maker, rng = ExpressionMaker(np.random.default_rng(seed), modern=True), np.random.default_rng(seed)
    understood = 0
    for _ in range(400):
        text = maker.expression()
        hosts = [f'"h{number}"' for number in rng.integers(0, 2_000, 40)]
        other = re.sub(r'(?<==)"h\d+"', lambda _: hosts.pop(), text)  # noqa: B023  # called at once
        context = Context(1_000, 2_000, 10)
        for each in (text, other):
            assert judged(each, context, alone=False) == judged(each, context, alone=True), each
        understood += from_shape(text, context) is not None
    assert understood > 40


def test_a_text_of_a_cached_shape_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    texts_parsed, parse_tree = list[str](), grammar.parse_tree

    def counted_parse(text: str) -> Node:
        texts_parsed.append(text)
        return parse_tree(text)

    monkeypatch.setattr(grammar, "parse_tree", counted_parse)
    texts = [f'sum by (host) (rate(never_asked_before{{host=~"a{n}|b{n}",job!="x{n}"}}[5m]))' for n in range(10, 99)]
    assert (len({parse(text) for text in texts}), len(texts_parsed)) == (89, 1)


@pytest.mark.parametrize("value", ["a\\.b", "", "é"])
def test_a_value_that_is_no_part_of_a_shape_is_parsed_without_the_cache(value: str) -> None:
    text = f'm{{a=~"{value}"}}'
    assert from_shape(text) is None
    assert judged(text, alone=False) == judged(text, alone=True)


@pytest.mark.parametrize(
    "text",
    [
        "m * 0 + end#\n()",
        "m + START # (\n # ) \r\n\t()",
        "m[step #c\n()]",
        "m offset -Range#\n( # x\n)",
        "m offset min_of(1m, step#\n())",
        'm{a="1"} + end # ="2"\n()',
        "# end\nm[5m:step#\n()]",
    ],
)
def test_plan_knows_its_query_whatever_parts_a_name_from_its_bracket(text: str) -> None:
    for context in (Context(1_000, 9_000, 2_000), Context(3_000, 7_000, 1_000), Context(1_000, 9_000, 2_000)):
        assert judged(text, context, alone=False) == judged(text, context, alone=True)
        assert parse(text, context) != parse(text, Context(0, 60_000, 3_000))
