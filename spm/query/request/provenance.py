"""What an answer rests on: which stretches came from which level, which retractions it leaves out, what has expired.

``Basis`` is a value that travels with every batch; those of a query's batches are joined, and become the ``infos`` and
``warnings`` of the answer. Stretches are kept as runs of hours, neighbours merged. Enter by ``Ground``, which a read
fills in while it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np

from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS

RAW, HOURS, DAYS = "raw samples", "hour aggregates", "day aggregates"
_LEVELS = (DAYS, HOURS, RAW)
_MOMENTS_KEPT = 1_024  # texts of times: most are borders of hours, and those of the same ones
_SHOWN = 4  # runs of a level, and numbers of retractions, that a sentence names

Run = tuple[int, int]  # first hour, and the one after the last


@dataclass(frozen=True, slots=True)
class Basis:
    """What one or several batches rest on; times are ms, 0 where there is none."""

    runs: tuple[tuple[str, Run], ...] = ()
    retractions: frozenset[int] = frozenset()  # that take something out of it
    purged: frozenset[int] = frozenset()  # retractions whose samples this as-of answer should still show
    raw_expired_ms: int = 0  # up to here samples were asked for that are gone
    hours_expired_ms: int = 0  # likewise hours
    sketched: bool = False  # some percentiles come from sketches
    asof_ms: int | None = None
    perhaps: frozenset[int] = frozenset()  # retractions of which nobody can tell without reading more
    too_late: frozenset[int] = frozenset()  # in force, but some hours whose samples are gone count what they are about
    lasting: frozenset[int] = frozenset()  # undone, but such hours leave it out for good
    asked: Run | None = None  # hours that were asked for, whatever there was in them
    shards: frozenset[int] = frozenset()  # in which the metrics asked for may lie

    def infos(self) -> list[str]:
        """Sentences that say where the answer comes from."""
        levels = [_sentence(level, [run for name, run in self.runs if name == level]) for level in _LEVELS]
        found = [sentence for sentence in levels if sentence]
        if self.sketched:
            found.append("percentiles of aggregated hours are within 1 %")
        if self.retractions:
            found.append(f"{_counted(self.retractions, 'retraction')} in effect: {_listed(self.retractions)}")
        if self.perhaps:
            found.append(f"{_counted(self.perhaps, 'retraction')} may be in effect: {_listed(self.perhaps)}")
        if self.asof_ms is not None:
            found.append(f"as accepted by {moment(self.asof_ms)}")
        return found

    def warnings(self) -> list[str]:
        """Sentences that say what is missing in it."""
        found = []
        if self.raw_expired_ms:
            where = "as-of answers leave it out" if self.asof_ms is not None else "only whole hours are answered there"
            found.append(f"raw data up to {moment(self.raw_expired_ms)} has expired: {where}")
        if self.hours_expired_ms:
            where = moment(self.hours_expired_ms)
            found.append(f"hour aggregates up to {where} have expired: only whole UTC days are answered there")
        if self.purged:
            found.append(
                f"samples of {_counted(self.purged, 'retraction')} were deleted since then and are missing: "
                f"{_listed(self.purged)}"
            )
        for numbers, what in ((self.too_late, "without effect"), (self.lasting, "undone since and still left out")):
            if numbers:
                found.append(
                    f"hours whose samples are gone stay as they are: {_counted(numbers, 'retraction')} {what} there: "
                    f"{_listed(numbers)}"
                )
        return found


def joined(parts: Iterable[Basis]) -> Basis:
    """What an answer made of several batches rests on."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    runs = [(level, run) for level in _LEVELS for run in _united(r for p in parts for n, r in p.runs if n == level)]
    in_effect = _all(p.retractions for p in parts)
    return Basis(
        tuple(runs),
        in_effect,
        _all(p.purged for p in parts),
        max((p.raw_expired_ms for p in parts), default=0),
        max((p.hours_expired_ms for p in parts), default=0),
        any(p.sketched for p in parts),
        next((p.asof_ms for p in parts if p.asof_ms is not None), None),
        _all(p.perhaps for p in parts) - in_effect,
        _all(p.too_late for p in parts),
        _all(p.lasting for p in parts),
        _spanned([p.asked for p in parts if p.asked is not None]),
        _all(p.shards for p in parts),
    )


