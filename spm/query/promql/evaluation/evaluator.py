"""The walk through a plan: every node computes all steps of all series at once.

An `Evaluation` is a plan's steps with the query they belong to. A subquery is evaluated by another one with steps of
its own, and its elements become the samples of a window. Selectors read through hourly and daily aggregates where
these are exact (`ranges`). Enter by `vector`, `scalar` and `samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from spm.arrays import BOOL, F64, I64
from spm.errors import QueryTooLarge
from spm.limits import QUERY_SUBQUERY_STEPS_MAX
from spm.query.promql.evaluation import range_functions
from spm.query.promql.evaluation.sample_source import Reader, packed
from spm.query.promql.kernels import extended_ranges, functions, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators import binary, histogram_quantile, ordering, select_elements
from spm.query.promql.operators import info as operators_info
from spm.query.promql.operators.aggregate import aggregate
from spm.query.promql.operators.annotations import Remarks
from spm.query.promql.operators.label_groups import group_by, group_without
from spm.query.promql.operators.relabel import relabelled
from spm.query.promql.operators.vector import Vector, finished, named, stacked, united
from spm.query.promql.planning import plan
from spm.query.promql.syntax.numerals import open_metrics
from spm.query.request.batches import SeriesBatch
from spm.query.request.lookback import SUBQUERY_STEP_MS

_CHOOSING = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})


class Evaluation:
    """One query, or a subquery of it, at its steps."""

    def __init__(self, reader: Reader, steps: Steps, borders: tuple[int, int], remarks: Remarks) -> None:
        self.reader, self.steps, self.remarks = reader, steps, remarks
        self.times: I64 = steps.times
        self._borders = {"start": borders[0], "end": borders[1]}  # of the whole query

    # --- entries ---

    def vector(self, node: plan.VectorNode) -> Vector:
        """Elements per series and step."""
        self.reader.tick()
        before = self.reader.held
        found = _VECTORS[type(node)](self, node)
        self.reader.hold(before, found.values.size)
        return found

    def scalar(self, node: plan.ScalarNode) -> F64:
        """One number per step."""
        match node:
            case plan.Number(value):
                return np.full(self.steps.count, value)
            case plan.Time():
                return self.times / 1000
            case plan.ScalarBinary(op, left, right):
                with np.errstate(all="ignore"):
                    return functions.scalar_binary(op, self.scalar(left), self.scalar(right))
            case plan.ScalarOf(vector):
                found = self.vector(vector)
                only = found.present.sum(axis=0) == 1
                with np.errstate(invalid="ignore"):  # infinities of both signs, where there is more than one element
                    return np.where(only, np.where(found.present, found.values, 0.0).sum(axis=0), np.nan)

    def samples(self, window: plan.WindowNode) -> SeriesBatch:
        """The samples themselves, as an instant query for a range asks."""
        steps = self.placed(window.selector if isinstance(window, plan.Window) else window)
        if isinstance(window, plan.Subquery):
            inner = self.inside(window, steps)
            shown = finished(inner.vector(window.vector))
            return packed(shown.labels, inner.times, shown.values, shown.present)
        selector, start = window.selector, steps.first_ms - window.range_ms
        before, after = extended_ranges.reach(selector.mode, self.reader.lookback_ms)
        batch = self.reader.select(selector.matchers, start - before, steps.first_ms + after, steps=1)
        if selector.mode:
            return extended_ranges.samples(batch, start, steps.first_ms, smoothed=selector.mode == "smoothed")
        return windows.without_stale(batch)

    def constant(self, values: F64) -> Vector:
        """A scalar as an element without labels."""
        return named([{}], values[np.newaxis, :], np.ones((1, len(values)), np.bool_), nameless=False)

    # --- time ---

    def placed(self, node: plan.Selector | plan.Subquery) -> Steps:
        """The steps a selector looks at: shifted by its offset, or standing still at one time."""
        if node.at is None:
            return Steps(self.steps.first_ms - node.offset_ms, self.steps.step_ms, self.steps.count)
        at = self._borders[node.at] if isinstance(node.at, str) else node.at
        return Steps(at - node.offset_ms, 0, 1)

    def spread(self, values: F64, present: BOOL) -> tuple[F64, BOOL]:
        """The one column of a standing selector, repeated at every step."""
        if values.shape[1] == self.steps.count:
            return values, present
        self.reader.check_cells(values.shape[0], self.steps.count, "a selector with @")
        return np.repeat(values, self.steps.count, axis=1), np.repeat(present, self.steps.count, axis=1)

    def among(self, steps: slice) -> Evaluation:
        """The evaluation of some of the steps, one after the other."""
        first, end, _ = steps.indices(self.steps.count)
        borders = self._borders["start"], self._borders["end"]
        some = Steps(self.steps.first_ms + first * self.steps.step_ms, self.steps.step_ms, end - first)
        return Evaluation(self.reader, some, borders, self.remarks)

    def inside(self, node: plan.Subquery, steps: Steps) -> Evaluation:
        """The evaluation of a subquery: at multiples of its step, from the first one inside the first window."""
        step = node.step_ms or SUBQUERY_STEP_MS
        first = (steps.first_ms - node.range_ms) // step * step + step
        count = max((steps.last_ms - first) // step + 1, 0)
        if count > QUERY_SUBQUERY_STEPS_MAX:
            raise QueryTooLarge(
                f"a subquery has {count} steps; at most {QUERY_SUBQUERY_STEPS_MAX} are evaluated: "
                "use a longer step in its brackets, or a shorter range"
            )
        borders = self._borders["start"], self._borders["end"]
        return Evaluation(self.reader, Steps(first, step, count), borders, self.remarks)

    # --- selectors ---

    def _newest(self, node: plan.Selector) -> Vector:
        steps = self.placed(node)
        lookback_ms = self.reader.lookback_ms
        start, count = steps.first_ms - lookback_ms, self.steps.count
        if node.mode == "smoothed":
            batch = self.reader.select(node.matchers, start, steps.last_ms + lookback_ms, steps=count)
            return named(
                batch.labels, *self.spread(*extended_ranges.instants(batch, steps, lookback_ms)), nameless=False
            )
        read = self.reader.strips(node.matchers, start, steps.last_ms, steps=count)
        found = windows.instants(read, steps, lookback_ms, tick=self.reader.tick)
        return named(read.labels, *self.spread(*found), nameless=False)

    def _timestamp(self, node: plan.TimestampOf) -> Vector:
        if not isinstance(node.vector, plan.Selector):
            elements = self.vector(node.vector)
            return elements.having(np.broadcast_to(self.times / 1000, elements.values.shape).copy(), elements.present)
        stamped = self._stamped(node.vector)
        return stamped.having(stamped.values, stamped.present)

    def _stamped(self, selector: plan.Selector) -> Vector:
        steps = self.placed(selector)
        lookback_ms = self.reader.lookback_ms
        read = self.reader.strips(
            selector.matchers, steps.first_ms - lookback_ms, steps.last_ms, steps=self.steps.count
        )
        found = windows.stamps(read, steps, lookback_ms, tick=self.reader.tick)
        return named(read.labels, *self.spread(*found), nameless=False)

    def _absent(self, node: plan.Absent) -> Vector:
        return self._where_none(self.vector(node.vector).present, dict(node.labels))

    def _absent_over(self, node: plan.AbsentOver) -> Vector:
        counted = range_functions.called(self, plan.RangeCall("present_over_time", node.window))
        return self._where_none(counted.present, dict(node.labels))

    def _where_none(self, present: BOOL, labels: dict[str, str]) -> Vector:
        none = np.logical_not(present.any(axis=0)).reshape(1, -1)
        return named([labels], np.ones(none.shape), none, nameless=False)

    # --- elements ---

    def _elementwise(self, node: plan.Elementwise) -> Vector:
        elements = self.vector(node.vector)
        parameters = [self.scalar(parameter) for parameter in node.parameters]
        present = elements.present
        if node.function == "clamp":
            present = present & ~functions.clamp_is_empty(*parameters)
        with np.errstate(all="ignore"):
            values = functions.ELEMENTWISE[node.function](elements.values, *parameters)
        return elements.having(np.ascontiguousarray(values, np.float64), present)

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
        self.reader.check_cells(most, self.steps.count, f"{node.op!r}")
        return left, right

    # --- groups ---

    def _aggregation(self, node: plan.Aggregation) -> Vector:
        parameter = np.zeros(self.steps.count) if node.parameter is None else self.scalar(node.parameter)
        elements = self.vector(node.vector)
        if node.op == "count_values":
            return select_elements.counted_values(elements, node.text, labels=node.labels, without=node.without)
        if node.op == "quantile":
            self.remarks.quantiles(parameter, node.position)
        elif node.op == "limit_ratio":
            self.remarks.ratios(parameter, node.position)
        groups = (group_without if node.without else group_by)(elements.labels, node.labels)
        if node.op in _CHOOSING:
            return select_elements.chosen(node.op, elements, groups, parameter)
        return aggregate(node.op, elements, groups, parameter)

    def _sorted(self, node: plan.Sorted) -> Vector:
        elements = self.vector(node.vector)
        if self.steps.count > 1:
            self.remarks.sort_in_range(node.position)
            return elements
        if node.labels is None:
            return ordering.by_value(elements, descending=node.descending)
        return ordering.by_labels(elements, node.labels, descending=node.descending)

    # --- histograms ---

    def _quantiles(self, node: plan.Quantiles) -> Vector:
        elements = self.vector(node.vector)
        asked = [self.scalar(quantile) for quantile in node.quantiles]
        for q, position in zip(asked, node.positions, strict=True):
            self.remarks.quantiles(q, position)
        found = histogram_quantile.grouped(elements, self.remarks, node.position)
        if node.label is None:
            return self._quantile(node, elements, found, asked[0])
        parts = [self._labelled(node, elements, found, q) for q in asked]
        return united(parts)

    def _quantile(self, node: plan.Quantiles, elements: Vector, found: histogram_quantile.Histograms, q: F64) -> Vector:
        return histogram_quantile.quantile(
            elements, found, q, times=self.times, remarks=self.remarks, position=node.position
        )

    def _labelled(self, node: plan.Quantiles, elements: Vector, found: histogram_quantile.Histograms, q: F64) -> Vector:
        """Quantiles with their number as a label; one that moves is another label at every step."""
        made = self._quantile(node, elements, found, q)
        distinct, place = np.unique(q, return_inverse=True)
        self.reader.check_cells(len(made.labels) * len(distinct), self.steps.count, "histogram_quantiles()")
        return stacked(
            [
                Vector(
                    [labels | {str(node.label): open_metrics(number)} for labels in made.labels],
                    made.values,
                    made.present & (place.reshape(-1) == code),
                    made.nameless,
                )
                for code, number in enumerate(distinct.tolist())
            ]
        )

    def _fraction(self, node: plan.Fraction) -> Vector:
        lower, upper, elements = self.scalar(node.lower), self.scalar(node.upper), self.vector(node.vector)
        return histogram_quantile.fraction(
            elements, histogram_quantile.grouped(elements, self.remarks, node.position), lower, upper
        )

    # --- info ---

    def _enriched(self, node: plan.Enriched) -> Vector:
        base, asked = self.vector(node.vector), operators_info.Asked.of(node.matchers)
        selector = self._shared(node.vector)
        wanted = plan.Selector((*asked.names, *asked.data), selector.offset_ms, selector.at)
        return operators_info.enriched(base, operators_info.concerned(base.labels, self._stamped(wanted), asked), asked)

    def _shared(self, node: plan.VectorNode) -> plan.Selector:
        """Where all selectors of a plan are placed in time; the step itself where they differ, or a part has none."""
        found = list(_selectors(node, plan.Selector(())))
        places = {None if each is None else self._place(each) for each in found}
        return found[0] if len(places) == 1 and found[0] is not None else plan.Selector(())

    def _place(self, selector: plan.Selector) -> tuple[bool, int]:
        """Whether a selector stands still, and its time if it does, else its offset."""
        if selector.at is None:
            return False, selector.offset_ms
        return True, self.placed(selector).first_ms


def _selectors(node: plan.VectorNode | plan.WindowNode, outer: plan.Selector) -> Iterator[plan.Selector | None]:
    """The selectors of a plan, each as it is placed in time: `@` holds, offsets of subqueries around it add up.

    ``None`` stands for a part that has none, such as `vector(1)`. Scalars are passed over.
    """
    if isinstance(node, plan.Selector | plan.Subquery):
        anchored = node.at is not None
        offset = node.offset_ms + (0 if anchored else outer.offset_ms)
        here = plan.Selector((), offset, node.at if anchored else outer.at)
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


# Beside the class and not in its objects: one that refers to itself would keep its samples until the collector comes.
_VECTORS: dict[type[Any], Callable[[Evaluation, Any], Vector]] = {
    plan.Selector: Evaluation._newest,
    plan.RangeCall: range_functions.called,
    plan.AbsentOver: Evaluation._absent_over,
    plan.Absent: Evaluation._absent,
    plan.Elementwise: Evaluation._elementwise,
    plan.TimestampOf: Evaluation._timestamp,
    plan.VectorOf: lambda here, node: here.constant(here.scalar(node.scalar)),
    plan.VectorScalar: Evaluation._vector_scalar,
    plan.VectorVector: Evaluation._vector_vector,
    plan.SetOperation: Evaluation._set_operation,
    plan.Aggregation: Evaluation._aggregation,
    plan.Relabelled: lambda here, node: relabelled(node.function, here.vector(node.vector), node.texts),
    plan.Sorted: Evaluation._sorted,
    plan.Quantiles: Evaluation._quantiles,
    plan.Fraction: Evaluation._fraction,
    plan.Enriched: Evaluation._enriched,
}
