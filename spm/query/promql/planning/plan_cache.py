"""Caches plans by the shape of their text: of texts that differ only in matcher values, one is parsed.

A dashboard sends one query for many hosts: every text is new, but its plan differs from the one before only in some
strings. The *shape* of a text has marks of equal length in place of those strings, so that the positions in the shape
are those in the text. A shape is parsed once, to a template: a function from values to a plan. If a value makes the
plan invalid, the text itself is parsed without the cache, so that the error quotes the text. Enter by `cached_plan`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from spm.errors import BadQuery
from spm.limits import QUERY_PLANS_MAX
from spm.query.promql.planning import plan
from spm.query.series.literals import matches_empty

# A quoted value directly after its operator. A false match is harmless: the parser refuses a mark outside of a string,
# and `_text_template` rejects a string that has a mark and other characters. Other strings, and those with escapes,
# belong to the shape.
_VALUE = re.compile(r'(?<=[=~])"([^"\\\n]+)"')
_MARK, _VALUES_MAX = 0xE000, 256  # of a private range: ASCII texts have no such characters

Values = Sequence[str]
Template = Callable[[Values], Any]


class _ShapeMismatch(Exception):
    """The plan of this text cannot be made from the template of its shape."""


def cached_plan(text: str, parse: Callable[[str], plan.Plan], key: object) -> plan.Plan | None:
    """Returns the plan of a text from the template of its shape; `None` if the text itself must be parsed.

    ``key`` is what a plan depends on beside the text; for equal keys `parse` must be the same function.
    """
    values = _VALUE.findall(text) if text.isascii() else []
    if not 0 < len(values) <= _VALUES_MAX:
        return None
    marks = (f'"{chr(_MARK + number) * len(value)}"' for number, value in enumerate(values))
    try:
        template = _template_of_shape(_VALUE.sub(lambda _: next(marks), text), _KeyedParser(parse, key))
        expression: plan.Plan = template(values)
    except (_ShapeMismatch, BadQuery):
        return None
    return expression


class _KeyedParser:
    """A parse function that is compared by its key."""

    def __init__(self, parse: Callable[[str], plan.Plan], key: object) -> None:
        self.parse, self._key = parse, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KeyedParser) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=QUERY_PLANS_MAX)
def _template_of_shape(shape: str, parser: _KeyedParser) -> Template:
    """Returns the template of a shape; raises `BadQuery` if it is no query, `_ShapeMismatch` if it has no template."""
    expression = parser.parse(shape)
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
