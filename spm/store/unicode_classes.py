r"""Counts the classes of Unicode in a regular expression, before RE2 builds it.

A class such as `\pL` is hundreds of ranges of bytes, and a counted repetition builds it again each time: RE2 takes
0.2 ms for one, and a tenth of a second to report that some hundreds are too large. Enter by ``count_built``.
"""

import re

_PIECE = re.compile(
    r"\\Q.*?(?:\\E|\Z)|(?P<named>\\[pP](?:\{[^}]*\}|.)?)|\\.|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*(?:\]|\\?\Z))"
    r"|(?P<open>\()|(?P<close>\))|\{(?P<least>\d{1,4})(?:,(?P<most>\d{0,4}))?\}|(?P<times>[?*+])|.",
    re.DOTALL,
)


def count_built(regex: str) -> int:
    """Count the classes of Unicode that RE2 would build, those in repetitions as often as they may be repeated."""
    if r"\p" not in regex and r"\P" not in regex:
        return 0
    groups, last = [0], 0  # classes so far in each open group, the outermost first; classes in the last piece
    for piece in _PIECE.finditer(regex):
        if piece["times"]:
            continue
        if piece["least"]:
            times = max(int(piece["most"] or piece["least"]), 1)
            groups[-1] += last * (times - 1)
            last *= times
            continue
        if piece["open"]:
            groups.append(0)
        last = _classes_of(piece, groups)
        groups[-1] += last
    return sum(groups)


def _classes_of(piece: re.Match[str], groups: list[int]) -> int:
    if piece["close"] and len(groups) > 1:
        return groups.pop()
    return 1 if piece["named"] else (piece["set"] or "").count(r"\p") + (piece["set"] or "").count(r"\P")
