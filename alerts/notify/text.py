"""Writes labels, times and single lines as plain text. Pure."""

from collections.abc import Mapping

from spm import limits
from spm.clock import moment


def series(labels: Mapping[str, str]) -> str:
    """Write metric and labels on one line."""
    name = labels.get("__name__", "")
    rest = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__")
    return f"{name} {rest}".strip()


def time_text(at_ms: int) -> str:
    """Write a time in UTC."""
    return moment(at_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def one_line(text: str, length_max: int = limits.MAIL_LINE_CHARS_MAX) -> str:
    """Reduce a text to one line of printable characters, cut at the maximum length."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return cut(clean, length_max)


def cut(text: str, length_max: int) -> str:
    """Cut a text at the maximum length, and show that it was."""
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def rfc3339(at_ms: int) -> str:
    """Write a time as other programs read it: ``2023-11-14T22:13:20.000Z``."""
    return moment(at_ms).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1_000:03d}Z"


def clock_text(at_ms: int) -> str:
    """Write the time of a day in UTC: ``22:13``."""
    return moment(at_ms).strftime("%H:%M")


def number_text(value: float) -> str:
    """Write a number for a narrow place: ``1.5k``, ``20M``, ``0.25``."""
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{sign}"
    return f"{value:.4g}" if abs(value) > 1e-9 else "0"
