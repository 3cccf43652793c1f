"""Walks a plan: every node computes all steps of all series at once.

An `Evaluation` holds the steps of a query or subquery and the sample source of the query. A subquery is evaluated by an
`Evaluation` with steps of its own; its elements become the samples of a window. Range functions read hourly and daily
aggregates where these are exact (`range_functions`). Enter by `answer_elements` and `answer_samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from spm.arrays import BOOL, F64, I64
from spm.errors import QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.limits import QUERY_SUBQUERY_STEPS_MAX
from spm.query.promql.evaluation import range_functions
from spm.query.promql.evaluation.sample_source import SampleSource, samples_of
from spm.query.promql.kernels import extended_ranges, functions, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators import binary, histogram_quantile, ordering, select_elements
from spm.query.promql.operators import info as operators_info
from spm.query.promql.operators.aggregate import aggregate
from spm.query.promql.operators.annotations import Annotations
from spm.query.promql.operators.relabel import relabel
from spm.query.promql.operators.vector import Vector, finish, make_vector, merge_rows, stack
from spm.query.promql.planning import plan
from spm.query.promql.syntax.numerals import open_metrics
from spm.query.request.batches import SeriesBatch
from spm.query.request.lookback import SUBQUERY_STEP_MS
from spm.query.request.provenance import Provenance
from spm.query.samples.sample_runs import SampleRuns
from spm.query.series.label_table import group_by, group_without

_SELECTING = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer at some consecutive steps: its elements, what they rest on, and the annotations."""

    vector: Vector
    provenance: Provenance
    infos: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: int = 0
    separable: bool = False  # whether no step depends on others: it used samples alone, and annotations are separable
    cacheable: bool = False  # whether it also may be cached: no sample that it used was retracted or has expired
    cached_steps: int = 0  # steps that were not computed


