"""Reads the times that people type: ``1h`` (ago), ISO 8601 in UTC by default, or milliseconds since 1970. Pure."""

import re
from datetime import UTC, datetime

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def read_ms(text: str, now_ms: int) -> int:
    """Return a time in ms. Raises ``ValueError`` with a sentence."""
    if text == "now":
        return now_ms
    if re.fullmatch(r"\d{9,15}", text):
        return int(text)
    if match := re.fullmatch(r"(\d{1,6})([smhdw])", text):
        return now_ms - int(match[1]) * _UNITS_MS[match[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write 1h (ago), 2026-11-21T10:00 (UTC), or ms since 1970.") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def step_s(from_ms: int, to_ms: int, columns: int) -> int:
    """Return a step in seconds that gives about two samples a column of a chart, and one a second at most."""
    return max(1, round((to_ms - from_ms) / 1_000 / (2 * columns)))
