"""Deletes the samples that a retraction hides for good, after which it cannot be undone (PROTOCOL 17).

Enter by ``erase_retracted``; ``preview`` says what it would do. In order: mark the retraction as being erased, so that
nobody can undo it; write each touched hour shard again without the versions that this retraction hides (those that
other retractions hide stay); publish the day with the histories of those hour shards cut, by one check-and-put that is
never rebased; then delete generations, blocks and packs that no manifest names any more. If it is killed, the next call
continues. The samples of sealed hours are deleted already; their aggregates stay. Dead letters are not touched.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from rollups.compute import sink, source
from rollups.compute.task import RetractedSeries
from rollups.crash_points import Hook, ignore_point
from rollups.decide import plan as planning
from rollups.decide.plan import MergeKind, PendingCommit
from rollups.decide.superseded import states_of
from rollups.decide.work import HourShardTask, generation_number
from rollups.delete import purge
from rollups.delete.purge import PurgeResult
from rollups.manifest import cells, publish
from rollups.run import agenda, survey
from rollups.run.survey import Survey
from spm import limits
from spm.arrays import BOOL
from spm.clock import random_u64
from spm.errors import CorruptBlock, IntegrityError, Refused
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.encoding import kernels
from spm.store.encoding.blocks import Messages
from spm.store.manifest import OPEN, Entry, Generation, HourInputs, Manifest, Replay, State, fingerprint
from spm.store.versions import generations as versions_generations
from spm.store.versions import retractions
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import EMPTY, Piece, merge
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility

_READ_ERRORS = (IntegrityError, CorruptBlock)
_Place = tuple[int, int]  # shard, hour


@dataclass(slots=True)
class ErasureResult:
    """What an erasure deleted, or would delete."""

    number: int
    hour_shards: int = 0  # written again
    versions: int = 0  # stored versions that were deleted for good
    samples: int = 0  # versions of these hour shards that stay
    deletions: PurgeResult = field(default_factory=PurgeResult)  # rows and bytes deleted
    sealed_hours: tuple[int, ...] = ()  # hours in its range that it cannot reach
    errors: list[str] = field(default_factory=list)  # of hour shards that remain: call it again


def preview(store: Backend, app: int, number: int) -> ErasureResult:
    """Says what ``erase_retracted`` would do now: versions to delete, and the rows and bytes that hold them."""
    retraction = _find(store, app, number)
    result = ErasureResult(number)
    survey_result = survey.read_survey(store, app)
    retracted = RetractedSeries(store)
    for day, value in _days(store, app, retraction, survey_result).items():
        for place in _touched_hour_shards(value, survey_result, day, retraction):
            hour_shard = _read(store, app, place, value, survey_result, retraction, retracted, result)
            if hour_shard is not None:
                _measure(store, app, place, value, hour_shard.batches, result)
        result.sealed_hours += _sealed(day, value, retraction)
    return result


def erase_retracted(
    store: Backend,
    app: int,
    number: int,
    *,
    now_ms: int,
    run: int | None = None,
    at: Hook = ignore_point,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> ErasureResult:
    """Deletes the samples that the retraction hides. Raises ``Refused`` if it is not in force.

    ``watch`` gets the days done and the days in all. Repeat the call after a crash, and while it reports errors.
    """
    again = bool(_find(store, app, number).erased_ms)
    retraction = retractions.mark_erased(store, app, number, now_ms)
    at("erasure marked")
    result = ErasureResult(number)
    numbers = _numbers(cells.take_run(store) if run is None else run)
    retracted = RetractedSeries(store)
    days = sorted(_days(store, app, retraction, survey.read_survey(store, app)))
    touched = []
    for at_day, day in enumerate(days, 1):
        if _rewrite_day(store, app, day, retraction, numbers, retracted, result, now_ms=now_ms, at=at):
            touched.append(day)
        watch(at_day, len(days))
    to_purge = set(days if again else touched)  # a call that was killed may have left rows in any of its days
    if to_purge:
        result.deletions = purge.purge(store, app, keep=limits.HISTORY_MAX, days=to_purge, at=at)
    if result.deletions.busy:
        result.errors.append(f"{result.deletions.busy} day(s) kept changing: their rows go with the next call")
    return result


def _find(store: Backend, app: int, number: int) -> Retraction:
    retraction = next((r for r in retractions.read(store, app) if r.number == number), None)
    if retraction is None:
        raise Refused(f"there is no retraction {number} in this app")
    if not retraction.active():
        raise Refused(f"retraction {number} is not in force", remedy="Only retracted samples can be erased.")
    return retraction


def _numbers(run: int) -> Iterator[int]:
    attempt = 0
    while True:
        attempt += 1
        yield generation_number(run, attempt)


# --- which hour shards ------------------------------------------------------------------------------------------------


def _days(store: Backend, app: int, retraction: Retraction, survey_result: Survey) -> dict[int, Manifest]:
    """The days in its range that have any data. Pending records were listed before (PROTOCOL 9)."""
    first, last = agenda.days_of(retraction)
    existing = {**dict.fromkeys(survey_result.pending), **cells.scan_cells(store, app)}
    return survey.decode_manifests(app, {day: cell for day, cell in existing.items() if first <= day <= last})


def _touched_hour_shards(value: Manifest, survey_result: Survey, day: int, retraction: Retraction) -> list[_Place]:
    """The open hour shards that may hold samples it hides, in generations, on a replay list or pending."""
    places = {
        (shard, hour)
        for (shard, hour), entry in value.entries.items()
        if retractions.touching([retraction], entry, hour)
    }
    for item in survey_result.pending.get(day, ()):
        commit = item.commit
        if retraction.touches(item.hour, commit.stamp_min_ms, commit.stamp_max_ms, commit.messages.sources):
            places.add((item.key.shard, item.hour))
    return sorted(place for place in places if value.seal(place[1]) == OPEN)


def _sealed(day: int, value: Manifest, retraction: Retraction) -> tuple[int, ...]:
    return tuple(
        hour
        for hour, seal in sorted(value.seals.items())
        if seal != OPEN
        and any(
            retraction.touches(hour, e.stamp_min_ms, e.stamp_max_ms, e.sources)
            for (_, other_hour), e in value.entries.items()
            if other_hour == hour
        )
    )


# --- one hour shard ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HourShardRows:
    """An hour shard without the versions to delete, ready to be written."""

    place: _Place
    piece: Piece
    parents: tuple[int, ...]
    batches: frozenset[Replay]
    pending: tuple[PendingCommit, ...]


def _read(
    store: Backend,
    app: int,
    place: _Place,
    value: Manifest,
    survey_result: Survey,
    retraction: Retraction,
    retracted: RetractedSeries,
    result: ErasureResult,
) -> _HourShardRows | None:
    """Reads an hour shard with its pending blocks; ``None`` if nothing in it is to be deleted, or it cannot be read."""
    shard, hour = place
    state = value.entry(shard, hour).state
    waiting = tuple(w for w in survey_result.pending.get(hour // DAY_HOURS, ()) if (w.key.shard, w.hour) == place)
    fresh = tuple(sorted({Replay(w.key.ingest_ms, w.key.batch) for w in waiting}))
    task = HourShardTask(app, shard, hour, MergeKind.FULL, state.generations, state.replay, fresh, 0, wants_hours=False)
    try:
        merge_input = source.read_hour_shard(store, task)
        piece = merge(merge_input.pieces)
    except _READ_ERRORS as error:
        result.errors.append(f"{type(error).__name__}: {error}")
        return None
    visible = Visibility((retraction,), retracted.of_app(app)).visible_rows(piece)
    if visible is None:
        return None
    result.hour_shards += 1
    result.versions += int((~visible).sum())
    result.samples += int(visible.sum())
    return _HourShardRows(place, narrow_to_rows(piece, visible), merge_input.parents, merge_input.batches, waiting)


def narrow_to_rows(piece: Piece, rows: BOOL) -> Piece:
    """The piece with these rows only, and only the series, messages and sources that they name."""
    if not rows.any():
        return EMPTY
    owner = kernels.spread(piece.counts, len(piece))[rows]
    counts = np.bincount(owner, minlength=len(piece.series)).astype(np.int32)
    has_rows = counts > 0
    used, message = np.unique(piece.message[rows], return_inverse=True)
    table = piece.messages
    named, sources = np.unique(table.source[used], return_inverse=True)
    messages = Messages(
        table.ms[used],
        table.process[used],
        table.sequence[used],
        sources.astype(np.int32),
        tuple(table.sources[i] for i in named),
    )
    return Piece(
        messages,
        piece.series[has_rows],
        piece.metrics[has_rows],
        counts[has_rows],
        message.astype(np.int32),
        piece.ts[rows],
        piece.values[rows],
    )


# --- one day ----------------------------------------------------------------------------------------------------------


def _rewrite_day(
    store: Backend,
    app: int,
    day: int,
    retraction: Retraction,
    numbers: Iterator[int],
    retracted: RetractedSeries,
    result: ErasureResult,
    *,
    now_ms: int,
    at: Hook,
) -> bool:
    """Writes and publishes the day's touched hour shards; returns whether any were sent, even with unknown outcome."""
    sent = False
    for _ in range(limits.SEAL_TRIES):
        survey_result = survey.read_survey(store, app)  # pending records, then the manifest (PROTOCOL 9)
        cell = cells.read_cell(store, "manifest", keys.manifest(app, day))
        value = manifest.decode(cell)
        attempt = ErasureResult(retraction.number)
        written = []
        for place in _touched_hour_shards(value, survey_result, day, retraction):
            hour_shard = _read(store, app, place, value, survey_result, retraction, retracted, attempt)
            if hour_shard is not None:
                written.append((hour_shard, _write(store, app, hour_shard, next(numbers), at)))
        after = _after(value, written, survey_result.active)
        is_published = (
            not written
            or cells.swap(store, keys.manifest(app, day), cell, manifest.encode(after), cells.has_nonce(after.nonce))[0]
        )
        sent = sent or bool(written)
        if is_published:
            _add(result, attempt)
            result.sealed_hours += _sealed(day, value, retraction)
            if written:
                at("erasure published")
            if sent:
                # Its days must be built again, and its hours where they were stale.
                agenda.mark_due(store, app, [day], now_ms)
            if written:
                publish.settle(store, app, [item for hour_shard, _ in written for item in hour_shard.pending], at)
            return sent
    result.errors.append(f"the manifest of day {day} of app {app} kept changing")
    return False


