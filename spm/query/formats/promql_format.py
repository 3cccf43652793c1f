"""Prometheus' `parse_query` and `format_query`: expressions as trees in JSON, and as formatted text.

Both start from the tree of the grammar, after `parse` has checked the text. Formatting preserves the meaning (a
formatted text has the same tree), breaks what is longer than a line into its parts, and drops comments, as Prometheus
does. Enter by `tree_json` and `format_expression`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from spm.query.formats import prometheus
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.planning.signatures import SIGNATURES
from spm.query.promql.syntax import grammar
from spm.query.promql.syntax.numerals import plain, short
from spm.query.promql.syntax.tree import (
    AggregateExpression,
    BinaryExpression,
    Call,
    DurationExpression,
    Node,
    NumberLiteral,
    OperatorModifiers,
    Parenthesis,
    SelectorExpression,
    StringLiteral,
    Subquery,
    TimeModifiers,
    UnaryExpression,
)
from spm.query.request.batches import METRIC_NAME, Matcher

_EXTREMES = ("min_of", "max_of")
_QUERY = Context(0, 3_600_000, 60_000)  # any context, for texts that use `step()` or `range()`
_LINE = 100  # characters of an expression that stays on one line
_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NUMBERS = frozenset({"inf", "nan"})  # words that are numbers
_KINDS = {"scalar": "scalar", "vector": "vector", "range": "matrix", "string": "string", "selector": "vector"}
_SCALAR_CALLS = frozenset({"time", "pi", "scalar", "start", "end", "step", "range", "min_of", "max_of"})


def tree_json(text: str) -> dict[str, Any]:
    """Returns the tree of an expression; raises `BadQuery` for an invalid one."""
    parse(text, _QUERY)
    return _json(grammar.parse_tree(text))


def format_expression(text: str) -> str:
    """Formats an expression; raises `BadQuery` for an invalid one."""
    parse(text, _QUERY)
    return _pretty(grammar.parse_tree(text), 0)


def format_selector(metric: str, matchers: Sequence[Matcher]) -> str:
    """Writes a selector; a name that is no plain word stands in the braces."""
    if metric and (not _PLAIN_METRIC.fullmatch(metric) or metric.lower() in (*_NUMBERS, "bool")):
        return "{" + ",".join([_quote(metric), *map(_matcher, matchers)]) + "}"
    listed = ",".join(map(_matcher, matchers))
    return f"{metric}{{{listed}}}" if listed or not metric else metric


def format_label(name: str) -> str:
    """Writes the name of a label, in quotes if it is no plain word."""
    return name if _PLAIN_LABEL.fullmatch(name) and name.lower() not in _NUMBERS else _quote(name)


# --- trees ---


def _json(node: Node) -> dict[str, Any]:
    match node:
        case NumberLiteral():
            return {"type": "numberLiteral", "val": plain(node.value)}
        case StringLiteral():
            return {"type": "stringLiteral", "val": node.value}
        case Parenthesis():
            return {"type": "parenExpr", "expr": _json(node.inner)}
        case UnaryExpression():
            return {"type": "unaryExpr", "op": node.op, "expr": _json(node.inner)}
        case SelectorExpression():
            return _series_json(node)
        case Subquery():
            step = 0 if node.step is None else _ms(node.step)
            return {
                "type": "subquery",
                "expr": _json(node.inner),
                "range": _ms(node.range),
                "step": step,
                "rangeExpr": _arithmetic(node.range),
                "stepExpr": _arithmetic(node.step),
                **_time_json(node.time),
            }
        case AggregateExpression():
            first = _json(node.arguments[0]) if len(node.arguments) > 1 else None
            return {
                "type": "aggregation",
                "op": node.op,
                "expr": _json(node.arguments[-1]),
                "param": first,
                "grouping": list(node.labels),
                "without": node.grouping == "without",
            }
        case Call():
            return {"type": "call", "func": _function_json(node.name), "args": [_json(part) for part in node.arguments]}
        case BinaryExpression():
            vectors = not (_is_scalar(node.left) or _is_scalar(node.right))
            return {
                "type": "binaryExpr",
                "op": node.op,
                "lhs": _json(node.left),
                "rhs": _json(node.right),
                "matching": _matching_json(node) if vectors else None,
                "bool": node.modifiers.as_bool,
            }


def _series_json(node: SelectorExpression) -> dict[str, Any]:
    named = [] if node.name is None else [Matcher(METRIC_NAME, "=", node.name)]
    tree = {
        "type": "vectorSelector" if node.range is None else "matrixSelector",
        "name": _name_of(node),
        "matchers": [{"name": m.name, "value": m.value, "type": m.op} for m in (*node.matchers, *named)],
        **_time_json(node.time),
        "anchored": node.mode == "anchored",
        "smoothed": node.mode == "smoothed",
    }
    if node.range is not None:
        tree |= {"range": _ms(node.range), "rangeExpr": _arithmetic(node.range)}
    return tree


def _time_json(time: TimeModifiers) -> dict[str, Any]:
    offset = {"offset": 0 if time.offset is None else _ms(time.offset), "offsetExpr": _arithmetic(time.offset)}
    if isinstance(time.at, str):
        return {**offset, "timestamp": None, "startOrEnd": time.at}
    return {**offset, "timestamp": None if time.at is None else round(time.at * 1000), "startOrEnd": None}


def _matching_json(node: BinaryExpression) -> dict[str, Any]:
    modifiers = node.modifiers
    card = {"left": "many-to-one", "right": "one-to-many"}.get(modifiers.many, "one-to-one")
    if node.op in plan.SET_OPERATORS:
        card = "many-to-many"
    return {
        "card": card,
        "labels": list(modifiers.labels),
        "on": modifiers.matching == "on",
        "include": list(modifiers.include),
        "fillValues": {"lhs": modifiers.fill_left, "rhs": modifiers.fill_right},
    }


def _function_json(name: str) -> dict[str, Any]:
    signature = SIGNATURES[name]
    more = signature.most - signature.least
    return {
        "name": name,
        "argTypes": [_KINDS[signature.kind(number)] for number in range(max(signature.least, len(signature.kinds)))],
        "variadic": -1 if signature.most > len(signature.kinds) else more,
        "returnType": "scalar" if name in _SCALAR_CALLS else "vector",
    }


def _is_scalar(node: Node) -> bool:
    match node:
        case NumberLiteral():
            return True
        case Parenthesis() | UnaryExpression():
            return _is_scalar(node.inner)
        case BinaryExpression():
            return _is_scalar(node.left) and _is_scalar(node.right)
        case Call():
            return node.name in _SCALAR_CALLS
        case _:
            return False


def _ms(span: DurationExpression) -> int:
    """Returns milliseconds; 0 for a computed duration, which `_arithmetic` describes."""
    return round(span.value * 1000) if isinstance(span, NumberLiteral) else 0


def _arithmetic(span: DurationExpression | None) -> dict[str, Any] | None:
    """Returns the tree of a computed duration, `None` for a literal."""
    return None if span is None or isinstance(span, NumberLiteral) else _duration_json(span)


def _duration_json(span: DurationExpression) -> dict[str, Any]:
    if isinstance(span, NumberLiteral):
        return {"type": "numberLiteral", "val": plain(span.value), "duration": True}
    left, right = map(_duration_json, span.parts) if span.parts else (None, None)
    return {"type": "durationExpr", "op": span.op, "lhs": left, "rhs": right, "wrapped": False}


# --- texts ---


def _pretty(node: Node, level: int) -> str:
    text, indent = _text(node), "  " * level
    if len(text) <= _LINE:
        return indent + text
    match node:
        case Parenthesis():
            return f"{indent}(\n{_pretty(node.inner, level + 1)}\n{indent})"
        case UnaryExpression():
            return f"{indent}{node.op}{_pretty(node.inner, level).lstrip()}"
        case Subquery():
            return _pretty(node.inner, level) + _brackets(node)
        case AggregateExpression():
            return f"{indent}{_grouping(node)}(\n{_list(node.arguments, level + 1)}\n{indent})"
        case Call():
            return f"{indent}{node.name}(\n{_list(node.arguments, level + 1)}\n{indent})"
        case BinaryExpression():
            left, right = _pretty(node.left, level + 1), _pretty(node.right, level + 1)
            return f"{left}\n{indent}{node.op}{_modifiers(node.modifiers)}\n{right}"
        case _:
            return indent + text


def _list(nodes: Sequence[Node], level: int) -> str:
    return ",\n".join(_pretty(node, level) for node in nodes)


def _text(node: Node) -> str:
    match node:
        case NumberLiteral():
            return short(node.value)
        case StringLiteral():
            return _quote(node.value)
        case Parenthesis():
            return f"({_text(node.inner)})"
        case UnaryExpression():
            return node.op + _text(node.inner)
        case SelectorExpression():
            range_ = "" if node.range is None else f"[{_span(node.range)}]"
            return _selector(node) + range_ + (f" {node.mode}" if node.mode else "") + _time(node.time)
        case Subquery():
            return _text(node.inner) + _brackets(node)
        case AggregateExpression():
            return f"{_grouping(node)}({', '.join(map(_text, node.arguments))})"
        case Call():
            return f"{node.name}({', '.join(map(_text, node.arguments))})"
        case BinaryExpression():
            return f"{_text(node.left)} {node.op}{_modifiers(node.modifiers)} {_text(node.right)}"


def _selector(node: SelectorExpression) -> str:
    name = _name_of(node)
    inside = [m for m in node.matchers if not (name and node.name is None and m == Matcher(METRIC_NAME, "=", name))]
    return format_selector(name, inside)


def _name_of(node: SelectorExpression) -> str:
    """Returns the metric's name, also from a matcher in the braces."""
    if node.name is not None:
        return node.name
    return next((m.value for m in node.matchers if m.name == METRIC_NAME and m.op == "="), "")


