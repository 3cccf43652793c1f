"""Whose retention is over, decided from values alone (rule 23): days to seal, to expire, to drop, to forget.

Enter by ``due``. An app keeps samples, hours and days each for its own number of days (``Keep``). Retention goes by
whole days: all slots of a day are sealed together, which costs one flip instead of 24, and keeps samples up to a day
longer than asked. A slot that somebody began to seal is always due. Nothing here reads a store or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rollups.decide.superseded import Place
from spm.limits import DAY_SLOTS, HOUR_MS
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
    slots_of,
)
from spm.store.versions import retractions

_DAY_MS = DAY_SLOTS * HOUR_MS


@dataclass(frozen=True, slots=True)
class Keep:
    """How many days samples, hours and days are kept; ``None``: for ever."""

    raw_days: int | None = None
    hour_days: int | None = None
    day_days: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """What retention has to do for an app, oldest first."""

    seal: Mapping[int, tuple[int, ...]]  # day → slots
    expire: tuple[int, ...]  # days whose hours go
    drop: Mapping[int, tuple[int, ...]]  # month → days that go
    forget: tuple[int, ...]  # days of which nothing is left but their seals


def due(keep: Keep, now_ms: int, manifests: Mapping[int, Manifest], months: Mapping[int, Month]) -> Due:
    """What is due. ``manifests`` and ``months``: of all days there are."""
    seal, expire, drop, forget = {}, [], {}, []
    for day, value in sorted(manifests.items()):
        slots = _to_seal(day, value, over(keep.raw_days, day, now_ms))
        if slots:
            seal[day] = slots
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


def slots_of_day(day: int) -> range:
    """All slots of a day."""
    return range(day * DAY_SLOTS, (day + 1) * DAY_SLOTS)


def _to_seal(day: int, value: Manifest, is_over: bool) -> tuple[int, ...]:
    """Empty slots are sealed with the others: late data must not revive a part of a day that is final."""
    begun = [slot for slot, seal in value.seals.items() if seal == SEALING]
    if not is_over or not (value.entries or value.seals):
        return tuple(sorted(begun))
    return tuple(slot for slot in slots_of_day(day) if value.seal(slot) in (OPEN, SEALING))


def _sealed(day: int, value: Manifest) -> bool:
    return all(value.seal(slot) >= SEALED for slot in slots_of_day(day))


def expired(day: int, value: Manifest) -> bool:
    """Whether the whole day answers from `days` alone."""
    return all(value.seal(slot) == EXPIRED for slot in slots_of_day(day))


def _in_force(day: int, months: Mapping[int, Month]) -> bool:
    return any(day in pack.days for month in months.values() for pack in month.days.values())


# --- what manifests become --------------------------------------------------------------------------------------------


def marked(now: Manifest, slots: tuple[int, ...], seal: int, nonce: int) -> Manifest:
    """With these slots in this state. The fence makes every run under way drop its work on the day (rule 14)."""
    seals = {**now.seals, **dict.fromkeys(slots, seal)}
    kept = {slot: state for slot, state in seals.items() if state != OPEN}
    return Manifest(nonce, nonce, now.entries, now.hours, kept)


def sealed(now: Manifest, slots: tuple[int, ...]) -> Manifest:
    """With these slots final. Their history goes: a roll back has nothing to return to. The nonce stays.

    Hours of another state go as well: a move that was rolled back may have left them in its buckets.
    """
    entries = {
        (bucket, slot): Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms, entry.sources)
        if slot in slots
        else entry
        for (bucket, slot), entry in now.entries.items()
    }
    hours = {
        bucket: Hours(
            pack.generation, {s: of for s, of in pack.slots.items() if s not in slots or now.counted(bucket, s)}
        )
        for bucket, pack in now.hours.items()
    }
    kept = {bucket: pack for bucket, pack in hours.items() if pack.slots}
    return Manifest(now.nonce, now.fence, entries, kept, {**now.seals, **dict.fromkeys(slots, SEALED)})


def without_hours(now: Manifest, day: int, nonce: int) -> Manifest:
    """With the whole day expired. What its days were made of stays named; who wrote there is of no use any more."""
    entries = {
        place: Entry(entry.state, (), entry.stamp_min_ms, entry.stamp_max_ms) for place, entry in now.entries.items()
    }
    return Manifest(nonce, nonce, entries, now.hours, dict.fromkeys(slots_of_day(day), EXPIRED))


def forgotten(now: Manifest, nonce: int) -> Manifest:
    """With nothing but its seals, so that late data is told apart from new for ever."""
    return Manifest(nonce, nonce, {}, {}, now.seals)


def without_days(now: Month, days: tuple[int, ...], nonce: int) -> Month:
    """The month without these days; a bucket without any is not named."""
    left = {
        bucket: Days(pack.generation, {day: of for day, of in pack.days.items() if day not in days})
        for bucket, pack in now.days.items()
    }
    return Month(nonce, {bucket: pack for bucket, pack in left.items() if pack.days})


def final(day: int, value: Manifest, month: Month) -> bool:
    """Whether the days in force stand for every bucket's hours, exactly: only then may those go."""
    for bucket in {bucket for bucket, _ in value.entries}:
        slots = slots_of(value, bucket)
        if not slots:
            continue
        pack = month.days.get(bucket)
        made = pack.days.get(day) if pack else None
        hours = value.hours.get(bucket)
        if made is None or hours is None or made.inputs != day_fingerprint(slots):
            return False
        if made.retractions != retractions.of_day(
            (s, hours.slots[s].retractions) for s, _ in slots if s in hours.slots
        ):
            return False
    return True


# --- which rows go ----------------------------------------------------------------------------------------------------


def raw_of(value: Manifest, state: State, bucket: int, slot: int) -> list[Place]:
    """The generations of a unit, if its raw is to go."""
    return [(bucket, slot, g.number) for g in state.generations] if value.seal(slot) >= SEALED else []


def leftovers(day: int, value: Manifest) -> tuple[set[Place], set[Place]]:
    """What may still lie there though it answers nothing: generations of sealed slots, packs of expired hours."""
    raw = {place for (b, slot), entry in value.entries.items() for place in raw_of(value, entry.state, b, slot)}
    gone = expired(day, value)
    return raw, {(b, day * DAY_SLOTS, pack.generation.number) for b, pack in value.hours.items()} if gone else set()
