"""The plain truth about one app: every version with its stamp, every retraction with its times, every sealed hour.

No arrays, no store, no cleverness: each answer is counted anew from the list of versions, so that nothing here can be
wrong in the same way as what it judges. ``Model`` is told what was done and says what any reader must answer: samples,
hours, days, percentiles, now or as of an earlier time, and what the account of each stamp must be.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spm.limits import DAY_SLOTS, HOUR_MS

Answer = dict[tuple[int, int], float]  # (series number, ts) -> value
Row = dict[str, float]  # aggregates by name
Steps = dict[tuple[int, int], Row]  # (series number, slot or day) -> aggregates
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
    def slot(self) -> int:
        """The hour it lies in."""
        return (self.ts - 1) // HOUR_MS

    @property
    def rank(self) -> tuple[Stamp, int]:
        """Who wins: the greatest stamp, and within a message the last."""
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
        """Whether it was in force then; ``None``: now."""
        if at_ms is None:
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


@dataclass(slots=True)
class Model:
    """What was acknowledged, retracted and sealed; answers by counting."""

    versions: set[Version] = field(default_factory=set)
    accepted: Counter[Stamp] = field(default_factory=Counter)
    deleted: set[Version] = field(default_factory=set)
    taken: dict[int, Taken] = field(default_factory=dict)
    sealed: dict[int, list[Version]] = field(default_factory=dict)  # slot -> its winners when it was sealed
    late: set[Version] = field(default_factory=set)  # came after their slot was sealed
    _cache: dict[object, object] = field(default_factory=dict)

    # --- what was done

    def accept(self, versions: Iterable[Version]) -> None:
        """These were acknowledged (perhaps once more)."""
        fresh = set(versions) - self.versions
        self.versions |= fresh
        for version in fresh - self.deleted:
            self.accepted[version.stamp] += 1
        self.late |= {v for v in fresh if v.slot in self.sealed}
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

    def seal(self, slot: int) -> None:
        """The raw of an hour is gone; its aggregates stay as they are."""
        if slot not in self.sealed:
            self.sealed[slot] = [v for v in self._winners(None) if v.slot == slot]
            self._cache.clear()

    # --- what must be answered

    def raw(self, asof_ms: int | None = None) -> Answer:
        """Every sample of hours that are not sealed."""
        return self._once(
            ("raw", asof_ms),
            lambda: {(v.series, v.ts): v.value for v in self._winners(asof_ms) if v.slot not in self.sealed},
        )

    def hours(self, asof_ms: int | None = None) -> Steps:
        """Hourly aggregates; as of a time without those of sealed hours, whose versions nobody knows any more."""
        return self._once(("hours", asof_ms), lambda: _aggregates(self._counted(asof_ms), lambda v: v.slot))

    def days(self, asof_ms: int | None = None) -> Steps:
        """Daily aggregates."""
        return self._once(("days", asof_ms), lambda: _aggregates(self._counted(asof_ms), lambda v: v.slot // DAY_SLOTS))

    def values(self, first_slot: int, last_slot: int, asof_ms: int | None = None) -> list[float]:
        """All values of these hours, sorted: what percentiles are of."""
        return sorted(v.value for v in self._counted(asof_ms) if first_slot <= v.slot <= last_slot)

    def gone(self) -> set[int]:
        """Hours whose raw has expired."""
        return set(self.sealed)

    def stamps(self) -> dict[Stamp, int]:
        """How many samples each stamp brought: deleted ones too, since an account is for good."""
        return dict(self.accepted)

    # --- counting

    def _winners(self, asof_ms: int | None) -> list[Version]:
        return self._once(("winners", asof_ms), lambda: self._count_winners(asof_ms))

    def _count_winners(self, asof_ms: int | None) -> list[Version]:
        hiding = [t for t in self.taken.values() if t.active(asof_ms)]
        best: dict[tuple[int, int], Version] = {}
        for version in self.versions:
            if asof_ms is not None and version.stamp[0] > asof_ms:
                continue
            if any(taken.hides(version) for taken in hiding):
                continue
            key = version.series, version.ts
            if key not in best or best[key].rank < version.rank:
                best[key] = version
        return sorted(best.values(), key=lambda v: (v.series, v.ts))

    def _counted(self, asof_ms: int | None) -> Iterator[Version]:
        yield from (v for v in self._winners(asof_ms) if v.slot not in self.sealed)
        if asof_ms is None:
            for winners in self.sealed.values():
                yield from winners

    def _once(self, name: object, count: Callable[[], T]) -> T:
        if name not in self._cache:
            self._cache[name] = count()
        return self._cache[name]  # type: ignore[return-value]


def _aggregates(winners: Iterable[Version], step_of: Callable[[Version], int]) -> Steps:
    groups: dict[tuple[int, int], list[Version]] = defaultdict(list)
    for version in winners:
        groups[version.series, step_of(version)].append(version)
    return {name: aggregate(sorted(mine, key=lambda v: v.ts)) for name, mine in sorted(groups.items())}


def aggregate(winners: list[Version]) -> Row:
    """The aggregates of one series' winners in the order of time, by definition."""
    values = [v.value for v in winners]
    return {
        "count": len(values), "sum": math.fsum(values), "sumsq": math.fsum(v * v for v in values),
        "min": min(values), "max": max(values), "first": values[0], "first_ts": winners[0].ts,
        "last": values[-1], "last_ts": winners[-1].ts,
        "increase": math.fsum(b if b < a else b - a for a, b in itertools.pairwise(values)),
    }  # fmt: skip
