"""Bounds a query's text before the grammar parses it.

Grammar and evaluator recurse as deep as brackets and operators are nested. One linear scan over words, brackets and
operators, which skips strings and comments, refuses texts that would exceed their stack, and texts that are not valid
Unicode. Never checks whether the text is PromQL. Enter by `check`.
"""

import re
from collections.abc import Iterator

from spm.errors import BadQuery
from spm.limits import QUERY_DEPTH_MAX, QUERY_OPERATORS_MAX, QUERY_TEXT_CHARS_MAX

# A closing quote is optional and single characters repeat possessively, so that no text causes much backtracking.
# (Groups do not repeat possessively: Python 3.11 before 3.11.5 matches too little with them.)
_TOKEN = re.compile(
    r"""(?P<skip>"[^"\\]*+(?:\\.[^"\\]*+)*"?|'[^'\\]*+(?:\\.[^'\\]*+)*'?|`[^`]*+`?|\#[^\n]*+)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<operator>[=!<>]=|[=!]~|[-+*/%^<>=])|(?P<word>[A-Za-z_][A-Za-z0-9_:]*+)""",
    re.DOTALL,
)
_WORD_OPERATORS = frozenset({"and", "or", "unless", "atan2"})
_OPENING, _SIGNS = "([{", "-+*/%^<>=!"  # each bracket, and at least one sign of each operator that is not a word


def check(text: str) -> None:
    """Raise `BadQuery` if the text is too long, too deeply nested, or chains too many operators."""
    if len(text) > QUERY_TEXT_CHARS_MAX:
        raise BadQuery(
            f"query of {len(text)} characters; at most {QUERY_TEXT_CHARS_MAX} are accepted: "
            "ask in several queries, or name values by a shorter regular expression"
        )
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadQuery("a query must be valid Unicode: it has half of a surrogate pair")
    if _is_small(text):
        return
    depth = braces = operators = 0
    for kind, token, position in _tokens(text):
        if kind == "open":
            depth += 1
            braces += token == "{"
            if depth > QUERY_DEPTH_MAX:
                raise BadQuery(
                    f"brackets nested deeper than {QUERY_DEPTH_MAX} at position {position}: ask in several queries",
                    position,
                )
        elif kind == "close":
            depth -= 1
            braces -= token == "}"
        elif braces <= 0 and (kind == "operator" or token.lower() in _WORD_OPERATORS):
            operators += 1
            if operators > QUERY_OPERATORS_MAX:
                raise BadQuery(
                    f"more than {QUERY_OPERATORS_MAX} operators at position {position}: ask in several queries, "
                    "or match several values by one regular expression",
                    position,
                )


def _is_small(text: str) -> bool:
    """Whether a text has too few brackets and operators for any limit, even if those in strings and comments count."""
    if sum(map(text.count, _OPENING)) > QUERY_DEPTH_MAX:
        return False
    return sum(map(text.count, _SIGNS)) + sum(map(text.lower().count, _WORD_OPERATORS)) <= QUERY_OPERATORS_MAX


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is not None and kind != "skip":
            yield kind, match.group(), match.start()
