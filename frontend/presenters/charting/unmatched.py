"""Says why an operation of two expressions gives nothing although both read series. Enter by ``why_unmatched``."""

from collections.abc import Callable, Mapping, Sequence

from spm.query.promql.syntax import tree
from spm.query.promql.syntax.grammar import parse_tree

_COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
_TEXT_MAX = 60
Evaluate = Callable[[str], Sequence[Mapping[str, str]]]  # the labels of what an expression gives in the range


def why_unmatched(evaluate: Evaluate, expr: str) -> str:
    """Say which side of an expression's outermost operator is empty, or that no labels agree; else an empty text."""
    node = parse_tree(expr)
    while isinstance(node, tree.Parenthesis):
        expr = expr[node.position + 1 : expr.rindex(")")]
        node = parse_tree(expr)
    if not isinstance(node, tree.BinaryExpression):
        return ""
    left, right = expr[node.position : node.at].strip(), expr[node.right.position :].strip()
    sides = [evaluate(text) for text in (left, right)]
    for text, labels, side in zip((left, right), sides, (node.left, node.right), strict=True):
        if not labels and not isinstance(side, tree.NumberLiteral):
            return why_unmatched(evaluate, text) or f"No value of {_short(text)} is in this range."
    if node.op in _COMPARISONS and any(isinstance(side, tree.NumberLiteral) for side in (node.left, node.right)):
        return f"No value meets the condition {_short(f'{node.op} {right}')} in this range."
    if node.op == "unless":
        return f"No series is left: {_short(right)} has all that {_short(left)} has."
    if not all(sides):
        return ""
    names = [", ".join(sorted({name for each in labels for name in each if name != "__name__"})) for labels in sides]
    agree = "with equal labels" if not node.modifiers.matching else "that agree in the labels to match by"
    return (
        f"No series of both sides of “{node.op}” {agree}: "
        f"the left ones have {names[0] or 'no labels'}, the right ones {names[1] or 'no labels'}. "
        "on (label) matches by fewer."
    )


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _TEXT_MAX else f"{plain[:_TEXT_MAX]}…"
