"""The grammar and `promql-parser`, written in Rust, accept equal texts and give them equal structure.

Texts that both know: what Prometheus added since (arithmetic of durations, `anchored` and `smoothed`) is left out, and
so is what either refuses by design. Structure is compared as one line per tree: operators, calls, selectors, numbers.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import promql_parser
import pytest

from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse
from spm.query.promql.syntax import tree as syntax_tree
from spm.query.promql.syntax.grammar import parse_tree
from tests.spm.query.promql.generated import ExpressionMaker

_ONLY_HERE = ("anchored", "smoothed", "2m + 30s", "2 * step()", "max_of(", "min_of(", "fill (")
_SIGNS = {"Sub": "-", "Add": "+"}


def written(node: Any) -> str:
    """Write a tree of this grammar as one line."""
    match node:
        case syntax_tree.NumberLiteral(value):
            return f"{value:g}"
        case syntax_tree.StringLiteral(value):
            return repr(value)
        case syntax_tree.Parenthesis(inner):
            return written(inner)
        case syntax_tree.UnaryExpression(op, inner):
            return f"-({written(inner)})" if op == "-" else written(inner)
        case syntax_tree.BinaryExpression(op, left, right):
            return f"({written(left)} {op} {written(right)})"
        case syntax_tree.AggregateExpression(op, arguments, grouping, labels):
            return f"{op} {grouping}{sorted(labels)} ({', '.join(map(written, arguments))})"
        case syntax_tree.Call(name, arguments):
            return f"{name}({', '.join(map(written, arguments))})"
        case syntax_tree.Subquery(inner, duration, step, _, time):
            return f"{written(inner)}[{_ms(duration)}:{'' if step is None else _ms(step)}]{_time(time)}"
        case syntax_tree.SelectorExpression(name, matchers, _, time, duration):
            texts = sorted((m.name, m.op, m.value) for m in matchers)
            return f"{name or ''}{texts}{'' if duration is None else f'[{_ms(duration)}]'}{_time(time)}"
    raise AssertionError(node)


def _ms(span: syntax_tree.DurationExpression) -> int:
    assert isinstance(span, syntax_tree.NumberLiteral)
    return round(span.value * 1000)


def _time(time: syntax_tree.TimeModifiers) -> str:
    offset = 0 if time.offset is None else _ms(time.offset)
    at = round(time.at * 1000) if isinstance(time.at, float) else time.at
    return f" @ {at} offset {offset}"


_OPS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


def written_there(node: Any) -> str:
    """Write a tree of promql-parser in that form."""
    kind = type(node).__name__
    if kind == "NumberLiteral":
        return f"{node.val:g}"
    if kind == "StringLiteral":
        return repr(node.val)
    if kind == "ParenExpr":
        return written_there(node.expr)
    if kind == "UnaryExpr":
        return f"-({written_there(node.expr)})"
    if kind == "BinaryExpr":
        return f"({written_there(node.lhs)} {node.op} {written_there(node.rhs)})"
    if kind == "AggregateExpr":
        arguments = [*([] if node.param is None else [node.param]), node.expr]
        without = node.modifier is not None and node.modifier.type == promql_parser.AggModifierType.Without
        grouping = "" if node.modifier is None else "without" if without else "by"
        labels = [] if node.modifier is None else sorted(node.modifier.labels)
        return f"{node.op} {grouping}{labels} ({', '.join(map(written_there, arguments))})"
    if kind == "Call":
        return f"{node.func.name}({', '.join(map(written_there, node.args))})"
    if kind == "SubqueryExpr":
        step = "" if node.step is None else _milliseconds(node.step)
        return f"{written_there(node.expr)}[{_milliseconds(node.range)}:{step}]{_when_there(node)}"
    vector = node.vector_selector if kind == "MatrixSelector" else node
    matchers = sorted((m.name, _OPS[str(m.op)], m.value) for m in vector.matchers.matchers)
    span = f"[{_milliseconds(node.range)}]" if kind == "MatrixSelector" else ""
    return f"{vector.name or ''}{matchers}{span}{_when_there(vector)}"


def _milliseconds(span: datetime.timedelta) -> int:
    return span // datetime.timedelta(milliseconds=1)


def _when_there(node: Any) -> str:
    at: object = None
    if node.at is not None and node.at.at is None:
        at = str(node.at.type).rpartition(".")[2].lower()
    elif node.at is not None:
        at = _milliseconds(node.at.at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    return f" @ {at} offset {0 if node.offset is None else _milliseconds(node.offset)}"


@pytest.mark.slow
def test_trees_are_those_of_promql_parser() -> None:
    maker = ExpressionMaker(np.random.default_rng(3), True)
    count = 0
    while count < 2_000:
        text = maker.expression()
        if any(word in text for word in _ONLY_HERE):
            continue
        count += 1
        assert written(parse_tree(text)) == written_there(promql_parser.parse(text)), text


REFUSED_BY_BOTH = """
sum(x | x{a=} | x{a"b"} | x{a=b} | rate(x) | foo(x) | x[5m | x[ | x + | + | 1 > 2 | x[5m][5m] | (x) offset 5m
{} | {a=~".*"} | x offset | x @ | x @ foo | x offset 5m offset 5m | sum by x
sum by (a x | abs(1) | abs() | "a" + 1 | x and 1 | 1 or x
x == bool | bool x | x[5m] + 1 | -"a" | x{a="b | 'x | `x | 5m5 | 1x | x[0s] | topk(x) | sum() | x on (a) y | x + on y
x * group_left () y | x and on (a) group_left () y | x + bool y | label_replace(x, "a") | time(1) | x,y
x} | (x | x) | ()
""".replace("\n", " | ")


@pytest.mark.parametrize("text", [text.strip() for text in REFUSED_BY_BOTH.split(" | ") if text.strip()])
def test_both_grammars_refuse_texts_that_are_no_expressions(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse(text)
    with pytest.raises(BadQuery, match=r"^1:\d+: parse error: .+"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum(x", "1:6: parse error: unexpected end of input in aggregation 'sum', expected ',' or ')'"),
        ("sum(x,)", "1:6: parse error: trailing commas not allowed in aggregation 'sum'"),
        ("x{a=}", "1:5: parse error: unexpected sign '}' in label matching, expected string"),
        ("x{a}", "1:4: parse error: unexpected sign '}' in label matching, expected one of = != =~ !~"),
        ("x{a='b' c}", "1:9: parse error: unexpected name 'c' in label matching, expected ',' or '}'"),
        ("x y", "1:3: parse error: unexpected name 'y' in expression, expected an operator or the end"),
        ("x +\n  )", "2:3: parse error: unexpected sign ')' in expression, expected a selector, number, string,"),
        ("x[5m", "1:5: parse error: unexpected end of input in subquery or range, expected ']'"),
        ("x[abc]", "1:3: parse error: unexpected name 'abc' in subquery or range selector, expected number,"),
        (
            "x offset y",
            "1:10: parse error: unexpected name 'y' in offset, expected number, duration, step() or range()",
        ),
        ("x @ y", "1:5: parse error: unexpected name 'y' in @, expected timestamp, start() or end()"),
        ("sum by x", "1:8: parse error: unexpected name 'x' in grouping opts, expected '('"),
        ("x 5", "1:3: parse error: unexpected number '5' in expression, expected an operator or the end"),
        ('x{a="\\q"}', "1:6: parse error: unknown escape sequence '\\\\q'"),
        ('x{a="b}', "1:5: parse error: unterminated quoted string"),
        ("5mm", "1:1: parse error: bad number or duration syntax: '5mm'"),
        (
            "a.b",
            "1:2: parse error: bad number or duration syntax: '.b'; a name with dots is written in quotes within bra",
        ),
        ("x + 1e400", "1:5: parse error: cannot parse '1e400' to a number: value out of range"),
        ("0x" + "f" * 300, "1:1: parse error: cannot parse '0xfff"),
        ("0" + "7" * 400, "1:1: parse error: cannot parse '0777"),
        ('x{n=~"["}', "1:1: parse error: regular expression of n=~ is not valid: [: missing ]"),
        ('x{n=~"a)"}', "1:1: parse error: regular expression of n=~ is not valid: a): unexpected )"),
        ("x ; y", "1:3: parse error: unexpected character: ';'"),
        ("", "1:1: parse error: no expression found in input"),
    ],
)
def test_error_names_the_position_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse(text)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1h30m", 5_400.0),
        ("90s500ms", 90.5),
        ("1y1w1d", 32_227_200.0),
        ("0x1F", 31.0),
        ("1_000", 1_000.0),
        (".5e1", 5.0),
        ("010", 8.0),
        ("INF", float("inf")),
        ("-1", -1.0),
        ('"\\x41\\u00e9\\n\\101"', "Aé\nA"),
        ("'it\\'s'", "it's"),
        ("`\\n`", "\\n"),
    ],
)
def test_numbers_and_strings_are_go_s(text: str, value: object) -> None:
    node = parse_tree(text)
    assert isinstance(node, syntax_tree.NumberLiteral | syntax_tree.StringLiteral)
    assert node.value == value
