"""What a run has to do, decided from values alone: pending cells, manifests, retractions, the time (rules 11, 12, 16).

``plan_day`` makes the units of one (app, day) with their parent entries and exact batch lists; ``plan_hour`` those of
one hour that is being sealed; ``waves`` cuts the work into pieces of bounded memory; ``stale_days`` says which days to
build from hours; ``decide`` says whether beat starts a run now. Nothing here reads a store, a clock or a database.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from spm import limits
from spm.errors import CorruptBlock
from spm.store.keys import Distribution, Epoch, PendingKey
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import Commit, PendingCell
from spm.store.manifest import (
    EXPIRED,
    OPEN,
    SEALED,
    SEALING,
    Entry,
    Generation,
    HourInputs,
    Hours,
    Manifest,
    Month,
    Replay,
    day_fingerprint,
    hours_of,
)
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import generations as units
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

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
class Order:
    """What a run is to do, and what of the app's state besides its days decides it."""

    now_ms: int
    minor: bool = False  # leave closed hours, days and untouched units to a full run
    upgrade: bool = False  # rewrite what older releases wrote
    retractions: tuple[Retraction, ...] = ()  # in force
    distribution: Distribution = field(default_factory=Distribution)
    thresholds: Thresholds = DEFAULTS

    def due(self, hour: int) -> bool:
        """Whether the hour's full merge and hours are this run's."""
        return not self.minor and closed(hour, self.now_ms, self.thresholds)


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending cell: where its block lies and what is in it."""

    key: PendingKey
    hour: int
    commit: Commit


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """What another shard holds of the same hour, of which a unit takes the metrics that now belong to its own."""

    shard: int
    generations: tuple[Generation, ...]
    replay: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """One unit of a run: what it stands on, the pending batches it takes in, and what to make of them."""

    shard: int
    hour: int
    kind: Kind
    parent: Entry
    fresh: tuple[Replay, ...]  # pending batches, exactly
    waiting: tuple[Waiting, ...]  # their pending cells, to be settled after the flip
    hours: bool  # whether hourly aggregates are due
    retractions: tuple[Retraction, ...] = ()  # that may hide something of it
    moved: tuple[Moved, ...] = ()  # what comes to it from other shards (rule 22)
    place: Epoch | None = None  # only metrics that this epoch puts in its shard are kept

    @property
    def samples(self) -> int:
        """Pending samples."""
        return sum(item.commit.sample_count for item in self.waiting)

    @property
    def weight(self) -> int:
        """Samples it is taken for in a wave: what a generation holds the plan does not know."""
        held = self.kind != Kind.MINOR and bool(self.parent.state.generations)
        return self.samples + (held + len(self.moved)) * limits.ROLL_UNIT_SAMPLES


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The units of one (app, day), and the manifest cell that the flip expects to find."""

    app: int
    day: int
    cell: bytes | None
    manifest: Manifest
    units: tuple[UnitPlan, ...]
    order: Order
    late: tuple[Waiting, ...] = ()  # pending cells of sealed hours

    @property
    def samples(self) -> int:
        """Pending samples of its units."""
        return sum(unit.samples for unit in self.units)

    @property
    def weight(self) -> int:
        """How much of a wave it fills, in samples."""
        return sum(unit.weight for unit in self.units)


def closed(hour: int, now_ms: int, thresholds: Thresholds = DEFAULTS) -> bool:
    """Whether an hour has ended, and its stragglers have had their time."""
    return (hour + 1) * limits.HOUR_MS + thresholds.grace_ms <= now_ms


