"""Rules that roll backs and purges keep, each with a switch and a history that goes wrong without it."""

import msgspec
import pytest

from rollups.delete import purge
from rollups.manifest import cells
from rollups.run import rollback
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN
from spm.store.ledger import commit_records
from spm.store.manifest import Entry, Replay
from tests.model.rules_off.runs import a_purge_during_a_run
from tests.model.rules_off.switch import Rule, patched, refused, right, world_of
from tests.model.world import APP, World, parsed, versions_of
from tests.support.faults import Faulty

Patch = pytest.MonkeyPatch


# --- 18 to 21: roll back and purge ------------------------------------------------------------------------------------


def only_the_pointer_goes_back(patch: Patch) -> None:
    def before(entry: Entry, lost: set[Replay]) -> Entry:
        return msgspec.structs.replace(entry, state=entry.history[-1].state, history=entry.history[:-1])

    patch.setattr(rollback, "entry_before", before)


def a_roll_back() -> None:
    world = world_of()
    rollback.roll_back(world.store, world.roll().run, [APP])
    right(world)


def nobody_asks_what_stands_on_it(patch: Patch) -> None:
    patch.setattr(rollback, "_later_runs", lambda now, run: set())


def a_roll_back_of_a_run_that_others_stand_on() -> None:
    world = world_of((0, 1, 1.0), (0, HOUR_MS + 1, 2.0))
    first = world.roll(minor=True).run
    world.send((0, 2, 3.0))
    world.roll(minor=True)
    refused(lambda: rollback.roll_back(world.store, first, [APP]), Refused)
    right(world)


def purges_without_a_word(patch: Patch) -> None:
    whole = purge.purge

    def silent(*args: object, **how: object) -> object:
        with patched(cells, "swap", lambda store, key, expected, value, landed: (True, value, True)):
            return whole(*args, **how)  # type: ignore[arg-type]

    patch.setattr(purge, "purge", silent)


def a_purge_in_the_middle_of_a_roll_back() -> None:
    world = World(store := Faulty(MemoryBackend()))
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    run = world.roll().run
    left = ["check manifest"]

    def first(call: str) -> None:
        if left == [call]:
            left.clear()
            purge.purge(world.store, APP, world.placement.all_shards(APP), keep=0)

    store.hook = first
    rollback.roll_back(world.store, run, [APP])
    right(world)


def old_blocks_are_swept(patch: Patch) -> None:
    whole = purge.purge

    def sweeping(store: Backend, app: int, shards: list[int], **how: object) -> object:
        named = {(f.key.log(f.hour)).to_bytes() for f in commit_records.scan(store, app, list(shards))}
        for shard in shards:
            for key, _ in list(store.scan("log", *keys.log_range(shard, app), keys_only=True)):
                if key not in named:
                    store.delete("log", [(key, None)])
        return whole(store, app, shards, **how)  # type: ignore[arg-type]

    patch.setattr(purge, "purge", sweeping)


def a_purge_between_a_block_and_its_commit_record() -> None:
    world = World()
    envelope = world.acceptor.stamp_message(app=APP, source="a", parsed=parsed([(0, 1, 1.0)]), message_id=bytes(16))
    batch = world.writer.prepare([envelope])
    blocks = [step for step in batch.steps if step[0] == "log"]
    world.store.put_new("series", COLUMN, batch.series.rows, blocks)
    purge.purge(world.store, APP, world.placement.all_shards(APP), keep=0)
    world.store.put([step for step in batch.steps if step[0] != "log"])
    world.model.accept(versions_of(envelope))
    right(world)


RULES = (
    Rule("forward_rollback", "the pointer goes back, nothing is replayed", only_the_pointer_goes_back, a_roll_back),
    Rule(
        "newest first",
        "a run is rolled back under others",
        nobody_asks_what_stands_on_it,
        a_roll_back_of_a_run_that_others_stand_on,
    ),
    Rule("floor", "purges delete and tell no manifest", purges_without_a_word, a_purge_in_the_middle_of_a_roll_back),
    Rule("fence_sweep", "the same", purges_without_a_word, a_purge_during_a_run),
    Rule(
        "no_age_sweep",
        "blocks nobody names go by age",
        old_blocks_are_swept,
        a_purge_between_a_block_and_its_commit_record,
    ),
)
