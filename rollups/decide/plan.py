"""Plans a run from values alone: pending records, manifests, retractions, the time (PROTOCOL 11, 12, 16).

``plan_day`` lists the hour shards of one (app, day) with their entries and exact batch lists; ``plan_hour`` those of
one hour that is being sealed; ``cut_into_waves`` bounds the memory of the work; ``find_stale_days`` lists the days to
build from hours. Whether a run starts at all, ``rollups.decide.start`` decides. Nothing here reads a store, a clock or
a database.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from rollups.limits import ROLL_FAILURE_GAP_MS
from spm import limits
from spm.errors import CorruptBlock
from spm.store.keys import PendingKey, PlacementEpoch, PlacementTable
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
    HourPack,
    Manifest,
    Month,
    Replay,
    day_fingerprint,
    hours_of,
    joined_sources,
)
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import generations as generation_rows
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

_LOG = logging.getLogger(__name__)


class MergeKind(IntEnum):
    """How an hour shard is compacted."""

    MINOR = 0  # adds one generation that holds the new batches only
    FULL = 1  # replaces all generations by one
    RECOUNT = 2  # writes no generation, only the hourly aggregates


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When there is enough work for a run; the defaults are the limits."""

    pending_rows: int = limits.ROLL_PENDING_ROWS
    pending_samples: int = limits.ROLL_PENDING_SAMPLES
    pending_age_ms: int = limits.ROLL_PENDING_AGE_MS
    grace_ms: int = limits.ROLL_GRACE_MS
    spark_gap_ms: int = limits.ROLL_SPARK_GAP_MS
    failure_gap_ms: int = ROLL_FAILURE_GAP_MS
    local_samples: int = limits.ROLL_LOCAL_SAMPLES_MAX
    generations: int = limits.GENERATIONS_MAX


DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What the plan of a run depends on besides the manifests of the days."""

    now_ms: int
    minor: bool = False  # leave closed hours, days and unchanged hour shards to a full run
    upgrade: bool = False  # rewrite rows of older releases
    retractions: tuple[Retraction, ...] = ()  # in force
    placement: PlacementTable = field(default_factory=PlacementTable)
    thresholds: Thresholds = DEFAULTS

    def due(self, hour: int) -> bool:
        """Whether this run does the hour's full merge and its hourly aggregates."""
        return not self.minor and is_closed(hour, self.now_ms, self.thresholds)


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A decoded pending record: where its block lies and what is in it."""

    key: PendingKey
    hour: int
    commit: Commit


class MoveSource(msgspec.Struct, frozen=True, array_like=True):
    """The data of the same hour in another shard, of which an hour shard takes the metrics that now belong to it."""

    shard: int
    generations: tuple[Generation, ...]
    replay: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class HourShardPlan:
    """What a run does to one hour shard: its entry in the manifest, the pending batches to add, what to write."""

    shard: int
    hour: int
    kind: MergeKind
    parent: Entry
    fresh: tuple[Replay, ...]  # the pending batches, exactly
    pending: tuple[PendingCommit, ...]  # their pending records, which are settled after publishing
    wants_hours: bool  # whether hourly aggregates are to be written
    retractions: tuple[Retraction, ...] = ()  # that may hide some of its samples
    move_sources: tuple[MoveSource, ...] = ()  # data that moves here from other shards (PROTOCOL 22)
    epoch: PlacementEpoch | None = None  # keep only metrics that this epoch places in the shard

    @property
    def samples(self) -> int:
        """Pending samples."""
        return sum(item.commit.sample_count for item in self.pending)

    @property
    def weight(self) -> int:
        """An estimate in samples for sizing waves: the plan does not know how many samples a generation has."""
        merges = self.kind != MergeKind.MINOR and bool(self.parent.state.generations)
        return self.samples + (merges + len(self.move_sources)) * limits.ROLL_HOUR_SHARD_SAMPLES


@dataclass(frozen=True, slots=True)
class DayPlan:
    """The hour shards of one (app, day) to work on, and the manifest cell that publishing expects to find."""

    app: int
    day: int
    cell: bytes | None
    manifest: Manifest
    hour_shards: tuple[HourShardPlan, ...]
    context: PlanContext
    late_pending: tuple[PendingCommit, ...] = ()  # pending records of sealed hours

    @property
    def samples(self) -> int:
        """Pending samples of all its hour shards."""
        return sum(item.samples for item in self.hour_shards)

    @property
    def weight(self) -> int:
        """How much of a wave it fills, in samples."""
        return sum(item.weight for item in self.hour_shards)


def is_closed(hour: int, now_ms: int, thresholds: Thresholds = DEFAULTS) -> bool:
    """Whether an hour has ended and the grace time for late samples is over."""
    return (hour + 1) * limits.HOUR_MS + thresholds.grace_ms <= now_ms


def group_by_day(listed: Iterable[PendingCell]) -> dict[int, list[PendingCommit]]:
    """Decodes pending records and groups them by day. A damaged one stays in place: readers still find its block."""
    days: dict[int, list[PendingCommit]] = {}
    for item in listed:
        try:
            commit = PendingCommit(item.key, item.hour, commit_records.decode(item.cell))
        except CorruptBlock as error:
            _LOG.error("pending %s, hour %s is skipped: %s", item.key, item.hour, error)
            continue
        days.setdefault(item.hour // limits.DAY_HOURS, []).append(commit)
    return days


def plan_day(
    app: int,
    day: int,
    *,
    cell: bytes | None,
    manifest: Manifest,
    pending: Sequence[PendingCommit],
    context: PlanContext,
) -> DayPlan:
    """Plans a day: hour shards with pending records or a replay list, and (unless minor) closed hours with work due.

    Work is due where a full merge or hourly aggregates are missing, where the aggregates leave out other retractions
    than those in force, and in an upgrade where rows have an older form. Hours that are sealing or sealed are left
    alone (PROTOCOL 14); pending records of sealed hours are listed as late.
    """
    by_hour_shard = _by_hour_shard(pending)
    split = find_split_hours(manifest, by_hour_shard.keys(), context.placement)
    plans = []
    for shard, hour in sorted({*by_hour_shard, *manifest.entries}):
        if manifest.seal(hour) == OPEN:
            of_hour_shard = by_hour_shard.get((shard, hour), ())
            due = context.due(hour) and hour not in split
            plans += _plan_hour_shard(manifest, shard, hour, of_hour_shard, due, context)
    late = tuple(item for item in pending if manifest.seal(item.hour) in (SEALED, EXPIRED))
    return DayPlan(app, day, cell, manifest, tuple(plans), context, late)


def plan_hour(
    app: int,
    hour: int,
    *,
    cell: bytes | None,
    manifest: Manifest,
    pending: Sequence[PendingCommit],
    context: PlanContext,
) -> DayPlan | None:
    """Plans all that one hour lacks in all its shards, even if it is sealing; ``None`` while a metric may be in two."""
    of_hour = [item for item in pending if item.hour == hour]
    by_hour_shard = _by_hour_shard(of_hour)
    if hour in find_split_hours(manifest, by_hour_shard.keys(), context.placement):
        return None
    shards = sorted({shard for shard, other in [*by_hour_shard, *manifest.entries] if other == hour})
    plans = [
        plan
        for shard in shards
        for plan in _plan_hour_shard(manifest, shard, hour, by_hour_shard.get((shard, hour), ()), True, context)
    ]
    return DayPlan(app, hour // limits.DAY_HOURS, cell, manifest, tuple(plans), context)


def find_split_hours(manifest: Manifest, places: Iterable[tuple[int, int]], distribution: PlacementTable) -> set[int]:
    """Hours in which a metric may lie in two shards: while the placement changes, all hours in more than one shard."""
    if distribution.has_one_live_epoch:
        return set()
    shards_of: dict[int, set[int]] = {}
    entries = [place for place, entry in manifest.entries.items() if entry.state.generations or entry.state.replay]
    for shard, hour in [*places, *entries]:
        shards_of.setdefault(hour, set()).add(shard)
    return {hour for hour, shards in shards_of.items() if len(shards) > 1}


def _by_hour_shard(waiting: Iterable[PendingCommit]) -> dict[tuple[int, int], tuple[PendingCommit, ...]]:
    groups: dict[tuple[int, int], list[PendingCommit]] = {}
    for item in waiting:
        groups.setdefault((item.key.shard, item.hour), []).append(item)
    return {place: tuple(items) for place, items in groups.items()}


def _plan_hour_shard(
    manifest: Manifest, shard: int, hour: int, pending: Sequence[PendingCommit], due: bool, context: PlanContext
) -> list[HourShardPlan]:
    entry = manifest.entry(shard, hour)
    kind = _kind(manifest, shard, hour, bool(pending), due, context)
    if kind is None:
        return []
    batches = {Replay(item.key.ingest_ms, item.key.batch) for item in pending}
    hiding = (
        retractions.touching(context.retractions, _with(entry, pending), hour) if due and context.retractions else ()
    )
    return [HourShardPlan(shard, hour, kind, entry, tuple(sorted(batches)), tuple(pending), due, hiding)]


def _with(entry: Entry, pending: Sequence[PendingCommit]) -> Entry:
    """The entry with the stamps and sources that it will have once it holds these pending batches."""
    stamps = [(item.commit.stamp_min_ms, item.commit.stamp_max_ms) for item in pending]
    if entry.stamp_max_ms:
        stamps.append((entry.stamp_min_ms, entry.stamp_max_ms))
    named = [(item.commit.stamp_max_ms, item.commit.messages.sources) for item in pending]
    sources = joined_sources([(entry.stamp_max_ms, entry.sources), *named])
    state = msgspec.structs.replace(entry.state, replay=(*entry.state.replay, Replay(0, 0)))  # anything but empty
    low, high = min((low for low, _ in stamps), default=0), max((high for _, high in stamps), default=0)
    return Entry(state, (), low, high, sources)


def _kind(
    manifest: Manifest, shard: int, hour: int, has_pending: bool, due: bool, context: PlanContext
) -> MergeKind | None:
    state = manifest.entry(shard, hour).state
    generations = len(state.generations)
    many = not generations or generations >= context.thresholds.generations
    if has_pending or state.replay:
        return MergeKind.FULL if due or many else MergeKind.MINOR
    if due and generations > 1:
        return MergeKind.FULL
    if context.upgrade and any(g.form < generation_rows.FORM for g in state.generations):
        return MergeKind.FULL
    old = context.upgrade and shard in manifest.hours and manifest.hours[shard].generation.form < rollup_rows.FORM
    if due and generations and (old or not are_hours_current(manifest, shard, hour, context.retractions)):
        return MergeKind.RECOUNT
    return None


def are_hours_current(manifest: Manifest, shard: int, hour: int, active: Sequence[Retraction]) -> bool:
    """Whether the aggregates in force match the hour shard's state and the present retractions (PROTOCOL 11)."""
    inputs = manifest.valid_inputs(shard, hour)
    return inputs is not None and _leaves_out_right_retractions(manifest, hour, inputs, active, shard)


