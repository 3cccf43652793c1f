"""Acts on a store by real processes that are killed, beside real processes that read.

A *case* is an act (a run, a roll back, …) on a small LMDB store that was made from a seed: what readers see before and
after it, how often it comes to each point of ``rollups.crash_points``, and the rows it leaves. ``Killer`` takes a copy
of that store, starts a reader, kills a driver at the n-th visit of a point, and lets the reader do the act again.
Processes are forked from a server that has everything loaded, so that a kill costs a fraction of a second.
"""

import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from rollups.crash_points import Hook, from_environment, ignore_point
from rollups.delete import delete_app, erase_retracted, expire, purge
from rollups.delete.expire import RetentionPeriods
from rollups.move.redistribute import close_epoch
from rollups.run import warm_kernels
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from spm.limits import HOUR_MS
from spm.store import epochs as store_epochs
from spm.store import manifest
from spm.store.backends import open_backend
from spm.store.keys import HASH, PlacementTable
from spm.store.versions import generations
from spm.store.versions.generations import HourShard
from tests.model.world import APP, DAY, DAY_MS, START, World

WAIT_S = 120  # for a child of the server, on a machine that does other things too
View = Mapping[tuple[int, int], object]  # an answer: what is told of each (series, time)
Views = Mapping[str, View]  # what readers are told: raw samples, hours, days
_LOOK_EVERY_S = 0.01
_SURVIVED = "survived"  # a file that a driver leaves when it comes to the end of its act
_LOST = 255  # what the server of processes says of an exit code that it has lost, now and then
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Act:
    """What is done, and to what; ``ends``: readers may see it half done, since all that it does is delete.

    ``minor``: doing it again may add a generation; only after a full merge is every byte the same. ``by_hour``: it goes
    hour by hour, so that each hour is old or new.
    """

    prepare: Callable[[World, np.random.Generator], None]
    do: Callable[[World, Hook], object]
    ends: bool = False
    minor: bool = False
    by_hour: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """An act on a store made from a seed, and how it goes when nobody is killed."""

    act: str
    store: Path
    before: Views
    after: Views
    visits: Mapping[str, int]
    rows: object


# --- the acts ---------------------------------------------------------------------------------------------------------


