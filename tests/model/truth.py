"""The plain truth about one app: every version with its stamp, every retraction with its times, every sealed hour.

No arrays, no store, no cleverness: each answer is counted anew from the list of versions, so that nothing here can be
wrong in the same way as what it judges. ``Model`` is told what was done and says what any reader must answer: samples,
hours, days, percentiles, now or as of an earlier time, and what the account of each stamp must be.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spm.limits import DAY_HOURS, HOUR_MS

Answer = dict[tuple[int, int], float]  # (series number, ts) -> value
Row = dict[str, float]  # aggregates by name
Steps = dict[tuple[int, int], Row]  # (series number, hour or day) -> aggregates
Stamp = tuple[int, int, int]  # ms, process, sequence
EVER = 1 << 62
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Version:
    """One sample as one message said it."""

    series: int
    ts: int
    value: float
    stamp: Stamp
    place: int  # within the message
    source: str

    @property
    def hour(self) -> int:
        """Return the hour that contains the sample."""
        return (self.ts - 1) // HOUR_MS

    @property
    def rank(self) -> tuple[Stamp, int]:
        """Return the order of versions: the greatest stamp wins, and within a message the last."""
        return self.stamp, self.place


@dataclass(frozen=True, slots=True)
class Taken:
    """A range of writes that was taken out; ``series`` are those its matchers select."""

    start_ms: int
    write_from_ms: int = 0
    write_to_ms: int = EVER
    data_from_ms: int = 0
    data_to_ms: int = EVER
    source: str = ""
    series: frozenset[int] | None = None
    end_ms: int = 0
    purged: bool = False

    def active(self, at_ms: int | None) -> bool:
        """Whether it was in force then; ``None``: now. What is being deleted for good is hidden at any moment."""
        if at_ms is None or self.purged:
            return not self.end_ms
        return self.start_ms <= at_ms and (not self.end_ms or self.end_ms > at_ms)

    def hides(self, version: Version) -> bool:
        """Whether the version is in its range."""
        return (
            self.write_from_ms <= version.stamp[0] <= self.write_to_ms
            and self.data_from_ms < version.ts <= self.data_to_ms
            and self.source in ("", version.source)
            and (self.series is None or version.series in self.series)
        )


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the samples of one message in one hour: how many, and whether they were in time."""

    samples: int
    in_time: bool


