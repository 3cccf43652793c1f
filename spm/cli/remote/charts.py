"""Draws series as a chart of braille signs, two dots wide and four dots high each. Pure. Enter by ``draw``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a sign: rows from above, columns
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its name, and its samples as (seconds, value)."""

    name: str
    samples: Sequence[tuple[float, float]]


def draw(lines: Sequence[Line], *, width: int, height: int) -> list[list[tuple[int, str]]]:
    """Return the rows of the chart; each is a list of (number of the series, or −1, text).

    Values that are not finite, and steps without a sample, leave a gap. A sign that two series share has the dots of
    both and the number of the later one.
    """
    points = [[(x, y) for x, y in line.samples if math.isfinite(y)] for line in lines]
    every = [point for each in points for point in each]
    if not every:
        return [[(-1, "no data")]]
    low, high = min(y for _, y in every), max(y for _, y in every)
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    labels = [f"{value:.4g}" for value in (high, (low + high) / 2, low)]
    margin = max(map(len, labels))
    columns = max(width - margin - 1, 10)
    signs, owners = _raster(points, (first, last), (low, high), columns, height)
    of_row = {0: labels[0], (height - 1) // 2: labels[1], height - 1: labels[2]}
    rows = []
    for row in range(height):
        text = [(-1, of_row.get(row, "").rjust(margin) + "┤")]
        text += [(owners[row][at], chr(0x2800 + signs[row][at])) for at in range(columns)]
        rows.append(text)
    return [*rows, [(-1, _axis(first, last, margin + 1, columns))]]


def _raster(
    points: Sequence[Sequence[tuple[float, float]]],
    span: tuple[float, float],
    values: tuple[float, float],
    columns: int,
    height: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the dots of each sign, and the series that it belongs to."""
    signs = [[0] * columns for _ in range(height)]
    owners = [[-1] * columns for _ in range(height)]
    for number, series in enumerate(points):
        for x, y in series:
            column = round((x - span[0]) / ((span[1] - span[0]) or 1) * (2 * columns - 1))
            row = round((values[1] - y) / ((values[1] - values[0]) or 1) * (4 * height - 1))
            signs[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
            owners[row // 4][column // 2] = number
    return signs, owners


def _axis(first: float, last: float, margin: int, columns: int) -> str:
    begin, end = _time(first, last - first), _time(last, last - first)
    return " " * margin + begin + end.rjust(columns - len(begin))


def _time(seconds: float, span_s: float) -> str:
    """Return a time in UTC; with its date where the chart is longer than a day."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%m-%d %H:%M" if span_s > _DAY_S else "%H:%M:%S") + "Z"
