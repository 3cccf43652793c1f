"""Draws the chart of a mail as PNG, in the colours of the pages' charts: the line, its threshold, and when it fired.

It has 600 × 240 points of two pixels; the mail's template says how wide it is shown. A pure function of the chart's
frozen points, so a retry sends the same bytes. Pillow draws it without a display; its own font needs no file. Enter by
``draw``.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from alerts.notify.text import clock_text, number_text

WIDTH, HEIGHT, SCALE = 600, 240, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 28
_SURFACE, _GRID, _QUIET, _LINE, _BAD, _BAD_SOFT = "#ffffff", "#edf0f3", "#556171", "#2f5bd8", "#a82828", "#fbe6e4"
_TICKS, _HEADROOM = 4, 0.08
_GAP_STEPS = 2  # a line is drawn over one missing step, not over more


@dataclass(frozen=True, slots=True)
class ChartData:
    """The points of one series at equal steps (None: no data); it fires in [start_ms, end_ms); None goes on."""

    from_ms: int
    step_ms: int
    values: Sequence[float | None]
    threshold: float | None
    start_ms: int
    end_ms: int | None

    @property
    def to_ms(self) -> int:
        """The time of the last point."""
        return self.from_ms + self.step_ms * (len(self.values) - 1)


def draw(data: ChartData) -> bytes:
    """Return the PNG."""
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), _SURFACE)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(11 * SCALE)
    low, high = _range(data)
    x = _axis(data.from_ms, max(data.to_ms, data.from_ms + 1), _LEFT, WIDTH - _RIGHT)
    y = _axis(low, high, HEIGHT - _BOTTOM, _TOP)
    left, right, top, bottom = _LEFT * SCALE, (WIDTH - _RIGHT) * SCALE, _TOP * SCALE, (HEIGHT - _BOTTOM) * SCALE
    band = max(x(data.start_ms), left), min(x(data.to_ms if data.end_ms is None else data.end_ms), right)
    if band[0] < band[1]:
        pen.rectangle((band[0], top, band[1], bottom), fill=_BAD_SOFT)
    for tick in _ticks(low, high):
        pen.line((left, y(tick), right, y(tick)), fill=_GRID, width=SCALE)
        pen.text((left - 6 * SCALE, y(tick)), number_text(tick), fill=_QUIET, font=font, anchor="rm")
    for share in range(_TICKS + 1):
        at_ms = data.from_ms + (data.to_ms - data.from_ms) * share // _TICKS
        anchor = "rt" if share == _TICKS else "lt" if share == 0 else "mt"
        pen.text((x(at_ms), bottom + 8 * SCALE), clock_text(at_ms), fill=_QUIET, font=font, anchor=anchor)
    for run in _runs(data.values):
        points = [(x(data.from_ms + data.step_ms * at), y(value)) for at, value in run]
        if len(points) == 1:
            (px, py), size = points[0], 2 * SCALE
            pen.ellipse((px - size, py - size, px + size, py + size), fill=_LINE)
        else:
            pen.line(points, fill=_LINE, width=2 * SCALE, joint="curve")
    if data.threshold is not None:
        _dashes(pen, left, right, y(data.threshold))
    buffer = io.BytesIO()
    image.quantize(32, Image.Quantize.FASTOCTREE).save(buffer, "PNG")
    return buffer.getvalue()


def _axis(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """Return the function from values to pixels."""
    return lambda value: (first + (value - low) / (high - low) * (last - first)) * SCALE


def _range(data: ChartData) -> tuple[float, float]:
    """Return the values at the edges: all points and the threshold are within, with room above and below."""
    shown = [value for value in data.values if value is not None and math.isfinite(value)]
    shown += [data.threshold] if data.threshold is not None and math.isfinite(data.threshold) else []
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    room = (high - low) * _HEADROOM or max(abs(high) * _HEADROOM, 0.5)
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return round values between the edges: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw)
    first = math.ceil(low / step)
    return [number * step for number in range(first, first + 2 * _TICKS) if number * step <= high]


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Cut the points where data is missing for longer than a step."""
    runs: list[list[tuple[int, float]]] = []
    for at, value in enumerate(values):
        if value is None or not math.isfinite(value):
            continue
        if runs and at - runs[-1][-1][0] <= _GAP_STEPS:
            runs[-1].append((at, value))
        else:
            runs.append([(at, value)])
    return runs


def _dashes(pen: ImageDraw.ImageDraw, left: float, right: float, height: float) -> None:
    step = 10 * SCALE
    for at in range(int(left), int(right), step):
        pen.line((at, height, min(at + 0.6 * step, right), height), fill=_BAD, width=SCALE + 1)
