"""Evaluates a query: takes a text, times and a storage, and returns a value per series and step.

1. `parse` turns the text into a plan. 2. `evaluation` walks the plan once; each node computes all steps of all series.
3. Metric names marked for removal are removed, and a matrix is sorted by labels. 4. The result carries its provenance
and its annotations. Enter by `Engine`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from spm.arrays import BOOL, F64, I64
from spm.clock import Clock, SystemClock
from spm.errors import BadQuery
from spm.fast_dataclass import dataclass
from spm.query.promql.evaluation.evaluator import Evaluation
from spm.query.promql.evaluation.sample_source import SampleSource
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.annotations import Annotations
from spm.query.promql.operators.label_groups import label_order
from spm.query.promql.operators.vector import Vector, finish
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.planning.read_range import read_range
from spm.query.promql.result_cache.entries import AnswerKey
from spm.query.promql.result_cache.reuse import AppResultCache, PartialAnswer, answer_range
from spm.query.request.batches import SeriesBatch
from spm.query.request.budget import Budget, QueryLimits
from spm.query.request.lookback import LOOKBACK_MS
from spm.query.request.provenance import Provenance
from spm.query.series.label_table import Labels
from spm.query.storage import Storage

__all__ = ["LOOKBACK_MS", "Engine", "QueryLimits", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a query. `kind` is scalar, vector, matrix or string."""

    kind: str
    times: I64  # [T] in ms
    labels: Sequence[Labels]  # [S]
    values: F64  # [S, T]; meaningless where not present
    present: BOOL  # [S, T]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: SeriesBatch | None = None  # instead of values, for an instant query that selects a range of samples
    text: str = ""  # instead of values, for a string
    provenance: Provenance = field(default_factory=Provenance)
    cached_steps: int = 0  # steps taken from the result cache