def _matcher(matcher: Matcher) -> str:
    return f"{format_label(matcher.name)}{matcher.op}{_quote(matcher.value)}"


def _brackets(node: Subquery) -> str:
    step = "" if node.step is None else _span(node.step)
    return f"[{_span(node.range)}:{step}]{_time(node.time)}"


def _time(time: TimeModifiers) -> str:
    at = f" @ {time.at}()" if isinstance(time.at, str) else "" if time.at is None else f" @ {time.at:.3f}"
    return at + ("" if time.offset is None else f" offset {_offset(time.offset)}")


def _offset(span: DurationExpression) -> str:
    return _span(span) if isinstance(span, NumberLiteral) or not span.parts else f"({_span(span)})"


def _grouping(node: AggregateExpression) -> str:
    if node.grouping == "without" or node.labels:
        return f"{node.op} {node.grouping} ({', '.join(map(format_label, node.labels))}) "
    return node.op


def _modifiers(modifiers: OperatorModifiers) -> str:
    text = " bool" if modifiers.as_bool else ""
    if modifiers.labels or modifiers.matching == "on":
        text += f" {modifiers.matching} ({', '.join(map(format_label, modifiers.labels))})"
    elif modifiers.many or modifiers.matching:
        text += " ignoring ()" if modifiers.many else ""
    if modifiers.many:
        text += f" group_{modifiers.many} ({', '.join(map(format_label, modifiers.include))})"
    for side, value in (("left", modifiers.fill_left), ("right", modifiers.fill_right)):
        text += "" if value is None else f" fill_{side} ({short(value)})"
    return text


def _span(span: DurationExpression) -> str:
    if isinstance(span, NumberLiteral):
        return prometheus.duration(round(span.value * 1000))
    if not span.parts:
        return f"{span.op}()"
    if span.op in _EXTREMES:
        return f"{span.op}({', '.join(map(_span, span.parts))})"
    return f" {span.op} ".join(map(_enclosed, span.parts))


def _enclosed(span: DurationExpression) -> str:
    """Writes an operand of duration arithmetic; an operand that is arithmetic itself gets parentheses."""
    bare = isinstance(span, NumberLiteral) or not span.parts or span.op in _EXTREMES
    return _span(span) if bare else f"({_span(span)})"


def _quote(text: str) -> str:
    signs = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(signs.get(s, s if s.isprintable() or ord(s) > 127 else f"\\x{ord(s):02x}") for s in text) + '"'
