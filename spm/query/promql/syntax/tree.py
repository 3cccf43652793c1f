"""The syntax tree of a text: the grammar builds it, and `planning` turns it into a plan.

Nodes are frozen and have their position in the text. A tree is correct in form only; types, such as the range that
`rate` needs, are checked by `planning`. Durations are trees too, because `step()` and `range()` depend on the query.
"""

from __future__ import annotations

from dataclasses import field

from spm.fast_dataclass import dataclass
from spm.query.request.batches import Matcher


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    """A number, or a duration in seconds."""

    value: float
    position: int


@dataclass(frozen=True, slots=True)
class StringLiteral:
    """A string."""

    value: str
    position: int


@dataclass(frozen=True, slots=True)
class DurationOperation:
    """Arithmetic of durations; `step` and `range` have no parts."""

    op: str
    parts: tuple[DurationExpression, ...]
    position: int


DurationExpression = NumberLiteral | DurationOperation


@dataclass(frozen=True, slots=True)
class TimeModifiers:
    """The time modifiers of a selector or subquery: offset, and `@` as seconds, "start" or "end"."""

    offset: DurationExpression | None = None
    at: float | str | None = None


@dataclass(frozen=True, slots=True)
class SelectorExpression:
    """A selector; with `range` it selects a range of samples. `mode` is "", "anchored" or "smoothed"."""

    name: str | None
    matchers: tuple[Matcher, ...]
    position: int
    time: TimeModifiers = field(default_factory=TimeModifiers)
    range: DurationExpression | None = None
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression evaluated at many steps over a range."""

    inner: Node
    range: DurationExpression
    step: DurationExpression | None
    position: int
    time: TimeModifiers = field(default_factory=TimeModifiers)


@dataclass(frozen=True, slots=True)
class Parenthesis:
    """An expression in parentheses."""

    inner: Node
    position: int


@dataclass(frozen=True, slots=True)
class UnaryExpression:
    """An expression with a sign."""

    op: str
    inner: Node
    position: int


@dataclass(frozen=True, slots=True)
class OperatorModifiers:
    """The modifiers between an operator and its right operand."""

    as_bool: bool = False
    matching: str = ""  # "on" or "ignoring"
    labels: tuple[str, ...] = ()
    many: str = ""  # "left" or "right"
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class BinaryExpression:
    """An operator between two expressions; `at` is the position of the operator."""

    op: str
    left: Node
    right: Node
    modifiers: OperatorModifiers
    position: int
    at: int


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """An aggregation; `grouping` is "", "by" or "without"."""

    op: str
    arguments: tuple[Node, ...]
    grouping: str
    labels: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    name: str
    arguments: tuple[Node, ...]
    position: int


Node = (
    NumberLiteral
    | StringLiteral
    | SelectorExpression
    | Subquery
    | Parenthesis
    | UnaryExpression
    | BinaryExpression
    | AggregateExpression
    | Call
)
