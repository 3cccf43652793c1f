"""What the functions of windows need of the evaluation they are called from.

`evaluator.Evaluation` is the one implementation. The interface stands apart so that the evaluator can call the
functions of windows, and these can evaluate their arguments, without importing each other.
"""

from __future__ import annotations

from typing import Protocol

from spm.arrays import BOOL, F64, I64
from spm.query.promql.evaluation.sample_source import Reader
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.annotations import Remarks
from spm.query.promql.operators.vector import Vector
from spm.query.promql.planning import plan


class Evaluation(Protocol):
    """One query, or a subquery of it, at its steps."""

    reader: Reader
    steps: Steps
    remarks: Remarks
    times: I64

    def vector(self, node: plan.VectorNode) -> Vector:
        """Evaluates a node to elements per series and step."""

    def scalar(self, node: plan.ScalarNode) -> F64:
        """Evaluates a node to one number per step."""

    def placed(self, node: plan.Selector | plan.Subquery) -> Steps:
        """Returns the steps a selector looks at: shifted by its offset, or one fixed time."""

    def spread(self, values: F64, present: BOOL) -> tuple[F64, BOOL]:
        """Repeats the one column of a selector with a fixed time at every step."""

    def among(self, steps: slice) -> Evaluation:
        """Returns the evaluation of consecutive steps out of these."""

    def inside(self, node: plan.Subquery, steps: Steps) -> Evaluation:
        """Returns the evaluation of a subquery at its own steps."""
