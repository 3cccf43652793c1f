"""Kernels over the samples of one window: the range functions of PromQL.

Every kernel takes the times and values of a window, in order and without stale markers, and returns one number. Sums
are compensated (Neumaier), means and variances computed as in Prometheus, so that results agree to the last bits, NaN
and infinities included; division by zero gives these too, as in Go, instead of numba's exception. Counters are
extrapolated exactly as in Prometheus (`extrapolation_factor`, which whole hours use too). The rule of counter resets
(`_counter`) stands in `extended_ranges`, `whole_hours` and `spm/store/rollup/aggregates` as well. `value` selects the
kernel by a function's code: numba compares small ints, the names are for readers.
"""

from typing import Any

import numpy as np
from numba import njit

from spm.arrays import F64, I64
from spm.query.promql.kernels.sorting import ascending
from spm.query.promql.kernels.sums import compensated_sum
from spm.store.rollup.aggregates import compensated

COUNT, PRESENT, LAST, FIRST, SUM, AVG, MIN, MAX, STDDEV, STDVAR, QUANTILE, MAD = range(12)
TS_FIRST, TS_LAST, TS_MIN, TS_MAX, RESETS, CHANGES = range(12, 18)
RATE, INCREASE, DELTA, IRATE, IDELTA, DERIV, PREDICT, SMOOTH = range(18, 26)  # these need at least two samples
INTEGRAL = 26
FUNCTIONS = {
    "count_over_time": COUNT,
    "present_over_time": PRESENT,
    "last_over_time": LAST,
    "first_over_time": FIRST,
    "sum_over_time": SUM,
    "avg_over_time": AVG,
    "min_over_time": MIN,
    "max_over_time": MAX,
    "stddev_over_time": STDDEV,
    "stdvar_over_time": STDVAR,
    "quantile_over_time": QUANTILE,
    "mad_over_time": MAD,
    "ts_of_first_over_time": TS_FIRST,
    "ts_of_last_over_time": TS_LAST,
    "ts_of_min_over_time": TS_MIN,
    "ts_of_max_over_time": TS_MAX,
    "resets": RESETS,
    "changes": CHANGES,
    "integral": INTEGRAL,
    "rate": RATE,
    "increase": INCREASE,
    "delta": DELTA,
    "irate": IRATE,
    "idelta": IDELTA,
    "deriv": DERIV,
    "predict_linear": PREDICT,
    "double_exponential_smoothing": SMOOTH,
}


@njit(cache=True, nogil=True, error_model="numpy")
def value(code: int, ts: I64, values: F64, t: int, range_ms: int, first: float, second: float) -> Any:
    """Evaluate a function over one window; `first` and `second` are its parameters."""
    if code in (MAX, MIN):
        return _extreme(values, code == MAX)
    if code in (RATE, INCREASE):
        return _counter(ts, values, t, range_ms, code == RATE)
    if code == SUM:
        return _sum(values)
    if code == AVG:
        return _mean(values)
    if code == LAST:
        return values[-1]
    if code == FIRST:
        return values[0]
    if code == COUNT:
        return float(len(values))
    if code == PRESENT:
        return 1.0
    if code in (STDVAR, STDDEV):
        variance = _variance(values)
        return np.sqrt(variance) if code == STDDEV else variance
    if code == QUANTILE:
        return quantile_of(values, first)
    if code == DELTA:
        change = values[-1] - values[0]
        return change * extrapolation_factor(len(values), ts[0], ts[-1], values[0], change, t, range_ms, False)
    if code in (IRATE, IDELTA):
        return _instant_change(ts, values, code == IRATE)
    return _rare_value(code, ts, values, first, second)


@njit(cache=True, nogil=True, error_model="numpy")
def _rare_value(code: int, ts: I64, values: F64, first: float, second: float) -> Any:
    if code == RESETS:
        return float(np.sum(values[1:] < values[:-1]))
    if code == CHANGES:
        return _changes(values)
    if code == DERIV:
        return _regression(ts, values, ts[0])[0]
    if code == PREDICT:
        slope, level = _regression(ts, values, second)
        return slope * first + level
    if code == SMOOTH:
        return _smooth(values, first, second)
    if code == MAD:
        return _deviation(values)
    if code == INTEGRAL:
        return _integral(ts, values, first)
    if code == TS_FIRST:
        return ts[0] / 1000
    if code == TS_LAST:
        return ts[-1] / 1000
    return ts[_place_of_extreme(values, code == TS_MAX)] / 1000


@njit(cache=True, nogil=True, error_model="numpy")
def _extreme(values: F64, greatest: bool) -> Any:
    """Return the extreme: NaN only if there is nothing else, of equal values (the two zeros) the first."""
    best = _greatest(values) if greatest else _least(values)
    if best == 0:
        for here in values:
            if here == 0:
                return here
    return _extreme_of_all(values, greatest) if np.isinf(best) else best