def by_day(listed: Iterable[PendingCell]) -> dict[int, list[Waiting]]:
    """Pending cells by the day of their hour. A damaged one stays where it is: readers still find its block."""
    days: dict[int, list[Waiting]] = {}
    for item in listed:
        try:
            found = Waiting(item.key, item.hour, commit_records.decode(item.cell))
        except CorruptBlock as error:
            _LOG.error("pending %s, hour %s is left alone: %s", item.key, item.hour, error)
            continue
        days.setdefault(item.hour // limits.DAY_HOURS, []).append(found)
    return days


def plan_day(
    app: int, day: int, *, cell: bytes | None, manifest: Manifest, waiting: Sequence[Waiting], order: Order
) -> DayPlan:
    """The units of a day that are dirty: pending cells, a replay list, or (unless minor) what is due of a closed hour.

    Due are a full merge, hours, hours that leave out other retractions than those in force, and in an upgrade rows of
    an older form. Hours that are sealing or sealed are left alone (rule 14); what came late for sealed ones is listed.
    """
    of_unit = _by_unit(waiting)
    split = split_hours(manifest, of_unit.keys(), order.distribution)
    found = []
    for shard, hour in sorted({*of_unit, *manifest.entries}):
        if manifest.seal(hour) == OPEN:
            mine = of_unit.get((shard, hour), ())
            due = order.due(hour) and hour not in split
            found += _unit(manifest, shard, hour, mine, due, order)
    late = tuple(item for item in waiting if manifest.seal(item.hour) in (SEALED, EXPIRED))
    return DayPlan(app, day, cell, manifest, tuple(found), order, late)


def plan_hour(
    app: int, hour: int, *, cell: bytes | None, manifest: Manifest, waiting: Sequence[Waiting], order: Order
) -> DayPlan | None:
    """All that one hour lacks in all its shards, though it is sealing; ``None`` while it lies in two places."""
    mine = [item for item in waiting if item.hour == hour]
    of_unit = _by_unit(mine)
    if hour in split_hours(manifest, of_unit.keys(), order.distribution):
        return None
    places = sorted({*of_unit, *(unit for unit in manifest.entries if unit[1] == hour)})
    found = [unit for b, s in places for unit in _unit(manifest, b, s, of_unit.get((b, s), ()), True, order)]
    return DayPlan(app, hour // limits.DAY_HOURS, cell, manifest, tuple(found), order)


def split_hours(manifest: Manifest, places: Iterable[tuple[int, int]], distribution: Distribution) -> set[int]:
    """Hours of which a metric may lie in two shards: while epochs change, all that lie in more than one."""
    if distribution.settled:
        return set()
    held: dict[int, set[int]] = {}
    entries = [place for place, entry in manifest.entries.items() if entry.state.generations or entry.state.replay]
    for shard, hour in [*places, *entries]:
        held.setdefault(hour, set()).add(shard)
    return {hour for hour, shards in held.items() if len(shards) > 1}


def _by_unit(waiting: Iterable[Waiting]) -> dict[tuple[int, int], tuple[Waiting, ...]]:
    found: dict[tuple[int, int], list[Waiting]] = {}
    for item in waiting:
        found.setdefault((item.key.shard, item.hour), []).append(item)
    return {place: tuple(items) for place, items in found.items()}


def _unit(
    manifest: Manifest, shard: int, hour: int, mine: Sequence[Waiting], due: bool, order: Order
) -> list[UnitPlan]:
    entry = manifest.entry(shard, hour)
    kind = _kind(manifest, shard, hour, bool(mine), due, order)
    if kind is None:
        return []
    batches = {Replay(item.key.ingest_ms, item.key.batch) for item in mine}
    hiding = retractions.touching(order.retractions, _with(entry, mine), hour) if due else ()
    return [UnitPlan(shard, hour, kind, entry, tuple(sorted(batches)), tuple(mine), due, hiding)]


def _with(entry: Entry, mine: Sequence[Waiting]) -> Entry:
    """The stamps and sources that the unit will have when it holds what waits."""
    stamps = [(item.commit.stamp_min_ms, item.commit.stamp_max_ms) for item in mine]
    if entry.stamp_max_ms:
        stamps.append((entry.stamp_min_ms, entry.stamp_max_ms))
    sources = {*entry.sources, *(name for item in mine for name in item.commit.messages.sources)}
    state = msgspec.structs.replace(entry.state, replay=(*entry.state.replay, Replay(0, 0)))  # anything but empty
    low, high = min((low for low, _ in stamps), default=0), max((high for _, high in stamps), default=0)
    return Entry(state, (), low, high, tuple(sources))


def _kind(manifest: Manifest, shard: int, hour: int, waits: bool, due: bool, order: Order) -> Kind | None:
    state = manifest.entry(shard, hour).state
    generations = len(state.generations)
    many = not generations or generations >= order.thresholds.generations
    if waits or state.replay:
        return Kind.FULL if due or many else Kind.MINOR
    if due and generations > 1:
        return Kind.FULL
    if order.upgrade and any(g.form < units.FORM for g in state.generations):
        return Kind.FULL
    old = order.upgrade and shard in manifest.hours and manifest.hours[shard].generation.form < rollup_rows.FORM
    if due and generations and (old or not fresh_hours(manifest, shard, hour, order.retractions)):
        return Kind.RECOUNT
    return None


def fresh_hours(manifest: Manifest, shard: int, hour: int, found: Sequence[Retraction]) -> bool:
    """Whether the hours in force of a unit are made of what it holds now, without what is retracted now (rule 11)."""
    made = manifest.counted(shard, hour)
    return made is not None and _left_out(manifest, hour, made, found, shard)


def _left_out(manifest: Manifest, hour: int, made: HourInputs, found: Sequence[Retraction], shard: int) -> bool:
    """Hours of a sealed hour stand for the retractions of their seal, whatever came later (rule 23)."""
    if manifest.seal(hour) in (SEALED, EXPIRED):
        return True
    return made.retractions == retractions.ids(retractions.touching(found, manifest.entry(shard, hour), hour))


def waves(days: Sequence[DayPlan], samples_max: int = limits.ROLL_WAVE_SAMPLES) -> Iterator[list[DayPlan]]:
    """The days with work, in portions whose samples stay below a bound (a day is never cut)."""
    wave: list[DayPlan] = []
    for day in days:
        if not day.units:
            continue
        if wave and sum(d.weight for d in wave) + day.weight > samples_max:
            yield wave
            wave = []
        wave.append(day)
    if wave:
        yield wave


def outdated(manifest: Manifest) -> int:
    """How many open units still have rows of an older form, of samples or of hours."""
    old = {p for p, entry in manifest.entries.items() if any(g.form < units.FORM for g in entry.state.generations)}
    for shard, pack in manifest.hours.items():
        if pack.generation.form < rollup_rows.FORM:
            old |= {(shard, hour) for hour in pack.hours if manifest.entry(shard, hour).state.generations}
    return sum(manifest.seal(hour) == OPEN for _, hour in old)


# --- days from hours --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StaleDay:
    """A closed day of a shard whose hours are all in force, but not its row of days; and what it will be made of."""

    shard: int
    day: int
    hours: Hours
    inputs: bytes
    retractions: bytes
    stamp_max_ms: int


def stale_days(month: Month, manifests: Mapping[int, Manifest], order: Order) -> list[StaleDay]:
    """The days of a month to build: all hours closed, every hour exact, and no equal day in force.

    A day of which hours have expired stays as it is; so does one whose data lies in two shards.
    """
    found = []
    for day, manifest in sorted(manifests.items()):
        if not order.due((day + 1) * limits.DAY_HOURS - 1) or split_hours(manifest, (), order.distribution):
            continue
        for shard, pack in sorted(manifest.hours.items()):
            made = _day(manifest, shard, pack, day, order)
            if made is not None and not _in_force(month, made, order):
                found.append(made)
    return found


def _day(manifest: Manifest, shard: int, pack: Hours, day: int, order: Order) -> StaleDay | None:
    hours = hours_of(manifest, shard)
    inputs = day_fingerprint(hours)
    whole = all(fresh_hours(manifest, shard, hour, order.retractions) for hour, _ in hours)
    if not inputs or not whole or any(manifest.seal(hour) in (SEALING, EXPIRED) for hour, _ in hours):
        return None
    marks = [pack.hours[hour] for hour, _ in hours]
    hidden = retractions.of_day((hour, pack.hours[hour].retractions) for hour, _ in hours)
    return StaleDay(shard, day, pack, inputs, hidden, max(made.stamp_max_ms for made in marks))


def _in_force(month: Month, made: StaleDay, order: Order) -> bool:
    days = month.days.get(made.shard)
    now = days.days.get(made.day) if days else None
    if days is None or now is None or (now.inputs, now.retractions) != (made.inputs, made.retractions):
        return False
    return not (order.upgrade and days.generation.form < rollup_rows.FORM)


# --- when to run ------------------------------------------------------------------------------------------------------


class Start(IntEnum):
    """What beat does now."""

    NOTHING = 0
    MINOR = 1  # in this process
    SPARK = 2  # a process of its own


@dataclass(frozen=True, slots=True)
class Pressure:
    """How much waits for a run, over all apps."""

    rows: int  # pending rows of the fullest (shard, app)
    samples: int
    oldest_ms: int | None  # the oldest pending row's time
    overdue_ms: int | None  # the oldest waiting row, or the end, of a closed hour that lacks its full merge or hours


def pressure(apps: Iterable[tuple[Sequence[Waiting], Mapping[int, Manifest]]], now_ms: int) -> Pressure:
    """The pressure of all apps, each given as its pending cells and the manifests of its recent days."""
    rows: dict[tuple[int, int], set[int]] = {}
    samples, oldest, overdue = 0, math.inf, math.inf
    for waiting, manifests in apps:
        for item in waiting:
            rows.setdefault((item.key.app, item.key.shard), set()).add(item.key.batch)
            samples += item.commit.sample_count
            oldest = min(oldest, item.key.ingest_ms)
            if closed(item.hour, now_ms):
                overdue = min(overdue, max(item.key.ingest_ms, (item.hour + 1) * limits.HOUR_MS))
        overdue = min([overdue, *(_overdue(manifest, now_ms) for manifest in manifests.values())])
    fullest = max(map(len, rows.values()), default=0)
    return Pressure(fullest, samples, _known(oldest), _known(overdue))


def _overdue(manifest: Manifest, now_ms: int) -> float:
    """The end of the oldest closed hour without full merge or hours. One rolled back stays so until more data comes."""
    ends = [
        (hour + 1) * limits.HOUR_MS
        for (shard, hour), entry in manifest.entries.items()
        if manifest.seal(hour) == OPEN and entry.state.generations and not entry.state.replay
        if closed(hour, now_ms) and not _made(manifest, shard, hour)
    ]
    return min(ends, default=math.inf)


def _made(manifest: Manifest, shard: int, hour: int) -> bool:
    """Whether hours of what the unit holds are there, whatever they leave out: of retractions the agenda tells."""
    return manifest.counted(shard, hour) is not None


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
