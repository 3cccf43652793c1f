"""Finds the matchers that name their values: equalities, and regular expressions that are alternatives of plain texts.

Dashboards write most of their choices so (``hostname=~"a|b"``). Such values are looked up, whereas a real expression
must be tried on all values of the label. Text with any special character is left to RE2. Enter by ``literals``.
"""

from functools import lru_cache

from spm.limits import QUERY_PLANS_MAX
from spm.store import matchers
from spm.store.matchers import Matcher

_SPECIAL = frozenset(r"\.+*?()[]{}^$")


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
        return matchers.matches_empty(matcher)
    return ("" in values) == (matcher.op in ("=", "=~"))
