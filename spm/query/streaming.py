"""Reads that are larger than memory, piece by piece, and which series of a selector had samples as accepted by a time.

Names come from the dictionary, which knows no times. An as-of question about names is therefore answered by looking for
samples, newest first, until each series has shown one; a series that shows none is not among them. Each piece is a view
of its own. Enter by `by_labels` for samples, `known_then` for names.
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
from spm.query.request.provenance import Basis, joined
from spm.query.rolled.resolutions import Chosen

Labels = dict[str, str]
_FIRST = 8  # series of the first piece: how many samples they have is not known yet


@dataclass(frozen=True, slots=True)
class Names:
    """Labels of series, and what was looked at for them."""

    labels: list[Labels]
    basis: Basis


def by_labels(
    storage: AppStorage, matchers: Sequence[Matcher], start_ms: int, end_ms: int, budget: Budget
) -> Iterator[SeriesBatch]:
    """Samples with start_ms < ts <= end_ms, some series at a time, in the order of their labels."""
    portions = storage.portions(matchers, QUERY_SERIES_MAX)
    if not portions:
        return
    [whole] = portions  # more series are refused
    budget.series(len(whole), "the selector")
    keys = [sorted(labels.items()) for labels in storage.labels_of(whole)]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    at, most = 0, _FIRST
    while at < len(order):
        budget.tick()
        batch = storage.select_portion(whole.take(order[at : at + most]), start_ms, end_ms, tick=budget.tick)
        budget.samples(len(batch.ts))
        yield batch
        budget.hold(-len(batch.ts) * SAMPLE_BYTES)
        at += most
        if len(batch.ts) * 2 < EXPORT_STRETCH_SAMPLES:
            most = min(most * 2, EXPORT_SERIES_AT_ONCE)
        elif len(batch.ts) > EXPORT_STRETCH_SAMPLES:
            most = max(most // 2, 1)
    budget.hold(-len(order) * SERIES_BYTES)


def known_then(
    storage: AppStorage, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, budget: Budget
) -> Names:
    """The series that match any of the sets (no set: all) and had samples in this time; ``storage`` is as of a time."""
    found: list[Labels] = []
    bases: list[Basis] = []
    sets = list(matcher_sets) or [()]
    hours = storage.hours_held(start_ms - 1, end_ms)
    for number, matchers in enumerate(sets):
        for portion in storage.portions(matchers, EXPORT_SERIES_AT_ONCE):
            left = storage.without(portion, sets[:number])
            found += _shown(storage, left, hours, (start_ms - 1, end_ms), budget, bases)
            if len(found) > QUERY_SERIES_MAX:
                raise QueryTooLarge(f"more than {QUERY_SERIES_MAX} series match: narrow the selector")
    expired = dataclasses.replace(explain.of_samples(storage, start_ms - 1, end_ms), runs=())
    return Names(found, joined([*bases, expired]))


def _shown(
    storage: AppStorage, left: Chosen, hours: Sequence[int], span: tuple[int, int], budget: Budget, bases: list[Basis]
) -> list[Labels]:
    """Those of a portion that have a sample, looked for in ever longer stretches back from the newest."""
    found: list[Labels] = []
    end, hours_wanted = len(hours), 1
    while end and len(left):
        budget.tick()
        begin = max(end - hours_wanted, 0)
        low, high = max(hours[begin] * HOUR_MS, span[0]), min((hours[end - 1] + 1) * HOUR_MS, span[1])
        batch = storage.select_portion(left, low, high, tick=budget.tick)
        budget.series(len(batch.labels), "match[]")
        budget.samples(len(batch.ts))
        budget.hold(-len(batch.ts) * SAMPLE_BYTES)
        bases.append(batch.basis)
        left = left.take(_without(storage.labels_of(left), batch.labels))
        found += batch.labels
        end, small = begin, len(batch.ts) * 2 < EXPORT_STRETCH_SAMPLES
        hours_wanted = min(hours_wanted * 2, EXPORT_STRETCH_HOURS_MAX) if small else max(hours_wanted // 2, 1)
    return found


def _without(asked: Sequence[Labels], shown: Sequence[Labels]) -> np.ndarray:
    """The numbers of those that are not shown; both lists are in the same order."""
    rest, waiting = [], iter(shown)
    expected = next(waiting, None)
    for number, labels in enumerate(asked):
        if labels == expected:
            expected = next(waiting, None)
        else:
            rest.append(number)
    assert expected is None, "BUG: samples of a series that was not asked for"
    return np.array(rest, np.int64)
