"""Splits ``expr OP number`` into a value expression and a threshold, so that "absent" and "well" differ. Pure.

An expression that is no such comparison decides by itself: a series in its answer is violated. ``!=`` is not split: by
Prometheus NaN differs from every number, and a comparison with a threshold leaves NaN out. Nor is a comparison with an
infinity, which JSON does not have. Enter by ``split``.
"""

import math
from dataclasses import dataclass

from spm.query.promql.syntax.grammar import SET_OPERATORS, parse_tree
from spm.query.promql.syntax.tree import BinaryExpression, Node, NumberLiteral, OperatorModifiers, Parenthesis

_SPLIT = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "=="}  # the comparison, and the same one turned round


@dataclass(frozen=True, slots=True)
class SplitExpression:
    """A value expression with its comparator and threshold; without comparator the expression decides."""

    expr: str
    comparator: str = ""
    threshold: float = 0.0


def split(text: str) -> SplitExpression:
    """Split a valid expression."""
    tree = parse_tree(text)
    if not isinstance(tree, BinaryExpression) or tree.op not in _SPLIT or tree.modifiers != OperatorModifiers():
        return SplitExpression(text)
    left, right = _number(tree.left), _number(tree.right)
    if right is not None and left is None:
        return SplitExpression(text[: tree.at].strip(), tree.op, right)
    if left is not None and right is None:
        return SplitExpression(text[tree.at + len(tree.op) :].strip(), _SPLIT[tree.op], left)
    return SplitExpression(text)


def join(expr: str, comparator: str, threshold: float) -> str:
    """Write a value expression and its threshold as one expression, which ``split`` takes apart again."""
    if not comparator:
        return expr
    tree, end = parse_tree(expr), "\n" if "#" in expr else ""  # a comment ends with its line
    if isinstance(tree, BinaryExpression) and tree.op in SET_OPERATORS:
        expr, end = f"({expr}{end})", ""
    return f"{expr}{end} {comparator} {_text(threshold)}"


def _number(node: Node) -> float | None:
    while isinstance(node, Parenthesis):
        node = node.inner
    return node.value if isinstance(node, NumberLiteral) and math.isfinite(node.value) else None


def _text(value: float) -> str:
    text = repr(value).removesuffix(".0")
    return {"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
