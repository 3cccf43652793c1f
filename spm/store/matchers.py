"""Label matchers over columns of values.

A regular expression is a user's: it runs in RE2 (linear time, through Arrow), fully anchored, never in `re`. An absent
label has the value "", so callers put "" where a series lacks the label. Enter by `mask`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import BadQuery
from spm.store.columns import as_mask, string, strings

METRIC_NAME = "__name__"
_NEGATED = frozenset({"!=", "!~"})


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; a label that is absent has the value "". The metric's name is the label `__name__`."""

    name: str
    op: str  # "=", "!=", "=~" or "!~"
    value: str


def mask(values: Sequence[str] | pa.Array, matcher: Matcher) -> npt.NDArray[np.bool_]:
    """Which of the values satisfy the matcher."""
    texts = values if isinstance(values, pa.Array) else strings(values)
    hits = pc.equal(texts, string(matcher.value)) if matcher.op in ("=", "!=") else _matches(texts, matcher)
    found = as_mask(hits)
    return ~found if matcher.op in _NEGATED else found


def matches_empty(matcher: Matcher) -> bool:
    """Whether a series without the label satisfies the matcher."""
    return bool(mask([""], matcher)[0])


def _matches(texts: pa.Array, matcher: Matcher) -> pa.Array:
    try:
        return pc.match_substring_regex(texts, pattern=rf"\A(?s:{matcher.value})\z")
    except pa.ArrowInvalid as error:
        raise BadQuery(f"regular expression of {matcher.name}{matcher.op} is not valid: {matcher.value}") from error
