"""Reads users' regular expressions as far as necessary before RE2 runs them.

RE2 accepts the syntax of Go and also `\\C`, one byte, which may cut a character in two: `cuts_characters` detects it.
Arrow returns captures of named groups only, so `name_groups` gives every group a name. Both skip escapes, quoted text
and character classes. A class that is not closed is skipped to the end of the text: RE2 refuses it later, and a search
for its end from each bracket would take long.
"""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"(?P<byte>\\C)|(?P<skip>\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*(?:\]|\\?\Z))"
    r"|\(\?P?<(?P<name>\w+)>|(?P<other>\(\?)|(?P<group>\()",
    re.DOTALL,
)


def cuts_characters(regex: str) -> bool:
    """Whether an expression matches single bytes."""
    return r"\C" in regex and any(
        match["byte"] or ((match["skip"] or "").startswith("[") and r"\C" in match["skip"])
        for match in _PIECE.finditer(regex)
    )


def name_groups(regex: str, prefix: str) -> tuple[str, dict[str, str]]:
    """Give every group a name; return the expression, and the new names by group number and by former name."""
    names: dict[str, str] = {}
    count = 0

    def add_name(match: re.Match[str]) -> str:
        nonlocal count
        if match["group"] is None and match["name"] is None:
            return match.group()
        count += 1
        name = f"{prefix}{count}"
        names[str(count)] = name
        if match["name"] is not None:
            names.setdefault(match["name"], name)
        return f"(?P<{name}>"

    return _PIECE.sub(add_name, regex), names
