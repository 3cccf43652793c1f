"""Formulas over the queries of a chart: ``A / B`` becomes an expression in which the queries' texts stand. Pure.

A name in a formula stands for a query if it is that of one and has neither filters nor a range; every other name is a
metric. A formula may use other formulas, but not itself. Enter by ``expand_formulas``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from frontend.presenters.charts import without_variables
from spm.errors import BadQuery
from spm.limits import QUERY_TEXT_CHARS_MAX
from spm.query.promql.syntax import tree
from spm.query.promql.syntax.grammar import parse_tree


def expand_formulas(queries: Sequence[Mapping[str, Any]]) -> dict[str, str | BadQuery]:
    """Return the expression of each query by its name; of a formula that is wrong, what is wrong with it."""
    texts = {each["name"]: each["expr"] for each in queries}
    formulas = [each["name"] for each in queries if each.get("formula")]
    done: dict[str, str | BadQuery] = {name: text for name, text in texts.items() if name not in formulas}
    for name in formulas:
        with suppress(BadQuery):  # `done` has it
            _expand(name, texts, done, ())
    return {name: done[name] for name in texts}


def _expand(name: str, texts: Mapping[str, str], done: dict[str, str | BadQuery], above: tuple[str, ...]) -> str:
    """Expand one formula after those that it uses, and remember the result; raises it if it is wrong."""
    if name not in done:
        try:
            done[name] = _expanded(name, texts, done, (*above, name))
        except BadQuery as error:
            done[name] = error
    result = done[name]
    if isinstance(result, BadQuery):
        raise result
    return result


def _expanded(name: str, texts: Mapping[str, str], done: dict[str, str | BadQuery], above: tuple[str, ...]) -> str:
    text, pieces, end, size = texts[name], list[str](), 0, len(texts[name])
    for used, position in sorted(_names(parse_tree(without_variables(text))), key=lambda each: each[1]):
        if used not in texts:
            continue
        if used in above:
            raise BadQuery(f"the formula {name} uses {used}, which uses it again")
        try:
            inner = _expand(used, texts, done, above)
        except BadQuery as error:
            raise BadQuery(f"{used}, which the formula {name} uses, is wrong: {error}") from error
        pieces += [text[end:position], f"({inner}\n)"]  # the line end ends a comment
        end, size = position + len(used), size + len(inner)
        if size > QUERY_TEXT_CHARS_MAX:
            raise BadQuery(f"the formula {name} has more than {QUERY_TEXT_CHARS_MAX} characters with its queries in it")
    return "".join([*pieces, text[end:]])


def _names(node: object) -> Iterator[tuple[str, int]]:
    """Yield the names of metrics that stand alone in a tree, each with its position."""
    if isinstance(node, tree.SelectorExpression):
        if node.name and not node.matchers and node.range is None and node.time == tree.TimeModifiers():
            yield node.name, node.position
    elif isinstance(node, tuple):
        for each in node:
            yield from _names(each)
    else:
        for name in getattr(node, "__dataclass_fields__", ()):
            yield from _names(getattr(node, name))
