"""Expressions as trees in JSON, and written out again in one form: Prometheus' `parse_query` and `format_query`.

Both start from the tree of the grammar, after the text was found to mean something (`parse`). Formatting keeps what the
text says (a text that is formatted and parsed again has the same tree), breaks what is longer than a line at its parts,
and drops comments, as Prometheus does. Enter by `as_json` and `formatted`.
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
    Call,
    Grouped,
    Literal,
    Modifiers,
    Node,
    Operation,
    Parenthesis,
    Quoted,
    Series,
    Signed,
    Span,
    Subquery,
    When,
)
from spm.query.request.batches import METRIC_NAME, Matcher

_EXTREMES = ("min_of", "max_of")
_QUERY = Context(0, 3_600_000, 60_000)  # any at all: for texts that ask for `step()` or `range()`
_LINE = 100  # characters of an expression that stays on one line
_PLAIN_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KINDS = {"scalar": "scalar", "vector": "vector", "range": "matrix", "string": "string", "selector": "vector"}
_SCALAR_CALLS = frozenset({"time", "pi", "scalar", "start", "end", "step", "range", "min_of", "max_of"})


def as_json(text: str) -> dict[str, Any]:
    """The tree of an expression; `BadQuery` for what is none."""
    parse(text, _QUERY)
    return _json(grammar.tree(text))


def formatted(text: str) -> str:
    """The expression, written out; `BadQuery` for what is none."""
    parse(text, _QUERY)
    return _pretty(grammar.tree(text), 0)


# --- trees ---


def _json(node: Node) -> dict[str, Any]:
    match node:
        case Literal():
            return {"type": "numberLiteral", "val": plain(node.value)}
        case Quoted():
            return {"type": "stringLiteral", "val": node.value}
        case Parenthesis():
            return {"type": "parenExpr", "expr": _json(node.inner)}
        case Signed():
            return {"type": "unaryExpr", "op": node.op, "expr": _json(node.inner)}
        case Series():
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
                **_when_json(node.when),
            }
        case Grouped():
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
        case Operation():
            vectors = not (_is_scalar(node.left) or _is_scalar(node.right))
            return {
                "type": "binaryExpr",
                "op": node.op,
                "lhs": _json(node.left),
                "rhs": _json(node.right),
                "matching": _matching_json(node) if vectors else None,
                "bool": node.modifiers.as_bool,
            }


def _series_json(node: Series) -> dict[str, Any]:
    named = [] if node.name is None else [Matcher(METRIC_NAME, "=", node.name)]
    found = {
        "type": "vectorSelector" if node.range is None else "matrixSelector",
        "name": _name_of(node),
        "matchers": [{"name": m.name, "value": m.value, "type": m.op} for m in (*node.matchers, *named)],
        **_when_json(node.when),
        "anchored": node.mode == "anchored",
        "smoothed": node.mode == "smoothed",
    }
    if node.range is not None:
        found |= {"range": _ms(node.range), "rangeExpr": _arithmetic(node.range)}
    return found


def _when_json(when: When) -> dict[str, Any]:
    offset = {"offset": 0 if when.offset is None else _ms(when.offset), "offsetExpr": _arithmetic(when.offset)}
    if isinstance(when.at, str):
        return {**offset, "timestamp": None, "startOrEnd": when.at}
    return {**offset, "timestamp": None if when.at is None else round(when.at * 1000), "startOrEnd": None}


def _matching_json(node: Operation) -> dict[str, Any]:
    given = node.modifiers
    card = {"left": "many-to-one", "right": "one-to-many"}.get(given.many, "one-to-one")
    if node.op in plan.SET_OPERATORS:
        card = "many-to-many"
    return {
        "card": card,
        "labels": list(given.labels),
        "on": given.matching == "on",
        "include": list(given.include),
        "fillValues": {"lhs": given.fill_left, "rhs": given.fill_right},
    }


def _function_json(name: str) -> dict[str, Any]:
    taken = SIGNATURES[name]
    more = taken.most - taken.least
    return {
        "name": name,
        "argTypes": [_KINDS[taken.kind(number)] for number in range(max(taken.least, len(taken.kinds)))],
        "variadic": -1 if taken.most > len(taken.kinds) else more,
        "returnType": "scalar" if name in _SCALAR_CALLS else "vector",
    }


def _is_scalar(node: Node) -> bool:
    match node:
        case Literal():
            return True
        case Parenthesis() | Signed():
            return _is_scalar(node.inner)
        case Operation():
            return _is_scalar(node.left) and _is_scalar(node.right)
        case Call():
            return node.name in _SCALAR_CALLS
        case _:
            return False


def _ms(span: Span) -> int:
    """Milliseconds; 0 where they are computed when a query is asked, as `_arithmetic` says."""
    return round(span.value * 1000) if isinstance(span, Literal) else 0


def _arithmetic(span: Span | None) -> dict[str, Any] | None:
    """How a duration is computed, if it is."""
    return None if span is None or isinstance(span, Literal) else _duration_json(span)


def _duration_json(span: Span) -> dict[str, Any]:
    if isinstance(span, Literal):
        return {"type": "numberLiteral", "val": plain(span.value), "duration": True}
    left, right = map(_duration_json, span.parts) if span.parts else (None, None)
    return {"type": "durationExpr", "op": span.op, "lhs": left, "rhs": right, "wrapped": False}


# --- texts ---


def _pretty(node: Node, level: int) -> str:
    whole, indent = _text(node), "  " * level
    if len(whole) <= _LINE:
        return indent + whole
    match node:
        case Parenthesis():
            return f"{indent}(\n{_pretty(node.inner, level + 1)}\n{indent})"
        case Signed():
            return f"{indent}{node.op}{_pretty(node.inner, level).lstrip()}"
        case Subquery():
            return _pretty(node.inner, level) + _brackets(node)
        case Grouped():
            return f"{indent}{_grouping(node)}(\n{_list(node.arguments, level + 1)}\n{indent})"
        case Call():
            return f"{indent}{node.name}(\n{_list(node.arguments, level + 1)}\n{indent})"
        case Operation():
            left, right = _pretty(node.left, level + 1), _pretty(node.right, level + 1)
            return f"{left}\n{indent}{node.op}{_modifiers(node.modifiers)}\n{right}"
        case _:
            return indent + whole


def _list(nodes: Sequence[Node], level: int) -> str:
    return ",\n".join(_pretty(node, level) for node in nodes)


def _text(node: Node) -> str:
    match node:
        case Literal():
            return short(node.value)
        case Quoted():
            return _quoted(node.value)
        case Parenthesis():
            return f"({_text(node.inner)})"
        case Signed():
            return node.op + _text(node.inner)
        case Series():
            range_ = "" if node.range is None else f"[{_span(node.range)}]"
            return _selector(node) + range_ + (f" {node.mode}" if node.mode else "") + _when(node.when)
        case Subquery():
            return _text(node.inner) + _brackets(node)
        case Grouped():
            return f"{_grouping(node)}({', '.join(map(_text, node.arguments))})"
        case Call():
            return f"{node.name}({', '.join(map(_text, node.arguments))})"
        case Operation():
            return f"{_text(node.left)} {node.op}{_modifiers(node.modifiers)} {_text(node.right)}"


def _selector(node: Series) -> str:
    name = _name_of(node)
    inside = [m for m in node.matchers if not (name and node.name is None and m == Matcher(METRIC_NAME, "=", name))]
    if name and not _PLAIN_METRIC.fullmatch(name):
        return "{" + ",".join([_quoted(name), *map(_matcher, inside)]) + "}"
    listed = ",".join(map(_matcher, inside))
    return f"{name}{{{listed}}}" if listed or not name else name


def _name_of(node: Series) -> str:
    """The metric's name, also where it stands in the braces."""
    if node.name is not None:
        return node.name
    return next((m.value for m in node.matchers if m.name == METRIC_NAME and m.op == "="), "")


