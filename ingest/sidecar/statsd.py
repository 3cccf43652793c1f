"""Reads StatsD with DogStatsD's tags: ``name:1|c|@0.1|#env:prod,host:a``. Pure.

It aggregates the metrics between two collections, and returns them as Prometheus' types (``points``):

    c          a counter that grows from the start of this program on, scaled by the sample rate
    g          the last value; ``+1`` and ``-1`` change it
    ms h d     name_count and name_sum, which grow; per collection name_min, name_max, and name with a label quantile
    s          the number of distinct members per collection

Tags are ``|#name:value,name:value``, and ``name,tag=value`` or ``name;tag=value`` before the colon. A line may have
several values (``name:1:2:3|ms``). Events and service checks of DogStatsD are no metrics; they count as unreadable. A
series without a line for ``STATSD_IDLE_S`` is removed. Enter by ``Statsd``.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from spm import limits

KINDS = ("c", "m", "g", "ms", "h", "d", "s")
QUANTILES = (0.5, 0.9, 0.99)
_TIMES = ("ms", "h", "d")
Key = tuple[str, str, tuple[tuple[str, str], ...]]  # kind, name, labels


@dataclass(frozen=True, slots=True)
class StatsdMetric:
    """The metric of one line: its kind, its series, its values as written, and the number of events per value."""

    kind: str
    name: str
    labels: tuple[tuple[str, str], ...]
    values: tuple[str, ...]
    weight: float


@dataclass(slots=True)
class _Aggregate:
    """One series: totals since its first line (total, count, level), the rest since the last collection."""

    last_line_ms: int = 0
    total: float = 0.0
    count: float = 0.0
    level: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    values: list[float] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    is_new: bool = False  # there was a line since the last collection


class Statsd:
    """Aggregates all series; a ``LineHandler``."""

    def __init__(self) -> None:
        self._aggregates: dict[Key, _Aggregate] = {}
        self._value_count = 0  # values and members of all series since the last collection

    def add(self, line: str, now_ms: int) -> bool:
        """Add the values of a line to its series; see ``LineHandler``."""
        metric = read(line)
        key = (metric.kind, metric.name, metric.labels)
        numbers = [] if metric.kind == "s" else [_number(value) for value in metric.values]
        aggregate = self._aggregates.get(key)
        if aggregate is None:
            if len(self._aggregates) >= limits.STATSD_SERIES_MAX:
                return False
            aggregate = self._aggregates[key] = _Aggregate()
        aggregate.last_line_ms, aggregate.is_new = now_ms, True
        if metric.kind == "s":
            self._add_members(aggregate, metric.values)
        elif metric.kind == "g":
            _change_level(aggregate, metric.values, numbers)
        else:
            self._add_numbers(aggregate, numbers, metric)
        return True

    def points(self, now_ms: int) -> Sequence[Point]:
        """Return the points of all series, and start the next collection; see ``LineHandler``."""
        idle_ms = limits.STATSD_IDLE_S * 1_000
        idle = [key for key, aggregate in self._aggregates.items() if now_ms - aggregate.last_line_ms > idle_ms]
        for key in idle:
            del self._aggregates[key]
        points = [point for key, aggregate in self._aggregates.items() for point in _points(key, aggregate)]
        for aggregate in self._aggregates.values():
            aggregate.least, aggregate.most, aggregate.values, aggregate.is_new = math.inf, -math.inf, [], False
            aggregate.members = set()
        self._value_count = 0
        return points

    def _add_numbers(self, aggregate: _Aggregate, numbers: Sequence[float], metric: StatsdMetric) -> None:
        for number in numbers:
            aggregate.total += number * metric.weight
            aggregate.count += metric.weight
            aggregate.least, aggregate.most = min(aggregate.least, number), max(aggregate.most, number)
            if metric.kind in _TIMES and self._value_count < limits.STATSD_VALUES_MAX:
                aggregate.values.append(number)
                self._value_count += 1

    def _add_members(self, aggregate: _Aggregate, values: Sequence[str]) -> None:
        for value in values:
            if value not in aggregate.members and self._value_count < limits.STATSD_VALUES_MAX:
                aggregate.members.add(value)
                self._value_count += 1


def read(line: str) -> StatsdMetric:
    """Returns the metric of a line; raises ``UnreadableLine``."""
    if line.startswith(("_e{", "_sc|")):
        raise UnreadableLine("an event or a service check is no metric")
    head, bar, rest = line.partition("|")
    name, colon, values = head.partition(":")
    if not (bar and colon and name and values):
        raise UnreadableLine("not name:value|kind")
    kind, *sections = rest.split("|")
    if kind not in KINDS:
        raise UnreadableLine("the kind is none of c, g, ms, h, d and s")
    name, labels = _split_name(name)
    weight = 1.0
    for section in sections:
        if section.startswith("@"):
            weight = 1 / _rate(section[1:])
        elif section.startswith("#"):
            labels |= _labels(section[1:].split(","), ":")
    several = tuple(values.split(":")) if kind != "s" else (values,)
    return StatsdMetric("c" if kind == "m" else kind, name, tuple(sorted(labels.items())), several, weight)


def _split_name(text: str) -> tuple[str, dict[str, str]]:
    """Returns the name, and the tags after it, which follow a comma or a semicolon, as labels."""
    for separator in (";", ","):
        name, separated, rest = text.partition(separator)
        if separated:
            if not name:
                raise UnreadableLine("the name is empty")
            return name, _labels(rest.split(separator), "=")
    return text, {}


def _labels(pairs: Sequence[str], separator: str) -> dict[str, str]:
    """Returns tags as labels; a tag without a value has the value true, as in DogStatsD."""
    parts = (pair.partition(separator) for pair in pairs if pair)
    labels = {name: value or "true" for name, _, value in parts}
    if "" in labels:
        raise UnreadableLine("a tag has no name")
    return labels


def _rate(text: str) -> float:
    rate = _number(text)
    if not 0 < rate <= 1:
        raise UnreadableLine("the sample rate is not above 0 and at most 1")
    return rate


def _number(text: str) -> float:
    try:
        number = float(text) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnreadableLine("a value is not a number")
    return number


def _change_level(aggregate: _Aggregate, texts: Sequence[str], numbers: Sequence[float]) -> None:
    for text, number in zip(texts, numbers, strict=True):
        aggregate.level = aggregate.level + number if text[0] in "+-" else number


def _points(key: Key, aggregate: _Aggregate) -> Iterator[Point]:
    """Yields the points of one series."""
    kind, name, pairs = key
    labels = dict(pairs)
    if kind == "c":
        yield Point(name, {"value": aggregate.total}, labels)
    elif kind == "g":
        yield Point(name, {"value": aggregate.level}, labels)
    elif kind == "s":
        if aggregate.is_new:
            yield Point(name, {"value": float(len(aggregate.members))}, labels)
    else:
        yield Point(name, {"count": aggregate.count, "sum": aggregate.total}, labels)
        if aggregate.is_new:
            yield Point(name, {"min": aggregate.least, "max": aggregate.most}, labels)
            yield from _quantiles(name, aggregate.values, labels)


def _quantiles(name: str, values: list[float], labels: dict[str, str]) -> Iterator[Point]:
    """Yields the quantiles of the values since the last collection, by nearest rank."""
    values.sort()
    for quantile in QUANTILES if values else ():
        rank = max(0, math.ceil(quantile * len(values)) - 1)
        yield Point(name, {"value": values[rank]}, {**labels, "quantile": str(quantile)})
