"""`increase` and `rate` of series that say themselves how much was added: those with the label `__type__="delta"`.

A counter's samples are how much there is, a delta's how much came since the sample before. What came in a window is
therefore the sum of its samples, whole and without extrapolation: over hours the sum that hours hold. Enter by `among`
and `summed`.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spm.query.promql.operators.vector import Vector, stacked
from spm.query.promql.planning import plan
from spm.query.request.batches import Matcher
from spm.query.series.label_table import used

TYPE, DELTA = "__type__", "delta"
SUMMED = frozenset({"rate", "increase"})


def among(found: Vector) -> bool:
    """Whether any of these series is a delta."""
    return DELTA in used(found.labels, TYPE)


def summed(
    found: Vector, node: plan.RangeCall, window: plan.Window, ask: Callable[[plan.RangeCall, plan.Window], Vector]
) -> Vector:
    """The answer of a counter's function with that of deltas in place of what it made of them.

    `ask` evaluates a function of a window: here `sum_over_time` of the deltas among the series.
    """
    matchers = (*window.selector.matchers, Matcher(TYPE, "=", DELTA))
    narrowed = replace(window, selector=replace(window.selector, matchers=matchers, mode=""))
    sums = ask(replace(node, function="sum_over_time", window=narrowed), narrowed)
    if node.function == "rate":
        sums = replace(sums, values=sums.values / (window.range_ms / 1000))
    counters = np.flatnonzero([labels.get(TYPE) != DELTA for labels in found.labels])
    return stacked([found.take(counters), sums])
