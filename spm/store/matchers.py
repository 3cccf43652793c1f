"""Label matchers over columns of values.

Regular expressions come from users: they run in RE2 (linear time, through Arrow), fully anchored, never in `re`. Linear
is not fast: counted repetitions cost microseconds per byte, so many values are matched in parts, with a check of the
deadline between them. An absent label has the value "", which callers pass for series without it.

Dashboards write most of their choices as alternatives of plain texts (``hostname=~"a|b"``). Such values are looked up,
whereas a real expression must be tried on all values of the label. Text with any special character is left to RE2.
Enter by `mask` and `literals`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import BadQuery
from spm.fast_dataclass import dataclass
from spm.limits import QUERY_PLANS_MAX
from spm.store import unicode_classes
from spm.store.encoding.arrow import as_mask, string, strings

METRIC_NAME = "__name__"
MATCHED_BYTES_AT_ONCE = 1 << 16  # half a second for the worst expressions there are, a millisecond for usual ones
UNICODE_CLASSES_MAX = 100  # each is hundreds of ranges: RE2 takes 0.2 ms for one, and refuses some hundreds after 0.1 s
_NEGATED = frozenset({"!=", "!~"})
_SPECIAL = frozenset(r"\.+*?()[]{}^$")


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; a label that is absent has the value "". The metric's name is the label `__name__`."""

    name: str
    op: str  # "=", "!=", "=~" or "!~"
    value: str


def no_deadline() -> None:
    """The check_deadline of a question without a time limit."""


def mask(
    values: Sequence[str] | pa.Array, matcher: Matcher, *, check_deadline: Callable[[], None] = no_deadline
) -> npt.NDArray[np.bool_]:
    """bool[N]: the values that satisfy the matcher."""
    texts = values if isinstance(values, pa.Array) else strings(values)
    if matcher.op in ("=", "!="):
        parts = [pc.equal(texts, string(matcher.value))]
    else:
        parts = _match_in_parts(texts, matcher, check_deadline)
    result = np.concatenate([as_mask(part) for part in parts])
    return ~result if matcher.op in _NEGATED else result


def too_many_classes(regex: str) -> str:
    """Say why an expression has too many Unicode classes to be given to RE2; an empty text if it has not."""
    count = unicode_classes.count_built(regex)
    if count <= UNICODE_CLASSES_MAX:
        return ""
    return (
        f"it holds {count} classes of Unicode (as \\pL), counting repetitions such as {{9}}, where at most "
        f"{UNICODE_CLASSES_MAX} are allowed: use * or + instead"
    )


def literals(matcher: Matcher) -> tuple[str, ...] | None:
    """The values that a matcher names, to require or (if negated) to exclude; ``None`` where only RE2 can decide."""
    text = matcher.value
    if matcher.op in ("=", "!="):
        return (text,)
    plain = text.isascii() and text.isprintable() and _SPECIAL.isdisjoint(text)
    return tuple(text.split("|")) if plain else None


@lru_cache(maxsize=QUERY_PLANS_MAX)
def matches_empty(matcher: Matcher) -> bool:
    """Whether a series without the label satisfies the matcher; raises ``BadQuery`` for a malformed expression."""
    values = literals(matcher)
    if values is None:
        return bool(mask([""], matcher)[0])
    return ("" in values) == (matcher.op not in _NEGATED)


def _match_in_parts(texts: pa.Array, matcher: Matcher, check_deadline: Callable[[], None]) -> list[pa.Array]:
    parts = portions(texts)
    if len(parts) == 1:
        return [_match_regex(texts, matcher)]
    matches = []
    for part in parts:
        check_deadline()
        matches.append(_match_regex(part, matcher))
    return matches


def portions(texts: pa.Array) -> list[pa.Array]:
    """Cut texts so that the worst expression takes a short time for each portion."""
    parts = -(-texts.nbytes // MATCHED_BYTES_AT_ONCE)
    if parts <= 1:
        return [texts]
    cuts = np.linspace(0, len(texts), min(parts, len(texts)) + 1).astype(int).tolist()
    return [texts.slice(first, end - first) for first, end in pairwise(cuts)]


def _match_regex(texts: pa.Array, matcher: Matcher) -> pa.Array:
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
    """RE2's error for the expression alone: inside our brackets it may name another position or fault.

    An expression that is too large is so in both forms, and RE2 needs a tenth of a second to say so: it is not parsed
    again.
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