@dataclass(slots=True)
class Model:
    """What was acknowledged, retracted and sealed; answers by counting."""

    versions: set[Version] = field(default_factory=set)
    accepted: dict[Stamp, Counter[int]] = field(default_factory=dict)  # samples by hour
    deleted: set[Version] = field(default_factory=set)
    taken: dict[int, Taken] = field(default_factory=dict)
    sealed: dict[int, list[Version]] = field(default_factory=dict)  # hour -> its winners when it was sealed
    expired: set[int] = field(default_factory=set)  # days without hours
    dropped: set[int] = field(default_factory=set)  # days of which nothing is left
    late: set[Version] = field(default_factory=set)  # came after their hour was sealed
    _cache: dict[object, object] = field(default_factory=dict)

    # --- what was done

    def accept(self, versions: Iterable[Version]) -> None:
        """These were acknowledged (perhaps once more)."""
        fresh = set(versions) - self.versions - self.deleted
        self.versions |= fresh
        for version in fresh:
            self.accepted.setdefault(version.stamp, Counter())[version.hour] += 1
        self.late |= {v for v in fresh if v.hour in self.sealed}
        self._cache.clear()

    def retract(self, number: int, taken: Taken) -> None:
        """A range was taken out."""
        self.taken[number] = taken
        self._cache.clear()

    def undo(self, number: int, end_ms: int) -> None:
        """It counts again."""
        self.taken[number] = replace(self.taken[number], end_ms=max(end_ms, self.taken[number].start_ms + 1))
        self._cache.clear()

    def purge(self, number: int) -> None:
        """What it hides is deleted for good."""
        taken = self.taken[number] = replace(self.taken[number], purged=True)
        self.deleted |= {v for v in self.versions if taken.hides(v)}
        self.versions -= self.deleted
        self._cache.clear()

    def seal(self, hour: int, late: Collection[Stamp] = ()) -> None:
        """The raw of an hour is gone; its aggregates stay as they are. ``late``: messages that are not in them."""
        if hour in self.sealed:
            return
        self.late |= {v for v in self.versions if v.hour == hour and v.stamp in late}
        hiding = [t for t in self.taken.values() if t.active(None)]
        self.sealed[hour] = _best(
            v for v in self.versions - self.late if v.hour == hour and not any(t.hides(v) for t in hiding)
        )
        self._cache.clear()

    def expire(self, day: int) -> None:
        """The hours of a day are gone; its daily aggregates stay."""
        self.expired.add(day)
        self._cache.clear()

    def drop(self, day: int) -> None:
        """The day is gone."""
        self.dropped.add(day)
        self._cache.clear()

    def is_sealed(self, hour: int) -> bool:
        """Whether what comes now for this hour is too late."""
        return hour in self.sealed

    def in_time(self, stamp: Stamp, hour: int) -> bool:
        """Whether what a message brought for an hour is counted in it."""
        return not any(v.stamp == stamp and v.hour == hour for v in self.late)

    # --- what must be answered

    def raw(self, asof_ms: int | None = None) -> Answer:
        """Every sample of hours that are not sealed."""
        return self._once(
            ("raw", asof_ms),
            lambda: {(v.series, v.ts): v.value for v in self._winners(asof_ms) if v.hour not in self.sealed},
        )

    def hours(self, asof_ms: int | None = None) -> Steps:
        """Hourly aggregates; as of a time without those of sealed hours, whose versions nobody knows any more."""

        def count() -> Steps:
            counted = (v for v in self._counted(asof_ms) if v.hour // DAY_HOURS not in self.expired)
            return _aggregates(counted, lambda v: v.hour)

        return self._once(("hours", asof_ms), count)

    def days(self, asof_ms: int | None = None) -> Steps:
        """Daily aggregates."""

        def count() -> Steps:
            counted = (v for v in self._counted(asof_ms) if v.hour // DAY_HOURS not in self.dropped)
            return _aggregates(counted, lambda v: v.hour // DAY_HOURS)

        return self._once(("days", asof_ms), count)

    def quantile(self, day: int, q: float) -> tuple[float, float]:
        """The quantile of all values of a day, and the larger of the two it lies between, sign aside."""
        values = sorted(v.value for v in self._counted(None) if v.hour // DAY_HOURS == day and day not in self.dropped)
        if not values:
            return math.nan, 0.0
        rank = q * (len(values) - 1)
        low, high = values[math.floor(rank)], values[math.ceil(rank)]
        return low + (high - low) * (rank - math.floor(rank)), max(abs(low), abs(high))

    def accounts(self) -> dict[Stamp, dict[int, Account]]:
        """What became of every message, hour by hour: deleted ones too, since an account is for good."""
        late = {(v.stamp, v.hour) for v in self.late}
        return {
            stamp: {hour: Account(count, (stamp, hour) not in late) for hour, count in hours.items()}
            for stamp, hours in self.accepted.items()
        }

    # --- counting

    def _winners(self, asof_ms: int | None) -> list[Version]:
        return self._once(("winners", asof_ms), lambda: self._count_winners(asof_ms))

    def _count_winners(self, asof_ms: int | None) -> list[Version]:
        hiding = [t for t in self.taken.values() if t.active(asof_ms)]
        return _best(
            v
            for v in self.versions
            if (asof_ms is None or v.stamp[0] <= asof_ms) and not any(taken.hides(v) for taken in hiding)
        )

    def _counted(self, asof_ms: int | None) -> Iterator[Version]:
        yield from (v for v in self._winners(asof_ms) if v.hour not in self.sealed)
        if asof_ms is None:
            for winners in self.sealed.values():
                yield from winners

    def _once(self, name: object, count: Callable[[], T]) -> T:
        if name not in self._cache:
            self._cache[name] = count()
        return self._cache[name]  # type: ignore[return-value]


def _best(versions: Iterable[Version]) -> list[Version]:
    """The winner of every (series, ts), in their order."""
    best: dict[tuple[int, int], Version] = {}
    for version in versions:
        key = version.series, version.ts
        if key not in best or best[key].rank < version.rank:
            best[key] = version
    return sorted(best.values(), key=lambda v: (v.series, v.ts))


def _aggregates(winners: Iterable[Version], step_of: Callable[[Version], int]) -> Steps:
    groups: dict[tuple[int, int], list[Version]] = defaultdict(list)
    for version in winners:
        groups[version.series, step_of(version)].append(version)
    return {name: aggregate(sorted(mine, key=lambda v: v.ts)) for name, mine in sorted(groups.items())}


def aggregate(winners: list[Version]) -> Row:
    """The aggregates of one series' winners in the order of time, by definition."""
    values = [v.value for v in winners]
    return {
        "count": len(values),
        "sum": math.fsum(values),
        "sumsq": math.fsum(v * v for v in values),
        "min": min(values),
        "max": max(values),
        "first": values[0],
        "first_ts": winners[0].ts,
        "last": values[-1],
        "last_ts": winners[-1].ts,
        "increase": math.fsum(b if b < a else b - a for a, b in itertools.pairwise(values)),
    }
