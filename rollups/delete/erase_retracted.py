"""Deletes for good what a retraction hides: an explicit act of its own, after which no undo is possible (rule 17).

Enter by ``shred``; ``preview`` says what it would do. In order: note in the retraction that its samples go, so that
nobody undoes it meanwhile; write each touched unit anew without the versions that this retraction hides (what others
hide stays); put the day into force with the histories of those units cut, by one check-and-put that is never rebased;
then delete generations, blocks and packs that nobody names any more. Whatever kills it, the next call goes on. Samples
of sealed hours are gone already; their hours stay. Dead letters are no samples and have doors of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from rollups.compute import sink, source
from rollups.compute.task import Chosen
from rollups.crash_points import Hook, nowhere
from rollups.decide import plan as planning
from rollups.decide.plan import Kind, Waiting
from rollups.decide.superseded import states
from rollups.decide.work import UnitTask, generation_number
from rollups.delete import purge
from rollups.delete.purge import Purged
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
from spm.store.versions import generations as units
from spm.store.versions import retractions
from spm.store.versions.generations import HourShardData
from spm.store.versions.merge import EMPTY, Piece, merge
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Visibility

_TROUBLE = (IntegrityError, CorruptBlock)
_Place = tuple[int, int]  # shard, hour


@dataclass(slots=True)
class Shredded:
    """What went, or would go."""

    number: int
    units: int = 0  # written anew
    versions: int = 0  # stored versions that are gone for good
    samples: int = 0  # versions of the same units that stay
    gone: Purged = field(default_factory=Purged)  # rows and bytes deleted
    sealed: tuple[int, ...] = ()  # hours in its range that it cannot reach
    troubles: list[str] = field(default_factory=list)  # units left: call it again


def preview(store: Backend, app: int, number: int) -> Shredded:
    """What ``shred`` would do now: versions that go, and the rows and bytes that hold them today."""
    retraction = _find(store, app, number)
    done = Shredded(number)
    found = survey.survey(store, app)
    chosen = Chosen(store)
    for day, value in _days(store, app, retraction, found).items():
        for place in _touched(value, found, day, retraction):
            unit = _read(store, app, place, value, found, retraction, chosen, done)
            if unit is not None:
                _weigh(store, app, place, value, unit.batches, done)
        done.sealed += _sealed(day, value, retraction)
    return done


def shred(
    store: Backend,
    app: int,
    number: int,
    *,
    now_ms: int,
    run: int | None = None,
    at: Hook = nowhere,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Shredded:
    """Delete what the retraction hides. Raises ``Refused`` when it is not in force. ``watch``: days done, days in all.

    Repeat it after a crash, and while it tells of troubles.
    """
    again = bool(_find(store, app, number).purged_ms)
    retraction = retractions.mark_purged(store, app, number, now_ms)
    at("purge marked")
    done = Shredded(number)
    numbers = _numbers(cells.take_run(store) if run is None else run)
    chosen = Chosen(store)
    days = sorted(_days(store, app, retraction, survey.survey(store, app)))
    touched = []
    for at_day, day in enumerate(days, 1):
        if _rewrite_day(store, app, day, retraction, numbers, chosen, done, now_ms=now_ms, at=at):
            touched.append(day)
        watch(at_day, len(days))
    gone = set(days if again else touched)  # a call that was killed may have left rows in any of its days
    if gone:
        done.gone = purge.purge(store, app, keep=limits.HISTORY_MAX, days=gone, at=at)
    if done.gone.busy:
        done.troubles.append(f"{done.gone.busy} day(s) kept changing: their rows go with the next call")
    return done


def _find(store: Backend, app: int, number: int) -> Retraction:
    found = [r for r in retractions.read(store, app) if r.number == number]
    if not found:
        raise Refused(f"there is no retraction {number} in this app")
    if not found[0].active():
        raise Refused(f"retraction {number} is not in force", remedy="Only what is retracted can be purged.")
    return found[0]


def _numbers(run: int) -> Iterator[int]:
    attempt = 0
    while True:
        attempt += 1
        yield generation_number(run, attempt)


# --- which units ------------------------------------------------------------------------------------------------------


def _days(store: Backend, app: int, retraction: Retraction, found: Survey) -> dict[int, Manifest]:
    """The days in its range that have any data. Pending cells were listed before (rule 9)."""
    first, last = agenda.days_of(retraction)
    there = {**dict.fromkeys(found.waiting), **cells.scan_cells(store, app)}
    return survey.decoded(app, {day: cell for day, cell in there.items() if first <= day <= last})


def _touched(value: Manifest, found: Survey, day: int, retraction: Retraction) -> list[_Place]:
    """Open units that may hold something it hides, in generations, on a replay list or pending."""
    places = {
        (shard, hour)
        for (shard, hour), entry in value.entries.items()
        if retractions.touching([retraction], entry, hour)
    }
    for item in found.waiting.get(day, ()):
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
            for (_, held), e in value.entries.items()
            if held == hour
        )
    )


# --- one unit ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit without what goes, ready to be written."""

    place: _Place
    piece: Piece
    parents: tuple[int, ...]
    batches: frozenset[Replay]
    waiting: tuple[Waiting, ...]


