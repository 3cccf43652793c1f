"""Functions of windows, from whatever answers them best: hours and days, samples, sketches, or a subquery's elements.

1. Windows whose borders lie on hours are answered from aggregates where these are exact (`hours`). 2. Else from the
samples (`windows`). 3. Where samples are gone, from what is left of each window: whole hours and days, their sketches
for percentiles, and samples for the rest (`remains`). 4. A subquery's windows hold what it computed. A selector that
stands still (`@`) has one window for all steps, asked again only where a parameter moves. Enter by `called`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spm.arrays import BOOL, F64
from spm.errors import BadQuery, QueryFailed
from spm.query.promql.evaluation import deltas, whole_hours
from spm.query.promql.evaluation.context import Evaluation
from spm.query.promql.kernels import extended_ranges, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.vector import Vector, named, united
from spm.query.promql.planning import plan
from spm.query.promql.syntax.numerals import plain
from spm.query.request.batches import METRIC_NAME, HourBatch, Segments
from spm.query.rolled import percentiles
from spm.query.rolled.trimmed_windows import Gone, left, read_left
from spm.query.samples.sample_runs import RUN_BYTES, Strips, runs
from spm.query.series.label_table import used

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
        return _sketched(evaluation, window, steps, parameters[0], Gone())
    found, gone = _of_hours(evaluation, node, window, steps)
    if found is not None:
        return found
    first = steps.first_ms - window.range_ms
    if not gone:
        batch = evaluation.reader.strips(selector.matchers, first, steps.last_ms, steps=evaluation.steps.count)
        gone = Gone.of(batch.basis)
        if not gone or not (whole_hours.answers(node.function) or node.function == "quantile_over_time"):
            values, present = _swept(evaluation, node, batch, steps, window.range_ms, parameters)
            present = _answered(present, gone, steps, window)
            return named(batch.labels, *evaluation.spread(values, present), nameless=nameless)
        evaluation.reader.forget(selector.matchers, first, steps.last_ms)
    early = int(np.searchsorted(steps.times - window.range_ms, gone.samples_ms))
    if not 0 < early < steps.count:
        return _of_remains(evaluation, node, window, parameters, gone)
    head, tail = slice(early), slice(early, steps.count)
    return _side_by_side(
        _of_remains(evaluation.among(head), node, window, [each[head] for each in parameters], gone),
        _of_window(evaluation.among(tail), node, window, [each[tail] for each in parameters]),
    )


def _answered(present: BOOL, gone: Gone, steps: Steps, window: plan.Window) -> BOOL:
    """Where a function that only samples can answer has a value: where nearly all of them are there."""
    if not gone:
        return present
    return present & left(steps.times - window.range_ms, steps.times, replace(gone, bare=True)).answered


def _side_by_side(head: Vector, tail: Vector) -> Vector:
    """One vector over the steps of both, those of the one before those of the other."""
    early, late = (0, head.values.shape[1]), (0, tail.values.shape[1])
    widths = (head, ((0, 0), late)), (tail, ((0, 0), early[::-1]))
    return united(
        [replace(each, values=np.pad(each.values, wide), present=np.pad(each.present, wide)) for each, wide in widths]
    )


def _of_hours(
    evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, steps: Steps
) -> tuple[Vector | None, Gone]:
    """The value from hours and days where these tell it; else what was found to be gone."""
    span, matchers, gone = whole_hours.span(node.function, steps, window.range_ms), window.selector.matchers, Gone()
    if span is None:
        return None, gone
    asked = whole_hours.Windows.of(span, steps, window.range_ms)
    for columns in dict.fromkeys((whole_hours.columns(node.function), whole_hours.telling(node.function))):
        cells = evaluation.reader.select_cells(matchers, span, columns, steps=evaluation.steps.count)
        gone = Gone.of(cells.basis)
        found = None if gone else whole_hours.combine(node.function, cells, asked)
        if found is not None and not found.doubtful:
            nameless = node.function not in windows.KEEPS_NAME
            return named(cells.labels, *evaluation.spread(found.values, found.present), nameless=nameless), gone
        evaluation.reader.forget_cells(matchers, span, columns)
        if gone:
            break
    return None, gone


def _of_remains(
    evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, parameters: list[F64], gone: Gone
) -> Vector:
    """The value of each window of which enough is left."""
    steps = evaluation.placed(window.selector)
    if node.function == "quantile_over_time":
        return _sketched(evaluation, window, steps, parameters[0], gone)
    columns, matchers = whole_hours.columns(node.function), window.selector.matchers

    def read(cuts: Segments) -> HourBatch:
        return evaluation.reader.select_segments(matchers, cuts, columns, steps=evaluation.steps.count)

    first_ms, cut = steps.times - window.range_ms, percentiles.segments
    asked, cuts, batch = read_left(first_ms, steps.times, gone, cut, read, HourBatch.empty())
    evaluation.reader.rest_on(asked.told(batch.basis))
    found = whole_hours.combine(
        node.function, batch, whole_hours.Windows(cuts.low, cuts.high, asked.first_ms, asked.last_ms)
    )
    nameless = node.function not in windows.KEEPS_NAME
    return named(batch.labels, *evaluation.spread(found.values, found.present), nameless=nameless)


def _swept(
    evaluation: Evaluation,
    node: plan.RangeCall,
    read: Strips,
    steps: Steps,
    range_ms: int,
    parameters: list[F64],
) -> tuple[F64, BOOL]:
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
    understood = extended_ranges.UNDERSTOOD[selector.mode]
    if node.function not in understood:
        names = ", ".join(understood)
        raise BadQuery(f"{selector.mode} modifier can only be used with: {names} - not with {node.function}")
    before, after = extended_ranges.reach(selector.mode, evaluation.reader.lookback_ms)
    start, end = steps.first_ms - window.range_ms - before, steps.last_ms + after
    batch = evaluation.reader.select(selector.matchers, start, end, steps=evaluation.steps.count)
    found = extended_ranges.sweep(
        node.function,
        batch,
        steps,
        range_ms=window.range_ms,
        lookback_ms=evaluation.reader.lookback_ms,
        smoothed=selector.mode == "smoothed",
        tick=evaluation.reader.tick,
    )
    values, present = found
    present = _answered(present, Gone.of(batch.basis), steps, window)
    return named(batch.labels, *evaluation.spread(values, present), nameless=True)


def _sketched(evaluation: Evaluation, window: plan.Window, steps: Steps, parameter: F64, gone: Gone) -> Vector:
    if steps.count == 1 < evaluation.steps.count:
        steps = Steps(steps.first_ms, 0, evaluation.steps.count)
    reader, matchers = evaluation.reader, window.selector.matchers
    cuts, found = percentiles.sketched(
        steps.times - window.range_ms,
        steps.times,
        gone,
        lambda wanted: reader.select_sketches(matchers, wanted, steps=evaluation.steps.count),
    )
    reader.rest_on(found.basis)
    return named(found.labels, *percentiles.of_series(found, cuts, parameter, reader.tick), nameless=True)
