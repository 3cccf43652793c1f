"""A range query's answer from steps that were kept and steps that are computed.

1. A key that is new is computed, and left behind if the work was worth it. 2. Else the standing of the samples is
taken, and the longest run of kept steps that rest on the same is used. 3. What lies before and behind is computed, each
with the kept step beside it: never one step alone, which might be answered from hours where all steps together are not,
and no sample between two steps is unread, of which the whole would tell that it is left out. 4. What may have been said
about the whole, and cannot be told from its parts, is found out by computing the whole; so is what a part had from
aggregates, which the whole might have from samples. 5. The standing is taken again; steps whose samples were settled
all the while are kept. Enter by ``answered``.
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
from spm.query.promql.kernels.windows import Steps
from spm.query.promql.operators.label_groups import group_equal, ordered
from spm.query.promql.operators.vector import Vector, named
from spm.query.promql.planning.reach import Reach
from spm.query.promql.result_cache.entries import Entry, Key, Results
from spm.query.request.provenance import RAW, Basis, joined
from spm.query.series.label_table import concatenated, taken
from spm.query.view.fingerprint import Standing


class Standings(Protocol):
    """Who tells what an app's samples rest on."""

    @property
    def app(self) -> int:
        """The app's number."""

    def standing(self, start_ms: int, end_ms: int) -> Standing | None:
        """Of a stretch of time; ``None`` where answers are not to be kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept of answers, and who tells whether it still holds."""

    results: Results
    storage: Standings


@dataclass(frozen=True, slots=True)
class Made:
    """The answer at some steps, series sorted."""

    vector: Vector
    basis: Basis
    infos: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: int = 0
    joins: bool = False  # whether it is the same step by step: from samples alone, with nothing said about it all
    in_parts: bool = False  # whether it also may be kept: no sample under it was left out or is gone
    kept: int = 0  # steps that were not computed


