"""Label matchers over columns of values.

A regular expression is a user's: it runs in RE2 (linear time, through Arrow), fully anchored, never in `re`. Linear is
not quick: counted repetitions cost microseconds a byte, so that many values are looked at in parts, with a look at the
clock between them. An absent label has the value "", so callers put "" where a series lacks the label. Enter by `mask`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import BadQuery
from spm.fast_dataclass import dataclass
from spm.store import unicode_classes
from spm.store.encoding.arrow import as_mask, string, strings

METRIC_NAME = "__name__"
MATCHED_BYTES_AT_ONCE = 1 << 16  # half a second for the worst expressions there are, a millisecond for usual ones
UNICODE_CLASSES_MAX = 100  # each is hundreds of ranges: RE2 takes 0.2 ms for one, and refuses some hundreds after 0.1 s
_NEGATED = frozenset({"!=", "!~"})


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; a label that is absent has the value "". The metric's name is the label `__name__`."""

    name: str
    op: str  # "=", "!=", "=~" or "!~"
    value: str


def nothing() -> None:
    """The tick of a question without a time limit."""


def mask(
    values: Sequence[str] | pa.Array, matcher: Matcher, *, tick: Callable[[], None] = nothing
) -> npt.NDArray[np.bool_]:
    """Which of the values satisfy the matcher."""
    texts = values if isinstance(values, pa.Array) else strings(values)
    if matcher.op in ("=", "!="):
        found = as_mask(pc.equal(texts, string(matcher.value)))
    else:
        found = _matched(texts, matcher, tick)
    return ~found if matcher.op in _NEGATED else found


def too_many_classes(regex: str) -> str:
    """Why an expression is refused before RE2 tries to build it: classes of Unicode come too often. Else empty."""
    found = unicode_classes.built(regex)
    if found <= UNICODE_CLASSES_MAX:
        return ""
    return (
        f"it holds {found} classes of Unicode (as \\pL), repetitions such as {{9}} counted, where at most "
        f"{UNICODE_CLASSES_MAX} are taken: use * or + instead"
    )


def matches_empty(matcher: Matcher) -> bool:
    """Whether a series without the label satisfies the matcher."""
    return bool(mask([""], matcher)[0])


def _matched(texts: pa.Array, matcher: Matcher, tick: Callable[[], None]) -> npt.NDArray[np.bool_]:
    parts = -(-texts.nbytes // MATCHED_BYTES_AT_ONCE)
    if parts <= 1:
        return as_mask(_matches(texts, matcher))
    cuts = np.linspace(0, len(texts), min(parts, len(texts)) + 1).astype(int).tolist()
    found = []
    for first, end in pairwise(cuts):
        tick()
        found.append(as_mask(_matches(texts.slice(first, end - first), matcher)))
    return np.concatenate(found)


def _matches(texts: pa.Array, matcher: Matcher) -> pa.Array:
    if refusal := too_many_classes(matcher.value):
        raise BadQuery(f"regular expression of {matcher.name}{matcher.op} is too large: {refusal}")
    try:
        return pc.match_substring_regex(texts, pattern=rf"\A(?s:{matcher.value})\z")
    except pa.ArrowInvalid as error:
        named = f"{matcher.name}{matcher.op}"
        raise BadQuery(
            f"regular expression of {named} is not valid: {matcher.value}: {_reason(matcher.value, error)}"
        ) from error


def _reason(regex: str, error: pa.ArrowInvalid) -> str:
    """What RE2 says of an expression as it came: with ours around it, it may miss the end of ours.

    One that is too large is so either way, and takes a tenth of a second to be found so: it is not asked again.
    """
    if "too large" not in str(error):
        error = _own_error(regex) or error
    return str(error).removeprefix("Invalid regular expression: ").partition(":")[0]


def _own_error(regex: str) -> pa.ArrowInvalid | None:
    try:
        pc.match_substring_regex(strings([""]), pattern=regex)
    except pa.ArrowInvalid as error:
        return error
    return None
