"""Matchers that name their values: equations, and regular expressions that are texts with bars between them.

Dashboards write most of their choices so (``hostname=~"a|b"``). Such values are looked up, where a true expression has
to look at all that there are. Whatever might mean more than itself is left to RE2. Enter by ``literals``.
"""

from functools import lru_cache

from spm.limits import QUERY_PLANS_KEPT
from spm.store import matchers
from spm.store.matchers import Matcher

_MEANS_MORE = frozenset(r"\.+*?()[]{}^$")


def literals(matcher: Matcher) -> tuple[str, ...] | None:
    """The values that a matcher names, to have or (of a negated one) not to have; ``None`` where RE2 must tell."""
    text = matcher.value
    if matcher.op in ("=", "!="):
        return (text,)
    plain = text.isascii() and text.isprintable() and _MEANS_MORE.isdisjoint(text)
    return tuple(text.split("|")) if plain else None


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def matches_empty(matcher: Matcher) -> bool:
    """Whether a series without the label satisfies the matcher; raises ``BadQuery`` for what is no expression."""
    named = literals(matcher)
    if named is None:
        return matchers.matches_empty(matcher)
    return ("" in named) == (matcher.op in ("=", "=~"))
