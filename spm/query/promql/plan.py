"""The plan of a query: frozen, typed nodes, free of the parser's classes.

Three kinds of nodes: scalars (one number per step), vectors (a number per series and step) and windows (samples). What
a text cannot mean cannot be built: a node that needs a vector has a field that only takes vectors. Nothing here reads
or computes. Enter by `Plan`, what `parse.parse` returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from spm.query.select import Matcher


@dataclass(frozen=True, slots=True)
class Number:
    """A number in the text."""

    value: float


@dataclass(frozen=True, slots=True)
class Time:
    """`time()`: the step's own time in seconds."""


@dataclass(frozen=True, slots=True)
class ScalarOf:
    """`scalar(v)`: the only element of a vector, else NaN."""

    vector: VectorNode


@dataclass(frozen=True, slots=True)
class ScalarBinary:
    """An operator between two scalars; a comparison gives 0 or 1."""

    op: str
    left: ScalarNode
    right: ScalarNode


@dataclass(frozen=True, slots=True)
class Selector:
    """The newest sample of each matching series, looked back for."""

    matchers: tuple[Matcher, ...]
    offset_ms: int = 0
    at: int | str | None = None  # ms, "start" or "end" of the query


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of each matching series within a left-open range before each step."""

    selector: Selector
    range_ms: int


@dataclass(frozen=True, slots=True)
class RangeCall:
    """A function of the samples in a window."""

    function: str
    window: Window
    parameter: ScalarNode | None = None


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A function of each element of a vector."""

    function: str
    vector: VectorNode
    parameters: tuple[ScalarNode, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorOf:
    """`vector(s)`: one element without labels."""

    scalar: ScalarNode


@dataclass(frozen=True, slots=True)
class VectorScalar:
    """An operator between each element of a vector and a scalar; `swapped` when the scalar stands on the left."""

    op: str
    vector: VectorNode
    scalar: ScalarNode
    swapped: bool = False
    as_bool: bool = False


@dataclass(frozen=True, slots=True)
class Matching:
    """Which elements of two vectors belong together."""

    labels: tuple[str, ...] = ()
    on: bool = False  # match on `labels` only; else on all but these
    many: str = ""  # "left" or "right": the side that may have several elements per match
    include: tuple[str, ...] = ()  # labels taken over from the other side


@dataclass(frozen=True, slots=True)
class VectorVector:
    """An operator between matching elements of two vectors."""

    op: str
    left: VectorNode
    right: VectorNode
    matching: Matching
    as_bool: bool = False


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`and`, `or`, `unless`."""

    op: str
    left: VectorNode
    right: VectorNode
    matching: Matching


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One element for each group of a vector (for topk and bottomk: some elements of each)."""

    op: str
    vector: VectorNode
    labels: tuple[str, ...] = ()
    without: bool = False
    parameter: ScalarNode | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A string on its own, which only an instant query may ask for."""

    value: str


ScalarNode = Number | Time | ScalarOf | ScalarBinary
VectorNode = Selector | RangeCall | Elementwise | VectorOf | VectorScalar | VectorVector | SetOperation | Aggregation
Plan = ScalarNode | VectorNode | Window | Text

SCALARS = (Number, Time, ScalarOf, ScalarBinary)
VECTORS = (Selector, RangeCall, Elementwise, VectorOf, VectorScalar, VectorVector, SetOperation, Aggregation)
COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
SET_OPERATORS = frozenset({"and", "or", "unless"})
