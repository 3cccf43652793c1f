"""Rolls a run back: its hour shards return to their former state, by one check-and-put per (app, day) (PROTOCOL 18).

Nothing is deleted and no pending record changes: the batches of the rolled-back generations go to the replay lists,
where readers and the next full run find them. A run is rolled back in all its hour shards or not at all; if later runs
build on it, they must be rolled back first, newest first. Enter by ``roll_back``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rollups.crash_points import Hook, ignore_point
from rollups.manifest import cells
from rollups.run import agenda
from spm import limits
from spm.clock import random_u64
from spm.errors import Refused, StoreUnavailable
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import OPEN, Entry, Generation, Manifest, Replay, State
from spm.store.versions import generations as versions_generations
from spm.store.versions.generations import HourShard

HourShardKey = tuple[int, int]  # shard, hour


@dataclass(frozen=True, slots=True)
class DayRollback:
    """One (app, day) that was returned to its former state, and how many of its hour shards changed."""

    app: int
    day: int
    hour_shards: int


def roll_back(
    store: Backend, run: int, apps: Sequence[int], at: Hook = ignore_point, *, dry_run: bool = False
) -> list[DayRollback]:
    """Rolls a run back in all apps and days; raises ``Refused`` if that is not possible. Repeat it after a crash.

    ``dry_run`` only returns what would change.
    """
    cells_of = {app: cells.scan_cells(store, app) for app in apps}
    days_to_change = [
        (app, day) for app, days in cells_of.items() for day, cell in days.items() if _entries_in(cell, run)
    ]
    later_runs = {
        r for days in cells_of.values() for cell in days.values() for r in _later_runs(manifest.decode(cell), run)
    }
    if later_runs:
        later = ", ".join(map(str, sorted(later_runs, reverse=True)))
        raise Refused(f"later runs build on run {run}", got=f"runs {later}", remedy="Roll those back first.")
    if not days_to_change:
        raise Refused(
            f"run {run} is in no history",
            remedy="It was rolled back, it only counted hours and days again, or a purge has cut its history.",
        )
    if dry_run:
        return [DayRollback(app, day, len(_entries_in(cells_of[app][day], run))) for app, day in days_to_change]
    for app, days in cells_of.items():
        agenda.mark_due(store, app, [day for day in days if (app, day) in days_to_change])  # for a later full run
    at("roll back noted")
    done = []
    for app, day in days_to_change:
        done.append(DayRollback(app, day, _roll_back_day(store, run, app, day)))
        at("rolled back")
    return done


def _roll_back_day(store: Backend, run: int, app: int, day: int) -> int:
    """Rolls back one day by check-and-put; on a conflict it plans again from the new cell."""
    key = keys.manifest(app, day)
    for _ in range(limits.PUBLISH_TRIES_MAX):
        cell = cells.read_cell(store, "manifest", key)
        now = manifest.decode(cell)
        hour_shards = entries_to_roll_back(now, run)
        if not hour_shards:
            return 0
        value = without_run(
            now,
            run,
            {hour_shard: _batches_to_replay(store, app, hour_shard, now) for hour_shard in hour_shards},
            random_u64(),
        )
        if cells.swap(store, key, cell, manifest.encode(value), cells.has_nonce(value.nonce))[0]:
            return len(hour_shards)
    raise StoreUnavailable(f"the manifest of day {day} of app {app} kept changing: try again")


def entries_to_roll_back(now: Manifest, run: int) -> list[HourShardKey]:
    """The hour shards whose last change is the run's; raises ``Refused`` if the run cannot be rolled back."""
    last_changed = [
        hour_shard for hour_shard, entry in now.entries.items() if entry.history and entry.history[-1].run == run
    ]
    for hour_shard in last_changed:
        entry = now.entries[hour_shard]
        if now.seal(hour_shard[1]) != OPEN:
            raise Refused(f"hour {hour_shard[1]} is sealed or being sealed", remedy="Its state is final.")
        if not set(entry.history[-1].together) <= set(last_changed):
            raise Refused(f"run {run} moved data between shards, and a later run builds on a part of it")
    return last_changed


def without_run(now: Manifest, run: int, to_replay: dict[HourShardKey, set[Replay]], nonce: int) -> Manifest:
    """The manifest after the roll back; ``to_replay``: batches in the present generations, not in the former."""
    entries = dict(now.entries)
    for hour_shard, batches in to_replay.items():
        entries[hour_shard] = entry_before(entries[hour_shard], batches)
    return msgspec.structs.replace(now, nonce=nonce, entries=entries)


def entry_before(entry: Entry, to_replay: set[Replay]) -> Entry:
    """An entry without its last change. Batches that no generation holds any more are replayed from their blocks."""
    former = entry.history[-1]
    replay = {*former.state.replay, *entry.state.replay, *to_replay}
    state = State(former.state.generations, tuple(sorted(replay)))
    return msgspec.structs.replace(entry, state=state, history=entry.history[:-1])


def _batches_to_replay(store: Backend, app: int, key: HourShardKey, now: Manifest) -> set[Replay]:
    entry = now.entries[key]
    place = HourShard(key[0], app, key[1])
    to_replay = batches(store, place, entry.state.generations) - batches(
        store, place, entry.history[-1].state.generations
    )
    names = [keys.LogKey(place.shard, app, place.hour, r.ingest_ms, r.batch).to_bytes() for r in sorted(to_replay)]
    if names and any(row is None for row in store.get("log", names, [cells.COLUMN])):
        raise Refused(f"blocks of {place} are missing", remedy="A purge has deleted what this roll back would need.")
    return to_replay


def batches(store: Backend, place: HourShard, generations: Sequence[Generation]) -> set[Replay]:
    """Every batch inside these generations; raises ``Refused`` if their inputs rows are missing."""
    inside: set[Replay] = set()
    for generation in generations:
        inputs = versions_generations.read_inputs(store, place, generation)
        if inputs is None:
            raise Refused(f"generation {generation.number:016x} of {place} is missing")
        inside |= set(inputs.batches)
    return inside


def _entries_in(cell: bytes, run: int) -> list[HourShardKey]:
    return entries_to_roll_back(manifest.decode(cell), run)


def _later_runs(now: Manifest, run: int) -> set[int]:
    """The runs that came after this one on any of its hour shards."""
    later: set[int] = set()
    for entry in now.entries.values():
        runs = [former.run for former in entry.history]
        if run in runs:
            later |= set(runs[runs.index(run) + 1 :]) - {run}
    return later
