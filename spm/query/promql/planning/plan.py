"""The plan of a query: frozen, typed nodes, independent of the text they come from.

There are three kinds of nodes: scalars (one number per step), vectors (a number per series and step) and windows
(samples). An invalid plan cannot be built: a node that needs a vector has a field that only takes vectors. `position`
is the position in the text that a node's warnings point to; it does not count when plans are compared. Enter by `Plan`,
which `planner.parse` returns. Never reads or computes.
"""

from __future__ import annotations

from dataclasses import field

from spm.fast_dataclass import dataclass
from spm.query.request.batches import Matcher


def _position() -> int:
    default: int = field(default=0, compare=False)
    return default


@dataclass(frozen=True, slots=True)
class Context:
    """The range and step of the whole query, in ms."""

    start_ms: int = 0
    end_ms: int = 0
    step_ms: int = 0


@dataclass(frozen=True, slots=True)
class Number:
    """A number in the text."""

    value: float


@dataclass(frozen=True, slots=True)
class Time:
    """`time()`: the step's own time in seconds."""


@dataclass(frozen=True, slots=True)
class ScalarOf:
    """`scalar(v)`: the only element of a vector; NaN if there is none or more than one."""

    vector: VectorNode


@dataclass(frozen=True, slots=True)
class ScalarBinary:
    """An operator between two scalars, or their minimum or maximum; a comparison gives 0 or 1."""

    op: str
    left: ScalarNode
    right: ScalarNode


@dataclass(frozen=True, slots=True)
class Selector:
    """The newest sample of each matching series within the look-back; `smoothed` interpolates between two samples."""

    matchers: tuple[Matcher, ...]
    offset_ms: int = 0
    at: int | str | None = None  # ms, "start" or "end" of the query
    mode: str = ""  # or "anchored" or "smoothed"
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of each matching series within a left-open range before each step."""

    selector: Selector
    range_ms: int


@dataclass(frozen=True, slots=True)
class Subquery:
    """A vector evaluated at steps of its own within a left-open range; its elements are the samples of the window."""

    vector: VectorNode
    range_ms: int
    step_ms: int | None = None  # None: the default
    offset_ms: int = 0
    at: int | str | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class RangeCall:
    """A function of the samples in a window."""

    function: str
    window: Window | Subquery
    parameters: tuple[ScalarNode, ...] = ()
    position: int = _position()  # of the first argument


@dataclass(frozen=True, slots=True)
class AbsentOver:
    """`absent_over_time`: 1 where a window has no sample of any series."""

    window: Window | Subquery
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """`absent`: 1 where a vector has no element."""

    vector: VectorNode
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A function of each element of a vector."""

    function: str
    vector: VectorNode
    parameters: tuple[ScalarNode, ...] = ()


@dataclass(frozen=True, slots=True)
class TimestampOf:
    """`timestamp(v)`: the timestamp of a selector's sample; for any other vector the step's time."""

    vector: VectorNode


@dataclass(frozen=True, slots=True)
class VectorOf:
    """`vector(s)`: one element without labels."""

    scalar: ScalarNode


@dataclass(frozen=True, slots=True)
class VectorScalar:
    """An operator between each element of a vector and a scalar; `swapped` if the scalar is the left operand."""

    op: str
    vector: VectorNode
    scalar: ScalarNode
    swapped: bool = False
    as_bool: bool = False


@dataclass(frozen=True, slots=True)
class Matching:
    """How the elements of two vectors are matched, and the numbers that replace missing elements."""

    labels: tuple[str, ...] = ()
    on: bool = False  # match by `labels` only; else by all labels except these
    many: str = ""  # "left" or "right": the side that may have several elements per match
    include: tuple[str, ...] = ()  # labels copied from the other side
    fill_left: float | None = None
    fill_right: float | None = None

    @property
    def filled(self) -> bool:
        """Whether a number replaces the missing elements of either side."""
        return self.fill_left is not None or self.fill_right is not None


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
    """One element for each group of a vector; topk, bottomk, limitk and limit_ratio select elements of each group."""

    op: str
    vector: VectorNode
    labels: tuple[str, ...] = ()
    without: bool = False
    parameter: ScalarNode | None = None
    text: str = ""  # the label in which `count_values` writes the values
    position: int = _position()  # of the parameter


@dataclass(frozen=True, slots=True)
class Relabel:
    """`label_replace` (destination, replacement, source, regex) and `label_join` (destination, separator, sources…)."""

    function: str
    vector: VectorNode
    texts: tuple[str, ...]
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Sort:
    """A vector sorted by value, or by labels if there are any."""

    vector: VectorNode
    descending: bool
    labels: tuple[str, ...] | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class HistogramQuantiles:
    """`histogram_quantile` of classic buckets, or `histogram_quantiles` if there is a label for the quantile."""

    vector: VectorNode
    quantiles: tuple[ScalarNode, ...]
    label: str | None = None
    positions: tuple[int, ...] = field(default=(), compare=False)  # of the quantiles
    position: int = _position()  # of the vector


@dataclass(frozen=True, slots=True)
class HistogramFraction:
    """`histogram_fraction` of classic buckets: the share of observations between two values."""

    lower: ScalarNode
    upper: ScalarNode
    vector: VectorNode
    position: int = _position()  # of the vector


@dataclass(frozen=True, slots=True)
class InfoJoin:
    """`info`: a vector with labels of its info series."""

    vector: VectorNode
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A string as the whole expression, which only an instant query allows."""

    value: str


ScalarNode = Number | Time | ScalarOf | ScalarBinary
VectorNode = (
    Selector
    | RangeCall
    | AbsentOver
    | Absent
    | Elementwise
    | TimestampOf
    | VectorOf
    | VectorScalar
    | VectorVector
    | SetOperation
    | Aggregation
    | Relabel
    | Sort
    | HistogramQuantiles
    | HistogramFraction
    | InfoJoin
)
WindowNode = Window | Subquery
Plan = ScalarNode | VectorNode | WindowNode | Text

SCALARS = (Number, Time, ScalarOf, ScalarBinary)
VECTORS = (
    Selector,
    RangeCall,
    AbsentOver,
    Absent,
    Elementwise,
    TimestampOf,
    VectorOf,
    VectorScalar,
    VectorVector,
    SetOperation,
    Aggregation,
    Relabel,
    Sort,
    HistogramQuantiles,
    HistogramFraction,
    InfoJoin,
)
WINDOWS = (Window, Subquery)
COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
SET_OPERATORS = frozenset({"and", "or", "unless"})
