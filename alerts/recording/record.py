"""The samples of a recording rule: its expression's answer under another name, with stale markers. Pure.

A series that was in the answer one step before and no longer is gets a stale marker, so that it ends at once for
queries. A step that fails has no samples, and what comes after it is compared with the last step that did not.
Enter by ``record``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from alerts.judging.answers import Labels, Read
from alerts.judging.versions import Steps
from spm.arrays import BOOL, F64
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.store.matchers import METRIC_NAME, mask
from spm.wire import STALE_BITS

STALE = float(np.array([STALE_BITS], np.uint64).view(np.float64)[0])


@dataclass(frozen=True, slots=True)
class RecordedRule:
    """A recording rule: the metric, the expression, labels that replace the answer's, and the most series (0: any)."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0


@dataclass(frozen=True, slots=True)
class RecordedSamples:
    """Samples by series [S, T], where ``written``; stale markers are among them. ``errors`` by the index of steps."""

    labels: Sequence[Labels]
    values: F64
    written: BOOL
    errors: Mapping[int, str]


def record(rule: RecordedRule, steps: Steps, read: Read) -> RecordedSamples:
    """Compute the samples of a rule at all steps."""
    answer = read(rule.expr, replace(steps, first_ms=steps.first_ms - steps.period_ms))
    labels = [_labels(rule, each) for each in answer.labels]
    errors = dict(answer.errors)
    present = answer.present.copy()
    for index in range(present.shape[1]):
        if problem := _problem(rule, labels, present[:, index]):
            errors.setdefault(index, problem)
    values, written = _with_stale_markers(answer.values, present, list(errors))
    shown = {index - 1: text for index, text in errors.items() if index >= 1}
    return RecordedSamples(labels, values[:, 1:], written[:, 1:], shown)


def reads_metric(expr: str, names: Sequence[str]) -> bool:
    """Whether the expression may select one of these metrics."""
    return any(_may_match(selector, names) for selector in _selectors(parse(expr)))


def _labels(rule: RecordedRule, series: Labels) -> dict[str, str]:
    labels = {**series, **rule.labels, METRIC_NAME: rule.name}
    return {name: text for name, text in labels.items() if text}


def _problem(rule: RecordedRule, labels: Sequence[Labels], present: BOOL) -> str:
    rows = np.flatnonzero(present).tolist()
    if rule.limit and len(rows) > rule.limit:
        return f"exceeded limit of {rule.limit} with {len(rows)} series"
    if rule.labels and len({tuple(sorted(labels[row].items())) for row in rows}) < len(rows):
        return "vector contains metrics with the same labelset after applying rule labels"
    return ""


def _with_stale_markers(values: F64, present: BOOL, failed: Sequence[int]) -> tuple[F64, BOOL]:
    values, written = np.where(present, values, np.nan), present.copy()
    written[:, list(failed)] = False
    good = [index for index in range(present.shape[1]) if index not in set(failed)]
    for before, index in pairwise(good):
        ended = written[:, before] & present[:, before] & ~present[:, index]
        values[ended, index] = STALE
        written[ended, index] = True
    return values, written


def _selectors(node: object) -> list[plan.Selector]:
    if isinstance(node, plan.Selector):
        return [node]
    if isinstance(node, tuple):
        return [selector for part in node for selector in _selectors(part)]
    names = getattr(node, "__dataclass_fields__", ())
    return [selector for name in names for selector in _selectors(getattr(node, name))]


def _may_match(selector: plan.Selector, names: Sequence[str]) -> bool:
    matching: BOOL = np.ones(len(names), np.bool_)
    for matcher in selector.matchers:
        if matcher.name == METRIC_NAME:
            matching &= mask(list(names), matcher)
    return bool(matching.any())
