"""What a query has to say about itself: warnings and infos, in Prometheus' words and with the place in the text.

Each is kept once, however many series and steps it is about. Warnings doubt the answer (a quantile of 2), infos the
question (a rate of something that is no counter). Enter by `Remarks`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import numpy as np

from spm.arrays import F64
from spm.query.promql.syntax.numerals import short

_DISTINCT_MAX = 10  # values of one parameter that are remarked upon
_COUNTER_ENDINGS = ("_total", "_sum", "_count", "_bucket")


@dataclass(slots=True)
class Forced:
    """Buckets of classic histograms that had to be made to rise: which, how far, when."""

    least: float
    greatest: float
    difference: float
    samples: int
    first_ms: int
    last_ms: int

    def add(self, other: Forced) -> None:
        """Take another histogram's into account."""
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        self.difference = max(self.difference, other.difference)
        self.samples += other.samples
        self.first_ms, self.last_ms = min(self.first_ms, other.first_ms), max(self.last_ms, other.last_ms)


@dataclass(frozen=True, slots=True)
class Remarks:
    """Collects what the parts of one query remark."""

    text: str
    _warnings: dict[str, None] = field(default_factory=dict)
    _infos: dict[str, None] = field(default_factory=dict)
    _forced: dict[tuple[str, int], Forced] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """In the order they came up."""
        return list(self._warnings)

    @property
    def step_by_step(self) -> bool:
        """Whether what is remarked on many steps is what is remarked on each of them."""
        return not self._forced and not self._warnings

    @property
    def infos(self) -> list[str]:
        """Likewise; about buckets last."""
        return [*self._infos, *(self._about(name, at, found) for (name, at), found in self._forced.items())]

    def quantiles(self, asked: F64, position: int) -> None:
        """Quantiles that are none."""
        for q in _outside(asked, 0.0, 1.0):
            self._warn(f"quantile value should be between 0 and 1, got {short(q)}", position)

    def rules(self, asked: F64, position: int) -> None:
        """Rules of an integral that are none."""
        for rule in _others(asked, (0.0, 1.0, 2.0)):
            self._warn(f"strategy should be 0, 1, or 2 (default), using 2, got {short(rule)}", position)

    def ratios(self, asked: F64, position: int) -> None:
        """Ratios beyond one."""
        for ratio in (asked.max(), asked.min()):
            if abs(ratio) > 1:
                capped = "1" if ratio > 0 else "-1"
                self._warn(f"ratio value should be between -1 and 1, got {short(ratio)}, capping to {capped}", position)

    def bad_bucket(self, metric: str, bound: str, position: int) -> None:
        """A bucket whose bound cannot be read."""
        message = f'bucket label "le" is missing or has a malformed value of {_quoted(bound)}'
        self._warn(message + _named(metric), position)

    def sort_in_range(self, position: int) -> None:
        """A sort that has no effect."""
        self._warn("sort is ineffective for range queries since results are always ordered by labels", position)

    def possible_gauge(self, metric: str, position: int) -> None:
        """A rate of a metric whose name is not a counter's."""
        if metric and not metric.endswith(_COUNTER_ENDINGS):
            message = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:"
            self._infos[self._placed(f"PromQL info: {message} {_quoted(metric)}", position)] = None

    def forced(self, metric: str, position: int, found: Forced) -> None:
        """Buckets that fell where they should rise."""
        if (metric, position) in self._forced:
            self._forced[metric, position].add(found)
        else:
            self._forced[metric, position] = found

    def _about(self, metric: str, position: int, found: Forced) -> str:
        where = "see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile"
        message = f"input to histogram_quantile needed to be fixed for monotonicity ({where}){_named(metric)}"
        buckets = f"from buckets {short(found.least)} to {short(found.greatest)}"
        span = f"over {found.samples} samples from {_moment(found.first_ms)} to {_moment(found.last_ms)}"
        size = f"with a max diff of {found.difference:.2g}"
        return self._placed(f"PromQL info: {message}, {buckets}, {size}, {span}", position)

    def _warn(self, message: str, position: int) -> None:
        self._warnings[self._placed(f"PromQL warning: {message}", position)] = None

    def _placed(self, message: str, position: int) -> str:
        before = self.text[:position]
        return f"{message} ({before.count(chr(10)) + 1}:{position - before.rfind(chr(10))})"


def _outside(asked: F64, least: float, greatest: float) -> list[float]:
    wrong = asked[~((asked >= least) & (asked <= greatest))]
    return np.unique(wrong)[:_DISTINCT_MAX].tolist() if len(wrong) else []


def _others(asked: F64, known: tuple[float, ...]) -> list[float]:
    wrong = asked[~np.isin(asked, known)]
    return np.unique(wrong)[:_DISTINCT_MAX].tolist() if len(wrong) else []


def _named(metric: str) -> str:
    return f" for metric name {_quoted(metric)}" if metric else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _moment(ms: int) -> str:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=ms // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
