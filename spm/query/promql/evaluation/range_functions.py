"""Evaluates range functions, each from its best source: aggregates, samples, sketches, or the elements of a subquery.

1. Windows whose borders lie on hours are answered from aggregates where these are exact (`whole_hours`). 2. Other
windows are answered from samples (`windows`). 3. Where samples have expired, windows are trimmed to what remains: whole
hours and days, their sketches for percentiles, and samples at the edges (`trimmed_windows`). 4. The windows of a
subquery have its elements as samples. A selector with `@` has one window for all steps; the function is evaluated
several times on it only if a parameter varies. Enter by `call`.
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
from spm.query.promql.operators.vector import Vector, make_vector, merge_rows
from spm.query.promql.planning import plan
from spm.query.promql.syntax.numerals import plain
from spm.query.request.batches import METRIC_NAME, HourBatch, Segments
from spm.query.rolled import percentiles
from spm.query.rolled.trimmed_windows import Expiry, read_trimmed, trim
from spm.query.samples.sample_runs import RUN_BYTES, SampleRuns, run_count
from spm.query.series.label_table import used_values

_COUNTERS = frozenset({"rate", "increase"})
_QUANTILES = frozenset({"quantile_over_time", "sketch_quantile_over_time"})


def call(evaluation: Evaluation, node: plan.RangeCall) -> Vector:
    """Evaluates a range function to a value per series and step."""
    parameters = [evaluation.scalar(parameter) for parameter in node.parameters]
    if node.function == "predict_linear":
        parameters.append(evaluation.times.astype(np.float64))  # predictions count from the step, whatever the offset
    if isinstance(node.window, plan.Subquery):
        vector = _over_subquery(evaluation, node, node.window, parameters)
    else:
        vector = _over_window(evaluation, node, node.window, parameters)
        if node.function in deltas.SUMMED and deltas.has_deltas(vector):
            vector = deltas.replace_deltas(
                vector, node, node.window, lambda call, span: _over_window(evaluation, call, span, [])
            )
    _annotate(evaluation, node, vector, parameters)
    return vector


def _annotate(evaluation: Evaluation, node: plan.RangeCall, vector: Vector, parameters: list[F64]) -> None:
    if node.function in _COUNTERS:
        for metric in used_values(vector.without_empty_rows().labels, METRIC_NAME):
            evaluation.annotations.possible_gauge(metric, node.position)
    elif node.function in _QUANTILES:
        evaluation.annotations.check_quantiles(parameters[0][vector.present.any(axis=0)], node.position)
    elif node.function == "integral":
        evaluation.annotations.check_integral_rules(parameters[0][vector.present.any(axis=0)], node.position)


def _over_subquery(
    evaluation: Evaluation, node: plan.RangeCall, window: plan.Subquery, parameters: list[F64]
) -> Vector:
    steps = evaluation.steps_of(window)
    inner = evaluation.of_subquery(window, steps)
    elements = inner.vector(window.vector)
    evaluation.source.charge(run_count(elements.present) * RUN_BYTES)
    evaluation.source.check_cells(len(elements.labels), evaluation.steps.count, f"{node.function}() of a subquery")
    runs = SampleRuns.where(elements.present, elements.labels, inner.times, elements.values)
    values, present = _sweep(evaluation, node, runs, steps, window.range_ms, parameters)
    values, present = evaluation.repeat(values, present)
    if node.function in windows.KEEPS_NAME:
        return Vector(elements.labels, values, present, elements.nameless)
    return elements.with_elements(values, present)


def _over_window(evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, parameters: list[F64]) -> Vector:
    selector = window.selector
    steps = evaluation.steps_of(selector)
    nameless = node.function not in windows.KEEPS_NAME
    if selector.mode:
        return _over_extended_ranges(evaluation, node, window, steps)
    if node.function == "sketch_quantile_over_time":
        return _sketch_quantile(evaluation, window, steps, parameters[0], Expiry())
    vector, expiry = _over_whole_hours(evaluation, node, window, steps)
    if vector is not None:
        return vector
    first = steps.first_ms - window.range_ms
    if not expiry:
        runs = evaluation.source.select_runs(selector.matchers, first, steps.last_ms, steps=evaluation.steps.count)
        expiry = Expiry.of(runs.provenance)
        if not expiry or not (whole_hours.has_exact_aggregates(node.function) or node.function == "quantile_over_time"):
            values, present = _sweep(evaluation, node, runs, steps, window.range_ms, parameters)
            present = _where_answered(present, expiry, steps, window)
            return make_vector(runs.labels, *evaluation.repeat(values, present), nameless=nameless)
        evaluation.source.forget(selector.matchers, first, steps.last_ms)
    expired = int(np.searchsorted(steps.times - window.range_ms, expiry.samples_ms))  # steps whose windows lack samples
    if not 0 < expired < steps.count:
        return _over_trimmed_windows(evaluation, node, window, parameters, expiry)
    head, tail = slice(expired), slice(expired, steps.count)
    return _concatenate_steps(
        _over_trimmed_windows(evaluation.at_steps(head), node, window, [each[head] for each in parameters], expiry),
        _over_window(evaluation.at_steps(tail), node, window, [each[tail] for each in parameters]),
    )


def _where_answered(present: BOOL, expiry: Expiry, steps: Steps, window: plan.Window) -> BOOL:
    """Marks the elements of a function that only samples can answer: windows of which nearly all samples are stored."""
    if not expiry:
        return present
    return present & trim(steps.times - window.range_ms, steps.times, replace(expiry, samples_only=True)).answered


def _concatenate_steps(head: Vector, tail: Vector) -> Vector:
    """Joins two vectors over consecutive ranges of steps into one."""
    before, after = (head.values.shape[1], 0), (0, tail.values.shape[1])
    padding = (head, ((0, 0), after)), (tail, ((0, 0), before))
    return merge_rows(
        [replace(each, values=np.pad(each.values, pad), present=np.pad(each.present, pad)) for each, pad in padding]
    )


def _over_whole_hours(
    evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, steps: Steps
) -> tuple[Vector | None, Expiry]:
    """Evaluates the function from hours and days where these are exact; returns `None` and the expiry where not."""
    cells, matchers, expiry = (
        whole_hours.exact_cells(node.function, steps, window.range_ms),
        window.selector.matchers,
        Expiry(),
    )
    if cells is None:
        return None, expiry
    cell_windows = whole_hours.CellWindows.of(cells, steps, window.range_ms)
    for columns in dict.fromkeys(
        (whole_hours.columns(node.function), whole_hours.columns_with_extremes(node.function))
    ):
        batch = evaluation.source.select_cells(matchers, cells, columns, steps=evaluation.steps.count)
        expiry = Expiry.of(batch.provenance)
        combined = None if expiry else whole_hours.combine(node.function, batch, cell_windows)
        if combined is not None and not combined.doubtful:
            nameless = node.function not in windows.KEEPS_NAME
            return make_vector(
                batch.labels, *evaluation.repeat(combined.values, combined.present), nameless=nameless
            ), expiry
        evaluation.source.forget_cells(matchers, cells, columns)
        if expiry:
            break
    return None, expiry


def _over_trimmed_windows(
    evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, parameters: list[F64], expiry: Expiry
) -> Vector:
    """Evaluates the function over the windows of which enough remains."""
    steps = evaluation.steps_of(window.selector)
    if node.function == "quantile_over_time":
        return _sketch_quantile(evaluation, window, steps, parameters[0], expiry)
    columns, matchers = whole_hours.columns(node.function), window.selector.matchers

    def read(segments: Segments) -> HourBatch:
        return evaluation.source.select_segments(matchers, segments, columns, steps=evaluation.steps.count)

    first_ms = steps.times - window.range_ms
    trimmed, segments, batch = read_trimmed(
        first_ms, steps.times, expiry, percentiles.window_segments, read, HourBatch.empty()
    )
    evaluation.source.add_provenance(trimmed.with_expiry(batch.provenance))
    combined = whole_hours.combine(
        node.function, batch, whole_hours.CellWindows(segments.low, segments.high, trimmed.first_ms, trimmed.last_ms)
    )
    nameless = node.function not in windows.KEEPS_NAME
    return make_vector(batch.labels, *evaluation.repeat(combined.values, combined.present), nameless=nameless)


def _sweep(
    evaluation: Evaluation,
    node: plan.RangeCall,
    runs: SampleRuns,
    steps: Steps,
    range_ms: int,
    parameters: list[F64],
) -> tuple[F64, BOOL]:
    if node.function == "double_exponential_smoothing" and runs.samples:
        _check_factors(*parameters)
    is_varying = any((parameter != parameter[0]).any() for parameter in parameters if len(parameter))
    if steps.count == 1 < evaluation.steps.count and is_varying:
        # `@` fixes the window while a parameter varies: the function is evaluated on one window at every step.
        steps = Steps(steps.first_ms, 0, evaluation.steps.count)
    by_step = [parameter[: steps.count] for parameter in parameters]
    return windows.sweep(
        node.function, runs, steps, range_ms, *by_step, check_deadline=evaluation.source.check_deadline
    )


def _check_factors(smoothing: F64, trend: F64) -> None:
    for name, factor in (("smoothing", smoothing), ("trend", trend)):
        wrong = factor[(factor <= 0) | (factor >= 1)]
        if len(wrong):
            raise QueryFailed(f"invalid {name} factor. Expected: 0 < {name[0]}f < 1, got: {plain(float(wrong[0]))}")


def _over_extended_ranges(evaluation: Evaluation, node: plan.RangeCall, window: plan.Window, steps: Steps) -> Vector:
    selector = window.selector
    supported = extended_ranges.SUPPORTED[selector.mode]
    if node.function not in supported:
        names = ", ".join(supported)
        raise BadQuery(f"{selector.mode} modifier can only be used with: {names} - not with {node.function}")
    before, after = extended_ranges.margins(selector.mode, evaluation.source.lookback_ms)
    start, end = steps.first_ms - window.range_ms - before, steps.last_ms + after
    batch = evaluation.source.select(selector.matchers, start, end, steps=evaluation.steps.count)
    values, present = extended_ranges.sweep(
        node.function,
        batch,
        steps,
        range_ms=window.range_ms,
        lookback_ms=evaluation.source.lookback_ms,
        smoothed=selector.mode == "smoothed",
        check_deadline=evaluation.source.check_deadline,
    )
    present = _where_answered(present, Expiry.of(batch.provenance), steps, window)
    return make_vector(batch.labels, *evaluation.repeat(values, present), nameless=True)


def _sketch_quantile(
    evaluation: Evaluation, window: plan.Window, steps: Steps, parameter: F64, expiry: Expiry
) -> Vector:
    if steps.count == 1 < evaluation.steps.count:
        steps = Steps(steps.first_ms, 0, evaluation.steps.count)
    source, matchers = evaluation.source, window.selector.matchers
    segments, batch = percentiles.read_window_sketches(
        steps.times - window.range_ms,
        steps.times,
        expiry,
        lambda requested: source.select_sketches(matchers, requested, steps=evaluation.steps.count),
    )
    source.add_provenance(batch.provenance)
    return make_vector(
        batch.labels, *percentiles.series_percentiles(batch, segments, parameter, source.check_deadline), nameless=True
    )
