"""Evaluates a query: text, times and a storage in, numbers per series and step out.

1. The text becomes a plan (`parse`). 2. `evaluation` walks the plan once, each node computing all steps of all series.
3. Names marked for removal are removed, and the result is put in order. 4. What it rests on (`reading`) and what there
is to remark (`annotations`) go with it. Enter by `Engine`.
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
from spm.query.promql.evaluation.sample_source import Reader
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.annotations import Remarks
from spm.query.promql.operators.label_groups import ordered
from spm.query.promql.operators.vector import Vector, finished
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.planning.reach import reach
from spm.query.promql.result_cache.entries import Key
from spm.query.promql.result_cache.reuse import Kept, Made, answered
from spm.query.request.batches import SeriesBatch
from spm.query.request.budget import Budget, QueryLimits
from spm.query.request.lookback import LOOKBACK_MS
from spm.query.request.provenance import Basis
from spm.query.series.label_table import Labels
from spm.query.storage import Storage

__all__ = ["LOOKBACK_MS", "Engine", "QueryLimits", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a query found. `kind` is scalar, vector, matrix or string."""

    kind: str
    times: I64  # [T] in ms
    labels: Sequence[Labels]  # [S]
    values: F64  # [S, T]; means nothing where not present
    present: BOOL  # [S, T]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: SeriesBatch | None = None  # instead of values, when an instant query asks for a range of samples
    text: str = ""  # instead of values, of a string
    basis: Basis = field(default_factory=Basis)
    kept: int = 0  # steps that were not computed, but known from a question before


class Engine:
    """Answers PromQL from one storage."""

    def __init__(
        self,
        storage: Storage,
        limits: QueryLimits | None = None,
        clock: Clock | None = None,
        budget: Budget | None = None,
        kept: Kept | None = None,
    ) -> None:
        """With a budget: for one query, whose caller looks at it. Without, each query has one of its own.

        With ``kept``, of the same storage, range queries that come again have only their new steps computed.
        """
        self._storage = storage
        self._limits = budget.allowed if budget else limits or QueryLimits()
        self._clock = clock or SystemClock()
        self._budget = budget
        self._kept = kept

    def instant(self, expr: str, at_ms: int) -> Result:
        """The value of the expression at one time."""
        return _bounded(lambda: self._instant(expr, at_ms))

    def range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Result:
        """The value of the expression at each step from start to end."""
        steps = self._steps(start_ms, end_ms, step_ms)
        return _bounded(lambda: self._range(expr, steps, end_ms))

    def _instant(self, expr: str, at_ms: int) -> Result:
        found = parse(expr, Context(at_ms, at_ms))
        evaluation = self._evaluation(expr, Steps(at_ms, 0, 1))
        times = evaluation.times
        if isinstance(found, plan.Text):
            return _nothing("string", times, text=found.value)
        if isinstance(found, plan.WINDOWS):
            samples = evaluation.samples(found)
            return _explained(evaluation, dataclasses.replace(_nothing("matrix", times), samples=samples))
        if isinstance(found, plan.SCALARS):
            return _shown(evaluation, "scalar", evaluation.constant(evaluation.scalar(found)))
        return _shown(evaluation, "vector", evaluation.vector(found))

    def _range(self, expr: str, steps: Steps, end_ms: int) -> Result:
        found = parse(expr, Context(steps.first_ms, end_ms, steps.step_ms))
        if isinstance(found, plan.Text | plan.Window | plan.Subquery):
            kind = "string" if isinstance(found, plan.Text) else "range vector"
            message = f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
            raise BadQuery(message, 0)
        if isinstance(found, plan.SCALARS):
            evaluation = self._evaluation(expr, steps, end_ms)
            return _shown(evaluation, "matrix", evaluation.constant(evaluation.scalar(found)))
        if self._kept is None or steps.count == 1:
            evaluation = self._evaluation(expr, steps, end_ms)
            return _shown(evaluation, "matrix", evaluation.vector(found))
        return self._refreshed(expr, found, steps, end_ms, self._kept)

    def _refreshed(self, expr: str, found: plan.VectorNode, steps: Steps, end_ms: int, kept: Kept) -> Result:
        """What was asked before is not computed again."""
        key = Key(kept.storage.app, expr, steps.step_ms, steps.first_ms % steps.step_ms, self._limits.lookback_ms)

        def evaluate(part: Steps) -> Made:
            evaluation = self._evaluation(expr, part, end_ms)
            shown = _sorted(finished(evaluation.vector(found)))
            reader, remarks = evaluation.reader, evaluation.remarks
            joins = remarks.step_by_step and not reader.tried_aggregates
            told = tuple(remarks.infos), tuple(remarks.warnings)
            return Made(shown, reader.basis(), *told, reader.samples, joins, joins and reader.from_samples)

        made = answered(kept, key, steps, lambda: reach(expr, found, self._limits.lookback_ms), evaluate)
        notes = [*made.basis.infos(), *self._storage.notes(), *made.infos]
        warnings = [*made.basis.warnings(), *made.warnings]
        whole = made.vector
        return Result(
            "matrix",
            steps.times,
            whole.labels,
            whole.values,
            whole.present,
            notes,
            warnings,
            basis=made.basis,
            kept=made.kept,
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
        if count - 1 > self._limits.points:  # as Prometheus counts them: what is between the steps
            raise BadQuery(
                f"exceeded maximum resolution of {self._limits.points} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        return Steps(start_ms, step_ms, count)

    def _evaluation(self, expr: str, steps: Steps, end_ms: int | None = None) -> Evaluation:
        reader = Reader(self._storage, self._budget or Budget(self._limits, self._clock))
        borders = (steps.first_ms, steps.last_ms if end_ms is None else end_ms)
        return Evaluation(reader, steps, borders, Remarks(expr))


def _bounded(answer: Callable[[], Result]) -> Result:
    """The guard bounds the depth of texts; whatever is deep all the same is refused, not crashed upon."""
    try:
        return answer()
    except RecursionError as error:
        raise BadQuery("expression nested too deeply") from error


def _shown(evaluation: Evaluation, kind: str, vector: Vector) -> Result:
    """The answer, in the order of labels when it is a matrix (a vector keeps the order it was made in)."""
    shown = _sorted(finished(vector)) if kind == "matrix" else finished(vector)
    return _explained(evaluation, Result(kind, evaluation.times, shown.labels, shown.values, shown.present))


def _sorted(shown: Vector) -> Vector:
    return shown.take(ordered(shown.labels)) if len(shown.labels) > 1 else shown


def _explained(evaluation: Evaluation, result: Result) -> Result:
    """The answer, with what everything that was read for it rests on, and what there is to remark."""
    basis, remarks = evaluation.reader.basis(), evaluation.remarks
    notes = [*basis.infos(), *evaluation.reader.notes(), *remarks.infos]
    warnings = [*basis.warnings(), *remarks.warnings]
    return dataclasses.replace(result, notes=notes, warnings=warnings, basis=basis)


def _nothing(kind: str, times: I64, text: str = "") -> Result:
    shape = (0, len(times))
    return Result(kind, times, [], np.empty(shape), np.empty(shape, np.bool_), text=text)
