"""Regular expressions of users, as far as they must be understood before RE2 runs them.

RE2 takes what Go takes but for `\\C`, one byte, which may cut a character in two: it is refused. Arrow gives captures
of named groups only; `all_named` gives every group a name. Escapes, quoted text and character classes are passed over,
one that is not closed to the end: RE2 refuses it later, and looking for its end again from each bracket takes long.
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


def all_named(regex: str, prefix: str) -> tuple[str, dict[str, str]]:
    """The expression with a name for each of its groups, and that name by its number and by the name it had."""
    names: dict[str, str] = {}
    count = 0

    def named(match: re.Match[str]) -> str:
        nonlocal count
        if match["group"] is None and match["name"] is None:
            return match.group()
        count += 1
        name = f"{prefix}{count}"
        names[str(count)] = name
        if match["name"] is not None:
            names.setdefault(match["name"], name)
        return f"(?P<{name}>"

    return _PIECE.sub(named, regex), names
