"""A storage in memory, for tests of everything that reads.

Series are added with their samples; answers are computed from them in the simplest way, so that tests can rely on them.
`FakeStorage` implements all of the `Storage` protocol, with stale markers and hourly aggregates. It is not fast. Enter
by `FakeStorage.add`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from spm.arrays import F64, I64
from spm.limits import HOUR_MS
from spm.query.request.batches import (
    METRIC_NAME,
    DeadlineCheck,
    HourBatch,
    Matcher,
    Segments,
    SeriesBatch,
    SketchBatch,
    no_deadline,
)
from spm.query.request.provenance import DAYS, HOURS, Provenance, join_provenance
from spm.query.samples.sample_runs import SampleRuns
from spm.store.matchers import mask
from spm.store.rollup import sketch
from spm.store.rollup.sketch import Sketches
from spm.store.versions.retractions import Retraction

STALE = float(np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0])
_FLOATS = ("sum", "sumsq", "min", "max", "first", "last", "increase")


class FakeStorage:
    """Samples of one app in arrays."""

    app = 0

    def __init__(self) -> None:
        self._series: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], I64, F64]] = {}

    def add(self, metric: str, labels: Mapping[str, str], ts: Iterable[int], values: Iterable[float]) -> FakeStorage:
        """Add samples to a series; at equal times the one added last wins. Returns itself, for chaining."""
        named = {METRIC_NAME: metric, **labels} if metric else dict(labels)
        key = tuple(sorted(named.items()))
        _, old_ts, old_values = self._series.get(key, (named, np.empty(0, np.int64), np.empty(0)))
        all_ts = np.concatenate((old_ts, np.fromiter(ts, np.int64)))
        # An array is used as it is, anything else is made a list first: the payloads of NaNs must survive.
        new_values = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
        all_values = np.concatenate((old_values, new_values))
        order = np.argsort(all_ts, kind="stable")
        newest = np.append(np.diff(all_ts[order]) != 0, True)[: len(order)]
        self._series[key] = (named, all_ts[order][newest], all_values[order][newest])
        return self

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck | None = None
    ) -> SampleRuns:
        return SampleRuns.of(self.select(matchers, start_ms, end_ms))

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck | None = None
    ) -> SeriesBatch:
        series = [(labels, ts, values) for labels, ts, values in self._within(start_ms, end_ms, matchers) if len(ts)]
        sizes = [len(ts) for _, ts, _ in series]
        return SeriesBatch(
            [dict(labels) for labels, _, _ in series],
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
            np.concatenate([ts for _, ts, _ in series]) if series else np.empty(0, np.int64),
            np.concatenate([values for _, _, values in series]) if series else np.empty(0),
        )

    def select_hours(self, matchers: Sequence[Matcher], first_hour: int, last_hour: int) -> HourBatch:
        """All aggregates of whole hours, both ends included."""
        return self.select_cells(matchers, np.arange(first_hour, last_hour + 2), ())

    def select_cells(
        self,
        matchers: Sequence[Matcher],
        borders: I64,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck | None = None,
    ) -> HourBatch:
        cells = pairwise(borders.tolist())
        ranges = tuple((HOURS if end - first == 1 else DAYS, (int(first), int(end))) for first, end in cells)
        provenance = join_provenance([Provenance(ranges), Provenance()])
        return self._aggregate(matchers, borders * HOUR_MS, provenance)

    def select_segments(
        self,
        matchers: Sequence[Matcher],
        segments: Segments,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck | None = None,
    ) -> HourBatch:
        return self._aggregate(matchers, segments.borders, Provenance())

    def _aggregate(self, matchers: Sequence[Matcher], borders: I64, provenance: Provenance) -> HourBatch:
        series = list(self._within(int(borders[0]), int(borders[-1]), matchers))
        shape = (len(series), len(borders) - 1)
        integers: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(shape, np.int64) for name in ("count", "first_ts", "last_ts")
        }
        floats: dict[str, npt.NDArray[Any]] = {name: np.full(shape, np.nan) for name in _FLOATS}
        for row, (_, ts, values) in enumerate(series):
            for column, (start, end) in enumerate(pairwise(borders.tolist())):
                inside = (ts > start) & (ts <= end) & ~_is_stale(values)
                for name, value in _aggregates(ts[inside], values[inside]).items():
                    (integers if name in integers else floats)[name][row, column] = value
        labels = [dict(labels) for labels, _, _ in series]
        return HourBatch(labels, borders[:-1] // HOUR_MS, **integers, **floats, provenance=provenance)

    def select_sketches(
        self, matchers: Sequence[Matcher], segments: Segments, *, check_deadline: DeadlineCheck | None = None
    ) -> SketchBatch:
        series = list(self._within(int(segments.borders[0]), int(segments.borders[-1]), matchers))
        pairs, sketches = [], []
        for row, (_, ts, values) in enumerate(series):
            for segment, (start, end) in enumerate(pairwise(segments.borders.tolist())):
                inside = values[(ts > start) & (ts <= end)]
                if len(inside):
                    pairs.append((row, segment))
                    sketches.append(sketch.of_winners(np.array([0, len(inside)]), inside))
        rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
        labels = [dict(labels) for labels, _, _ in series]
        joined = sketch.concat([Sketches.empty(), *sketches])
        return SketchBatch(labels, rows, columns, joined, Provenance(sketched=True))

    def series(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        most: int | None = None,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[dict[str, str]]:
        matching = [
            labels
            for matchers in matcher_sets or [()]
            for labels, ts, _ in self._within(start_ms, end_ms, matchers)
            if len(ts)
        ]
        return [dict(key) for key in sorted({tuple(sorted(labels.items())) for labels in matching})[:most]]

    def label_names(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        return sorted({name for labels in self.series(matcher_sets, start_ms, end_ms) for name in labels})

    def label_values(
        self,
        name: str,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        return sorted({labels[name] for labels in self.series(matcher_sets, start_ms, end_ms) if name in labels})

    def with_retracted(self) -> FakeStorage:
        return self

    def retractions(self, start_ms: int, end_ms: int) -> tuple[Retraction, ...]:
        """None."""
        return ()

    def notes(self) -> list[str]:
        return []

    def damage(self) -> list[str]:
        return []

    def fingerprint(self, start_ms: int, end_ms: int) -> None:
        """Return ``None``, so that answers are not cached: nothing shows when the arrays have changed."""

    def _within(
        self, start_ms: int, end_ms: int, matchers: Sequence[Matcher]
    ) -> Iterable[tuple[dict[str, str], I64, F64]]:
        for labels, ts, values in self._series.values():
            if all(mask([labels.get(matcher.name, "")], matcher)[0] for matcher in matchers):
                inside = slice(*np.searchsorted(ts, (start_ms, end_ms), side="right"))  # nothing is copied
                yield labels, ts[inside], values[inside]


def _is_stale(values: F64) -> npt.NDArray[np.bool_]:
    stale: npt.NDArray[np.bool_] = np.ascontiguousarray(values).view(np.uint64) == np.uint64(0x7FF0000000000002)
    return stale


def _aggregates(ts: I64, values: F64) -> dict[str, float]:
    if len(ts) == 0:
        return {}
    falls = values[1:] < values[:-1]
    with np.errstate(invalid="ignore"):
        increase = float(values[-1] - values[0] + values[:-1][falls].sum())
    return {
        "count": len(ts),
        "sum": float(np.cumsum(values)[-1]),
        "sumsq": float(np.cumsum(values * values)[-1]),
        "min": float(np.fmin.reduce(values)),
        "max": float(np.fmax.reduce(values)),
        "first": float(values[0]),
        "first_ts": int(ts[0]),
        "last": float(values[-1]),
        "last_ts": int(ts[-1]),
        "increase": increase,
    }