class Evaluation:
    """One query, or one of its subqueries, at its steps."""

    def __init__(self, source: SampleSource, steps: Steps, borders: tuple[int, int], annotations: Annotations) -> None:
        self.source, self.steps, self.annotations = source, steps, annotations
        self.times: I64 = steps.times
        self._borders = {"start": borders[0], "end": borders[1]}  # the first and last time of the whole query

    # --- entries ---

    def answer_elements(self, node: plan.ScalarNode | plan.VectorNode, *, by_labels: bool) -> Answer:
        """Evaluates a whole query to its elements, sorted by labels if asked; a scalar is one without labels."""
        elements = self.constant(self.scalar(node)) if isinstance(node, plan.SCALARS) else self.vector(node)
        return self._answer(finish(elements, by_labels=by_labels))

    def answer_samples(self, window: plan.WindowNode) -> tuple[SeriesBatch, Answer]:
        """Reads the samples of a whole query that is a window, at one step; the answer has no elements."""
        samples, shape = self.samples(window), (0, self.steps.count)
        none = make_vector([], np.empty(shape), np.empty(shape, np.bool_), nameless=False)
        return samples, self._answer(none)

    def _answer(self, vector: Vector) -> Answer:
        source, annotations = self.source, self.annotations
        provenance, infos, warnings = source.provenance(), tuple(annotations.infos), tuple(annotations.warnings)
        separable = annotations.are_separable and not source.tried_aggregates
        cacheable = separable and source.rests_on_samples(provenance)
        return Answer(vector, provenance, infos, warnings, source.samples, separable, cacheable)

    def vector(self, node: plan.VectorNode) -> Vector:
        """Evaluates a node to a value per series and step."""
        self.source.check_deadline()
        before = self.source.vector_bytes
        vector = _VECTORS[type(node)](self, node)
        self.source.charge_node(before, vector.values.size)
        return vector

    def scalar(self, node: plan.ScalarNode) -> F64:
        """Evaluates a node to one number per step."""
        match node:
            case plan.Number(value):
                return np.full(self.steps.count, value)
            case plan.Time():
                return self.times / 1000
            case plan.ScalarBinary(op, left, right):
                with np.errstate(all="ignore"):
                    return functions.scalar_binary(op, self.scalar(left), self.scalar(right))
            case plan.ScalarOf(vector):
                elements = self.vector(vector)
                is_single = elements.present.sum(axis=0) == 1
                with np.errstate(invalid="ignore"):  # the sum of infinities of both signs, which `is_single` excludes
                    return np.where(is_single, np.where(elements.present, elements.values, 0.0).sum(axis=0), np.nan)

    def samples(self, window: plan.WindowNode) -> SeriesBatch:
        """Returns the samples of a window, for an instant query whose expression is a range vector."""
        steps = self.steps_of(window.selector if isinstance(window, plan.Window) else window)
        if isinstance(window, plan.Subquery):
            inner = self.of_subquery(window, steps)
            elements = finish(inner.vector(window.vector))
            return samples_of(elements.labels, inner.times, elements.values, elements.present)
        selector, start = window.selector, steps.first_ms - window.range_ms
        before, after = extended_ranges.margins(selector.mode, self.source.lookback_ms)
        batch = self.source.select(selector.matchers, start - before, steps.first_ms + after, steps=1)
        if selector.mode:
            return extended_ranges.samples(batch, start, steps.first_ms, smoothed=selector.mode == "smoothed")
        return windows.without_stale(batch)

    def constant(self, values: F64) -> Vector:
        """Turns a scalar into one element without labels."""
        return make_vector([{}], values[np.newaxis, :], np.ones((1, len(values)), np.bool_), nameless=False)

    # --- time ---

    def steps_of(self, node: plan.Selector | plan.Subquery) -> Steps:
        """Returns the times that a selector reads: the steps shifted by its offset, or the fixed time of its `@`."""
        if node.at is None:
            return Steps(self.steps.first_ms - node.offset_ms, self.steps.step_ms, self.steps.count)
        at = self._borders[node.at] if isinstance(node.at, str) else node.at
        return Steps(at - node.offset_ms, 0, 1)

    def repeat(self, values: F64, present: BOOL) -> tuple[F64, BOOL]:
        """Repeats the one column of a selector with a fixed time at every step."""
        if values.shape[1] == self.steps.count:
            return values, present
        self.source.check_cells(values.shape[0], self.steps.count, "a selector with @")
        return np.repeat(values, self.steps.count, axis=1), np.repeat(present, self.steps.count, axis=1)

    def at_steps(self, steps: slice) -> Evaluation:
        """Returns the evaluation of some consecutive steps of this one."""
        first, end, _ = steps.indices(self.steps.count)
        borders = self._borders["start"], self._borders["end"]
        part = Steps(self.steps.first_ms + first * self.steps.step_ms, self.steps.step_ms, end - first)
        return Evaluation(self.source, part, borders, self.annotations)

    def of_subquery(self, node: plan.Subquery, steps: Steps) -> Evaluation:
        """Returns the evaluation of a subquery, at multiples of its step from the first one in the first window."""
        step = node.step_ms or SUBQUERY_STEP_MS
        first = (steps.first_ms - node.range_ms) // step * step + step
        count = max((steps.last_ms - first) // step + 1, 0)
        if count > QUERY_SUBQUERY_STEPS_MAX:
            raise QueryTooLarge(
                f"a subquery has {count} steps; at most {QUERY_SUBQUERY_STEPS_MAX} are evaluated: "
                "use a longer step in its brackets, or a shorter range"
            )
        borders = self._borders["start"], self._borders["end"]
        return Evaluation(self.source, Steps(first, step, count), borders, self.annotations)

    # --- selectors ---

    def _instant_selector(self, node: plan.Selector) -> Vector:
        steps = self.steps_of(node)
        lookback_ms = self.source.lookback_ms
        start, count = steps.first_ms - lookback_ms, self.steps.count
        if node.mode == "smoothed":
            batch = self.source.select(node.matchers, start, steps.last_ms + lookback_ms, steps=count)
            return make_vector(
                batch.labels, *self.repeat(*extended_ranges.instants(batch, steps, lookback_ms)), nameless=False
            )
        runs = self.source.select_runs(node.matchers, start, steps.last_ms, steps=count)
        values, present = windows.instants(runs, steps, lookback_ms, check_deadline=self.source.check_deadline)
        if runs.provenance.retractions:
            present &= self._not_retracted(node, runs, steps)
        return make_vector(runs.labels, *self.repeat(values, present), nameless=False)

    def _timestamp(self, node: plan.TimestampOf) -> Vector:
        if not isinstance(node.vector, plan.Selector):
            elements = self.vector(node.vector)
            return elements.with_elements(
                np.broadcast_to(self.times / 1000, elements.values.shape).copy(), elements.present
            )
        timestamps = self._timestamps_of(node.vector)
        return timestamps.with_elements(timestamps.values, timestamps.present)

    def _timestamps_of(self, selector: plan.Selector) -> Vector:
        steps = self.steps_of(selector)
        lookback_ms = self.source.lookback_ms
        runs = self.source.select_runs(
            selector.matchers, steps.first_ms - lookback_ms, steps.last_ms, steps=self.steps.count
        )
        stamps, present = windows.stamps(runs, steps, lookback_ms, check_deadline=self.source.check_deadline)
        if runs.provenance.retractions:
            present &= self._not_retracted(selector, runs, steps)
        return make_vector(runs.labels, *self.repeat(stamps, present), nameless=False)

    def _not_retracted(self, selector: plan.Selector, runs: SampleRuns, steps: Steps) -> BOOL:
        """bool[S, T]: whether no retraction hides a sample that is newer than the one in the look-back of a step.

        Without it, a series would go on with its last value for the look-back's length where its data was retracted.
        """
        start_ms, lookback_ms = steps.first_ms - self.source.lookback_ms, self.source.lookback_ms
        complete = self.source.select_complete_runs(selector.matchers, start_ms, steps.last_ms, steps=self.steps.count)
        check_deadline = self.source.check_deadline
        newest, _ = windows.stamps(runs, steps, lookback_ms, check_deadline=check_deadline)
        stamps, present = windows.stamps(complete, steps, lookback_ms, check_deadline=check_deadline)
        rows = {frozenset(labels.items()): row for row, labels in enumerate(complete.labels)}
        order = np.array([rows[frozenset(labels.items())] for labels in runs.labels], np.int64)
        return ~(present[order] & (stamps[order] > newest))

    def _absent(self, node: plan.Absent) -> Vector:
        return self._absent_series(self.vector(node.vector).present, dict(node.labels))

    def _absent_over_time(self, node: plan.AbsentOver) -> Vector:
        counted = range_functions.call(self, plan.RangeCall("present_over_time", node.window))
        return self._absent_series(counted.present, dict(node.labels))

    def _absent_series(self, present: BOOL, labels: dict[str, str]) -> Vector:
        """Makes one series with these labels, which is 1 at the steps where no element is present."""
        is_absent = np.logical_not(present.any(axis=0)).reshape(1, -1)
        return make_vector([labels], np.ones(is_absent.shape), is_absent, nameless=False)

    # --- elements ---

    def _elementwise(self, node: plan.Elementwise) -> Vector:
        elements = self.vector(node.vector)
        parameters = [self.scalar(parameter) for parameter in node.parameters]
        present = elements.present
        if node.function == "clamp":
            present = present & ~functions.clamp_is_empty(*parameters)
        with np.errstate(all="ignore"):
            values = functions.ELEMENTWISE[node.function](elements.values, *parameters)
        return elements.with_elements(np.ascontiguousarray(values, np.float64), present)

    def _vector_scalar(self, node: plan.VectorScalar) -> Vector:
        number, elements = self.scalar(node.scalar), self.vector(node.vector)
        with np.errstate(all="ignore"):
            return binary.vector_scalar(node.op, elements, number, swapped=node.swapped, as_bool=node.as_bool)

    def _vector_vector(self, node: plan.VectorVector) -> Vector:
        left, right = self._operands(node)
        with np.errstate(all="ignore"):
            return binary.vector_vector(node.op, left, right, node.matching, as_bool=node.as_bool)

    def _set_operation(self, node: plan.SetOperation) -> Vector:
        return binary.set_operation(node.op, *self._operands(node), node.matching)

    def _operands(self, node: plan.VectorVector | plan.SetOperation) -> tuple[Vector, Vector]:
        left, right = self.vector(node.left), self.vector(node.right)
        sides = len(left.labels), len(right.labels)
        most = sum(sides) if node.matching.filled else max(sides)
        self.source.check_cells(most, self.steps.count, f"{node.op!r}")
        return left, right

    # --- groups ---

    def _aggregation(self, node: plan.Aggregation) -> Vector:
        parameter = np.zeros(self.steps.count) if node.parameter is None else self.scalar(node.parameter)
        elements = self.vector(node.vector)
        if node.op == "count_values":
            return select_elements.count_values(elements, node.text, labels=node.labels, without=node.without)
        if node.op == "quantile":
            self.annotations.check_quantiles(parameter, node.position)
        elif node.op == "limit_ratio":
            self.annotations.check_ratios(parameter, node.position)
        groups = (group_without if node.without else group_by)(elements.labels, node.labels)
        if node.op in _SELECTING:
            return select_elements.select(node.op, elements, groups, parameter)
        return aggregate(node.op, elements, groups, parameter)

    def _sorted(self, node: plan.Sort) -> Vector:
        elements = self.vector(node.vector)
        if self.steps.count > 1:
            self.annotations.sort_in_range(node.position)
            return elements
        if node.labels is None:
            return ordering.sort_by_value(elements, descending=node.descending)
        return ordering.sort_by_labels(elements, node.labels, descending=node.descending)

    # --- histograms ---

    def _quantiles(self, node: plan.HistogramQuantiles) -> Vector:
        elements = self.vector(node.vector)
        quantiles = [self.scalar(quantile) for quantile in node.quantiles]
        for q, position in zip(quantiles, node.positions, strict=True):
            self.annotations.check_quantiles(q, position)
        histograms = histogram_quantile.group_buckets(elements, self.annotations, node.position)
        if node.label is None:
            return self._quantile(node, elements, histograms, quantiles[0])
        return merge_rows([self._labelled_quantile(node, elements, histograms, q) for q in quantiles])

    def _quantile(
        self, node: plan.HistogramQuantiles, elements: Vector, histograms: histogram_quantile.Histograms, q: F64
    ) -> Vector:
        return histogram_quantile.quantile(
            elements, histograms, q, times=self.times, annotations=self.annotations, position=node.position
        )

    def _labelled_quantile(
        self, node: plan.HistogramQuantiles, elements: Vector, histograms: histogram_quantile.Histograms, q: F64
    ) -> Vector:
        """Evaluates a quantile and adds it as a label; a varying quantile gives one series for each of its values."""
        vector = self._quantile(node, elements, histograms, q)
        distinct, place = np.unique(q, return_inverse=True)
        self.source.check_cells(len(vector.labels) * len(distinct), self.steps.count, "histogram_quantiles()")
        return stack(
            [
                Vector(
                    [labels | {str(node.label): open_metrics(number)} for labels in vector.labels],
                    vector.values,
                    vector.present & (place.reshape(-1) == code),
                    vector.nameless,
                )
                for code, number in enumerate(distinct.tolist())
            ]
        )

    def _fraction(self, node: plan.HistogramFraction) -> Vector:
        lower, upper, elements = self.scalar(node.lower), self.scalar(node.upper), self.vector(node.vector)
        return histogram_quantile.fraction(
            elements, histogram_quantile.group_buckets(elements, self.annotations, node.position), lower, upper
        )

    # --- info ---

    def _info_join(self, node: plan.InfoJoin) -> Vector:
        base, selection = self.vector(node.vector), operators_info.InfoSelection.of(node.matchers)
        common = self._common_time_modifiers(node.vector)
        info_selector = plan.Selector((*selection.names, *selection.data), common.offset_ms, common.at)
        return operators_info.join_info(
            base, operators_info.candidates(base.labels, self._timestamps_of(info_selector), selection), selection
        )

    def _common_time_modifiers(self, node: plan.VectorNode) -> plan.Selector:
        """Returns a selector with the offset and `@` that all selectors of a plan have in common.

        It has neither if they differ, or if a part of the plan has no selector.
        """
        selectors = list(_selectors(node, plan.Selector(())))
        modifiers = {None if each is None else self._time_modifiers(each) for each in selectors}
        return selectors[0] if len(modifiers) == 1 and selectors[0] is not None else plan.Selector(())

    def _time_modifiers(self, selector: plan.Selector) -> tuple[bool, int]:
        """Returns (True, time) for a selector with `@`, else (False, offset)."""
        if selector.at is None:
            return False, selector.offset_ms
        return True, self.steps_of(selector).first_ms


def _selectors(node: plan.VectorNode | plan.WindowNode, outer: plan.Selector) -> Iterator[plan.Selector | None]:
    """Yields the selectors of a plan with their offset and `@`; those of the subqueries around them are added.

    Yields ``None`` for a part without a selector, such as `vector(1)`. Skips scalars.
    """
    if isinstance(node, plan.Selector | plan.Subquery):
        has_fixed_time = node.at is not None
        offset = node.offset_ms + (0 if has_fixed_time else outer.offset_ms)
        here = plan.Selector((), offset, node.at if has_fixed_time else outer.at)
        if isinstance(node, plan.Selector):
            yield here
        else:
            yield from _selectors(node.vector, here)
        return
    parts = [getattr(node, each.name) for each in fields(node)]
    inner = [part for part in parts if isinstance(part, plan.VECTORS + plan.WINDOWS)]
    if not inner:
        yield None
    for part in inner:
        yield from _selectors(part, outer)


# A module constant and not an attribute: an object that refers to itself keeps its samples until a garbage collection.
_VECTORS: dict[type[Any], Callable[[Evaluation, Any], Vector]] = {
    plan.Selector: Evaluation._instant_selector,
    plan.RangeCall: range_functions.call,
    plan.AbsentOver: Evaluation._absent_over_time,
    plan.Absent: Evaluation._absent,
    plan.Elementwise: Evaluation._elementwise,
    plan.TimestampOf: Evaluation._timestamp,
    plan.VectorOf: lambda evaluation, node: evaluation.constant(evaluation.scalar(node.scalar)),
    plan.VectorScalar: Evaluation._vector_scalar,
    plan.VectorVector: Evaluation._vector_vector,
    plan.SetOperation: Evaluation._set_operation,
    plan.Aggregation: Evaluation._aggregation,
    plan.Relabel: lambda evaluation, node: relabel(
        node.function, evaluation.vector(node.vector), node.texts, evaluation.source.check_deadline
    ),
    plan.Sort: Evaluation._sorted,
    plan.HistogramQuantiles: Evaluation._quantiles,
    plan.HistogramFraction: Evaluation._fraction,
    plan.InfoJoin: Evaluation._info_join,
}