def _spanned(runs: Sequence[Run]) -> Run | None:
    return (min(first for first, _ in runs), max(end for _, end in runs)) if runs else None


def _all(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*sets)


@dataclass(slots=True)
class Ground:
    """What one read finds out about its own basis while it goes."""

    asof_ms: int | None = None
    purged: frozenset[int] = frozenset()
    asked: Run | None = None
    sketched: bool = False
    shards: set[int] = field(default_factory=set)
    retractions: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    too_late: set[int] = field(default_factory=set)
    lasting: set[int] = field(default_factory=set)
    _used: dict[int, str] = field(default_factory=dict)  # hour -> the lowest level it was answered from
    _whole_days: set[int] = field(default_factory=set)  # first hours of days
    _gone: set[int] = field(default_factory=set)
    _raw_expired: int = 0
    _hours_expired: int = 0

    def use(self, level: str, hour: int) -> None:
        """An hour's answer comes from this level; for ``DAYS`` the first hour of the day."""
        if level == DAYS:
            self._whole_days.add(hour)
        elif self._used.get(hour) != RAW:
            self._used[hour] = level

    def expired(self, hour: int, *, hours: bool) -> None:
        """Samples of this hour (or even its hours) were wanted and are gone."""
        self._gone.add(hour)
        end = (hour + 1) * HOUR_MS
        self._raw_expired = max(self._raw_expired, end)
        if hours:
            self._hours_expired = max(self._hours_expired, end)

    def aggregated(self, hour: int) -> bool:
        """Whether an hour's answer may come from hours or days: neither samples of it were read, nor is it left out."""
        return self._used.get(hour) != RAW and hour not in self._gone

    def basis(self) -> Basis:
        """The value, neighbours merged: a gap without data between two hours of one level does not part them."""
        parts = sorted(
            [*((s, 1, level) for s, level in self._used.items()), *((s, DAY_HOURS, DAYS) for s in self._whole_days)]
        )
        runs: list[tuple[str, Run]] = []
        for hour, width, level in parts:
            if runs and runs[-1][0] == level:
                runs[-1] = level, (runs[-1][1][0], max(runs[-1][1][1], hour + width))
            else:
                runs.append((level, (hour, hour + width)))
        return Basis(
            tuple(runs),
            frozenset(self.retractions),
            self.purged,
            self._raw_expired,
            self._hours_expired,
            self.sketched,
            self.asof_ms,
            frozenset(self.perhaps - self.retractions),
            frozenset(self.too_late),
            frozenset(self.lasting),
            self.asked,
            frozenset(self.shards),
        )


@lru_cache(maxsize=_MOMENTS_KEPT)
def moment(ms: int) -> str:
    """A time as sentences name it: to the minute, unless it has seconds or less."""
    return f"{np.datetime64(ms // 60_000, 'm') if ms % 60_000 == 0 else np.datetime64(ms, 'ms')}Z"


def _united(runs: Iterable[Run]) -> list[Run]:
    found: list[Run] = []
    for first, end in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found


def _sentence(level: str, runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    shown = ", ".join(f"{moment(a * HOUR_MS)} to {moment(b * HOUR_MS)}" for a, b in runs[:_SHOWN])
    more = f" and {len(runs) - _SHOWN} more stretches" if len(runs) > _SHOWN else ""
    return f"{level}: {shown}{more}"


def _counted(found: frozenset[int], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


def _listed(found: frozenset[int]) -> str:
    shown = sorted(found)
    return ", ".join(map(str, shown[:_SHOWN])) + (" …" if len(shown) > _SHOWN else "")
