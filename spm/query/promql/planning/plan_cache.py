"""Plans by the shape of a text: of texts that differ in the values of their matchers alone, one is parsed.

A dashboard asks the same of one host after the other, a script of ever other hosts: every text is new, and its plan is
that of the text before but for some strings. The *shape* of a text has marks in the place of those strings, as long as
they are, so that whatever says where something stands is right for both. What is made of a shape once is a function
from values to the plan. What a plan's makers would refuse is not made here: the text is then parsed as any other, and
refused in its own words. Enter by `planned`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from spm.errors import BadQuery
from spm.limits import QUERY_PLANS_KEPT
from spm.query.promql.planning import plan
from spm.query.series.literals import matches_empty

# A value right behind its operator, if it is what it seems to be: a mark outside of strings is no text, and one that is
# not all of a string is noticed. Other strings, those with escapes too, belong to the shape.
_VALUE = re.compile(r'(?<=[=~])"([^"\\\n]+)"')
_MARK, _VALUES_MAX = 0xE000, 256  # of a private range: ASCII texts have no such characters

Values = Sequence[str]
Maker = Callable[[Values], Any]


class _Unlike(Exception):
    """The plan of this text is not that of its shape with other values."""


def planned(text: str, parse: Callable[[str], plan.Plan], key: object) -> plan.Plan | None:
    """The plan of a text from what `parse` makes of its shape; `None` where the text itself must be parsed.

    ``key``: what a plan depends on beside the text; `parse` is the same function for equal ones.
    """
    values = _VALUE.findall(text) if text.isascii() else []
    if not 0 < len(values) <= _VALUES_MAX:
        return None
    marks = (f'"{chr(_MARK + number) * len(value)}"' for number, value in enumerate(values))
    try:
        found: plan.Plan = _shaped(_VALUE.sub(lambda _: next(marks), text), _By(parse, key))(values)
    except (_Unlike, BadQuery):
        return None
    return found


class _By:
    """A function that is known by its key."""

    def __init__(self, parse: Callable[[str], plan.Plan], key: object) -> None:
        self.parse, self._key = parse, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _By) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def _shaped(shape: str, by: _By) -> Maker:
    """A function that makes a plan of a shape; `BadQuery` for what is none, `_Unlike` where it cannot be told."""
    found = by.parse(shape)
    return _maker(found) or (lambda _: found)


def _maker(found: Any) -> Maker | None:
    """What makes something with other values; `None` where it has none."""
    if isinstance(found, str):
        return _of_text(found)
    if isinstance(found, tuple):
        return _with(list(found), lambda *parts: parts)
    if is_dataclass(found) and not isinstance(found, type):
        made = _with([getattr(found, each.name) for each in fields(found)], type(found))
        return made if made is None or type(found) not in _CHECKS else _after(made, _CHECKS[type(found)])
    if found is not None and not isinstance(found, bool | int | float):
        raise _Unlike  # of another kind than nodes are made of today
    return None


def _of_text(found: str) -> Maker | None:
    if not _marked(found):
        return None
    if found != found[0] * len(found):
        raise _Unlike
    number = ord(found[0]) - _MARK
    return lambda values: values[number]


def _with(parts: list[Any], kind: Callable[..., Any]) -> Maker | None:
    makers = [(place, maker) for place, maker in enumerate(map(_maker, parts)) if maker is not None]
    if not makers:
        return None

    def made(values: Values) -> Any:
        own = parts.copy()
        for place, maker in makers:
            own[place] = maker(values)
        return kind(*own)

    return made


def _after(made: Maker, checked: Callable[[Any], Any]) -> Maker:
    return lambda values: checked(made(values))


def _selector(found: plan.Selector) -> plan.Selector:
    empty = [matches_empty(matcher) for matcher in found.matchers]  # of every one: it raises for what is no expression
    if all(empty):
        raise _Unlike
    return found


def _enriched(found: plan.Enriched) -> plan.Enriched:
    for matcher in found.matchers:
        matches_empty(matcher)
    return found


_CHECKS: dict[type[Any], Callable[[Any], Any]] = {plan.Selector: _selector, plan.Enriched: _enriched}


def _marked(text: str) -> bool:
    return not text.isascii() and any(_MARK <= ord(sign) < _MARK + _VALUES_MAX for sign in text)
