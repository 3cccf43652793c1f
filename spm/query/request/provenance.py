"""The provenance of an answer: the resolution of each time range, the retractions it leaves out, and what has expired.

``Provenance`` is a value that every batch carries; those of a query's batches are joined, and become the ``infos`` and
``warnings`` of the answer. A read fills a ``ProvenanceBuilder`` as it goes on. Enter by ``ProvenanceBuilder``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np

from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.versions.retractions import DRAFT

RAW, HOURS, DAYS = "raw samples", "hour aggregates", "day aggregates"
_RESOLUTIONS = (DAYS, HOURS, RAW)
_MOMENT_TEXTS = 1_024  # cached texts of times: most are borders of hours, and few different ones
_NAMED_MAX = 4  # ranges of a resolution, and numbers of retractions, that a sentence names

HourRange = tuple[int, int]  # first hour, and the one after the last


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of one or several batches; times are ms, and 0 where nothing has expired."""

    ranges: tuple[tuple[str, HourRange], ...] = ()  # by resolution, neighbours merged
    retractions: frozenset[int] = frozenset()  # numbers of those that take something out of the answer
    erased_retractions: frozenset[int] = frozenset()  # whose samples this as-of answer should contain and cannot
    raw_expired_ms: int = 0  # requested samples up to here have expired
    hours_expired_ms: int = 0  # requested hour aggregates up to here have expired
    sketched: bool = False  # some percentiles come from sketches
    asof_ms: int | None = None
    possible_retractions: frozenset[int] = frozenset()  # only more reading would show whether they take effect
    ineffective_retractions: frozenset[int] = frozenset()  # in force, but some hours without samples still count theirs
    lasting_retractions: frozenset[int] = frozenset()  # undone, but some hours without samples still leave theirs out
    hours: HourRange | None = None  # the hours that the query requested, whatever they contain
    shards: frozenset[int] = frozenset()  # the shards in which the requested metrics may lie
    of_past: bool = False  # it leaves out what was known later, which aggregates of sealed hours may contain

    def infos(self) -> list[str]:
        """Sentences that say where the answer comes from."""
        sentences = [
            sentence
            for resolution in _RESOLUTIONS
            if (sentence := _sentence(resolution, [hours for name, hours in self.ranges if name == resolution]))
        ]
        if self.sketched:
            sentences.append("percentiles of aggregated hours are within 1 %")
        if numbers := self.retractions - {DRAFT}:
            sentences.append(f"{_count(numbers, 'retraction')} in effect: {_listing(numbers)}")
        if numbers := self.possible_retractions - {DRAFT}:
            sentences.append(f"{_count(numbers, 'retraction')} may be in effect: {_listing(numbers)}")
        if self.asof_ms is not None:
            sentences.append(f"as accepted by {moment(self.asof_ms)}")
        return sentences

    def warnings(self) -> list[str]:
        """Sentences that say what the answer misses."""
        sentences = []
        if self.raw_expired_ms:
            effect = "answers of the past leave it out" if self.of_past else "only whole hours are answered there"
            sentences.append(f"raw data up to {moment(self.raw_expired_ms)} has expired: {effect}")
        if self.hours_expired_ms:
            end = moment(self.hours_expired_ms)
            sentences.append(f"hour aggregates up to {end} have expired: only whole UTC days are answered there")
        if self.erased_retractions:
            sentences.append(
                f"samples of {_count(self.erased_retractions, 'retraction')} were deleted since then and are missing: "
                f"{_listing(self.erased_retractions)}"
            )
        for numbers, effect in (
            (self.ineffective_retractions, "without effect"),
            (self.lasting_retractions, "undone since and still left out"),
        ):
            if numbers:
                count = _count(numbers, "retraction")
                sentences.append(
                    f"hours whose samples have expired stay as they are: {count} {effect} there: {_listing(numbers)}"
                )
        return sentences


