"""Turns a text into a plan, and caches plans by the shape of their texts.

A dashboard sends one query for many hosts: every text is new, but its plan differs from the one before only in some
strings. The *shape* of a text has marks of equal length in place of those strings, so that the positions in the shape
are those in the text. A shape is planned once, to a template: a function from values to a plan. If a value makes the
plan invalid, the text itself is planned without the template, so that the error quotes the text.

A plan depends on the query's start, end and step (`Context`) if its text uses them (`step()`, `range()`, and `start()`
and `end()` as numbers); otherwise one plan serves all queries with that text. Enter by `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from spm.errors import BadQuery
from spm.limits import QUERY_PLANS_MAX
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.tree_planner import plan_text
from spm.query.promql.syntax import grammar
from spm.query.promql.syntax import tree as syntax_tree
from spm.query.request.batches import Matcher
from spm.store.matchers import matches_empty

_CONTEXT_WORDS = ("start", "end", "step", "range")
# A comment may stand between a name and its bracket, so a comment sign after the name counts as a bracket. A false
# match, for example in a string, only makes the cache less effective.
_CONTEXT = re.compile(rf"\b(?:{'|'.join(_CONTEXT_WORDS)})\s*[(#]", re.IGNORECASE)
# A quoted value directly after its operator. A false match is harmless: the parser refuses a mark outside of a string,
# and `_text_template` rejects a string that has a mark and other characters. Other strings, and those with escapes,
# belong to the shape.
_VALUE = re.compile(r'(?<=[=~])"([^"\\\n]+)"')
_MARK, _VALUES_MAX = 0xE000, 256  # of a private range: ASCII texts have no such characters

Values = Sequence[str]
Template = Callable[[Values], Any]


class _ShapeMismatch(Exception):
    """The plan of this text cannot be made from the template of its shape."""


def parse(text: str, context: Context | None = None) -> plan.Plan:
    """Returns the plan of a text; raises `BadQuery` if it is too large, malformed, or uses an unsupported feature."""
    if context is None or not depends_on_query(text):
        context = Context()
    return _cached_plan(text, context)


@lru_cache(maxsize=QUERY_PLANS_MAX)
def depends_on_query(text: str) -> bool:
    """Whether a text may use the start, end, step or range of its query."""
    lowered = text.lower()
    return any(word in lowered for word in _CONTEXT_WORDS) and _CONTEXT.search(text) is not None


@lru_cache(maxsize=QUERY_PLANS_MAX)
def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Returns the matchers of a text that is only a selector, as in `match[]`; raises `BadQuery` for any other."""
    tree, selector = grammar.parse_tree(text), parse(text)
    plain = (
        isinstance(tree, syntax_tree.SelectorExpression) and tree.time == syntax_tree.TimeModifiers() and not tree.mode
    )
    if not plain or not isinstance(selector, plan.Selector):
        raise BadQuery(f'not a selector of series: {text[:100]}; expected only a name or labels, as in up{{job="a"}}')
    return selector.matchers


def selectors_of(expression: plan.Plan) -> list[tuple[Matcher, ...]]:
    """Returns the matchers of each selector of a plan, without repetitions."""
    return list(dict.fromkeys(_selectors(expression)))


def _selectors(node: object) -> Iterator[tuple[Matcher, ...]]:
    if isinstance(node, plan.Selector):
        yield node.matchers
    elif isinstance(node, tuple):
        for each in node:
            yield from _selectors(each)
    elif is_dataclass(node):
        for part in fields(node):
            yield from _selectors(getattr(node, part.name))


@lru_cache(maxsize=QUERY_PLANS_MAX)
def _cached_plan(text: str, context: Context) -> plan.Plan:
    expression = plan_from_template(text, context)
    return plan_text(text, context) if expression is None else expression


# --- templates ---


def plan_from_template(text: str, context: Context) -> plan.Plan | None:
    """Returns the plan of a text from the template of its shape; `None` if the text itself must be planned."""
    values = _VALUE.findall(text) if text.isascii() else []
    if not 0 < len(values) <= _VALUES_MAX:
        return None
    marks = (f'"{chr(_MARK + number) * len(value)}"' for number, value in enumerate(values))
    try:
        template = _template_of_shape(_VALUE.sub(lambda _: next(marks), text), context)
        expression: plan.Plan = template(values)
    except (_ShapeMismatch, BadQuery):
        return None
    return expression


@lru_cache(maxsize=QUERY_PLANS_MAX)
def _template_of_shape(shape: str, context: Context) -> Template:
    """Returns the template of a shape; raises `BadQuery` if it is no query, `_ShapeMismatch` if it has no template."""
    expression = plan_text(shape, context)
    return _template(expression) or (lambda _: expression)


def _template(part: Any) -> Template | None:
    """Returns the template of a node or field; `None` if no mark occurs in it."""
    if isinstance(part, str):
        return _text_template(part)
    if isinstance(part, tuple):
        return _node_template(list(part), lambda *parts: parts)
    if is_dataclass(part) and not isinstance(part, type):
        template = _node_template([getattr(part, each.name) for each in fields(part)], type(part))
        return (
            template if template is None or type(part) not in _CHECKS else _check_after(template, _CHECKS[type(part)])
        )
    if part is not None and not isinstance(part, bool | int | float):
        raise _ShapeMismatch  # a type of field that no node has today
    return None


def _text_template(text: str) -> Template | None:
    if not _has_mark(text):
        return None
    if text != text[0] * len(text):
        raise _ShapeMismatch
    number = ord(text[0]) - _MARK
    return lambda values: values[number]


def _node_template(parts: list[Any], kind: Callable[..., Any]) -> Template | None:
    templates = [(place, template) for place, template in enumerate(map(_template, parts)) if template is not None]
    if not templates:
        return None

    def fill(values: Values) -> Any:
        filled = parts.copy()
        for place, template in templates:
            filled[place] = template(values)
        return kind(*filled)

    return fill


def _check_after(template: Template, check: Callable[[Any], Any]) -> Template:
    return lambda values: check(template(values))


def _checked_selector(selector: plan.Selector) -> plan.Selector:
    empty = [matches_empty(matcher) for matcher in selector.matchers]  # all of them: it raises for a bad expression
    if all(empty):
        raise _ShapeMismatch
    return selector


def _checked_info_join(join: plan.InfoJoin) -> plan.InfoJoin:
    for matcher in join.matchers:
        matches_empty(matcher)
    return join


_CHECKS: dict[type[Any], Callable[[Any], Any]] = {plan.Selector: _checked_selector, plan.InfoJoin: _checked_info_join}


def _has_mark(text: str) -> bool:
    return not text.isascii() and any(_MARK <= ord(sign) < _MARK + _VALUES_MAX for sign in text)
