"""The interface of an evaluation that range functions use to evaluate their arguments.

`evaluator.Evaluation` is its only implementation. The interface has a file of its own so that the evaluator and the
range functions can call each other without importing each other.
"""

from __future__ import annotations

from typing import Protocol

from spm.arrays import BOOL, F64, I64
from spm.query.promql.evaluation.sample_source import SampleSource
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.annotations import Annotations
from spm.query.promql.operators.vector import Vector
from spm.query.promql.planning import plan


class Evaluation(Protocol):
    """One query, or one of its subqueries, at its steps."""

    source: SampleSource
    steps: Steps
    annotations: Annotations
    times: I64

    def vector(self, node: plan.VectorNode) -> Vector:
        """Evaluates a node to a value per series and step."""

    def scalar(self, node: plan.ScalarNode) -> F64:
        """Evaluates a node to one number per step."""

    def steps_of(self, node: plan.Selector | plan.Subquery) -> Steps:
        """Returns the times that a selector reads: the steps shifted by its offset, or its fixed time."""

    def repeat(self, values: F64, present: BOOL) -> tuple[F64, BOOL]:
        """Repeats the one column of a selector with a fixed time at every step."""

    def at_steps(self, steps: slice) -> Evaluation:
        """Returns the evaluation of some consecutive steps of this one."""

    def of_subquery(self, node: plan.Subquery, steps: Steps) -> Evaluation:
        """Returns the evaluation of a subquery at its own steps."""
