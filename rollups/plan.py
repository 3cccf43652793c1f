"""What a run has to do, decided from values alone: pending cells, manifests, the time, thresholds (rules 12 and 16).

``plan_day`` makes the units of one (app, day) with their parent entries and exact batch lists; ``waves`` cuts the work
into pieces of bounded memory; ``stale_days`` says which days to build from hours; ``decide`` says whether beat starts a
run now. Nothing here reads a store, a clock or a database.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from spm import limits
from spm.errors import CorruptBlock
from spm.store import pending
from spm.store.keys import PendingKey
from spm.store.manifest import OPEN, Entry, Hours, Manifest, Month, Replay, day_fingerprint, fingerprint, slots_of
from spm.store.pending import Commit, Listed

_LOG = logging.getLogger(__name__)


class Kind(IntEnum):
    """How a unit is compacted."""

    MINOR = 0  # one more generation, with the new batches only
    FULL = 1  # one generation instead of all
    RECOUNT = 2  # no new generation: only its hours are missing


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When work is worth a run; the limits are the defaults."""

    pending_rows: int = limits.ROLL_PENDING_ROWS
    pending_samples: int = limits.ROLL_PENDING_SAMPLES
    pending_age_ms: int = limits.ROLL_PENDING_AGE_MS
    grace_ms: int = limits.ROLL_GRACE_MS
    spark_gap_ms: int = limits.ROLL_SPARK_GAP_MS
    trouble_gap_ms: int = limits.ROLL_TROUBLE_GAP_MS
    local_samples: int = limits.ROLL_LOCAL_SAMPLES_MAX
    generations: int = limits.GENERATIONS_MAX


DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending cell: where its block lies and what is in it."""

    key: PendingKey
    slot: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """One unit of a run: what it stands on, the pending batches it takes in, and what to make of them."""

    bucket: int
    slot: int
    kind: Kind
    parent: Entry
    fresh: tuple[Replay, ...]  # pending batches, exactly
    waiting: tuple[Waiting, ...]  # their pending cells, to be settled after the flip
    hours: bool  # whether hourly aggregates are due

    @property
    def samples(self) -> int:
        """Pending samples."""
        return sum(item.commit.sample_count for item in self.waiting)


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The units of one (app, day), and the manifest cell that the flip expects to find."""

    app: int
    day: int
    cell: bytes | None
    manifest: Manifest
    units: tuple[UnitPlan, ...]

    @property
    def samples(self) -> int:
        """Pending samples of its units."""
        return sum(unit.samples for unit in self.units)


def closed(slot: int, now_ms: int, thresholds: Thresholds = DEFAULTS) -> bool:
    """Whether a slot has ended, and its stragglers have had their time."""
    return (slot + 1) * limits.HOUR_MS + thresholds.grace_ms <= now_ms