def _matcher(matcher: Matcher) -> str:
    return f"{_label(matcher.name)}{matcher.op}{_quoted(matcher.value)}"


def _brackets(node: Subquery) -> str:
    step = "" if node.step is None else _span(node.step)
    return f"[{_span(node.range)}:{step}]{_when(node.when)}"


def _when(when: When) -> str:
    at = f" @ {when.at}()" if isinstance(when.at, str) else "" if when.at is None else f" @ {when.at:.3f}"
    return at + ("" if when.offset is None else f" offset {_offset(when.offset)}")


def _offset(span: Span) -> str:
    return _span(span) if isinstance(span, Literal) or not span.parts else f"({_span(span)})"


def _grouping(node: Grouped) -> str:
    if node.grouping == "without" or node.labels:
        return f"{node.op} {node.grouping} ({', '.join(map(_label, node.labels))}) "
    return node.op


def _modifiers(given: Modifiers) -> str:
    found = " bool" if given.as_bool else ""
    if given.labels or given.matching == "on":
        found += f" {given.matching} ({', '.join(map(_label, given.labels))})"
    elif given.many or given.matching:
        found += " ignoring ()" if given.many else ""
    if given.many:
        found += f" group_{given.many} ({', '.join(map(_label, given.include))})"
    for side, value in (("left", given.fill_left), ("right", given.fill_right)):
        found += "" if value is None else f" fill_{side} ({short(value)})"
    return found


def _span(span: Span) -> str:
    if isinstance(span, Literal):
        return prometheus.duration(round(span.value * 1000))
    if not span.parts:
        return f"{span.op}()"
    if span.op in _EXTREMES:
        return f"{span.op}({', '.join(map(_span, span.parts))})"
    return f" {span.op} ".join(map(_enclosed, span.parts))


def _enclosed(span: Span) -> str:
    """A part of a sum or product; one that is a sum or product itself stands in parentheses."""
    bare = isinstance(span, Literal) or not span.parts or span.op in _EXTREMES
    return _span(span) if bare else f"({_span(span)})"


def _label(name: str) -> str:
    return name if _PLAIN_LABEL.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    signs = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(signs.get(s, s if s.isprintable() or ord(s) > 127 else f"\\x{ord(s):02x}") for s in text) + '"'