def join_provenance(parts: Iterable[Provenance]) -> Provenance:
    """The provenance of an answer that is made of several batches."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    ranges = [
        (resolution, hours)
        for resolution in _RESOLUTIONS
        for hours in _merged(hours for part in parts for name, hours in part.ranges if name == resolution)
    ]
    in_effect = _union(p.retractions for p in parts)
    return Provenance(
        tuple(ranges),
        in_effect,
        _union(p.erased_retractions for p in parts),
        max((p.raw_expired_ms for p in parts), default=0),
        max((p.hours_expired_ms for p in parts), default=0),
        any(p.sketched for p in parts),
        next((p.asof_ms for p in parts if p.asof_ms is not None), None),
        _union(p.possible_retractions for p in parts) - in_effect,
        _union(p.ineffective_retractions for p in parts),
        _union(p.lasting_retractions for p in parts),
        _hull([p.hours for p in parts if p.hours is not None]),
        _union(p.shards for p in parts),
        any(p.of_past for p in parts),
    )


def _hull(ranges: Sequence[HourRange]) -> HourRange | None:
    return (min(first for first, _ in ranges), max(end for _, end in ranges)) if ranges else None


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*sets)


@dataclass(slots=True)
class ProvenanceBuilder:
    """Collects the provenance of one read while it is made."""

    asof_ms: int | None = None
    erased_retractions: frozenset[int] = frozenset()
    hours: HourRange | None = None
    of_past: bool = False
    sketched: bool = False
    shards: set[int] = field(default_factory=set)
    retractions: set[int] = field(default_factory=set)
    possible_retractions: set[int] = field(default_factory=set)
    ineffective_retractions: set[int] = field(default_factory=set)
    lasting_retractions: set[int] = field(default_factory=set)
    _resolution_of: dict[int, str] = field(default_factory=dict)  # hour -> the finest resolution that answered it
    _days: set[int] = field(default_factory=set)  # first hours of days answered from day aggregates
    _expired_hours: set[int] = field(default_factory=set)
    _raw_expired_ms: int = 0
    _hours_expired_ms: int = 0

    def use(self, resolution: str, hour: int) -> None:
        """Note that an hour is answered from this resolution; for ``DAYS`` give the first hour of the day."""
        if resolution == DAYS:
            self._days.add(hour)
        elif self._resolution_of.get(hour) != RAW:
            self._resolution_of[hour] = resolution

    def add_expired(self, hour: int, *, hours: bool) -> None:
        """Note that requested samples of this hour have expired; ``hours``: its hour aggregates too."""
        self._expired_hours.add(hour)
        end_ms = (hour + 1) * HOUR_MS
        self._raw_expired_ms = max(self._raw_expired_ms, end_ms)
        if hours:
            self._hours_expired_ms = max(self._hours_expired_ms, end_ms)

    def may_be_aggregated(self, hour: int) -> bool:
        """Whether an hour may be answered from aggregates: its samples were not read, and it is not left out."""
        return self._resolution_of.get(hour) != RAW and hour not in self._expired_hours

    def build(self) -> Provenance:
        """The value; a gap without data between two hours of one resolution does not split a range."""
        parts = sorted(
            [
                *((hour, 1, resolution) for hour, resolution in self._resolution_of.items()),
                *((hour, DAY_HOURS, DAYS) for hour in self._days),
            ]
        )
        ranges: list[tuple[str, HourRange]] = []
        for hour, width, resolution in parts:
            if ranges and ranges[-1][0] == resolution:
                first, end = ranges[-1][1]
                ranges[-1] = resolution, (first, max(end, hour + width))
            else:
                ranges.append((resolution, (hour, hour + width)))
        return Provenance(
            tuple(ranges),
            frozenset(self.retractions),
            self.erased_retractions,
            self._raw_expired_ms,
            self._hours_expired_ms,
            self.sketched,
            self.asof_ms,
            frozenset(self.possible_retractions - self.retractions),
            frozenset(self.ineffective_retractions),
            frozenset(self.lasting_retractions),
            self.hours,
            frozenset(self.shards),
            self.of_past,
        )


@lru_cache(maxsize=_MOMENT_TEXTS)
def moment(ms: int) -> str:
    """The text of a time: to the minute, unless it has seconds or less."""
    return f"{np.datetime64(ms // 60_000, 'm') if ms % 60_000 == 0 else np.datetime64(ms, 'ms')}Z"


def _merged(ranges: Iterable[HourRange]) -> list[HourRange]:
    merged: list[HourRange] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((first, end))
    return merged


def _sentence(resolution: str, ranges: Sequence[HourRange]) -> str:
    if not ranges:
        return ""
    named = ", ".join(f"{moment(a * HOUR_MS)} to {moment(b * HOUR_MS)}" for a, b in ranges[:_NAMED_MAX])
    more = len(ranges) - _NAMED_MAX
    return f"{resolution}: {named}" + (f" and {more} more range{'s' * (more > 1)}" if more > 0 else "")


def _count(numbers: frozenset[int], noun: str) -> str:
    return f"{len(numbers)} {noun}{'' if len(numbers) == 1 else 's'}"


def _listing(numbers: frozenset[int]) -> str:
    ascending = sorted(numbers)
    return ", ".join(map(str, ascending[:_NAMED_MAX])) + (" …" if len(ascending) > _NAMED_MAX else "")
