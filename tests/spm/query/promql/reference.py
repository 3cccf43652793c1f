"""A second evaluator that the engine is compared with: simple, slow, and close to the documentation.

It evaluates one step and one series at a time, with Python's floats and without arrays. It shares only the plan's
classes with the engine. Samples are {labels: [(ts, value), …]}; an answer is {labels: value} for one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from spm.query.promql.planning import plan
from spm.store.matchers import mask

LabelSet = tuple[tuple[str, str], ...]
Samples = dict[LabelSet, list[tuple[int, float]]]


class SameLabels(Exception):
    """Two results with the same labels at one step, or an ambiguous match."""


@dataclass
class Element:
    labels: dict[str, str]
    value: float
    nameless: bool = False


@dataclass
class Reference:
    """Evaluates a plan at one step; `start` and `end` are those of the whole query."""

    samples: Samples
    t: int
    start: int
    end: int

    def answer(self, node: plan.VectorNode) -> dict[LabelSet, float]:
        values: dict[LabelSet, float] = {}
        for element in self.vector(node):
            labels = {k: v for k, v in element.labels.items() if not (element.nameless and k == "__name__")}
            _put(values, labels, element.value)
        return values

    def scalar(self, node: plan.ScalarNode) -> float:
        if isinstance(node, plan.Number):
            return node.value
        if isinstance(node, plan.Time):
            return self.t / 1000
        if isinstance(node, plan.ScalarOf):
            elements = self.vector(node.vector)
            return elements[0].value if len(elements) == 1 else math.nan
        left, right = self.scalar(node.left), self.scalar(node.right)
        if node.op in plan.COMPARISONS:
            return float(compare(node.op, left, right))
        return arithmetic(node.op, left, right)

    def vector(self, node: plan.VectorNode) -> list[Element]:
        name = type(node).__name__.lower()
        elements: list[Element] = getattr(self, f"_{name}")(node)
        return elements

    def _matching(self, selector: plan.Selector) -> list[tuple[dict[str, str], list[tuple[int, float]], int]]:
        at = {"start": self.start, "end": self.end}.get(str(selector.at), selector.at)
        t = (self.t if at is None else int(at)) - selector.offset_ms
        elements = []
        for key, points in self.samples.items():
            labels = dict(key)
            if all(mask([labels.get(m.name, "")], m)[0] for m in selector.matchers):
                elements.append((labels, points, t))
        return elements

    def _selector(self, node: plan.Selector) -> list[Element]:
        elements = []
        for labels, points, t in self._matching(node):
            near = [value for ts, value in points if t - 300_000 < ts <= t]
            if near and not is_stale(near[-1]):
                elements.append(Element(labels, near[-1]))
        return elements

    def _rangecall(self, node: plan.RangeCall) -> list[Element]:
        elements = []
        parameter = self.scalar(node.parameters[0]) if node.parameters else math.nan
        assert isinstance(node.window, plan.Window)
        for labels, points, t in self._matching(node.window.selector):
            start = t - node.window.range_ms
            window = [(ts, value) for ts, value in points if start < ts <= t and not is_stale(value)]
            if len(window) >= (2 if node.function in TWO else 1):
                value = RANGE[node.function](window, start, t, parameter)
                elements.append(Element(labels, value, node.function not in ("last_over_time", "first_over_time")))
        return elements

    def _elementwise(self, node: plan.Elementwise) -> list[Element]:
        parameters = [self.scalar(parameter) for parameter in node.parameters]
        elements = []
        for element in self.vector(node.vector):
            value = ELEMENTWISE[node.function](element.value, *parameters)
            if value is not None:
                elements.append(Element(element.labels, value, True))
        return elements

    def _vectorof(self, node: plan.VectorOf) -> list[Element]:
        return [Element({}, self.scalar(node.scalar))]

    def _vectorscalar(self, node: plan.VectorScalar) -> list[Element]:
        number = self.scalar(node.scalar)
        elements = []
        for element in self.vector(node.vector):
            left, right = (number, element.value) if node.swapped else (element.value, number)
            if node.op not in plan.COMPARISONS:
                elements.append(Element(element.labels, arithmetic(node.op, left, right), True))
            elif node.as_bool:
                elements.append(Element(element.labels, float(compare(node.op, left, right)), True))
            elif compare(node.op, left, right):
                elements.append(element)
        return elements

    def _vectorvector(self, node: plan.VectorVector) -> list[Element]:
        left, right = self.vector(node.left), self.vector(node.right)
        swapped = node.matching.many == "right"
        many, one = (right, left) if swapped else (left, right)
        if not many or not one:
            return []
        partners: dict[LabelSet, Element] = {}
        for element in one:
            signature = _signature(element.labels, node.matching)
            if signature in partners:
                raise SameLabels
            partners[signature] = element
        elements: list[Element] = []
        matched: set[LabelSet] = set()
        results: dict[LabelSet, float] = {}
        for element in many:
            signature = _signature(element.labels, node.matching)
            partner = partners.get(signature)
            if partner is None:
                continue
            a, b = (partner.value, element.value) if swapped else (element.value, partner.value)
            holds = compare(node.op, a, b) if node.op in plan.COMPARISONS else True
            value = a if node.op in plan.COMPARISONS else arithmetic(node.op, a, b)
            if node.as_bool:
                value, holds = float(holds), True
            if signature in matched and not node.matching.many:
                raise SameLabels
            matched.add(signature)
            labels = _matched_labels(node, element.labels, partner.labels)
            _put(results, labels, value)
            if holds:  # an element that a comparison drops has counted as a match
                elements.append(Element(labels, value, element.nameless or node.as_bool))
        return elements

    def _setoperation(self, node: plan.SetOperation) -> list[Element]:
        left, right = self.vector(node.left), self.vector(node.right)
        lefts = {_signature(element.labels, node.matching) for element in left}
        rights = {_signature(element.labels, node.matching) for element in right}
        if node.op == "and":
            return [element for element in left if _signature(element.labels, node.matching) in rights]
        if node.op == "unless":
            return [element for element in left if _signature(element.labels, node.matching) not in rights]
        both = left + [element for element in right if _signature(element.labels, node.matching) not in lefts]
        values: dict[LabelSet, float] = {}
        for element in both:
            _put(values, element.labels, element.value)  # raises for equal labels
        return both

    def _aggregation(self, node: plan.Aggregation) -> list[Element]:
        parameter = math.nan if node.parameter is None else self.scalar(node.parameter)
        groups: dict[LabelSet, list[Element]] = {}
        for element in self.vector(node.vector):
            groups.setdefault(_group(element.labels, node), []).append(element)
        elements = []
        for key, members in groups.items():
            if node.op in ("topk", "bottomk"):
                sign = -1 if node.op == "topk" else 1
                ranked = sorted(
                    members, key=lambda e: (math.isnan(e.value), 0 if e.value != e.value else sign * e.value)
                )
                elements += ranked[: max(0, int(parameter))]
            else:
                elements.append(Element(dict(key), AGGREGATE[node.op]([e.value for e in members], parameter)))
        return elements


def _put(elements: dict[LabelSet, float], labels: dict[str, str], value: float) -> None:
    key = tuple(sorted(labels.items()))
    if key in elements:
        raise SameLabels
    elements[key] = value


def _signature(labels: dict[str, str], matching: plan.Matching) -> LabelSet:
    if matching.on:
        return tuple((name, labels.get(name, "")) for name in sorted(set(matching.labels)))
    return tuple(sorted((k, v) for k, v in labels.items() if k != "__name__" and k not in matching.labels and v))


def _group(labels: dict[str, str], node: plan.Aggregation) -> LabelSet:
    if node.without:
        return tuple(sorted((k, v) for k, v in labels.items() if k != "__name__" and k not in node.labels))
    return tuple(sorted((k, v) for k, v in labels.items() if k in node.labels))


def _matched_labels(node: plan.VectorVector, many: dict[str, str], one: dict[str, str]) -> dict[str, str]:
    labels = dict(many)
    if node.op not in plan.COMPARISONS:
        labels.pop("__name__", None)
    if not node.matching.many:
        return {k: v for k, v in labels.items() if (k in node.matching.labels) == node.matching.on}
    for name in node.matching.include:
        labels.pop(name, None)
        if one.get(name):
            labels[name] = one[name]
    return labels


def is_stale(value: float) -> bool:
    return int(np.float64(value).view(np.uint64)) == 0x7FF0000000000002


def compare(op: str, a: float, b: float) -> bool:
    return {"==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[op]


def arithmetic(op: str, a: float, b: float) -> float:
    x, y = np.float64(a), np.float64(b)
    operators: dict[str, Callable[[], np.float64]] = {
        "+": lambda: x + y,
        "-": lambda: x - y,
        "*": lambda: x * y,
        "/": lambda: x / y,
        "%": lambda: np.fmod(x, y),
        "^": lambda: np.power(x, y),
        "atan2": lambda: np.arctan2(x, y),
    }
    with np.errstate(all="ignore"):
        return float(operators[op]())


def total(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        with np.errstate(invalid="ignore"):  # infinities of both signs
            return float(np.sum(values))


def least(values: list[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return min(numbers) if numbers else math.nan


def greatest(values: list[float]) -> float:
    return -least([-value for value in values])


def variance(values: list[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = list(map(Fraction, values))  # floats would lose the distances of times, which are small beside the times
    mean = sum(exact) / len(exact)
    try:
        return float(sum((value - mean) ** 2 for value in exact) / len(exact))
    except OverflowError:
        return math.inf


def quantile(values: list[float], q: float) -> float:
    if math.isnan(q):
        return math.nan
    if q < 0 or q > 1:
        return math.copysign(math.inf, q)
    ranked = sorted(values, key=lambda value: -math.inf if math.isnan(value) else value)
    ranked = [v for v in ranked if math.isnan(v)] + [v for v in ranked if not math.isnan(v)]
    rank = q * (len(ranked) - 1)
    low = math.floor(rank)
    high, weight = min(low + 1, len(ranked) - 1), rank - math.floor(rank)
    if weight == 0:  # as Prometheus since 3.16: the value above may be infinite, and zero times infinity is NaN
        return ranked[low]
    return ranked[low] * (1 - weight) + ranked[high] * weight


def extrapolated(window: list[tuple[int, float]], start: int, end: int, *, counter: bool) -> float:
    (first_ts, first), (last_ts, last) = window[0], window[-1]
    gained = last - first
    if counter:
        gained += sum(a for (_, a), (_, b) in pairwise(window) if b < a)
    to_start, to_end = (first_ts - start) / 1000, (end - last_ts) / 1000
    sampled = (last_ts - first_ts) / 1000
    average = sampled / (len(window) - 1)
    if to_start >= 1.1 * average:
        to_start = average / 2
    if counter and gained > 0 and first >= 0:
        to_zero = sampled * (first / gained)
        to_start = min(to_start, to_zero)
    if to_end >= 1.1 * average:
        to_end = average / 2
    return gained * ((sampled + to_start + to_end) / sampled)


def instant_rate(window: list[tuple[int, float]]) -> float:
    (before_ts, before), (ts, value) = window[-2:]
    return (value if value < before else value - before) / ((ts - before_ts) / 1000)


def _clamp(value: float, low: float, high: float) -> float | None:
    if low > high:
        return None
    return math.nan if any(map(math.isnan, (value, low, high))) else max(low, min(high, value))


def _whole(round_: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: float(round_(value)) if math.isfinite(value) else value


def _numpy(name: str) -> Callable[..., float]:
    def applied(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(getattr(np, name)(*map(np.float64, values)))

    return applied


def values_of(window: list[tuple[int, float]]) -> list[float]:
    return [value for _, value in window]


TWO = {"rate", "increase", "delta", "irate", "idelta"}
RANGE: dict[str, Callable[[list[tuple[int, float]], int, int, float], float]] = {
    "count_over_time": lambda w, s, e, p: float(len(w)),
    "present_over_time": lambda w, s, e, p: 1.0,
    "last_over_time": lambda w, s, e, p: w[-1][1],
    "first_over_time": lambda w, s, e, p: w[0][1],
    "sum_over_time": lambda w, s, e, p: total(values_of(w)),
    "avg_over_time": lambda w, s, e, p: total(values_of(w)) / len(w),
    "min_over_time": lambda w, s, e, p: least(values_of(w)),
    "max_over_time": lambda w, s, e, p: greatest(values_of(w)),
    "stdvar_over_time": lambda w, s, e, p: variance(values_of(w)),
    "stddev_over_time": lambda w, s, e, p: math.sqrt(variance(values_of(w))),
    "quantile_over_time": lambda w, s, e, p: quantile(values_of(w), p),
    "rate": lambda w, s, e, p: extrapolated(w, s, e, counter=True) / ((e - s) / 1000),
    "increase": lambda w, s, e, p: extrapolated(w, s, e, counter=True),
    "delta": lambda w, s, e, p: extrapolated(w, s, e, counter=False),
    "irate": lambda w, s, e, p: instant_rate(w),
    "idelta": lambda w, s, e, p: w[-1][1] - w[-2][1],
}
AGGREGATE: dict[str, Callable[[list[float], float], float]] = {
    "sum": lambda v, p: total(v),
    "avg": lambda v, p: total(v) / len(v),
    "min": lambda v, p: least(v),
    "max": lambda v, p: greatest(v),
    "count": lambda v, p: float(len(v)),
    "group": lambda v, p: 1.0,
    "stdvar": lambda v, p: variance(v),
    "stddev": lambda v, p: math.sqrt(variance(v)),
    "quantile": quantile,
}
ELEMENTWISE: dict[str, Callable[..., float | None]] = {
    "abs": abs,
    "ceil": _whole(math.ceil),
    "floor": _whole(math.floor),
    "round": lambda value, to=1.0: math.floor(value / to + 0.5) * to if math.isfinite(value) else value,
    "clamp": _clamp,
    "clamp_min": lambda value, low: math.nan if math.isnan(value + low) else max(value, low),
    "clamp_max": lambda value, high: math.nan if math.isnan(value + high) else min(value, high),
    "sqrt": _numpy("sqrt"),
    "ln": _numpy("log"),
    "exp": _numpy("exp"),
    "sgn": lambda value: value if math.isnan(value) or value == 0 else math.copysign(1.0, value),
}
