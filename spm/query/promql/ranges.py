"""Functions of windows, from whatever answers them best: hours and days, samples, sketches, or a subquery's elements.

1. Windows whose borders lie on hours are answered from aggregates where these are exact (`hours`). 2. Else from the
samples (`windows`), which for percentiles of hours whose samples are gone means their sketches. 3. A subquery's windows
hold what it computed. A selector that stands still (`@`) has one window for all steps, asked again only where a
parameter moves. Enter by `called`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spm.errors import BadQuery, QueryFailed
from spm.query import percentiles
from spm.query.label_table import used
from spm.query.promql import deltas, extended, hours, plan, windows
from spm.query.promql.numerals import plain
from spm.query.promql.vector import Vector, named
from spm.query.promql.windows import Steps
from spm.query.select import METRIC_NAME
from spm.query.strips import RUN_BYTES, Strips, runs

if TYPE_CHECKING:
    from spm.query.promql.evaluation import Evaluation

F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_COUNTERS = frozenset({"rate", "increase"})
_QUANTILES = frozenset({"quantile_over_time", "sketch_quantile_over_time"})


def called(evaluation: Evaluation, node: plan.RangeCall) -> Vector:
    """The function's value per series and step."""
    parameters = [evaluation.scalar(parameter) for parameter in node.parameters]
    if node.function == "predict_linear":
        parameters.append(evaluation.times.astype(np.float64))  # predictions count from the step, whatever the offset
    if isinstance(node.window, plan.Subquery):
        found = _of_subquery(evaluation, node, node.window, parameters)
    else:
        found = _of_window(evaluation, node, node.window, parameters)
        if node.function in deltas.SUMMED and deltas.among(found):
            found = deltas.summed(found, node, node.window, lambda call, span: _of_window(evaluation, call, span, []))
    _remark(evaluation, node, found, parameters)
    return found


def _remark(evaluation: Evaluation, node: plan.RangeCall, found: Vector, parameters: list[F64]) -> None:
    if node.function in _COUNTERS:
        for metric in used(found.shown().labels, METRIC_NAME):
            evaluation.remarks.possible_gauge(metric, node.position)
    elif node.function in _QUANTILES:
        evaluation.remarks.quantiles(parameters[0][found.present.any(axis=0)], node.position)
    elif node.function == "integral":
        evaluation.remarks.rules(parameters[0][found.present.any(axis=0)], node.position)


def _of_subquery(evaluation: Evaluation, node: plan.RangeCall, window: plan.Subquery, parameters: list[F64]) -> Vector:
    steps = evaluation.placed(window)
    inner = evaluation.inside(window, steps)
    made = inner.vector(window.vector)
    evaluation.reader.keep(runs(made.present) * RUN_BYTES)
    evaluation.reader.check_cells(len(made.labels), evaluation.steps.count, f"{node.function}() of a subquery")
    read = Strips.where(made.present, made.labels, inner.times, made.values)
    values, present = _swept(evaluation, node, read, steps, window.range_ms, parameters)
    values, present = evaluation.spread(values, present)
    if node.function in windows.KEEPS_NAME:
        return Vector(made.labels, values, present, made.nameless)
    return made.having(values, present)


def _of_window(evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, parameters: list[F64]) -> Vector:
    selector = window.selector
    steps = evaluation.placed(selector)
    nameless = node.function not in windows.KEEPS_NAME
    if selector.mode:
        return _extended(evaluation, node, window, steps)
    if node.function == "sketch_quantile_over_time":
        return _sketched(evaluation, window, steps, parameters[0])
    span = hours.span(node.function, steps, window.range_ms)
    if span is not None:
        columns = hours.columns(node.function)
        cells = evaluation.reader.select_cells(selector.matchers, span, columns, steps=evaluation.steps.count)
        found = hours.combine(node.function, cells, span, steps)
        if found is not None:
            return named(cells.labels, *evaluation.spread(*found), nameless=nameless)
    first = steps.first_ms - window.range_ms
    batch = evaluation.reader.strips(selector.matchers, first, steps.last_ms, steps=evaluation.steps.count)
    gone = batch.basis.raw_expired_ms and batch.basis.asof_ms is None
    if node.function == "quantile_over_time" and gone:
        # Percentiles of windows whose samples are gone in part: what is left of those hours are their sketches.
        evaluation.reader.forget(selector.matchers, first, steps.last_ms)
        return _sketched(evaluation, window, steps, parameters[0])
    values, present = _swept(evaluation, node, batch, steps, window.range_ms, parameters)
    return named(batch.labels, *evaluation.spread(values, present), nameless=nameless)


def _swept(
    evaluation: Evaluation,
    node: plan.RangeCall,
    read: Strips,
    steps: Steps,
    range_ms: int,
    parameters: list[F64],
) -> tuple[F64, Bool]:
    if node.function == "double_exponential_smoothing" and read.samples:
        _check_factors(*parameters)
    moving = any((parameter != parameter[0]).any() for parameter in parameters if len(parameter))
    if steps.count == 1 < evaluation.steps.count and moving:
        # The window stands still (`@`) while a parameter moves: the same window is asked at every step.
        steps = Steps(steps.first_ms, 0, evaluation.steps.count)
    own = [parameter[: steps.count] for parameter in parameters]
    return windows.sweep(node.function, read, steps, range_ms, *own, tick=evaluation.reader.tick)


def _check_factors(smoothing: F64, trend: F64) -> None:
    for name, factor in (("smoothing", smoothing), ("trend", trend)):
        wrong = factor[(factor <= 0) | (factor >= 1)]
        if len(wrong):
            raise QueryFailed(f"invalid {name} factor. Expected: 0 < {name[0]}f < 1, got: {plain(float(wrong[0]))}")


def _extended(evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, steps: Steps) -> Vector:
    selector = window.selector
    understood = extended.UNDERSTOOD[selector.mode]
    if node.function not in understood:
        names = ", ".join(understood)
        raise BadQuery(f"{selector.mode} modifier can only be used with: {names} - not with {node.function}")
    before, after = extended.reach(selector.mode, evaluation.reader.lookback_ms)
    start, end = steps.first_ms - window.range_ms - before, steps.last_ms + after
    batch = evaluation.reader.select(selector.matchers, start, end, steps=evaluation.steps.count)
    found = extended.sweep(
        node.function, batch, steps, range_ms=window.range_ms, lookback_ms=evaluation.reader.lookback_ms,
        smoothed=selector.mode == "smoothed", tick=evaluation.reader.tick,
    )  # fmt: skip
    return named(batch.labels, *evaluation.spread(*found), nameless=True)


def _sketched(evaluation: Evaluation, window: plan.Window, steps: Steps, parameter: F64) -> Vector:
    if steps.count == 1 < evaluation.steps.count:
        steps = Steps(steps.first_ms, 0, evaluation.steps.count)
    cuts = percentiles.segments(steps.times - window.range_ms, steps.times)
    found = evaluation.reader.select_sketches(window.selector.matchers, cuts, steps=evaluation.steps.count)
    return named(
        found.labels, *percentiles.of_series(found, cuts, parameter, evaluation.reader.tick), nameless=True
    )  # fmt: skip
