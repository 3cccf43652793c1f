"""Rules made of other rules: a boolean expression over their numbers, for each combination of labels. Pure.

``#3 and not (#7 or #8)`` holds for a combination of the values of the ``by`` labels where #3 has a firing series with
these values and neither #7 nor #8 has. Without ``by``, whole label sets count. Only combinations that some part
fires for can hold, so an expression must name a rule without ``not``. Enter by ``parse`` and ``answer``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from alerts.judging import limits
from alerts.judging.answers import Answer, Labels
from alerts.judging.versions import Steps
from spm.arrays import BOOL
from spm.errors import BadQuery

_TOKEN = re.compile(r"\s*(#\d+|and\b|or\b|not\b|[()])")
Masks = Mapping[int, BOOL]  # rule → bool[combinations, steps]: where it fires
Firing = tuple[Labels, int, int | None]  # the labels of a series, and from which step until before which it fires


@dataclass(frozen=True, slots=True)
class Composite:
    """A parsed expression: the rules that it names, and what it says of where they fire."""

    rules: frozenset[int]
    holds: Callable[[Masks], BOOL]


@lru_cache(1_000)
def parse(text: str) -> Composite:
    """Parse a composite; raises ``BadQuery`` with what is wrong."""
    tokens, at = list[str](), 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadQuery(f"a composite joins rules by number, as in #3 and not #7; it cannot have {text[at:]!r}")
        tokens.append(match[1])
        at = match.end()
    parser = _Parser(tokens)
    composite = parser.disjunction(0)
    if parser.rest or not composite.rules:
        raise BadQuery(f"the composite ends too early or too late at {' '.join(parser.rest) or 'its end'}")
    if len(composite.rules) > limits.COMPOSITE_PARTS_MAX:
        raise BadQuery(f"a composite names at most {limits.COMPOSITE_PARTS_MAX} rules")
    nothing = dict.fromkeys(composite.rules, np.zeros((1, 1), np.bool_))
    if composite.holds(nothing).any():
        raise BadQuery("a composite must not hold where none of its rules fires: name one without not")
    return composite


class _Parser:
    """Reads tokens: or binds less than and, and less than not."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.rest = list(tokens)

    def disjunction(self, depth: int) -> Composite:
        left = self._conjunction(depth)
        while self._take("or"):
            left = _joined(left, self._conjunction(depth), np.logical_or)
        return left

    def _conjunction(self, depth: int) -> Composite:
        left = self._term(depth)
        while self._take("and"):
            left = _joined(left, self._term(depth), np.logical_and)
        return left

    def _term(self, depth: int) -> Composite:
        if depth > limits.COMPOSITE_PARTS_MAX:
            raise BadQuery("the composite has too many brackets")
        if self._take("not"):
            inner = self._term(depth + 1)
            return Composite(inner.rules, lambda masks: ~inner.holds(masks))
        if self._take("("):
            inside = self.disjunction(depth + 1)
            if not self._take(")"):
                raise BadQuery("the composite lacks a closing bracket")
            return inside
        if not self.rest or not self.rest[0].startswith("#"):
            raise BadQuery("the composite lacks a rule, such as #3")
        rule = int(self.rest.pop(0)[1:])
        return Composite(frozenset({rule}), lambda masks: masks[rule])

    def _take(self, token: str) -> bool:
        is_next = bool(self.rest) and self.rest[0] == token
        if is_next:
            self.rest.pop(0)
        return is_next


def _joined(left: Composite, right: Composite, join: Callable[[BOOL, BOOL], BOOL]) -> Composite:
    return Composite(left.rules | right.rules, lambda masks: join(left.holds(masks), right.holds(masks)))


def order(parts_of: Mapping[int, Iterable[int]]) -> list[int]:
    """Return composites in an order in which each comes after those that it names.

    Raises ``BadQuery`` for a cycle, and for composites of composites that are nested too deeply.
    """
    depths: dict[int, int] = {}

    def depth(rule: int, above: tuple[int, ...]) -> int:
        if rule in above:
            raise BadQuery(f"the composites name each other in a circle: {' → '.join(f'#{each}' for each in above)}")
        if rule not in depths:
            inner = [depth(part, (*above, rule)) for part in parts_of[rule] if part in parts_of]
            depths[rule] = 1 + max(inner, default=0)
        if depths[rule] > limits.COMPOSITE_DEPTH_MAX:
            raise BadQuery(f"composites are nested at most {limits.COMPOSITE_DEPTH_MAX} deep")
        return depths[rule]

    for rule in parts_of:
        depth(rule, ())
    return sorted(parts_of, key=lambda rule: (depths[rule], rule))


def answer(composite: Composite, by: Sequence[str], firing: Mapping[int, Sequence[Firing]], steps: Steps) -> Answer:
    """Return the combinations of labels in which a part fires, present where the composite holds."""
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    places: list[tuple[int, int, int, int | None]] = []
    for rule in sorted(composite.rules):
        for labels, start_ms, end_ms in firing.get(rule, ()):
            name = tuple(sorted((key, value) for key, value in labels.items() if _is_joined(key, by)))
            places.append((rule, rows.setdefault(name, len(rows)), start_ms, end_ms))
    masks = {rule: np.zeros((len(rows), len(steps)), np.bool_) for rule in composite.rules}
    for rule, row, start_ms, end_ms in places:
        first = max(0, steps.index_from(start_ms))
        end = len(steps) if end_ms is None else max(0, steps.index_from(end_ms))
        masks[rule][row, first:end] = True
    present = composite.holds(masks)
    return Answer([dict(name) for name in rows], present.astype(np.float64), present)


def _is_joined(label: str, by: Sequence[str]) -> bool:
    return label in by if by else label != "__name__"