@dataclass(frozen=True, slots=True)
class Ask:
    """One question."""

    key: Key
    steps: Steps
    reach: Reach
    evaluate: Callable[[Steps], Made]

    def part(self, low: int, high: int) -> list[Made]:
        """Steps low:high, computed; nothing for none."""
        first = self.steps.first_ms + low * self.steps.step_ms
        return [self.evaluate(Steps(first, self.steps.step_ms, high - low))] if high > low else []

    def hours(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The first and last hour that each step looks at."""
        times = self.steps.times
        return (times - self.reach.before_ms) // HOUR_MS, (times + self.reach.after_ms - 1) // HOUR_MS

    def standing(self, storage: Standings) -> Standing | None:
        """Of all that the question looks at."""
        return storage.standing(self.steps.first_ms - self.reach.before_ms, self.steps.last_ms + self.reach.after_ms)

    def where(self, holds: Callable[[int], bool]) -> BOOL:
        """The steps all of whose hours hold."""
        first, last = self.hours()
        bad = [not holds(hour) for hour in range(int(first[0]), int(last[-1]) + 1)]
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(bad, dtype=np.int64)))
        found: BOOL = before[last - first[0] + 1] == before[first - first[0]]
        return found


def answered(
    kept: Kept, key: Key, steps: Steps, around: Callable[[], Reach | None], evaluate: Callable[[Steps], Made]
) -> Made:
    """See the module. What has no reach is never kept; ``around`` is asked for it when something may be."""
    results, storage = kept.results, kept.storage
    if not results.knows(key):
        made = evaluate(steps)
        if made.samples >= results.samples_min and made.in_parts and around() is not None:
            results.keep(key, None)
        return made
    reach = around()
    assert reach is not None, "BUG: a key was kept of what has no reach"
    ask = Ask(key, steps, reach, evaluate)
    before = ask.standing(storage)
    if before is None:
        return ask.evaluate(ask.steps)
    made = _with(results.find(ask.key), ask, before)
    if made.in_parts:
        entry = _settled(ask, made, before, ask.standing(storage))
        if entry is not None:
            results.keep(ask.key, entry)
    return made


def _with(entry: Entry | None, ask: Ask, now: Standing) -> Made:
    """What the entry has of it, and the rest computed."""
    low, high = (0, 0) if entry is None else _usable(entry, ask, now)
    if entry is None or low >= high:
        return ask.evaluate(ask.steps)
    if low == 0 and high == ask.steps.count:
        whole = entry.first_ms == ask.steps.first_ms and entry.steps == ask.steps.count
        return _joined(ask, [_of(entry, ask, low, high)]) if whole or not entry.infos else ask.evaluate(ask.steps)
    fresh = [*ask.part(0, low), *ask.part(high, ask.steps.count)]
    told = {info for made in fresh for info in made.infos}
    if not (all(made.joins for made in fresh) and set(entry.infos) <= told):
        return ask.evaluate(ask.steps)
    places = fresh[: low > 0], fresh[low > 0 :]
    return _joined(ask, [*places[0], _of(entry, ask, low, high), *places[1]])


def _usable(entry: Entry, ask: Ask, now: Standing) -> tuple[int, int]:
    """The steps low:high of the question that are kept and rest on the same."""
    if entry.standing.common != now.common:
        return 0, 0
    count, shift = ask.steps.count, (entry.first_ms - ask.steps.first_ms) // ask.steps.step_ms
    there = np.zeros(count, np.bool_)
    there[max(shift, 0) : max(shift + entry.steps, 0)] = True
    low, high = _longest(there & ask.where(lambda hour: entry.standing.holds(hour, now)))
    return (low + 1 if low else 0), (high - 1 if high < count else count)


def _longest(good: BOOL) -> tuple[int, int]:
    """The borders of the longest run."""
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    best = int(np.argmax(ends - starts))
    return int(starts[best]), int(ends[best])


def _of(entry: Entry, ask: Ask, low: int, high: int) -> Made:
    """These steps of the question from the entry."""
    shift = (ask.steps.first_ms - entry.first_ms) // ask.steps.step_ms
    part = slice(low + shift, high + shift)
    vector = named(entry.labels, entry.values[:, part], entry.present[:, part], nameless=False)
    first, last = ask.hours()
    runs = [(max(a, int(first[low])), min(b, int(last[high - 1]) + 1)) for _, (a, b) in entry.basis.runs]
    basis = dataclasses.replace(
        entry.basis,
        runs=tuple((RAW, run) for run in runs if run[0] < run[1]),
        asked=(max(int(first[low]), 0), int(last[high - 1]) + 1),
    )
    return Made(vector, basis, entry.infos, joins=True, in_parts=True, kept=high - low)


def _joined(ask: Ask, parts: Sequence[Made]) -> Made:
    """Parts that follow each other as one answer."""
    labels = concatenated([made.vector.labels for made in parts])
    groups = group_equal(labels)
    shape = len(groups.labels), ask.steps.count
    values, present = np.zeros(shape), np.zeros(shape, np.bool_)
    row = column = 0
    for made in parts:
        rows, steps = made.vector.values.shape
        place = np.ix_(groups.codes[row : row + rows], np.arange(column, column + steps))
        values[place], present[place] = made.vector.values, made.vector.present
        row, column = row + rows, column + steps
    whole = named(groups.labels, values, present, nameless=False).shown()
    return Made(
        whole.take(ordered(whole.labels)),
        joined([made.basis for made in parts]),
        tuple(dict.fromkeys(info for made in parts for info in made.infos)),
        tuple(dict.fromkeys(warning for made in parts for warning in made.warnings)),
        sum(made.samples for made in parts),
        all(made.joins for made in parts),
        all(made.in_parts for made in parts),
        sum(made.kept for made in parts),
    )


def _settled(ask: Ask, made: Made, before: Standing, after: Standing | None) -> Entry | None:
    """The steps to be kept: whose samples were settled from before they were read until after it."""
    if after is None or before.common != after.common:
        return None

    def stood(hour: int) -> bool:
        return before.holds(hour, after) and before.stood(hour // DAY_HOURS, after)

    low, high = _longest(ask.where(stood))
    if low == high:
        return None
    first, last = ask.hours()
    vector = Vector(
        taken(made.vector.labels, np.arange(len(made.vector.labels))),  # without the dicts that somebody makes of them
        made.vector.values[:, low:high].copy(),
        made.vector.present[:, low:high].copy(),
        made.vector.nameless,
    ).shown()
    return Entry(
        ask.steps.first_ms + low * ask.steps.step_ms,
        vector.labels,
        vector.values,
        vector.present,
        made.infos,
        made.basis,
        after.within(int(first[low]), int(last[high - 1])),
    )
