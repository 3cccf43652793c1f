"""Turns a backtest into an SVG: lines, the band of the other series, thresholds, where it fired, and notifications.

The picture is stretched to its frame, so all words stand beside it as text. Coordinates have no unit: columns from left
to right, and values between 0 at the top and ``HEIGHT``. Enter by ``draw``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alerts.backtesting.backtests import BacktestReport
from alerts.backtesting.ranges import ValueRanges
from alerts.judging import limits
from alerts.judging.conditions import Condition
from alerts.judging.kinds import Kind
from alerts.judging.versions import RuleVersion
from spm.arrays import F64

HEIGHT = 200
_EDGE = 0.06  # of the height above and below the values
_DRAWN_MAX = 1e307  # so that the height of a picture is a finite number
_UP = (">", ">=", "==", "!=", "")


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its path and its labels; ``slot`` is the number of its colour."""

    path: str
    labels: Mapping[str, str]
    slot: int


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch from left to right, in columns."""

    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Picture:
    """What the page draws. ``low`` and ``high`` are the values at its lower and upper edge."""

    columns: int
    lines: Sequence[Line]
    band: str
    others: int
    low: float
    high: float
    threshold: float | None
    recovery: float | None
    fired: Sequence[Span]
    notified: Sequence[float]
    times_ms: Sequence[int]
    height: int = HEIGHT


def draw(report: BacktestReport, version: RuleVersion) -> Picture:
    """Draw the values that were judged, and what the rule said of them."""
    ranges, condition = report.ranges, version.condition
    is_compared = bool(condition.comparator) and version.kind is not Kind.ANOMALY
    thresholds = [condition.threshold] if is_compared else []
    recovery = condition.recovery if is_compared else None
    names = ranges.farthest(up=condition.comparator in _UP, most=limits.BACKTEST_LINES)
    others = [name for name in ranges.labels if name not in set(names)]
    low, high = _edges(ranges, [*thresholds, *([] if recovery is None else [recovery])])
    scale = _Scale(low, high)
    return Picture(
        columns=ranges.columns,
        lines=[
            Line(_path(*ranges.range_of(name), scale), ranges.labels[name], slot) for slot, name in enumerate(names, 1)
        ],
        band=_band(*ranges.band(others), scale) if others else "",
        others=len(others),
        low=low,
        high=high,
        threshold=scale.place(condition.threshold) if is_compared else None,
        recovery=None if recovery is None else scale.place(recovery),
        fired=list(_fired(report)),
        notified=[_column(report, at_ms) for at_ms in report.notification_times],
        times_ms=[report.first_ms + (report.last_ms - report.first_ms) * part // 4 for part in range(5)],
    )


def threshold_of(condition: Condition, kind: Kind) -> float | None:
    """Return the threshold that the picture draws, if it draws one."""
    return condition.threshold if condition.comparator and kind is not Kind.ANOMALY else None


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value stands, from the top; one beyond an edge stands at the edge."""
        inside = min(max(value, self.low), self.high)
        return round(HEIGHT * ((self.high - inside) / (self.high - self.low)), 1)


def _edges(ranges: ValueRanges, marks: Sequence[float]) -> tuple[float, float]:
    """Return the values at the lower and upper edge: around all values and thresholds, and zero if that is near."""
    names = list(ranges.labels)
    low, high = ranges.band(names) if names else (np.array([]), np.array([]))
    every = np.concatenate([low[~np.isnan(low)], high[~np.isnan(high)], np.array(marks, np.float64)])
    every = np.clip(every[np.isfinite(every)], -_DRAWN_MAX, _DRAWN_MAX)
    least, most = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    if 0 <= least < 0.8 * most:
        least = 0.0
    room = (most - least) * _EDGE or abs(most) * _EDGE or 1.0
    return (least if least == 0 and most > 0 else least - room), most + room


def _path(low: F64, high: F64, scale: _Scale) -> str:
    """Return the path through the columns with values; each goes from its least to its greatest."""
    pieces, is_open = [], False
    for column, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if np.isnan(least):
            is_open = False
            continue
        x, bottom, top = column + 0.5, scale.place(least), scale.place(most)
        pieces.append(
            f"{'L' if is_open else 'M'}{x} {bottom}" + (f"V{top}" if top != bottom else "" if is_open else "h.4")
        )
        is_open = True
    return "".join(pieces)


def _band(low: F64, high: F64, scale: _Scale) -> str:
    """Return the path around the columns with values, a rectangle for each."""
    return "".join(
        f"M{column} {scale.place(most)}h1V{max(scale.place(least), scale.place(most) + 1)}h-1z"
        for column, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True))
        if not np.isnan(least)
    )


def _fired(report: BacktestReport) -> Iterator[Span]:
    """Yield where any series fires, joined where that overlaps; a short one is as wide as a column can be seen."""
    ends: Iterable[tuple[int, int]] = sorted(
        (each.start_ms, report.last_ms if each.end_ms is None else each.end_ms) for each in report.episodes
    )
    joined: list[tuple[float, float]] = []
    for start_ms, end_ms in ends:
        left, right = _column(report, start_ms), max(_column(report, end_ms), _column(report, start_ms) + 0.8)
        if joined and left <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], right))
        else:
            joined.append((left, right))
    for left, right in joined:
        yield Span(round(left, 2), round(right - left, 2))


def _column(report: BacktestReport, at_ms: int) -> float:
    share = (at_ms - report.first_ms) / max(report.last_ms - report.first_ms, 1)
    return round(min(max(share, 0.0), 1.0) * report.ranges.columns, 2)
