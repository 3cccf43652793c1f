"""Converts durations between text (``90s``, ``5m``, ``1h30m``) and milliseconds. Pure."""

from spm.errors import BadQuery

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def read(text: str) -> int:
    """Read a duration in milliseconds; an empty text and a plain 0 are 0."""
    rest, total = text.strip().replace(" ", ""), 0
    if rest in ("", "0"):
        return 0
    while rest:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        tail = rest[len(digits) :]
        unit = tail[: len(tail) - len(tail.lstrip("dhms"))]
        if not digits or unit not in _UNITS or not digits.isascii() or len(digits) > 9:
            raise BadQuery(f"{text!r} is not a duration; write it like 90s, 5m or 1h30m")
        total, rest = total + int(digits) * _UNITS[unit], tail[len(unit) :]
    return total


def spell(ms: int) -> str:
    """Write a duration as short as possible, so that ``read`` returns the same number."""
    if not ms:
        return "0s"
    parts = []
    for unit, size in _UNITS.items():
        count, ms = divmod(ms, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)
