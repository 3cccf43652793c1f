"""Decides from values alone whose retention is over (PROTOCOL 23): days to seal with all hours, to expire, to forget.

Enter by ``plan_retention``. An app keeps samples, hours and days each for its own number of days
(``RetentionPeriods``). Retention goes by entire days: all hours of a day are sealed together, which costs one
check-and-put instead of 24, and keeps samples up to a day longer than configured. An hour whose sealing has begun is
always due. Nothing here reads a store or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rollups.decide.superseded import Place
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.manifest import (
    EXPIRED,
    OPEN,
    SEALED,
    SEALING,
    DayPack,
    Entry,
    HourPack,
    Manifest,
    Month,
    State,
    day_fingerprint,
    hours_of,
)
from spm.store.versions import retractions

_DAY_MS = DAY_HOURS * HOUR_MS


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """For how many days samples, hours and days are kept; ``None``: for ever."""

    raw_days: int | None = None
    hour_days: int | None = None
    day_days: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What the retention has to do for an app, oldest first."""

    seal: Mapping[int, tuple[int, ...]]  # day → hours
    expire: tuple[int, ...]  # days whose hours are deleted
    drop: Mapping[int, tuple[int, ...]]  # month → days to delete
    forget_days: tuple[int, ...]  # days whose manifest keeps nothing but the seals


def plan_retention(
    keep: RetentionPeriods, now_ms: int, manifests: Mapping[int, Manifest], months: Mapping[int, Month]
) -> RetentionPlan:
    """Lists what is due; ``manifests`` and ``months`` are those of all days of the app."""
    seal, expire, drop, forget = {}, [], {}, []
    for day, value in sorted(manifests.items()):
        hours = _to_seal(day, value, is_over(keep.raw_days, day, now_ms))
        if hours:
            seal[day] = hours
        if is_over(keep.hour_days, day, now_ms) and _sealed(day, value) and not is_expired(day, value):
            expire.append(day)
        if is_expired(day, value) and (value.entries or value.hours) and not _in_force(day, months):
            forget.append(day)
    for month, packs in sorted(months.items()):
        stored = sorted({day for pack in packs.days.values() for day in pack.days})
        over = [
            d for d in stored if is_over(keep.day_days, d, now_ms) and d in manifests and is_expired(d, manifests[d])
        ]
        if over:
            drop[month] = tuple(over)
    return RetentionPlan(seal, tuple(expire), drop, tuple(forget))


def is_over(days: int | None, day: int, now_ms: int) -> bool:
    """Whether a day ended more than so many days ago."""
    return days is not None and (day + 1 + days) * _DAY_MS <= now_ms


def hours_of_day(day: int) -> range:
    """All hours of a day."""
    return range(day * DAY_HOURS, (day + 1) * DAY_HOURS)


def _to_seal(day: int, value: Manifest, is_over: bool) -> tuple[int, ...]:
    """Empty hours are sealed with the others: late data must not revive a part of a day that is final."""
    begun = [hour for hour, seal in value.seals.items() if seal == SEALING]
    if not is_over or not (value.entries or value.seals):
        return tuple(sorted(begun))
    return tuple(hour for hour in hours_of_day(day) if value.seal(hour) in (OPEN, SEALING))


def _sealed(day: int, value: Manifest) -> bool:
    return all(value.seal(hour) >= SEALED for hour in hours_of_day(day))


def is_expired(day: int, value: Manifest) -> bool:
    """Whether the entire day answers from `days` alone."""
    return all(value.seal(hour) == EXPIRED for hour in hours_of_day(day))


def _in_force(day: int, months: Mapping[int, Month]) -> bool:
    return any(day in pack.days for month in months.values() for pack in month.days.values())


# --- what manifests become --------------------------------------------------------------------------------------------


def with_seal(now: Manifest, hours: tuple[int, ...], seal: int, nonce: int) -> Manifest:
    """The manifest with these hours in this state. Its fence makes every run in progress drop the day (PROTOCOL 14)."""
    seals = {**now.seals, **dict.fromkeys(hours, seal)}
    not_open = {hour: state for hour, state in seals.items() if state != OPEN}
    return Manifest(nonce, nonce, now.entries, now.hours, not_open)


def with_final_hours(now: Manifest, hours: tuple[int, ...]) -> Manifest:
    """The manifest with these hours final and without their history, so that no roll back is possible. The nonce stays.

    Aggregates of other states are removed as well: a move that was rolled back may have left them in its shards.
    """
    entries = {
        (shard, hour): Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms, entry.sources)
        if hour in hours
        else entry
        for (shard, hour), entry in now.entries.items()
    }
    hour_rows = {
        shard: HourPack(
            pack.generation, {s: of for s, of in pack.hours.items() if s not in hours or now.valid_inputs(shard, s)}
        )
        for shard, pack in now.hours.items()
    }
    packs = {shard: pack for shard, pack in hour_rows.items() if pack.hours}
    return Manifest(now.nonce, now.fence, entries, packs, {**now.seals, **dict.fromkeys(hours, SEALED)})


def without_hours(now: Manifest, day: int, nonce: int) -> Manifest:
    """The manifest with the entire day expired. It still names the inputs of the daily rows, but no sources."""
    entries = {
        place: Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms) for place, entry in now.entries.items()
    }
    return Manifest(nonce, nonce, entries, now.hours, dict.fromkeys(hours_of_day(day), EXPIRED))


def with_seals_only(now: Manifest, nonce: int) -> Manifest:
    """The manifest with nothing but its seals, which tell late data from new data for ever."""
    return Manifest(nonce, nonce, {}, {}, now.seals)


def without_days(now: Month, days: tuple[int, ...], nonce: int) -> Month:
    """The month without these days; shards without any day are removed."""
    remaining = {
        shard: DayPack(pack.generation, {day: of for day, of in pack.days.items() if day not in days})
        for shard, pack in now.days.items()
    }
    return Month(nonce, {shard: pack for shard, pack in remaining.items() if pack.days})


def are_days_final(day: int, value: Manifest, month: Month) -> bool:
    """Whether the daily rows in force are made of exactly the hours of every shard: only then may the hours go."""
    for shard in {shard for shard, _ in value.entries}:
        hours = hours_of(value, shard)
        if not hours:
            continue
        pack = month.days.get(shard)
        in_force = pack.days.get(day) if pack else None
        hour_rows = value.hours.get(shard)
        if in_force is None or hour_rows is None or in_force.inputs != day_fingerprint(hours):
            return False
        if in_force.retractions != retractions.day_fingerprint(
            (s, hour_rows.hours[s].retractions) for s, _ in hours if s in hour_rows.hours
        ):
            return False
    return True


# --- rows to delete ---------------------------------------------------------------------------------------------------


def raw_of(value: Manifest, state: State, shard: int, hour: int) -> list[Place]:
    """The generations of an hour shard whose samples are to be deleted."""
    return [(shard, hour, g.number) for g in state.generations] if value.seal(hour) >= SEALED else []


def leftovers(day: int, value: Manifest) -> tuple[set[Place], set[Place]]:
    """Generations of sealed hours and packs of expired hours: rows that may still exist though no reader uses them."""
    raw = {place for (b, hour), entry in value.entries.items() for place in raw_of(value, entry.state, b, hour)}
    packs = {(b, day * DAY_HOURS, pack.generation.number) for b, pack in value.hours.items()}
    return raw, packs if is_expired(day, value) else set()
