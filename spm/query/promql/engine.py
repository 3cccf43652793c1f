"""Evaluates a query: takes a text, times and a storage, and returns a value per series and step.

1. `parse` turns the text into a plan. 2. `evaluation` walks the plan once; each node computes all steps of all series.
At its end metric names marked for removal are removed, and a matrix is sorted by labels. 3. The result carries its
provenance and its annotations. Enter by `Engine`.
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
from spm.query.promql.evaluation.evaluator import Answer, Evaluation
from spm.query.promql.evaluation.sample_source import SampleSource
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.annotations import Annotations
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.planning.read_range import read_range
from spm.query.promql.result_cache.entries import AnswerKey
from spm.query.promql.result_cache.reuse import AppResultCache, answer_range
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

    def lines(self, rows: I64) -> list[list[float | None]]:
        """Returns some series as values per step, with None where there is no value."""
        return [
            [value if has_value else None for value, has_value in zip(row, mask, strict=True)]
            for row, mask in zip(self.values[rows].tolist(), self.present[rows].tolist(), strict=True)
        ]


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
        expression, steps = parse(expr, Context(at_ms, at_ms)), Steps(at_ms, 0, 1)
        if isinstance(expression, plan.Text):
            return Result("string", steps.times, [], *_NO_ELEMENTS, text=expression.value)
        evaluation = Evaluation(self._source(), steps, (at_ms, at_ms), Annotations(expr))
        if isinstance(expression, plan.WINDOWS):
            samples, answer = evaluation.answer_samples(expression)
            return dataclasses.replace(self._result("matrix", steps, answer), samples=samples)
        kind = "scalar" if isinstance(expression, plan.SCALARS) else "vector"
        return self._result(kind, steps, evaluation.answer_elements(expression, by_labels=False))

    def _range(self, expr: str, steps: Steps, end_ms: int) -> Result:
        expression = parse(expr, Context(steps.first_ms, end_ms, steps.step_ms))
        if isinstance(expression, plan.Text | plan.Window | plan.Subquery):
            kind = "string" if isinstance(expression, plan.Text) else "range vector"
            message = f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
            raise BadQuery(message, 0)

        def evaluate(part: Steps) -> Answer:
            evaluation = Evaluation(self._source(), part, (part.first_ms, end_ms), Annotations(expr))
            return evaluation.answer_elements(expression, by_labels=True)

        cache, lookback_ms = self._cache, self._limits.lookback_ms
        if cache is None or steps.count == 1 or isinstance(expression, plan.SCALARS):
            answer = evaluate(steps)
        else:
            key = AnswerKey(cache.storage.app, expr, steps.step_ms, steps.first_ms % steps.step_ms, lookback_ms)
            answer = answer_range(cache, key, steps, lambda: read_range(expr, expression, lookback_ms), evaluate)
        return self._result("matrix", steps, answer)

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

    def _source(self) -> SampleSource:
        return SampleSource(self._storage, self._budget or Budget(self._limits, self._clock))

    def _result(self, kind: str, steps: Steps, answer: Answer) -> Result:
        """Returns the result of an answer, with the notes that hold for all answers of the storage."""
        vector, provenance = answer.vector, answer.provenance
        return Result(
            kind,
            steps.times,
            vector.labels,
            vector.values,
            vector.present,
            [*provenance.infos(), *self._storage.notes(), *answer.infos],
            [*provenance.warnings(), *self._storage.damage(), *answer.warnings],
            provenance=provenance,
            cached_steps=answer.cached_steps,
        )


def _bounded(answer: Callable[[], Result]) -> Result:
    """Refuses an expression that exceeds the stack although it passed the bounds of its text."""
    try:
        return answer()
    except RecursionError as error:
        raise BadQuery("expression nested too deeply") from error


_NO_ELEMENTS = np.empty((0, 1)), np.empty((0, 1), np.bool_)  # values and presence