class Engine:
    """Evaluates PromQL over one storage."""

    def __init__(
        self,
        storage: Storage,
        limits: QueryLimits | None = None,
        clock: Clock | None = None,
        budget: Budget | None = None,
        cache: AppResultCache | None = None,
    ) -> None:
        """Take the limits of all queries, or the budget of a single one, whose usage the caller can read afterwards.

        With ``cache``, which must belong to the same storage, a repeated range query computes only its new steps.
        """
        self._storage = storage
        self._limits = budget.limits if budget else limits or QueryLimits()
        self._clock = clock or SystemClock()
        self._budget = budget
        self._cache = cache

    def instant(self, expr: str, at_ms: int) -> Result:
        """Evaluates the expression at one time."""
        return _bounded(lambda: self._instant(expr, at_ms))

    def range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Result:
        """Evaluates the expression at each step from start to end."""
        steps = self._steps(start_ms, end_ms, step_ms)
        return _bounded(lambda: self._range(expr, steps, end_ms))

    def _instant(self, expr: str, at_ms: int) -> Result:
        expression = parse(expr, Context(at_ms, at_ms))
        evaluation = self._evaluation(expr, Steps(at_ms, 0, 1))
        times = evaluation.times
        if isinstance(expression, plan.Text):
            return _empty_result("string", times, text=expression.value)
        if isinstance(expression, plan.WINDOWS):
            samples = evaluation.samples(expression)
            return _annotated(evaluation, dataclasses.replace(_empty_result("matrix", times), samples=samples))
        if isinstance(expression, plan.SCALARS):
            return _result(evaluation, "scalar", evaluation.constant(evaluation.scalar(expression)))
        return _result(evaluation, "vector", evaluation.vector(expression))

    def _range(self, expr: str, steps: Steps, end_ms: int) -> Result:
        expression = parse(expr, Context(steps.first_ms, end_ms, steps.step_ms))
        if isinstance(expression, plan.Text | plan.Window | plan.Subquery):
            kind = "string" if isinstance(expression, plan.Text) else "range vector"
            message = f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
            raise BadQuery(message, 0)
        if isinstance(expression, plan.SCALARS):
            evaluation = self._evaluation(expr, steps, end_ms)
            return _result(evaluation, "matrix", evaluation.constant(evaluation.scalar(expression)))
        if self._cache is None or steps.count == 1:
            evaluation = self._evaluation(expr, steps, end_ms)
            return _result(evaluation, "matrix", evaluation.vector(expression))
        return self._range_from_cache(expr, expression, steps, end_ms, self._cache)

    def _range_from_cache(
        self, expr: str, expression: plan.VectorNode, steps: Steps, end_ms: int, cache: AppResultCache
    ) -> Result:
        """Evaluates a range query, and computes only the steps that the cache does not have."""
        key = AnswerKey(
            cache.storage.app, expr, steps.step_ms, steps.first_ms % steps.step_ms, self._limits.lookback_ms
        )

        def evaluate(part: Steps) -> PartialAnswer:
            evaluation = self._evaluation(expr, part, end_ms)
            vector = _sort(finish(evaluation.vector(expression)))
            source, annotations = evaluation.source, evaluation.annotations
            separable = annotations.are_separable and not source.tried_aggregates
            infos, warnings = tuple(annotations.infos), tuple(annotations.warnings)
            return PartialAnswer(
                vector,
                source.provenance(),
                infos,
                warnings,
                source.samples,
                separable,
                separable and source.from_samples,
            )

        answer = answer_range(
            cache, key, steps, lambda: read_range(expr, expression, self._limits.lookback_ms), evaluate
        )
        notes = [*answer.provenance.infos(), *self._storage.notes(), *answer.infos]
        warnings = [*answer.provenance.warnings(), *answer.warnings]
        vector = answer.vector
        return Result(
            "matrix",
            steps.times,
            vector.labels,
            vector.values,
            vector.present,
            notes,
            warnings,
            provenance=answer.provenance,
            cached_steps=answer.cached_steps,
        )

    def _steps(self, start_ms: int, end_ms: int, step_ms: int) -> Steps:
        if step_ms <= 0:
            raise BadQuery(
                'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
                "Try a positive integer"
            )
        if end_ms < start_ms:
            raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
        count = (end_ms - start_ms) // step_ms + 1
        if count - 1 > self._limits.points:  # Prometheus counts the intervals between the steps, not the steps
            raise BadQuery(
                f"exceeded maximum resolution of {self._limits.points} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        return Steps(start_ms, step_ms, count)

    def _evaluation(self, expr: str, steps: Steps, end_ms: int | None = None) -> Evaluation:
        source = SampleSource(self._storage, self._budget or Budget(self._limits, self._clock))
        borders = (steps.first_ms, steps.last_ms if end_ms is None else end_ms)
        return Evaluation(source, steps, borders, Annotations(expr))


def _bounded(answer: Callable[[], Result]) -> Result:
    """Refuses an expression that exceeds the stack although it passed the bounds of its text."""
    try:
        return answer()
    except RecursionError as error:
        raise BadQuery("expression nested too deeply") from error


def _result(evaluation: Evaluation, kind: str, vector: Vector) -> Result:
    """Returns the result of a vector: a matrix is sorted by labels, an instant vector keeps its order."""
    final = _sort(finish(vector)) if kind == "matrix" else finish(vector)
    return _annotated(evaluation, Result(kind, evaluation.times, final.labels, final.values, final.present))


def _sort(vector: Vector) -> Vector:
    return vector.take(label_order(vector.labels)) if len(vector.labels) > 1 else vector


def _annotated(evaluation: Evaluation, result: Result) -> Result:
    """Adds the provenance of all samples that were read, and the annotations."""
    provenance, annotations = evaluation.source.provenance(), evaluation.annotations
    notes = [*provenance.infos(), *evaluation.source.notes(), *annotations.infos]
    warnings = [*provenance.warnings(), *annotations.warnings]
    return dataclasses.replace(result, notes=notes, warnings=warnings, provenance=provenance)


def _empty_result(kind: str, times: I64, text: str = "") -> Result:
    shape = (0, len(times))
    return Result(kind, times, [], np.empty(shape), np.empty(shape, np.bool_), text=text)
