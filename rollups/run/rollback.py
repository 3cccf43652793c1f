"""Takes a run back: its units return to the state before it, by one check-and-put per (app, day) (rule 18).

Nothing is deleted and no pending record is touched: the batches of the rolled-back generations go to the unit's replay
list, where readers and the next full run find them. A run is rolled back in all its units or not at all; a run on which
later ones stand is refused until they are rolled back, newest first. Enter by ``roll_back``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rollups.crash_points import Hook, nowhere
from rollups.manifest import cells
from rollups.run import agenda
from spm import limits
from spm.clock import random_u64
from spm.errors import Refused, StoreUnavailable
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import OPEN, Entry, Generation, Manifest, Replay, State
from spm.store.versions import generations as units
from spm.store.versions.generations import HourShardData

UnitKey = tuple[int, int]  # shard, hour


@dataclass(frozen=True, slots=True)
class RolledBack:
    """One (app, day) that is back in its former state."""

    app: int
    day: int
    units: int


def roll_back(
    store: Backend, run: int, apps: Sequence[int], at: Hook = nowhere, *, dry_run: bool = False
) -> list[RolledBack]:
    """Roll a run back in all apps and days, or raise ``Refused`` where a rule forbids it. Repeat it after a crash.

    ``dry_run``: only say what would return.
    """
    found = {app: cells.scan_cells(store, app) for app in apps}
    touched = [(app, day) for app, days in found.items() for day, cell in days.items() if _tops(cell, run)]
    buried = {r for days in found.values() for cell in days.values() for r in _above(manifest.decode(cell), run)}
    if buried:
        later = ", ".join(map(str, sorted(buried, reverse=True)))
        raise Refused(f"later runs stand on run {run}", got=f"runs {later}", remedy="Roll those back first.")
    if not touched:
        raise Refused(
            f"run {run} is in no history",
            remedy="It was rolled back, only counted hours and days anew, or a purge has cut it away.",
        )
    if dry_run:
        return [RolledBack(app, day, len(_tops(found[app][day], run))) for app, day in touched]
    for app, days in found.items():
        agenda.mark(store, app, [day for day in days if (app, day) in touched])  # for the next full run, some day
    at("roll back noted")
    done = []
    for app, day in touched:
        done.append(RolledBack(app, day, _one_day(store, run, app, day)))
        at("rolled back")
    return done


def _one_day(store: Backend, run: int, app: int, day: int) -> int:
    """Plan from the cell as it stands and swap it; when others were faster, plan again from theirs."""
    key = keys.manifest(app, day)
    for _ in range(limits.ROLL_REPLANS_MAX):
        cell = cells.read_cell(store, "manifest", key)
        now = manifest.decode(cell)
        tops = tops_of(now, run)
        if not tops:
            return 0
        value = without(now, run, {unit: _batches_lost(store, app, unit, now) for unit in tops}, random_u64())
        if cells.swap(store, key, cell, manifest.encode(value), cells.holds(value.nonce))[0]:
            return len(tops)
    raise StoreUnavailable(f"the manifest of day {day} of app {app} kept moving: try again")


def tops_of(now: Manifest, run: int) -> list[UnitKey]:
    """The units whose last change is the run's; raises ``Refused`` where a rule forbids to take it back."""
    tops = [unit for unit, entry in now.entries.items() if entry.history and entry.history[-1].run == run]
    for unit in tops:
        entry = now.entries[unit]
        if now.seal(unit[1]) != OPEN:
            raise Refused(f"hour {unit[1]} is sealed or being sealed", remedy="Its state is final.")
        if not set(entry.history[-1].together) <= set(tops):
            raise Refused(f"run {run} moved data between shards, and a later run stands on a part of it")
    return tops


def without(now: Manifest, run: int, lost: dict[UnitKey, set[Replay]], nonce: int) -> Manifest:
    """The manifest after the roll back; ``lost``: batches inside the present generations but not the former ones."""
    entries = dict(now.entries)
    for unit, batches in lost.items():
        entries[unit] = entry_before(entries[unit], batches)
    return msgspec.structs.replace(now, nonce=nonce, entries=entries)


def entry_before(entry: Entry, lost: set[Replay]) -> Entry:
    """A unit's entry with its last change taken back. What nobody holds any more is replayed from its block."""
    former = entry.history[-1]
    replay = {*former.state.replay, *entry.state.replay, *lost}
    state = State(former.state.generations, tuple(sorted(replay)))
    return msgspec.structs.replace(entry, state=state, history=entry.history[:-1])


def _batches_lost(store: Backend, app: int, unit: UnitKey, now: Manifest) -> set[Replay]:
    entry = now.entries[unit]
    place = HourShardData(unit[0], app, unit[1])
    lost = batches(store, place, entry.state.generations) - batches(store, place, entry.history[-1].state.generations)
    names = [keys.LogKey(place.shard, app, place.hour, r.ingest_ms, r.batch).to_bytes() for r in sorted(lost)]
    if names and any(row is None for row in store.get("log", names, [cells.COLUMN])):
        raise Refused(f"blocks of {place} are gone", remedy="A purge has taken what this roll back would need.")
    return lost


def batches(store: Backend, place: HourShardData, generations: Sequence[Generation]) -> set[Replay]:
    """Every batch inside these generations; raises ``Refused`` when their inputs are gone."""
    inside: set[Replay] = set()
    for generation in generations:
        inputs = units.read_inputs(store, place, generation)
        if inputs is None:
            raise Refused(f"generation {generation.number:016x} of {place} is gone")
        inside |= set(inputs.batches)
    return inside


def _tops(cell: bytes, run: int) -> list[UnitKey]:
    return tops_of(manifest.decode(cell), run)


def _above(now: Manifest, run: int) -> set[int]:
    """The runs that came after this one on any of its units."""
    later: set[int] = set()
    for entry in now.entries.values():
        runs = [former.run for former in entry.history]
        if run in runs:
            later |= set(runs[runs.index(run) + 1 :]) - {run}
    return later