def by_day(listed: Iterable[Listed]) -> dict[int, list[Waiting]]:
    """Pending cells by the day of their slot. A damaged one stays where it is: readers still find its block."""
    days: dict[int, list[Waiting]] = {}
    for item in listed:
        try:
            found = Waiting(item.key, item.slot, pending.decode(item.cell))
        except CorruptBlock as error:
            _LOG.error("pending %s, slot %s is left alone: %s", item.key, item.slot, error)
            continue
        days.setdefault(item.slot // limits.DAY_SLOTS, []).append(found)
    return days


def plan_day(
    app: int,
    day: int,
    *,
    cell: bytes | None,
    manifest: Manifest,
    waiting: Sequence[Waiting],
    now_ms: int,
    minor: bool,
    thresholds: Thresholds = DEFAULTS,
) -> DayPlan:
    """The units of a day that are dirty: pending cells, a replay list, or (unless ``minor``) a closed slot's due.

    Slots that are sealing or sealed are left alone (rule 14).
    """
    of_unit: dict[tuple[int, int], list[Waiting]] = {}
    for item in waiting:
        of_unit.setdefault((item.key.bucket, item.slot), []).append(item)
    units = []
    for bucket, slot in sorted({*of_unit, *manifest.entries}):
        entry = manifest.entry(bucket, slot)
        if manifest.seal(slot) != OPEN:
            continue
        due = not minor and closed(slot, now_ms, thresholds)
        mine = of_unit.get((bucket, slot), [])
        kind = _kind(entry, bool(mine), due, _fresh_hours(manifest, bucket, slot), thresholds)
        if kind is not None:
            batches = {Replay(item.key.ingest_ms, item.key.batch) for item in mine}
            units.append(UnitPlan(bucket, slot, kind, entry, tuple(sorted(batches)), tuple(mine), due))
    return DayPlan(app, day, cell, manifest, tuple(units))


def _kind(entry: Entry, waits: bool, due: bool, fresh_hours: bool, thresholds: Thresholds) -> Kind | None:
    generations = len(entry.state.generations)
    if waits or entry.state.replay:
        return Kind.FULL if due or not generations or generations >= thresholds.generations else Kind.MINOR
    if due and generations > 1:
        return Kind.FULL
    if due and generations and not fresh_hours:
        return Kind.RECOUNT
    return None


def _fresh_hours(manifest: Manifest, bucket: int, slot: int) -> bool:
    pack = manifest.hours.get(bucket)
    made = pack.slots.get(slot) if pack else None
    return made is not None and made.inputs == fingerprint(manifest.entry(bucket, slot).state)


def waves(days: Sequence[DayPlan], samples_max: int = limits.ROLL_WAVE_SAMPLES) -> Iterator[list[DayPlan]]:
    """The days with work, in portions whose pending samples stay below a bound (a day is never cut)."""
    wave: list[DayPlan] = []
    for day in days:
        if not day.units:
            continue
        if wave and sum(d.samples for d in wave) + day.samples > samples_max:
            yield wave
            wave = []
        wave.append(day)
    if wave:
        yield wave


# --- days from hours --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StaleDay:
    """A closed day of a bucket whose hours are all in force, but not its row of days; ``inputs``: their fingerprint."""

    bucket: int
    day: int
    hours: Hours
    inputs: bytes
    stamp_max_ms: int


def month_of(day: int) -> int:
    """The month, counted from 1970-01, in which a day (counted from 1970-01-01) lies."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def first_day_of(month: int) -> int:
    """The first day of a month."""
    return int(np.datetime64(month, "M").astype("datetime64[D]").astype(np.int64))


def stale_days(
    month: Month, manifests: Mapping[int, Manifest], now_ms: int, thresholds: Thresholds = DEFAULTS
) -> list[StaleDay]:
    """The days of a month to build: all slots closed, every hour exact, and no equal day in force."""
    found = []
    for day, manifest in sorted(manifests.items()):
        if not closed((day + 1) * limits.DAY_SLOTS - 1, now_ms, thresholds):
            continue
        for bucket, pack in sorted(manifest.hours.items()):
            slots = slots_of(manifest, bucket)
            inputs = day_fingerprint(slots)
            if not inputs or not all(_fresh_hours(manifest, bucket, slot) for slot, _ in slots):
                continue
            in_force = month.days.get(bucket)
            if in_force is None or day not in in_force.days or in_force.days[day].inputs != inputs:
                newest = max(pack.slots[slot].stamp_max_ms for slot, _ in slots)
                found.append(StaleDay(bucket, day, pack, inputs, newest))
    return found


# --- when to run ------------------------------------------------------------------------------------------------------


class Start(IntEnum):
    """What beat does now."""

    NOTHING = 0
    MINOR = 1  # in this process
    SPARK = 2  # a process of its own


@dataclass(frozen=True, slots=True)
class Pressure:
    """How much waits for a run, over all apps."""

    rows: int  # pending rows of the fullest (bucket, app)
    samples: int
    oldest_ms: int | None  # the oldest pending row's time
    overdue_ms: int | None  # the oldest waiting row, or the end, of a closed slot that lacks its full merge or hours


def pressure(apps: Iterable[tuple[Sequence[Waiting], Mapping[int, Manifest]]], now_ms: int) -> Pressure:
    """The pressure of all apps, each given as its pending cells and the manifests of its recent days."""
    rows: dict[tuple[int, int], set[int]] = {}
    samples, oldest, overdue = 0, math.inf, math.inf
    for waiting, manifests in apps:
        for item in waiting:
            rows.setdefault((item.key.app, item.key.bucket), set()).add(item.key.batch)
            samples += item.commit.sample_count
            oldest = min(oldest, item.key.ingest_ms)
            if closed(item.slot, now_ms):
                overdue = min(overdue, max(item.key.ingest_ms, (item.slot + 1) * limits.HOUR_MS))
        overdue = min([overdue, *(_overdue(manifest, now_ms) for manifest in manifests.values())])
    fullest = max(map(len, rows.values()), default=0)
    return Pressure(fullest, samples, _known(oldest), _known(overdue))


def _overdue(manifest: Manifest, now_ms: int) -> float:
    """The end of the oldest closed slot without full merge or hours. One rolled back stays so until more data comes."""
    ends = [
        (slot + 1) * limits.HOUR_MS
        for (bucket, slot), entry in manifest.entries.items()
        if manifest.seal(slot) == OPEN and entry.state.generations and not entry.state.replay
        if closed(slot, now_ms) and not _fresh_hours(manifest, bucket, slot)
    ]
    return min(ends, default=math.inf)


def _known(ms: float) -> int | None:
    return None if ms == math.inf else int(ms)


def decide(
    waits: Pressure,
    *,
    now_ms: int,
    last_spark_ms: int | None,
    last_trouble_ms: int | None = None,
    thresholds: Thresholds = DEFAULTS,
) -> Start:
    """Whether a run starts now: a Spark run for closed hours and heaps, a minor one for what is small.

    After a run that failed or gave a unit up nothing starts for a while: what stands in its way stands there still.
    """
    if last_trouble_ms is not None and now_ms - last_trouble_ms < thresholds.trouble_gap_ms:
        return Start.NOTHING
    rested = last_spark_ms is None or now_ms - last_spark_ms >= thresholds.spark_gap_ms
    if waits.samples > thresholds.local_samples:
        return Start.SPARK
    if rested and waits.overdue_ms is not None and now_ms - waits.overdue_ms >= thresholds.grace_ms:
        return Start.SPARK
    old = waits.oldest_ms is not None and now_ms - waits.oldest_ms >= thresholds.pending_age_ms
    if waits.rows >= thresholds.pending_rows or waits.samples >= thresholds.pending_samples or old:
        return Start.MINOR
    return Start.NOTHING
