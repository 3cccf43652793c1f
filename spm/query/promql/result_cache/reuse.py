"""Answers a range query from cached steps and newly computed ones.

1. A query whose key is new is computed as a whole; its key is stored if the work was large enough.
2. Otherwise the fingerprint of the samples is taken. The longest run of cached steps with equal samples is reused.
3. The steps before and after that run are computed, each part together with the cached step beside it. A part is
   therefore never one step alone, which might be answered from hourly rollup rows where all steps together are not; and
   every sample between two steps is read, so that all retractions that hide one are reported.
4. All steps are computed anew if the annotations cannot be derived from those of the parts, or if a part was answered
   from aggregates where all steps together might be answered from samples.
5. The fingerprint is taken again. Steps whose samples were settled and unchanged in between are cached.

Enter by ``answer_range``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spm.arrays import BOOL
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.promql.evaluation.evaluator import Answer
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.vector import Vector, make_vector
from spm.query.promql.planning.read_range import ReadRange
from spm.query.promql.result_cache.entries import AnswerKey, CachedAnswer, ResultCache
from spm.query.request.provenance import RAW, join_provenance
from spm.query.series.label_table import concatenate_labels, group_equal, take_labels
from spm.query.view.fingerprint import SampleFingerprint


class FingerprintSource(Protocol):
    """Takes the fingerprints of one app's samples."""

    @property
    def app(self) -> int:
        """The app's number."""

    def fingerprint(self, start_ms: int, end_ms: int) -> SampleFingerprint | None:
        """Returns the fingerprint of a range of time; ``None`` where answers must not be cached."""


@dataclass(frozen=True, slots=True)
class AppResultCache:
    """The result cache, with the storage of the app that it is used for."""

    cache: ResultCache
    storage: FingerprintSource