@njit(cache=True, nogil=True, error_model="numpy")
def _greatest(values: F64) -> Any:
    """Return the maximum, by four chains of comparisons that do not wait for each other."""
    a = b = c = d = -np.inf
    fours = len(values) & ~3
    for i in range(0, fours, 4):
        a = values[i] if values[i] > a else a
        b = values[i + 1] if values[i + 1] > b else b
        c = values[i + 2] if values[i + 2] > c else c
        d = values[i + 3] if values[i + 3] > d else d
    for i in range(fours, len(values)):
        a = values[i] if values[i] > a else a
    return max(max(a, b), max(c, d))


@njit(cache=True, nogil=True, error_model="numpy")
def _least(values: F64) -> Any:
    a = b = c = d = np.inf
    fours = len(values) & ~3
    for i in range(0, fours, 4):
        a = values[i] if values[i] < a else a
        b = values[i + 1] if values[i + 1] < b else b
        c = values[i + 2] if values[i + 2] < c else c
        d = values[i + 3] if values[i + 3] < d else d
    for i in range(fours, len(values)):
        a = values[i] if values[i] < a else a
    return min(min(a, b), min(c, d))


@njit(cache=True, nogil=True, error_model="numpy")
def _extreme_of_all(values: F64, greatest: bool) -> Any:
    best = values[0]
    for here in values:
        if np.isnan(best) or (here > best if greatest else here < best):
            best = here
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _place_of_extreme(values: F64, greatest: bool) -> Any:
    """Return the place of the extreme, of equal values the last."""
    place = 0
    for here in range(len(values)):
        best = values[place]
        if np.isnan(best) or (values[here] >= best if greatest else values[here] <= best):
            place = here
    return place


@njit(cache=True, nogil=True, error_model="numpy")
def _sum(values: F64) -> Any:
    total, error = compensated_sum(values, 0.0)
    if np.isfinite(total):
        return total + error
    total, error = 0.0, 0.0
    for here in values:
        total, error = compensated(total, error, here)
    return total if np.isinf(total) else total + error


@njit(cache=True, nogil=True, error_model="numpy")
def _mean(values: F64) -> Any:
    """Divide the sum by the count; where the sum leaves the range of floats, continue with a running mean."""
    total, error = compensated_sum(values[1:], values[0])
    if np.isfinite(total):
        return total / len(values) + error / len(values)
    total, error, count = values[0], 0.0, 1
    is_running = False
    for here in values[1:]:
        count += 1
        if not is_running:
            next_total, next_error = compensated(total, error, here)
            if not np.isinf(next_total):
                total, error = next_total, next_error
                continue
            is_running = True
            total, error = total / (count - 1), error / (count - 1)
        share = (count - 1) / count
        total, error = compensated(share * total, share * error, here / count)
    return total + error if is_running else total / count + error / count


@njit(cache=True, nogil=True, error_model="numpy")
def _variance(values: F64) -> Any:
    mean, mean_error, squares, squares_error, count = 0.0, 0.0, 0.0, 0.0, 0
    for here in values:
        count += 1
        distance = here - mean - mean_error  # exact where all values are close to each other and far from zero
        mean, mean_error = compensated(mean, mean_error, distance / count)
        squares, squares_error = compensated(squares, squares_error, distance * (here - mean - mean_error))
    return (squares + squares_error) / count


@njit(cache=True, nogil=True, error_model="numpy")
def quantile_of(values: F64, q: float) -> Any:
    """Interpolate linearly between the two nearest ranks; NaNs rank lowest."""
    if len(values) == 0 or np.isnan(q):
        return np.nan
    if q < 0:
        return -np.inf
    if q > 1:
        return np.inf
    ranked = ascending(values[~np.isnan(values)])
    nans = len(values) - len(ranked)
    rank = q * (len(values) - 1)
    lower = int(np.floor(rank))
    upper = min(len(values) - 1, lower + 1)
    weight = rank - lower
    below = ranked[lower - nans] if lower >= nans else np.nan
    if weight == 0:
        return below  # the value above may be infinite, and infinity times zero is NaN
    above = ranked[upper - nans] if upper >= nans else np.nan
    return below * (1 - weight) + above * weight


@njit(cache=True, nogil=True, error_model="numpy")
def _deviation(values: F64) -> Any:
    """Return the median of the distances from the median; one NaN makes it NaN."""
    if np.isnan(values).any():
        return np.nan
    ranked = ascending(values)
    if np.isinf(ranked[0]) or np.isinf(ranked[-1]):
        return quantile_of(np.abs(values - quantile_of(values, 0.5)), 0.5)
    half = (len(ranked) - 1) // 2
    odd = len(ranked) % 2 == 1
    middle = ranked[half] if odd else ranked[half] * 0.5 + ranked[half + 1] * 0.5
    left, right, before, distance = half, half + 1, 0.0, 0.0
    for _ in range(half + 1 if odd else half + 2):  # the distances in order: from the median outwards, on both sides
        before = distance
        if right == len(ranked) or (left >= 0 and middle - ranked[left] <= ranked[right] - middle):
            distance = middle - ranked[left]
            left -= 1
        else:
            distance = ranked[right] - middle
            right += 1
    return abs(distance) if odd else abs(before * 0.5 + distance * 0.5)  # a distance may be minus zero


