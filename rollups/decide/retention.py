"""Whose retention is over, decided from values alone (rule 23): days to seal, to expire, to drop, to forget.

Enter by ``due``. An app keeps samples, hours and days each for its own number of days (``Keep``). Retention goes by
whole days: all hours of a day are sealed together, which costs one flip instead of 24, and keeps samples up to a day
longer than asked. An hour that somebody began to seal is always due. Nothing here reads a store or a clock.
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
    Days,
    Entry,
    Hours,
    Manifest,
    Month,
    State,
    day_fingerprint,
    hours_of,
)
from spm.store.versions import retractions

_DAY_MS = DAY_HOURS * HOUR_MS


@dataclass(frozen=True, slots=True)
class Keep:
    """How many days samples, hours and days are kept; ``None``: for ever."""

    raw_days: int | None = None
    hour_days: int | None = None
    day_days: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """What retention has to do for an app, oldest first."""

    seal: Mapping[int, tuple[int, ...]]  # day → hours
    expire: tuple[int, ...]  # days whose hours go
    drop: Mapping[int, tuple[int, ...]]  # month → days that go
    forget: tuple[int, ...]  # days of which nothing is left but their seals


def due(keep: Keep, now_ms: int, manifests: Mapping[int, Manifest], months: Mapping[int, Month]) -> Due:
    """What is due. ``manifests`` and ``months``: of all days there are."""
    seal, expire, drop, forget = {}, [], {}, []
    for day, value in sorted(manifests.items()):
        hours = _to_seal(day, value, over(keep.raw_days, day, now_ms))
        if hours:
            seal[day] = hours
        if over(keep.hour_days, day, now_ms) and _sealed(day, value) and not expired(day, value):
            expire.append(day)
        if expired(day, value) and (value.entries or value.hours) and not _in_force(day, months):
            forget.append(day)
    for month, found in sorted(months.items()):
        held = sorted({day for pack in found.days.values() for day in pack.days})
        gone = [d for d in held if over(keep.day_days, d, now_ms) and d in manifests and expired(d, manifests[d])]
        if gone:
            drop[month] = tuple(gone)
    return Due(seal, tuple(expire), drop, tuple(forget))


def over(days: int | None, day: int, now_ms: int) -> bool:
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


def expired(day: int, value: Manifest) -> bool:
    """Whether the whole day answers from `days` alone."""
    return all(value.seal(hour) == EXPIRED for hour in hours_of_day(day))


def _in_force(day: int, months: Mapping[int, Month]) -> bool:
    return any(day in pack.days for month in months.values() for pack in month.days.values())


# --- what manifests become --------------------------------------------------------------------------------------------


def marked(now: Manifest, hours: tuple[int, ...], seal: int, nonce: int) -> Manifest:
    """With these hours in this state. The fence makes every run under way drop its work on the day (rule 14)."""
    seals = {**now.seals, **dict.fromkeys(hours, seal)}
    kept = {hour: state for hour, state in seals.items() if state != OPEN}
    return Manifest(nonce, nonce, now.entries, now.hours, kept)


def sealed(now: Manifest, hours: tuple[int, ...]) -> Manifest:
    """With these hours final. Their history goes: a roll back has nothing to return to. The nonce stays.

    Hours of another state go as well: a move that was rolled back may have left them in its shards.
    """
    entries = {
        (shard, hour): Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms, entry.sources)
        if hour in hours
        else entry
        for (shard, hour), entry in now.entries.items()
    }
    hour_rows = {
        shard: Hours(
            pack.generation, {s: of for s, of in pack.hours.items() if s not in hours or now.counted(shard, s)}
        )
        for shard, pack in now.hours.items()
    }
    kept = {shard: pack for shard, pack in hour_rows.items() if pack.hours}
    return Manifest(now.nonce, now.fence, entries, kept, {**now.seals, **dict.fromkeys(hours, SEALED)})


def without_hours(now: Manifest, day: int, nonce: int) -> Manifest:
    """With the whole day expired. What its days were made of stays named; who wrote there is of no use any more."""
    entries = {
        place: Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms) for place, entry in now.entries.items()
    }
    return Manifest(nonce, nonce, entries, now.hours, dict.fromkeys(hours_of_day(day), EXPIRED))


def forgotten(now: Manifest, nonce: int) -> Manifest:
    """With nothing but its seals, so that late data is told apart from new for ever."""
    return Manifest(nonce, nonce, {}, {}, now.seals)


def without_days(now: Month, days: tuple[int, ...], nonce: int) -> Month:
    """The month without these days; a shard without any is not named."""
    left = {
        shard: Days(pack.generation, {day: of for day, of in pack.days.items() if day not in days})
        for shard, pack in now.days.items()
    }
    return Month(nonce, {shard: pack for shard, pack in left.items() if pack.days})


def final(day: int, value: Manifest, month: Month) -> bool:
    """Whether the days in force stand for every shard's hours, exactly: only then may those go."""
    for shard in {shard for shard, _ in value.entries}:
        hours = hours_of(value, shard)
        if not hours:
            continue
        pack = month.days.get(shard)
        made = pack.days.get(day) if pack else None
        hour_rows = value.hours.get(shard)
        if made is None or hour_rows is None or made.inputs != day_fingerprint(hours):
            return False
        if made.retractions != retractions.of_day(
            (s, hour_rows.hours[s].retractions) for s, _ in hours if s in hour_rows.hours
        ):
            return False
    return True


# --- which rows go ----------------------------------------------------------------------------------------------------


def raw_of(value: Manifest, state: State, shard: int, hour: int) -> list[Place]:
    """The generations of a unit, if its raw is to go."""
    return [(shard, hour, g.number) for g in state.generations] if value.seal(hour) >= SEALED else []


def leftovers(day: int, value: Manifest) -> tuple[set[Place], set[Place]]:
    """What may still lie there though it answers nothing: generations of sealed hours, packs of expired hours."""
    raw = {place for (b, hour), entry in value.entries.items() for place in raw_of(value, entry.state, b, hour)}
    gone = expired(day, value)
    return raw, {(b, day * DAY_HOURS, pack.generation.number) for b, pack in value.hours.items()} if gone else set()