@dataclass(frozen=True, slots=True)
class RangeQuestion:
    """One range query, with the function that computes some of its steps."""

    key: AnswerKey
    steps: Steps
    read_range: ReadRange
    evaluate: Callable[[Steps], Answer]

    def compute(self, low: int, high: int) -> list[Answer]:
        """Computes the steps low:high; returns an empty list if there are none."""
        first = self.steps.first_ms + low * self.steps.step_ms
        return [self.evaluate(Steps(first, self.steps.step_ms, high - low))] if high > low else []

    def hours(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the first and last hour that each step reads."""
        times = self.steps.times
        return (times - self.read_range.before_ms) // HOUR_MS, (times + self.read_range.after_ms - 1) // HOUR_MS

    def fingerprint(self, storage: FingerprintSource) -> SampleFingerprint | None:
        """Takes the fingerprint of all samples that the query reads."""
        start_ms, end_ms = (
            self.steps.first_ms - self.read_range.before_ms,
            self.steps.last_ms + self.read_range.after_ms,
        )
        return storage.fingerprint(start_ms, end_ms)

    def steps_where(self, holds: Callable[[int], bool]) -> BOOL:
        """Marks the steps for which the condition holds in every hour that they read."""
        first, last = self.hours()
        fails = [not holds(hour) for hour in range(int(first[0]), int(last[-1]) + 1)]
        fails_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(fails, dtype=np.int64)))
        marks: BOOL = fails_before[last - first[0] + 1] == fails_before[first - first[0]]
        return marks


def answer_range(
    app_cache: AppResultCache,
    key: AnswerKey,
    steps: Steps,
    find_read_range: Callable[[], ReadRange | None],
    evaluate: Callable[[Steps], Answer],
) -> Answer:
    """Answers a range query, from the cache as far as possible, and caches the answer.

    A query without a bounded read range is never cached; ``find_read_range`` is called only where an answer may be.
    """
    cache, storage = app_cache.cache, app_cache.storage
    if not cache.has_key(key):
        answer = evaluate(steps)
        if answer.samples >= cache.samples_min and answer.cacheable and find_read_range() is not None:
            cache.put(key, None)
        return answer
    read_range = find_read_range()
    assert read_range is not None, "BUG: a query without a bounded read range was cached"
    question = RangeQuestion(key, steps, read_range, evaluate)
    before = question.fingerprint(storage)
    if before is None:
        return question.evaluate(question.steps)
    answer = _complete(cache.get(question.key), question, before)
    if answer.cacheable:
        cached = _settled_part(question, answer, before, question.fingerprint(storage))
        if cached is not None:
            cache.put(question.key, cached)
    return answer


def _complete(cached: CachedAnswer | None, question: RangeQuestion, now: SampleFingerprint) -> Answer:
    """Answers with the usable steps of the cached answer and computes the others; ``now``: the present fingerprint."""
    low, high = (0, 0) if cached is None else _usable_steps(cached, question, now)
    count = question.steps.count
    if cached is None or low >= high:
        return question.evaluate(question.steps)
    if low == 0 and high == count:
        has_equal_steps = cached.first_ms == question.steps.first_ms and cached.step_count == count
        if cached.infos and not has_equal_steps:
            return question.evaluate(question.steps)
        return _join(question, [_cached_part(cached, question, low, high)])
    computed = [*question.compute(0, low), *question.compute(high, count)]
    infos = {info for part in computed for info in part.infos}
    if not (all(part.separable for part in computed) and set(cached.infos) <= infos):
        return question.evaluate(question.steps)
    head, tail = computed[: low > 0], computed[low > 0 :]
    return _join(question, [*head, _cached_part(cached, question, low, high), *tail])


def _usable_steps(cached: CachedAnswer, question: RangeQuestion, now: SampleFingerprint) -> tuple[int, int]:
    """Returns the steps low:high of the query that need not be computed: cached, and with unchanged samples.

    A step beside others that must be computed is not among them: it is computed with those.
    """
    if cached.fingerprint.common != now.common:
        return 0, 0
    count, shift = question.steps.count, (cached.first_ms - question.steps.first_ms) // question.steps.step_ms
    is_cached = np.zeros(count, np.bool_)
    is_cached[max(shift, 0) : max(shift + cached.step_count, 0)] = True
    is_unchanged = question.steps_where(lambda hour: cached.fingerprint.agrees_on_hour(hour, now))
    low, high = _longest_run(is_cached & is_unchanged)
    return (low + 1 if low else 0), (high - 1 if high < count else count)


def _longest_run(marks: BOOL) -> tuple[int, int]:
    """Returns the start and end of the longest run of marked steps."""
    edges = np.flatnonzero(np.diff(marks.astype(np.int8), prepend=0, append=0))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    best = int(np.argmax(ends - starts))
    return int(starts[best]), int(ends[best])


def _cached_part(cached: CachedAnswer, question: RangeQuestion, low: int, high: int) -> Answer:
    """Cuts the steps low:high of the query out of the cached answer."""
    shift = (question.steps.first_ms - cached.first_ms) // question.steps.step_ms
    part = slice(low + shift, high + shift)
    vector = make_vector(cached.labels, cached.values[:, part], cached.present[:, part], nameless=False)
    first, last = question.hours()
    ranges = [(max(a, int(first[low])), min(b, int(last[high - 1]) + 1)) for _, (a, b) in cached.provenance.ranges]
    provenance = dataclasses.replace(
        cached.provenance,
        ranges=tuple((RAW, hours) for hours in ranges if hours[0] < hours[1]),
        hours=(max(int(first[low]), 0), int(last[high - 1]) + 1),
    )
    return Answer(vector, provenance, cached.infos, separable=True, cacheable=True, cached_steps=high - low)


def _join(question: RangeQuestion, parts: Sequence[Answer]) -> Answer:
    """Joins parts with consecutive steps into one answer."""
    labels = concatenate_labels([part.vector.labels for part in parts])
    groups = group_equal(labels)
    shape = len(groups.labels), question.steps.count
    values, present = np.zeros(shape), np.zeros(shape, np.bool_)
    row = column = 0
    for part in parts:
        rows, steps = part.vector.values.shape
        place = np.ix_(groups.codes[row : row + rows], np.arange(column, column + steps))
        values[place], present[place] = part.vector.values, part.vector.present
        row, column = row + rows, column + steps
    vector = make_vector(groups.labels, values, present, nameless=False)
    return Answer(
        vector.without_empty_rows().in_label_order(),
        join_provenance([part.provenance for part in parts]),
        tuple(dict.fromkeys(info for part in parts for info in part.infos)),
        tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        sum(part.samples for part in parts),
        all(part.separable for part in parts),
        all(part.cacheable for part in parts),
        sum(part.cached_steps for part in parts),
    )


def _settled_part(
    question: RangeQuestion, answer: Answer, before: SampleFingerprint, after: SampleFingerprint | None
) -> CachedAnswer | None:
    """Cuts out the steps to be cached: those whose samples were settled and unchanged while they were read."""
    if after is None or before.common != after.common:
        return None

    def is_settled(hour: int) -> bool:
        return before.agrees_on_hour(hour, after) and before.agrees_on_manifest(hour // DAY_HOURS, after)

    low, high = _longest_run(question.steps_where(is_settled))
    if low == high:
        return None
    first, last = question.hours()
    rows = np.arange(len(answer.vector.labels))
    vector = Vector(
        take_labels(answer.vector.labels, rows),  # a copy, which does not share the dicts made from the labels later
        answer.vector.values[:, low:high].copy(),
        answer.vector.present[:, low:high].copy(),
        answer.vector.nameless,
    ).without_empty_rows()
    return CachedAnswer(
        question.steps.first_ms + low * question.steps.step_ms,
        vector.labels,
        vector.values,
        vector.present,
        answer.infos,
        answer.provenance,
        after.within(int(first[low]), int(last[high - 1])),
    )