def _add(result: ErasureResult, attempt: ErasureResult) -> None:
    result.hour_shards += attempt.hour_shards
    result.versions += attempt.versions
    result.samples += attempt.samples
    result.errors += attempt.errors


def _write(store: Backend, app: int, hour_shard: _HourShardRows, number: int, at: Hook) -> Generation:
    place = HourShard(hour_shard.place[0], app, hour_shard.place[1])
    pages = versions_generations.paginate(
        place, number, hour_shard.piece, parents=hour_shard.parents, batches=hour_shard.batches
    )
    sink.write_hour_shard(store, pages, at)
    return pages.generation


def _after(
    value: Manifest, written: Sequence[tuple[_HourShardRows, Generation]], active: Sequence[Retraction]
) -> Manifest:
    """The manifest with these hour shards in force, without their histories, and with a fence against runs in progress.

    Hour shards from which the hours were moved lose their histories as well, because those hold deleted samples too.
    Aggregates that were current stay in force: they never counted deleted samples, so only their fingerprint changes.
    """
    entries, hour_rows = dict(value.entries), dict(value.hours)
    for hour_shard, generation in written:
        shard, hour = hour_shard.place
        entry = _entry(hour_shard.piece, generation)
        entries[hour_shard.place] = entry
        pack = hour_rows.get(shard)
        if pack is not None and not hour_shard.pending and planning.are_hours_current(value, shard, hour, active):
            left_out = retractions.ids(retractions.touching(active, entry, hour))
            of = HourInputs(fingerprint(entry.state), left_out, pack.hours[hour].stamp_max_ms)
            hour_rows[shard] = msgspec.structs.replace(pack, hours={**pack.hours, hour: of})
    hours = {hour_shard.place[1] for hour_shard, _ in written}
    for place, entry in entries.items():
        if place[1] in hours and entry.state == State():
            entries[place] = msgspec.structs.replace(entry, history=())
    nonce = random_u64()
    return Manifest(nonce, nonce, entries, hour_rows, value.seals)