def _read(
    store: Backend,
    app: int,
    place: _Place,
    value: Manifest,
    found: Survey,
    retraction: Retraction,
    chosen: Chosen,
    done: Shredded,
) -> _Unit | None:
    """All of a unit, pending blocks too; ``None`` when there is nothing in it that goes, or it cannot be read."""
    shard, hour = place
    state = value.entry(shard, hour).state
    waiting = tuple(w for w in found.waiting.get(hour // DAY_HOURS, ()) if (w.key.shard, w.hour) == place)
    fresh = tuple(sorted({Replay(w.key.ingest_ms, w.key.batch) for w in waiting}))
    task = UnitTask(app, shard, hour, Kind.FULL, state.generations, state.replay, fresh, 0, hours=False)
    try:
        held = source.read_unit(store, task)
        piece = merge(held.pieces)
    except _TROUBLE as trouble:
        done.troubles.append(f"{type(trouble).__name__}: {trouble}")
        return None
    kept = Visibility((retraction,), chosen.of(app)).kept(piece)
    if kept is None:
        return None
    done.units += 1
    done.versions += int((~kept).sum())
    done.samples += int(kept.sum())
    return _Unit(place, only(piece, kept), held.parents, held.batches, waiting)


def only(piece: Piece, kept: BOOL) -> Piece:
    """The piece with these rows alone, and only the series, messages and sources that they name."""
    if not kept.any():
        return EMPTY
    owner = kernels.spread(piece.counts, len(piece))[kept]
    counts = np.bincount(owner, minlength=len(piece.series)).astype(np.int32)
    held = counts > 0
    used, message = np.unique(piece.message[kept], return_inverse=True)
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
        piece.series[held],
        piece.metrics[held],
        counts[held],
        message.astype(np.int32),
        piece.ts[kept],
        piece.values[kept],
    )


# --- one day ----------------------------------------------------------------------------------------------------------


def _rewrite_day(
    store: Backend,
    app: int,
    day: int,
    retraction: Retraction,
    numbers: Iterator[int],
    chosen: Chosen,
    done: Shredded,
    *,
    now_ms: int,
    at: Hook,
) -> bool:
    """Put the day's touched units into force anew; whether there were any, perhaps by a flip whose answer was lost."""
    sent = False
    for _ in range(limits.SEAL_TRIES):
        found = survey.survey(store, app)  # pending cells, then the manifest (rule 9)
        cell = cells.read_cell(store, "manifest", keys.manifest(app, day))
        value = manifest.decode(cell)
        tried = Shredded(retraction.number)
        made = []
        for place in _touched(value, found, day, retraction):
            unit = _read(store, app, place, value, found, retraction, chosen, tried)
            if unit is not None:
                made.append((unit, _write(store, app, unit, next(numbers), at)))
        after = _after(value, made, found.active)
        landed = (
            not made
            or cells.swap(store, keys.manifest(app, day), cell, manifest.encode(after), cells.holds(after.nonce))[0]
        )
        sent = sent or bool(made)
        if landed:
            _add(done, tried)
            done.sealed += _sealed(day, value, retraction)
            if made:
                at("purge rewritten")
            if sent:
                agenda.mark(store, app, [day], now_ms)  # its days are to be made anew; its hours, where they were stale
            if made:
                publish.settle(store, app, [item for unit, _ in made for item in unit.waiting], at)
            return sent
    done.troubles.append(f"the manifest of day {day} of app {app} kept moving")
    return False


def _add(done: Shredded, tried: Shredded) -> None:
    done.units += tried.units
    done.versions += tried.versions
    done.samples += tried.samples
    done.troubles += tried.troubles


def _write(store: Backend, app: int, unit: _Unit, number: int, at: Hook) -> Generation:
    place = HourShardData(unit.place[0], app, unit.place[1])
    pages = units.paginate(place, number, unit.piece, parents=unit.parents, batches=unit.batches)
    sink.write_unit(store, pages, at)
    return pages.generation


def _after(value: Manifest, made: Sequence[tuple[_Unit, Generation]], active: Sequence[Retraction]) -> Manifest:
    """The day with these units in force, without their histories, and a fence: no run may bring anything back.

    Nor may units keep theirs from which the same hours were moved: what goes stands there, too.

    Hours that were exact stay in force: they never held what went, so only the name of what they are made of changes.
    """
    entries, hour_rows = dict(value.entries), dict(value.hours)
    for unit, generation in made:
        shard, hour = unit.place
        entry = _entry(unit.piece, generation)
        entries[unit.place] = entry
        pack = hour_rows.get(shard)
        if pack is not None and not unit.waiting and planning.fresh_hours(value, shard, hour, active):
            left_out = retractions.ids(retractions.touching(active, entry, hour))
            of = HourInputs(fingerprint(entry.state), left_out, pack.hours[hour].stamp_max_ms)
            hour_rows[shard] = msgspec.structs.replace(pack, hours={**pack.hours, hour: of})
    hours = {unit.place[1] for unit, _ in made}
    for place, entry in entries.items():
        if place[1] in hours and entry.state == State():
            entries[place] = msgspec.structs.replace(entry, history=())
    nonce = random_u64()
    return Manifest(nonce, nonce, entries, hour_rows, value.seals)


def _entry(piece: Piece, generation: Generation) -> Entry:
    stamps = piece.messages.ms
    low, high = (int(stamps.min()), int(stamps.max())) if len(stamps) else (0, 0)
    return Entry(State((generation,), ()), (), low, high, tuple(sorted(piece.messages.sources)))


def _weigh(
    store: Backend, app: int, place: _Place, value: Manifest, batches: frozenset[Replay], done: Shredded
) -> None:
    """What holds a unit today: generations in force and in history, and blocks."""
    shard, hour = place
    generations = {g for state in states(value.entry(shard, hour)) for g in state.generations}
    for generation in generations:
        made = units.read_inputs(store, HourShardData(shard, app, hour), generation)
        if made is None:
            continue
        names = purge.pages_of(app, (shard, hour, generation.number), made)
        for table in ("chunks", "timelines"):
            done.gone.add(table, "superseded", *purge.weigh(store, table, names[table]))
        inputs = [keys.inputs(shard, app, hour, generation.number)]
        done.gone.add("inputs", "superseded", *purge.weigh(store, "inputs", inputs))
    names_of = [keys.LogKey(shard, app, hour, r.ingest_ms, r.batch).to_bytes() for r in sorted(batches)]
    done.gone.add("log", "covered", *purge.weigh(store, "log", names_of))
