"""Collects the annotations of a query: warnings and infos in Prometheus' wording, with the position in the text.

Each message is kept once, whatever the number of series and steps. A warning says that the answer may be wrong (a
quantile of 2), an info that the query may be (a rate of something that is no counter). Enter by `Annotations`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import numpy as np

from spm.arrays import F64
from spm.query.promql.syntax.numerals import short

_DISTINCT_MAX = 10  # values of one parameter that have a message each
_COUNTER_ENDINGS = ("_total", "_sum", "_count", "_bucket")


@dataclass(slots=True)
class ForcedMonotonicity:
    """Buckets of classic histograms whose counts were raised to be monotonic: their bounds, times and difference."""

    least: float
    greatest: float
    difference: float
    samples: int
    first_ms: int
    last_ms: int

    def add(self, other: ForcedMonotonicity) -> None:
        """Include the buckets of another histogram."""
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.difference = max(self.difference, other.difference)
        self.samples += other.samples
        self.first_ms, self.last_ms = min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms)


@dataclass(frozen=True, slots=True)
class Annotations:
    """Collects the annotations of one query."""

    text: str
    _warnings: dict[str, None] = field(default_factory=dict)
    _infos: dict[str, None] = field(default_factory=dict)
    _forced: dict[tuple[str, int], ForcedMonotonicity] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """The warnings, in the order of their first occurrence."""
        return list(self._warnings)

    @property
    def are_separable(self) -> bool:
        """Whether the annotations of many steps are those of the single steps together."""
        return not self._forced and not self._warnings

    @property
    def infos(self) -> list[str]:
        """The infos, in the order of their first occurrence; those about buckets come last."""
        return [*self._infos, *(self._monotonicity_info(name, at, each) for (name, at), each in self._forced.items())]

    def check_quantiles(self, quantiles: F64, position: int) -> None:
        """Warn of quantiles outside of 0 to 1."""
        for q in _outside(quantiles, 0.0, 1.0):
            self._warn(f"quantile value should be between 0 and 1, got {short(q)}", position)

    def check_integral_rules(self, rules: F64, position: int) -> None:
        """Warn of rules of `integral` other than 0, 1 and 2."""
        for rule in _unknown(rules, (0.0, 1.0, 2.0)):
            self._warn(f"strategy should be 0, 1, or 2 (default), using 2, got {short(rule)}", position)

    def check_ratios(self, ratios: F64, position: int) -> None:
        """Warn of ratios outside of -1 to 1."""
        for ratio in (ratios.max(), ratios.min()):
            if abs(ratio) > 1:
                capped = "1" if ratio > 0 else "-1"
                self._warn(f"ratio value should be between -1 and 1, got {short(ratio)}, capping to {capped}", position)

    def bad_bucket(self, metric: str, bound: str, position: int) -> None:
        """Warn of a bucket whose bound cannot be read."""
        message = f'bucket label "le" is missing or has a malformed value of {_quote(bound)}'
        self._warn(message + _for_metric(metric), position)

    def sort_in_range(self, position: int) -> None:
        """Warn of a sort that has no effect."""
        self._warn("sort is ineffective for range queries since results are always ordered by labels", position)

    def possible_gauge(self, metric: str, position: int) -> None:
        """Give an info about a counter function of a metric whose name is not that of a counter."""
        if metric and not metric.endswith(_COUNTER_ENDINGS):
            message = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:"
            self._infos[self._with_position(f"PromQL info: {message} {_quote(metric)}", position)] = None

    def exponential_buckets(self, metric: str, position: int) -> None:
        """Give an info about buckets that came from a native or an exponential histogram."""
        message = "buckets were made from those of a native or exponential histogram: exact to one bucket"
        self._infos[self._with_position(f"PromQL info: {message}{_for_metric(metric)}", position)] = None

    def forced_monotonicity(self, metric: str, position: int, forced: ForcedMonotonicity) -> None:
        """Give an info about buckets whose counts fell where they must rise."""
        if (metric, position) in self._forced:
            self._forced[metric, position].add(forced)
        else:
            self._forced[metric, position] = forced

    def _monotonicity_info(self, metric: str, position: int, forced: ForcedMonotonicity) -> str:
        where = "see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile"
        message = f"input to histogram_quantile needed to be fixed for monotonicity ({where}){_for_metric(metric)}"
        buckets = f"from buckets {short(forced.least)} to {short(forced.greatest)}"
        span = f"over {forced.samples} samples from {_time_text(forced.first_ms)} to {_time_text(forced.last_ms)}"
        size = f"with a max diff of {forced.difference:.2g}"
        return self._with_position(f"PromQL info: {message}, {buckets}, {size}, {span}", position)

    def _warn(self, message: str, position: int) -> None:
        self._warnings[self._with_position(f"PromQL warning: {message}", position)] = None

    def _with_position(self, message: str, position: int) -> str:
        before = self.text[:position]
        return f"{message} ({before.count(chr(10)) + 1}:{position - before.rfind(chr(10))})"


def _outside(numbers: F64, least: float, greatest: float) -> list[float]:
    outside = numbers[~((numbers >= least) & (numbers <= greatest))]
    return np.unique(outside)[:_DISTINCT_MAX].tolist() if len(outside) else []


def _unknown(numbers: F64, known: tuple[float, ...]) -> list[float]:
    unknown = numbers[~np.isin(numbers, known)]
    return np.unique(unknown)[:_DISTINCT_MAX].tolist() if len(unknown) else []


def _for_metric(metric: str) -> str:
    return f" for metric name {_quote(metric)}" if metric else ""


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _time_text(ms: int) -> str:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=ms // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