def _entry(piece: Piece, generation: Generation) -> Entry:
    stamps = piece.messages.ms
    low, high = (int(stamps.min()), int(stamps.max())) if len(stamps) else (0, 0)
    return Entry(State((generation,), ()), (), low, high, tuple(sorted(piece.messages.sources)))


def _measure(
    store: Backend, app: int, place: _Place, value: Manifest, batches: frozenset[Replay], result: ErasureResult
) -> None:
    """Adds the rows and bytes of an hour shard: generations in force and in history, and blocks."""
    shard, hour = place
    generations = {g for state in states_of(value.entry(shard, hour)) for g in state.generations}
    for generation in generations:
        inputs = versions_generations.read_inputs(store, HourShard(shard, app, hour), generation)
        if inputs is None:
            continue
        names = purge.pages_of(app, (shard, hour, generation.number), inputs)
        for table in ("chunks", "timelines"):
            result.deletions.add(table, "superseded", *purge.measure_rows(store, table, names[table]))
        inputs_keys = [keys.inputs(shard, app, hour, generation.number)]
        result.deletions.add("inputs", "superseded", *purge.measure_rows(store, "inputs", inputs_keys))
    names_of = [keys.LogKey(shard, app, hour, r.ingest_ms, r.batch).to_bytes() for r in sorted(batches)]
    result.deletions.add("log", "covered", *purge.measure_rows(store, "log", names_of))
