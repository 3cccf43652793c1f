"""Counts the series of an app by metric, label and value: the figures of Prometheus' `status/tsdb`.

It counts the columns of the index: one pass of numpy per label, never a loop per series. Enter by
`measure_cardinality`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spm.query.request.batches import METRIC_NAME
from spm.query.series.index import SeriesIndex

Ranked = list[tuple[str, int]]  # the largest first


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Counts of all series and pairs, and the largest counts of each kind."""

    series: int
    pairs: int  # distinct (label, value)
    by_metric: Ranked
    values_by_label: Ranked
    bytes_by_label: Ranked
    by_pair: Ranked


def measure_cardinality(index: SeriesIndex, most: int) -> Cardinality:
    """Count the series of an index; each list has at most ``most`` entries."""
    by_metric: Ranked = []
    values_by_label: Ranked = []
    bytes_by_label: Ranked = []
    by_pair: Ranked = []
    for name, codes, values in index.label_columns():
        counts = np.bincount(codes, minlength=len(values))  # series with each value
        counts[0] = 0  # the label is absent
        if not counts.any():
            continue  # an index without series has the label of metric names, and no value of it
        largest = np.argsort(-counts, kind="stable")[:most].tolist()
        ranked = [(values[code], int(counts[code])) for code in largest if counts[code]]
        by_pair += [(f"{name}={value}", count) for value, count in ranked]
        values_by_label.append((name, int(np.count_nonzero(counts))))
        bytes_by_label.append((name, sum(map(len, values)) + codes.nbytes))
        if name == METRIC_NAME:
            by_metric = ranked
    return Cardinality(
        len(index),
        sum(count for _, count in values_by_label),
        by_metric,
        *(_largest(ranked, most) for ranked in (values_by_label, bytes_by_label, by_pair)),
    )


def _largest(counts: Ranked, most: int) -> Ranked:
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:most]
