"""Turns values into the SVG path of a sparkline. Pure.

A table of 50 hosts has 100 of them, and sends them again every few seconds: whole numbers and relative moves take a
third of the bytes of a plain path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

WIDTH, HEIGHT = 120, 24
_SPAN_MIN = 4.0  # of the values: a smaller wobble stays one


@dataclass(frozen=True, slots=True)
class Sparkline:
    """An SVG path, empty if there is nothing to draw; ``low`` and ``high``: the values between its edges."""

    path: str = ""
    low: float | None = None
    high: float | None = None
    width: int = WIDTH
    height: int = HEIGHT


def draw_sparkline(values: Sequence[float | None]) -> Sparkline:
    """Draw values from left to right over their own range; None and what is not finite interrupt the line."""
    present = [value for value in values if value is not None and isfinite(value)]
    if not present:
        return Sparkline()
    low, high = min(present), max(present)
    middle, span = low / 2 + high / 2, max(high - low, _SPAN_MIN)
    pieces, place, is_open = [], (0, 0), False
    for at, value in enumerate(values):
        if value is None or not isfinite(value):
            is_open = False
            continue
        x = round(at * WIDTH / max(len(values) - 1, 1))
        y = round(HEIGHT / 2 - (value - middle) / span * (HEIGHT - 2))
        pieces.append(f"{'l' if is_open else 'm'}{x - place[0]} {y - place[1]}")
        place, is_open = (x, y), True
    return Sparkline("".join(pieces).replace(" -", "-"), low, high)
