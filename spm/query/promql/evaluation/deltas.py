"""`increase` and `rate` of delta series: those with the label `__type__="delta"`.

A sample of a counter is a total, a sample of a delta series is the amount added since the sample before it. The
increase of a delta series in a window is therefore the sum of the window's samples, without extrapolation; over whole
hours it is the sum in their rollup rows. Enter by `has_deltas` and `replace_deltas`.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spm.query.promql.operators.vector import Vector, stack
from spm.query.promql.planning import plan
from spm.query.request.batches import Matcher
from spm.query.series.label_table import used_values

TYPE, DELTA = "__type__", "delta"
SUMMED = frozenset({"rate", "increase"})


def has_deltas(vector: Vector) -> bool:
    """Whether any of these series is a delta."""
    return DELTA in used_values(vector.labels, TYPE)


def replace_deltas(
    vector: Vector, node: plan.RangeCall, window: plan.Window, evaluate: Callable[[plan.RangeCall, plan.Window], Vector]
) -> Vector:
    """Replaces the rows of delta series in the result of a counter function by the sums of their samples.

    `evaluate` evaluates a range function over a window.
    """
    matchers = (*window.selector.matchers, Matcher(TYPE, "=", DELTA))
    narrowed = replace(window, selector=replace(window.selector, matchers=matchers, mode=""))
    sums = evaluate(replace(node, function="sum_over_time", window=narrowed), narrowed)
    if node.function == "rate":
        sums = replace(sums, values=sums.values / (window.range_ms / 1000))
    counter_rows = np.flatnonzero([labels.get(TYPE) != DELTA for labels in vector.labels])
    return stack([vector.take(counter_rows), sums])