def _fill(world: World, random: np.random.Generator, late: int = 0) -> None:
    """Two messages an hour of four series over three hours; late ones correct some of them."""
    for i in range(6):
        world.send(*((s, i * HOUR_MS // 2 + 1 + s, float(late + random.integers(100))) for s in range(4)))


def _rolled(world: World, random: np.random.Generator) -> None:
    _fill(world, random)
    world.roll()


def _late(world: World, random: np.random.Generator) -> None:
    _rolled(world, random)
    _fill(world, random, late=100)


def _corrected(world: World, random: np.random.Generator) -> None:
    _late(world, random)
    world.retract(metric=int(random.integers(3)), write_to=world.clock.now_ms() - 3)


def _taken_out(world: World, random: np.random.Generator) -> None:
    _corrected(world, random)
    world.roll()


def _twice(world: World, random: np.random.Generator) -> None:
    _late(world, random)
    world.roll()


def _sealed(world: World, random: np.random.Generator) -> None:
    _rolled(world, random)
    _retain(RetentionPeriods(1), world, ignore_point)
    _fill(world, random, late=100)


def _spread(world: World, random: np.random.Generator) -> None:
    _twice(world, random)
    epochs = store_epochs.open_epoch(world.store, APP, function=HASH, shards=4, spread=1)
    world.clock.advance(2_000)
    assert len(epochs.epochs) == 2


def _full(world: World, at: Hook) -> object:
    return world.roll(at=at)


def _minor(world: World, at: Hook) -> object:
    return world.roll(minor=True, at=at)


def _back(world: World, at: Hook) -> None:
    """Roll the newest run back; one that is back already is in no history."""
    runs = [former.run for entry in world.manifest().entries.values() for former in entry.history]
    if 2 in runs:
        roll_back(world.store, 2, [APP], at)


def _purge(world: World, at: Hook) -> object:
    return purge.purge(world.store, APP, keep=0, at=at)


def _erase_retracted(world: World, at: Hook) -> object:
    return erase_retracted.erase_retracted(world.store, APP, 1, now_ms=world.clock.now_ms(), at=at)


def _retain(keep: RetentionPeriods, world: World, at: Hook) -> object:
    return expire.expire(world.driver(at), LocalExecutor(world.store, at), APP, keep, now_ms=START + 9 * DAY_MS)


def _migrate(world: World, at: Hook) -> None:
    world.migrate(at)
    close_epoch(world.store, APP, 0, at)


def _erase(world: World, at: Hook) -> object:
    return delete_app.delete_app(world.store, APP, at=at)


ACTS: dict[str, Act] = {
    "a first run": Act(_fill, _full),
    "a run over late data and a retraction": Act(_corrected, _full),
    "a minor run": Act(_late, _minor, minor=True),
    "a run over what comes too late": Act(_sealed, _full),
    "a roll back": Act(_twice, _back),
    "a purge": Act(_twice, _purge),
    "a retraction is purged": Act(_taken_out, _erase_retracted),
    "raw expires": Act(_late, partial(_retain, RetentionPeriods(1)), by_hour=True),
    "everything expires": Act(_rolled, partial(_retain, RetentionPeriods(1, 2, 3)), ends=True),
    "shards change": Act(_spread, _migrate),
    "an app is erased": Act(_rolled, _erase, ends=True),
}


# --- what readers are told --------------------------------------------------------------------------------------------


def look(world: World) -> Views:
    """Return all answers that a newly started process gets."""
    return {"raw": world.answer(), "hours": world.hours(), "days": world.days()}


def rows_after(world: World, act: str) -> object:
    """The bytes in force when an act is done."""
    if ACTS[act].minor:
        world.roll()
    return rows_in_force(world)


def rows_in_force(world: World) -> object:
    """The bytes of every page that the manifest names, by place but without the numbers of generations."""
    value = world.manifest()
    by_point: dict[object, list[object]] = {}
    for (shard, hour), entry in value.entries.items():
        if value.seal(hour) >= manifest.SEALED:
            continue
        for generation in entry.state.generations:
            inputs = generations.read_inputs(world.store, HourShard(shard, APP, hour), generation)
            assert inputs is not None, "inputs of a generation in force are missing"
            pages = purge.pages_of(APP, (shard, hour, generation.number), inputs)
            rows = [world.store.get(table, pages[table]) for table in ("chunks", "timelines")]
            by_point.setdefault(("unit", shard, hour), []).append(rows)
    for shard, pack in value.hours.items():
        first = DAY * 24
        inputs = generations.read_inputs(world.store, HourShard(shard, APP, first), pack.generation)
        assert inputs is not None, "inputs of hours in force are missing"
        pages = purge.pages_of(APP, (shard, first, pack.generation.number), inputs)
        by_point["hours", shard] = [sorted(pack.hours), world.store.get("hours", pages["hours"])]
    return by_point


# --- the processes ----------------------------------------------------------------------------------------------------


def _world(folder: Path) -> World:
    return World(open_backend(f"lmdb://{folder}"), placement=PlacementTable.single(spread=3))


def _prepare(act: str, folder: Path, seed: int) -> None:
    """Make a store, do the act on a copy of it, and leave the case as a file."""
    act_made = ACTS[act]
    world = _world(folder / "store")
    act_made.prepare(world, np.random.default_rng(seed))
    before = look(world)
    world.store.close()
    shutil.copytree(folder / "store", folder / "done")
    visits: Counter[str] = Counter()

    def counted(point: str) -> None:
        ignore_point(point)
        visits[point] += 1

    world = _opened(folder / "done")
    act_made.do(world, counted)
    case = Case(act, folder / "store", before, look(world), visits, rows_after(world, act))
    (folder / "case").write_bytes(pickle.dumps(case))


def _opened(folder: Path) -> World:
    """A world of a process that comes later: its clock has moved on."""
    world = _world(folder)
    world.clock.advance(60_000)
    return world


def _drive(act: str, folder: Path, crash_at: str) -> None:
    hook = from_environment({"SPM_CRASH_AT": crash_at})
    ACTS[act].do(_opened(folder), hook)
    (folder / _SURVIVED).touch()


def _read(act: str, folder: Path, parent: Connection) -> None:
    """Read until the parent reports that the driver is dead, read once more, repeat the act and read a last time."""
    world = _opened(folder)
    seen = [look(world)]
    parent.send("looking")
    dead = False
    while not dead:
        dead = parent.poll(_LOOK_EVERY_S)
        view = look(world)
        if view not in seen:
            seen.append(view)
    ACTS[act].do(_opened(folder), ignore_point)
    parent.send((seen, look(world), rows_after(world, act)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a kill: whether it happened, all answers the reader got, and the state after the act is repeated.

    A driver that was killed came to no end.
    """

    killed: bool
    seen: list[Views]
    after: Views
    rows: object


class Killer:
    """Makes cases and kills their drivers; everything lies in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.model.kills_preload"])

    def case(self, act: str, seed: int) -> Case:
        """An act on the store of a seed."""
        folder = self._folder / f"case-{next(_NUMBERS)}"
        folder.mkdir()
        code = self._run(_prepare, act, folder, seed)
        whole = code in (0, _LOST) and (folder / "case").exists()  # which it writes last
        assert whole, f"{act} fails although nobody is killed: {code}"
        by_point: Case = pickle.loads((folder / "case").read_bytes())  # noqa: S301 -- our own child's file
        return by_point

    def kill(self, case: Case, point: str, visit: int) -> Outcome:
        """Kill a driver at the n-th visit of a point, and let the reader do its work again."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        shutil.copytree(case.store, folder, dirs_exist_ok=True)
        ours, theirs = self._processes.Pipe()
        reader = self._processes.Process(target=_read, args=(case.act, folder, theirs))
        reader.start()
        theirs.close()
        try:
            assert _received(ours) == "looking"
            code = self._run(_drive, case.act, folder, f"{point}:{visit}")
            killed = code in (-signal.SIGKILL, _LOST) and not (folder / _SURVIVED).exists()
            ours.send("dead")
            seen, after, rows = _received(ours)
            reader.join(WAIT_S)
        finally:
            reader.kill()
            shutil.rmtree(folder, ignore_errors=True)
        return Outcome(killed, seen, after, rows)

    def _run(self, target: Callable[..., None], *words: object) -> int | None:
        process = self._processes.Process(target=target, args=words)
        process.start()
        process.join(WAIT_S)
        code = process.exitcode
        process.kill()
        return code


def _received(end: Connection) -> Any:
    assert end.poll(WAIT_S), "a reader says nothing"
    return end.recv()


def faults(case: Case, outcome: Outcome) -> list[str]:
    """Describe what is wrong with an outcome; empty if it is right."""
    by_point = []
    if not outcome.killed:
        by_point.append("the driver was not killed")
    for name in case.before:
        mixed = [
            view for view in outcome.seen if _is_mixed(ACTS[case.act], case.before[name], view[name], case.after[name])
        ]
        if mixed:
            by_point.append(f"{name}: a reader was told neither the old nor the new answer")
        if outcome.after[name] != case.after[name]:
            by_point.append(f"{name}: after doing it again the answer is another")
    if outcome.rows != case.rows:
        by_point.append("after doing it again other bytes are in force")
    return by_point


def _is_mixed(act: Act, before: View, meanwhile: View, after: View) -> bool:
    if act.ends or meanwhile in (before, after):
        return False
    if not act.by_hour:
        return True
    old, seen, new = _by_hour(before), _by_hour(meanwhile), _by_hour(after)
    return any(seen.get(hour) not in (old.get(hour), new.get(hour)) for hour in {*old, *seen, *new})


def _by_hour(view: View) -> dict[int, dict[object, object]]:
    """Answers of each hour: they are named by (series, time in ms), or by (series, hour or day)."""
    by_point: dict[int, dict[object, object]] = {}
    for (series, when), answer in view.items():
        hour = (when - 1) // HOUR_MS if when > HOUR_MS else when
        by_point.setdefault(hour, {})[series, when] = answer
    return by_point


def warm() -> None:
    """Load what the processes need; in the server that forks them."""
    os.environ.pop("SPM_CRASH_AT", None)
    warm_kernels.warm_up()
    with tempfile.TemporaryDirectory() as folder:
        world = _world(Path(folder))
        _late(world, np.random.default_rng(0))
        look(world)
        world.store.close()
