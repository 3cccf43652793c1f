"""The condition of a rule: by its threshold and recovery threshold, values become inputs of the automaton. Pure.

A rule with a comparator compares each value with its threshold and, where it has one, with its recovery threshold. A
rule without comparator leaves the decision to the expression: a series in the answer is violated, a series that is
missing from it is well.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from alerts.judging.automaton import Input
from spm.arrays import BOOL, F64

Codes = npt.NDArray[np.uint8]  # of ``Input``
COMPARATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_FARTHEST = {">": 1, ">=": 1, "<": 0, "<=": 0}  # which of the least and the greatest value is violated first
NO_COMPARATOR = ""  # the expression decides


class MissingPolicy(StrEnum):
    """What a series that is not in the answer means for a rule with a comparator."""

    HOLD = "hold"  # keep the state for a while, then end
    RESOLVE = "resolve"  # it is well, as Prometheus has it
    ALERT = "alert"  # as hold, and its absence is an alert of its own
    GONE = "gone"  # it is forgotten: its alert ends at once


@dataclass(frozen=True, slots=True)
class Condition:
    """When a value is violated."""

    comparator: str = NO_COMPARATOR
    threshold: float = 0.0
    recovery: float | None = None
    missing: MissingPolicy = MissingPolicy.HOLD

    @property
    def absent(self) -> Input:
        """The input of a series that is not in the answer."""
        if self.missing is MissingPolicy.GONE:
            return Input.GONE
        is_well = self.comparator == NO_COMPARATOR or self.missing is MissingPolicy.RESOLVE
        return Input.WELL if is_well else Input.MISSING


def classify(condition: Condition, values: F64, present: BOOL) -> Codes:
    """Return the input for each value; ``present`` says which values exist. Both have one shape."""
    codes = np.full(values.shape, condition.absent, np.uint8)
    if condition.comparator == NO_COMPARATOR:
        codes[present] = Input.VIOLATED
        return codes
    compare, has_number = COMPARATORS[condition.comparator], present & ~np.isnan(values)
    codes[has_number] = Input.WELL
    if condition.recovery is not None:
        codes[has_number & compare(values, condition.recovery)] = Input.BETWEEN
    codes[has_number & compare(values, condition.threshold)] = Input.VIOLATED
    return codes


def violates_none(condition: Condition, least: float, greatest: float) -> bool:
    """Whether it is certain, by their extremes alone, that none of some values is violated."""
    if condition.comparator not in _FARTHEST:
        return False
    farthest = (least, greatest)[_FARTHEST[condition.comparator]]
    return least > greatest or not COMPARATORS[condition.comparator](farthest, condition.threshold)


def is_violated(condition: Condition, value: float) -> bool:
    """Whether a single value would let an instance that is ok become pending or fire."""
    code = classify(condition, np.array([value]), np.ones(1, np.bool_))[0]
    return bool(code == Input.VIOLATED)


def recovery_is_sound(comparator: str, threshold: float | None, recovery: float) -> bool:
    """Whether a firing series can recover there: only < and > have a good side, and recovery must lie on it."""
    if threshold is None or comparator not in (">", ">=", "<", "<="):
        return False
    return recovery <= threshold if comparator in (">", ">=") else recovery >= threshold
