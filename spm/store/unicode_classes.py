r"""How large a regular expression becomes by its classes of Unicode, seen before RE2 builds it.

A class such as `\pL` is hundreds of ranges of bytes, and a counted repetition builds it again each time: RE2 takes
0.2 ms for one, and a tenth of a second to find out that some hundreds are too large. Enter by `built`.
"""

import re

_PIECE = re.compile(
    r"\\Q.*?(?:\\E|\Z)|(?P<named>\\[pP](?:\{[^}]*\}|.)?)|\\.|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*(?:\]|\\?\Z))"
    r"|(?P<open>\()|(?P<close>\))|\{(?P<least>\d{1,4})(?:,(?P<most>\d{0,4}))?\}|(?P<times>[?*+])|.",
    re.DOTALL,
)


def built(regex: str) -> int:
    """How many classes of Unicode an expression builds, those in repetitions as often as they may come."""
    if r"\p" not in regex and r"\P" not in regex:
        return 0
    groups, last = [0], 0  # what each open group has so far, the outermost first; what its last piece gave it
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
        last = _given(piece, groups)
        groups[-1] += last
    return sum(groups)


def _given(piece: re.Match[str], groups: list[int]) -> int:
    if piece["close"] and len(groups) > 1:
        return groups.pop()
    return 1 if piece["named"] else (piece["set"] or "").count(r"\p") + (piece["set"] or "").count(r"\P")
