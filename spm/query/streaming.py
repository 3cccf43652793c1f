"""Reads samples that exceed memory piece by piece, and finds the series that had samples as of a time.

The dictionary has no times. An as-of query for names therefore looks for samples, newest first, until each series has
one; a series without any is left out. Each piece is read from a view of its own. Enter by `stream_by_labels` for
samples, `series_as_of` for names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spm.errors import QueryTooLarge
from spm.limits import (
    EXPORT_SERIES_AT_ONCE,
    EXPORT_STRETCH_HOURS_MAX,
    EXPORT_STRETCH_SAMPLES,
    HOUR_MS,
    QUERY_SERIES_MAX,
)
from spm.query import explain
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher, SeriesBatch
from spm.query.request.budget import SAMPLE_BYTES, SERIES_BYTES, Budget
from spm.query.request.provenance import Provenance, join_provenance
from spm.query.series.index import SeriesSelection

Labels = dict[str, str]
_FIRST_SERIES = 8  # series of the first piece: before it, nothing is known about their number of samples


@dataclass(frozen=True, slots=True)
class SeriesAsOf:
    """The labels of series that had samples, and the provenance of these samples."""

    labels: list[Labels]
    provenance: Provenance


def stream_by_labels(
    storage: AppStorage, matchers: Sequence[Matcher], start_ms: int, end_ms: int, budget: Budget
) -> Iterator[SeriesBatch]:
    """Samples with start_ms < ts <= end_ms, some series at a time, in the order of their labels."""
    portions = storage.portions(matchers, QUERY_SERIES_MAX)
    if not portions:
        return
    [selection] = portions  # more series are refused
    budget.charge_series(len(selection), "the selector")
    keys = [sorted(labels.items()) for labels in storage.labels_of(selection)]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    at, size = 0, _FIRST_SERIES
    while at < len(order):
        budget.check_deadline()
        piece = selection.take(order[at : at + size])
        batch = storage.select_portion(piece, start_ms, end_ms, check_deadline=budget.check_deadline)
        budget.charge_samples(len(batch.ts))
        yield batch
        budget.charge_values(-len(batch.ts) * SAMPLE_BYTES)
        at += size
        if len(batch.ts) * 2 < EXPORT_STRETCH_SAMPLES:
            size = min(size * 2, EXPORT_SERIES_AT_ONCE)
        elif len(batch.ts) > EXPORT_STRETCH_SAMPLES:
            size = max(size // 2, 1)
    budget.charge_values(-len(order) * SERIES_BYTES)


def series_as_of(
    storage: AppStorage, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, budget: Budget
) -> SeriesAsOf:
    """The series that match any of the sets (no set: all) and had samples in this time, in a storage as of a time."""
    labels: list[Labels] = []
    parts: list[Provenance] = []
    sets = list(matcher_sets) or [()]
    hours = storage.hours_with_samples(start_ms - 1, end_ms)
    for number, matchers in enumerate(sets):
        for portion in storage.portions(matchers, EXPORT_SERIES_AT_ONCE):
            new = storage.without(portion, sets[:number])
            labels += _with_samples(storage, new, hours, (start_ms - 1, end_ms), budget, parts)
            if len(labels) > QUERY_SERIES_MAX:
                raise QueryTooLarge(f"more than {QUERY_SERIES_MAX} series match: narrow the selector")
    expired = dataclasses.replace(explain.of_samples(storage, start_ms - 1, end_ms), ranges=())
    return SeriesAsOf(labels, join_provenance([*parts, expired]))


def _with_samples(
    storage: AppStorage,
    portion: SeriesSelection,
    hours: Sequence[int],
    span_ms: tuple[int, int],
    budget: Budget,
    parts: list[Provenance],
) -> list[Labels]:
    """Labels of a portion's series that have a sample: searched back from the newest hour, in ranges of varying length.

    The provenance of each read is appended to ``parts``.
    """
    labels: list[Labels] = []
    end, hour_count = len(hours), 1
    while end and len(portion):
        budget.check_deadline()
        begin = max(end - hour_count, 0)
        low, high = max(hours[begin] * HOUR_MS, span_ms[0]), min((hours[end - 1] + 1) * HOUR_MS, span_ms[1])
        batch = storage.select_portion(portion, low, high, check_deadline=budget.check_deadline)
        budget.charge_series(len(batch.labels), "match[]")
        budget.charge_samples(len(batch.ts))
        budget.charge_values(-len(batch.ts) * SAMPLE_BYTES)
        parts.append(batch.provenance)
        portion = portion.take(_rows_without(storage.labels_of(portion), batch.labels))
        labels += batch.labels
        end, is_small = begin, len(batch.ts) * 2 < EXPORT_STRETCH_SAMPLES
        hour_count = min(hour_count * 2, EXPORT_STRETCH_HOURS_MAX) if is_small else max(hour_count // 2, 1)
    return labels


def _rows_without(series: Sequence[Labels], with_samples: Sequence[Labels]) -> np.ndarray:
    """The numbers of the series that have no samples; both lists are in the same order."""
    rows, iterator = [], iter(with_samples)
    expected = next(iterator, None)
    for number, labels in enumerate(series):
        if labels == expected:
            expected = next(iterator, None)
        else:
            rows.append(number)
    assert expected is None, "BUG: samples of a series that was not requested"
    return np.array(rows, np.int64)
