"""The distance of values from the same half hour of past weeks. Pure.

1. For each half hour of the steps, and each of the past weeks, the expression is read at six times of that half hour.
2. A series with values in three weeks or more has a median m and a spread s: 1.4826 times the median distance from m,
   and at least the rule's floor.
3. The value at a step becomes |v - m| / s. A series that is still learning has the distance 0.

Half hours are of UTC. Enter by ``distances``.
"""

from collections.abc import Mapping

import numpy as np

from alerts.judging import limits
from alerts.judging.answers import Answer, Read
from alerts.judging.kinds import Parameters
from alerts.judging.versions import Steps
from spm.arrays import BOOL, F64

_NORMAL = 1.4826  # the standard deviation of normal values that have a median distance of 1


def distances(expr: str, parameters: Parameters, answer: Answer, steps: Steps, read: Read) -> Answer:
    """Return the answer of an expression with distances in place of its values."""
    half_hours = (steps.first_ms + np.arange(len(steps)) * steps.period_ms) // limits.HALF_HOUR_MS
    result = np.array(answer.values, np.float64)
    errors = dict(answer.errors)
    for half_hour in np.unique(half_hours).tolist():
        columns = np.flatnonzero(half_hours == half_hour)
        past = [_week(expr, half_hour, week, read) for week in range(1, parameters.weeks + 1)]
        failed = next((text for each in past for text in each.errors.values()), None)
        if failed is not None:
            errors |= dict.fromkeys(columns.tolist(), failed)
        median, spread, is_known = _band(answer, past)
        spread = np.maximum(spread, parameters.spread_min)
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.abs(answer.values[:, columns] - median[:, None])
            scaled = np.where(far == 0, 0.0, far / spread[:, None])
        result[:, columns] = np.where(is_known[:, None], scaled, 0.0)
    result[np.isnan(answer.values)] = np.nan
    return Answer(answer.labels, result, answer.present, errors)


def _week(expr: str, half_hour: int, week: int, read: Read) -> Answer:
    first_ms = half_hour * limits.HALF_HOUR_MS - week * limits.WEEK_MS
    period_ms = limits.HALF_HOUR_MS // limits.ANOMALY_POINTS
    return read(expr, Steps(first_ms, first_ms + limits.HALF_HOUR_MS - period_ms, period_ms))


def _band(answer: Answer, past: list[Answer]) -> tuple[F64, F64, BOOL]:
    """(median, spread, whether there are weeks enough) of each series of the answer."""
    size = len(answer.labels)
    values = np.full((size, len(past), limits.ANOMALY_POINTS), np.nan)
    row_of: Mapping[str, int] = {answer.name(row): row for row in range(size)}
    for week, each in enumerate(past):
        own = [(row, row_of.get(each.name(row))) for row in range(len(each.labels))]
        pairs = [(row, there) for row, there in own if there is not None]
        if pairs:
            rows, theirs = map(list, zip(*pairs, strict=True))
            values[theirs, week] = np.where(each.present[rows], each.values[rows], np.nan)
    weeks = (~np.isnan(values)).any(axis=2).sum(axis=1)
    flat = values.reshape(size, len(past) * limits.ANOMALY_POINTS)
    is_known = weeks >= limits.ANOMALY_WEEKS_MIN
    median, spread = np.zeros(size), np.zeros(size)
    if is_known.any():
        median[is_known] = np.nanmedian(flat[is_known], axis=1)
        spread[is_known] = _NORMAL * np.nanmedian(np.abs(flat[is_known] - median[is_known, None]), axis=1)
    return median, spread, is_known
