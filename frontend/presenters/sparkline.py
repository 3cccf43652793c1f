"""Turns values into the SVG paths of a sparkline. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 150, 28


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One SVG path for the line and one for the area below it; both empty if there is nothing to draw."""

    line: str
    area: str
    width: int = WIDTH
    height: int = HEIGHT


def draw_sparkline(values: Sequence[float | None], top: float) -> Sparkline:
    """Draw values from left to right, 0 at the bottom and ``top`` at the top; None interrupts the line."""
    runs = [run for run in _runs(values) if len(run) > 1]
    across = WIDTH / max(len(values) - 1, 1)
    lines, areas = [], []
    for run in runs:
        points = [f"{at * across:.1f},{_height(value, top):.1f}" for at, value in run]
        lines.append("M" + " L".join(points))
        first, last = run[0][0] * across, run[-1][0] * across
        areas.append(f"M{first:.1f},{HEIGHT} L{' L'.join(points)} L{last:.1f},{HEIGHT} Z")
    return Sparkline(" ".join(lines), " ".join(areas))


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return runs


def _height(value: float, top: float) -> float:
    share = min(max(value / top, 0.0), 1.0) if top > 0 else 0.0
    return HEIGHT - 1.5 - share * (HEIGHT - 3)
