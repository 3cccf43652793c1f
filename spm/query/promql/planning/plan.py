"""The plan of a query: frozen, typed nodes, free of the text they come from.

Three kinds of nodes: scalars (one number per step), vectors (a number per series and step) and windows (samples). What
a text cannot mean cannot be built: a node that needs a vector has a field that only takes vectors. `position` is where
in the text a node's warnings point to; it makes no difference between plans. Nothing here reads or computes. Enter by
`Plan`, what `parse.parse` returns.
"""

from __future__ import annotations

from dataclasses import field

from spm.fast_dataclass import dataclass
from spm.query.request.batches import Matcher


def _position() -> int:
    found: int = field(default=0, compare=False)
    return found


@dataclass(frozen=True, slots=True)
class Context:
    """The steps of a query as a whole, in ms."""

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
    """`scalar(v)`: the only element of a vector, else NaN."""

    vector: VectorNode


@dataclass(frozen=True, slots=True)
class ScalarBinary:
    """An operator between two scalars, or the lesser or greater of them; a comparison gives 0 or 1."""

    op: str
    left: ScalarNode
    right: ScalarNode


@dataclass(frozen=True, slots=True)
class Selector:
    """The newest sample of each matching series, looked back for; `smoothed` between the two nearest."""

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
    """A vector evaluated at the steps of its own within a left-open range: samples made on the way."""

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
    position: int = _position()  # of its first argument


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
    """`timestamp(v)`: when the sample of a selector was taken; of anything else, the step's time."""

    vector: VectorNode


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
    """Which elements of two vectors belong together, and what stands for one that is missing."""

    labels: tuple[str, ...] = ()
    on: bool = False  # match on `labels` only; else on all but these
    many: str = ""  # "left" or "right": the side that may have several elements per match
    include: tuple[str, ...] = ()  # labels taken over from the other side
    fill_left: float | None = None
    fill_right: float | None = None

    @property
    def filled(self) -> bool:
        """Whether a number stands for a missing element of either side."""
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
    """One element for each group of a vector (for topk, bottomk, limitk and limit_ratio: some elements of each)."""

    op: str
    vector: VectorNode
    labels: tuple[str, ...] = ()
    without: bool = False
    parameter: ScalarNode | None = None
    text: str = ""  # the label that `count_values` puts values into
    position: int = _position()  # of the parameter


@dataclass(frozen=True, slots=True)
class Relabelled:
    """`label_replace` (destination, replacement, source, regex) and `label_join` (destination, separator, sources…)."""

    function: str
    vector: VectorNode
    texts: tuple[str, ...]
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Sorted:
    """A vector in another order: by value, or by labels when there are any."""

    vector: VectorNode
    descending: bool
    labels: tuple[str, ...] | None = None
    position: int = _position()


@dataclass(frozen=True, slots=True)
class Quantiles:
    """`histogram_quantile`, and with a label for the quantile `histogram_quantiles`, of classic buckets."""

    vector: VectorNode
    quantiles: tuple[ScalarNode, ...]
    label: str | None = None
    positions: tuple[int, ...] = field(default=(), compare=False)  # of the quantiles
    position: int = _position()  # of the vector


@dataclass(frozen=True, slots=True)
class Fraction:
    """`histogram_fraction` of classic buckets: the part of observations between two values."""

    lower: ScalarNode
    upper: ScalarNode
    vector: VectorNode
    position: int = _position()  # of the vector


@dataclass(frozen=True, slots=True)
class Enriched:
    """`info`: a vector with labels of the info series that go with it."""

    vector: VectorNode
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A string on its own, which only an instant query may ask for."""

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
    | Relabelled
    | Sorted
    | Quantiles
    | Fraction
    | Enriched
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
    Relabelled,
    Sorted,
    Quantiles,
    Fraction,
    Enriched,
)
WINDOWS = (Window, Subquery)
COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
SET_OPERATORS = frozenset({"and", "or", "unless"})
