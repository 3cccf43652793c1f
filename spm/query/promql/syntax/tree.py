"""The tree of a text, as it was written: what the grammar makes and `parse` turns into a plan.

Nodes are frozen and know where they stand in the text. Nothing is checked here but form: that `rate` wants a range is
the business of `parse`. Durations are trees too, because `step()` and `range()` are known only when a query is asked.
"""

from __future__ import annotations

from dataclasses import field

from spm.fast_dataclass import dataclass
from spm.query.request.batches import Matcher


@dataclass(frozen=True, slots=True)
class Literal:
    """A number (a duration in seconds, too)."""

    value: float
    position: int


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string."""

    value: str
    position: int


@dataclass(frozen=True, slots=True)
class Duration:
    """Arithmetic of durations; `step` and `range` have no parts."""

    op: str
    parts: tuple[Span, ...]
    position: int


Span = Literal | Duration


@dataclass(frozen=True, slots=True)
class When:
    """Modifiers of a selector or subquery: offset, and `@` as seconds, "start" or "end"."""

    offset: Span | None = None
    at: float | str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A selector; with `range` one of samples. `mode` is "", "anchored" or "smoothed"."""

    name: str | None
    matchers: tuple[Matcher, ...]
    position: int
    when: When = field(default_factory=When)
    range: Span | None = None
    mode: str = ""


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression evaluated again and again over a range."""

    inner: Node
    range: Span
    step: Span | None
    position: int
    when: When = field(default_factory=When)


@dataclass(frozen=True, slots=True)
class Parenthesis:
    """An expression in parentheses."""

    inner: Node
    position: int


@dataclass(frozen=True, slots=True)
class Signed:
    """An expression with a sign before it."""

    op: str
    inner: Node
    position: int


@dataclass(frozen=True, slots=True)
class Modifiers:
    """What stands between an operator and its right side."""

    as_bool: bool = False
    matching: str = ""  # "on" or "ignoring"
    labels: tuple[str, ...] = ()
    many: str = ""  # "left" or "right"
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator between two expressions; `at` is where the operator stands."""

    op: str
    left: Node
    right: Node
    modifiers: Modifiers
    position: int
    at: int


@dataclass(frozen=True, slots=True)
class Grouped:
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


Node = Literal | Quoted | Series | Subquery | Parenthesis | Signed | Operation | Grouped | Call