@njit(cache=True, nogil=True, error_model="numpy")
def _integral(ts: I64, values: F64, rule: float) -> Any:
    """Return the area under the samples in seconds, with the height of the left (0) or right (1) one, or their mean.

    A NaN counts as zero.
    """
    total, error = 0.0, 0.0
    for i in range(1, len(values)):
        left = 0.0 if np.isnan(values[i - 1]) else values[i - 1]
        right = 0.0 if np.isnan(values[i]) else values[i]
        height, rest = left if rule == 0 else right, 0.0
        if rule not in (0, 1):
            height, rest = compensated(left, 0.0, right)
            if np.isinf(height) and np.isfinite(left) and np.isfinite(right):
                height, rest = compensated(left / 2, 0.0, right / 2)
            else:
                height, rest = height / 2, rest / 2
        if height != 0 or rest != 0:
            seconds = (ts[i] - ts[i - 1]) / 1000
            total, error = compensated(total, error + rest * seconds, height * seconds)
    return total if np.isinf(total) else total + error


@njit(cache=True, nogil=True, error_model="numpy")
def _changes(values: F64) -> Any:
    count = 0.0
    for i in range(1, len(values)):
        count += values[i] != values[i - 1] and not (np.isnan(values[i]) and np.isnan(values[i - 1]))
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _regression(ts: I64, values: F64, at_ms: float) -> Any:
    """Return the slope per second and the level at a time, by least squares."""
    flat = True
    x_sum, x_error, y_sum, y_error, xy_sum, xy_error, xx_sum, xx_error = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(values)):
        flat = flat and values[i] == values[0]
        x = (ts[i] - at_ms) / 1000
        x_sum, x_error = compensated(x_sum, x_error, x)
        y_sum, y_error = compensated(y_sum, y_error, values[i])
        xy_sum, xy_error = compensated(xy_sum, xy_error, x * values[i])
        xx_sum, xx_error = compensated(xx_sum, xx_error, x * x)
    if flat:
        return (np.nan, np.nan) if np.isinf(values[0]) else (0.0, values[0])
    count = len(values)
    x_sum, y_sum, xy_sum, xx_sum = x_sum + x_error, y_sum + y_error, xy_sum + xy_error, xx_sum + xx_error
    slope = (xy_sum - x_sum * y_sum / count) / (xx_sum - x_sum * x_sum / count)
    return slope, y_sum / count - slope * x_sum / count


@njit(cache=True, nogil=True, error_model="numpy")
def _smooth(values: F64, smoothing: float, trend_factor: float) -> Any:
    """Smooth a level and a trend exponentially, each by its factor."""
    before, level, trend = 0.0, values[0], values[1] - values[0]
    for i in range(1, len(values)):
        if i > 1:
            trend = trend_factor * (level - before) + (1 - trend_factor) * trend
        before, level = level, smoothing * values[i] + (1 - smoothing) * (level + trend)
    return level


@njit(cache=True, nogil=True, error_model="numpy")
def _counter(ts: I64, values: F64, t: int, range_ms: int, per_second: bool) -> Any:
    gained = values[-1] - values[0]
    before = values[0]
    for here in values:
        if here < before:
            gained += before
        before = here
    factor = extrapolation_factor(len(values), ts[0], ts[-1], values[0], gained, t, range_ms, True)
    return gained * (factor / (range_ms / 1000) if per_second else factor)


@njit(cache=True, nogil=True, error_model="numpy")
def extrapolation_factor(
    count: int, first_ts: int, last_ts: int, first: float, gained: float, t: int, range_ms: int, counter: bool
) -> Any:
    """Return the factor by which the change between the first and last sample is extrapolated to the window.

    1. The change is extrapolated to a border nearer than 1.1 average intervals, else by half an interval towards it.
    2. A counter is not extrapolated below zero: the window starts no earlier than the time at which its line is zero.
    """
    to_start, to_end = (first_ts - (t - range_ms)) / 1000, (t - last_ts) / 1000
    sampled = (last_ts - first_ts) / 1000
    average = sampled / (count - 1)
    if to_start >= average * 1.1:
        to_start = average / 2
    if counter and gained > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / gained))
    if to_end >= average * 1.1:
        to_end = average / 2
    return (sampled + to_start + to_end) / sampled


@njit(cache=True, nogil=True, error_model="numpy")
def _instant_change(ts: I64, values: F64, rate: bool) -> Any:
    change = values[-1] - values[-2]
    if not rate:
        return change
    if values[-1] < values[-2]:
        change = values[-1]
    return change / ((ts[-1] - ts[-2]) / 1000)