def _leaves_out_right_retractions(
    manifest: Manifest, hour: int, inputs: HourInputs, active: Sequence[Retraction], shard: int
) -> bool:
    """The aggregates of a sealed hour keep the retractions of their seal, whatever came later (PROTOCOL 23)."""
    if manifest.seal(hour) in (SEALED, EXPIRED):
        return True
    return inputs.retractions == retractions.ids(retractions.touching(active, manifest.entry(shard, hour), hour))


def cut_into_waves(days: Sequence[DayPlan], samples_max: int = limits.ROLL_WAVE_SAMPLES) -> Iterator[list[DayPlan]]:
    """Groups the days that have work into waves below a bound of samples; a day is never cut."""
    wave: list[DayPlan] = []
    for day in days:
        if not day.hour_shards:
            continue
        if wave and sum(d.weight for d in wave) + day.weight > samples_max:
            yield wave
            wave = []
        wave.append(day)
    if wave:
        yield wave


def count_outdated(manifest: Manifest) -> int:
    """How many open hour shards still have rows of an older form, of samples or of hourly aggregates."""
    old = {
        p
        for p, entry in manifest.entries.items()
        if any(g.form < generation_rows.FORM for g in entry.state.generations)
    }
    for shard, pack in manifest.hours.items():
        if pack.generation.form < rollup_rows.FORM:
            old |= {(shard, hour) for hour in pack.hours if manifest.entry(shard, hour).state.generations}
    return sum(manifest.seal(hour) == OPEN for _, hour in old)


# --- days from hours --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StaleDay:
    """A closed day of a shard whose hourly aggregates are all in force but whose daily row is not, and its inputs."""

    shard: int
    day: int
    pack: HourPack
    inputs: bytes
    retractions: bytes
    stamp_max_ms: int


def find_stale_days(month: Month, manifests: Mapping[int, Manifest], context: PlanContext) -> list[StaleDay]:
    """The days of a month to build: all hours closed, all aggregates current, and no equal day in force.

    A day with expired hours stays as it is, and so does a day whose data lies in two shards.
    """
    stale = []
    for day, manifest in sorted(manifests.items()):
        if not context.due((day + 1) * limits.DAY_HOURS - 1) or find_split_hours(manifest, (), context.placement):
            continue
        for shard, pack in sorted(manifest.hours.items()):
            day_to_build = _day(manifest, shard, pack, day, context)
            if day_to_build is not None and not _in_force(month, day_to_build, context):
                stale.append(day_to_build)
    return stale


def _day(manifest: Manifest, shard: int, pack: HourPack, day: int, context: PlanContext) -> StaleDay | None:
    hours = hours_of(manifest, shard)
    inputs = day_fingerprint(hours)
    are_current = all(are_hours_current(manifest, shard, hour, context.retractions) for hour, _ in hours)
    if not inputs or not are_current or any(manifest.seal(hour) in (SEALING, EXPIRED) for hour, _ in hours):
        return None
    hour_inputs = [pack.hours[hour] for hour, _ in hours]
    hidden = retractions.day_fingerprint((hour, pack.hours[hour].retractions) for hour, _ in hours)
    return StaleDay(shard, day, pack, inputs, hidden, max(inputs_of.stamp_max_ms for inputs_of in hour_inputs))


def _in_force(month: Month, stale: StaleDay, context: PlanContext) -> bool:
    days = month.days.get(stale.shard)
    now = days.days.get(stale.day) if days else None
    if days is None or now is None or (now.inputs, now.retractions) != (stale.inputs, stale.retractions):
        return False
    return not (context.upgrade and days.generation.form < rollup_rows.FORM)
