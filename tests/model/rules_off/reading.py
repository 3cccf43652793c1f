"""Rules that writers and readers keep, each with a switch and a history that goes wrong without it."""

import contextlib
import dataclasses
import itertools
import tempfile
import threading
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from ingest.writer import WriteBatch, Writer
from rollups.delete import purge
from spm.errors import IntegrityError
from spm.limits import HOUR_MS
from spm.query.rolled.resolutions import RollupReader
from spm.query.view.app_state import AppState
from spm.query.view.decoded_rows import DecodedRows
from spm.query.view.tail import Tail
from spm.query.view.view import View
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN
from spm.store.keys import PlacementTable
from spm.store.ledger import counters
from spm.store.manifest import Manifest
from spm.store.versions import retractions
from spm.store.versions.generations import HourShard, Inputs
from spm.store.versions.quarantine import Quarantine
from spm.wire import Envelope, Stamp
from tests.model.rules_off.switch import Rule, refused, right, world_of
from tests.model.world import APP, DAY, START, World, parsed
from tests.support.faults import Faulty, flip, keys_of

Patch = pytest.MonkeyPatch


def before(store: Faulty, call: str, act: Callable[[], object]) -> None:
    """Let something happen once, just before a call of the store."""
    left = [call]

    def hook(reached: str) -> None:
        if left == [reached]:
            left.clear()
            act()

    store.hook = hook


# --- 1, 6, 24: writing ------------------------------------------------------------------------------------------------


def workers_stamp(patch: Patch) -> None:
    prepare, last = Writer.prepare, itertools.count()

    def stamped(self: Writer, envelopes: Sequence[Envelope]) -> WriteBatch:
        fresh = [dataclasses.replace(e, stamp=Stamp(START + 9_000_000 + next(last), 1, 0)) for e in envelopes]
        return prepare(self, fresh)

    patch.setattr(Writer, "prepare", stamped)


def a_redelivery_after_a_correction() -> None:
    world = World()
    first = world.send((0, 1, 1.0))
    world.send((0, 1, 2.0))
    world.store_again(first)
    right(world)


def pending_first_then_blocks(patch: Patch) -> None:
    prepare = Writer.prepare

    def reversed_steps(self: Writer, envelopes: Sequence[Envelope]) -> WriteBatch:
        batch = prepare(self, envelopes)
        return dataclasses.replace(batch, steps=tuple(reversed(batch.steps)), parts=())

    patch.setattr(Writer, "prepare", reversed_steps)


def a_writer_that_dies_after_its_first_step() -> None:
    world = world_of()
    envelope = world.acceptor.stamp_message(app=APP, source="a", parsed=parsed([(0, 2, 2.0)]), message_id=bytes(16))
    batch = Writer(world.store, PlacementTable()).prepare([envelope])
    world.store.put_new("series", COLUMN, batch.series.rows, batch.steps[:1])
    right(world)  # what was never acked may be missing, but must not stand in the way


# --- 9, 10: the order of reading --------------------------------------------------------------------------------------


def manifests_first(patch: Patch) -> None:
    refreshed, manifests = AppState._refresh_tail, DecodedRows.manifests
    early: dict[int, dict[int, Manifest]] = {}

    def reads_ahead(self: AppState, reader: Reader, *, force: bool) -> object:
        early[id(self.rows)] = manifests(self.rows, reader, range(DAY, DAY + 3))
        return refreshed(self, reader, force=force)

    patch.setattr(AppState, "_refresh_tail", reads_ahead)
    patch.setattr(DecodedRows, "manifests", lambda self, reader, days: early[id(self)])


def a_run_between_the_two_looks_of_a_query() -> None:
    world = World(store := Faulty(MemoryBackend()))
    world.send((0, 1, 1.0))
    before(store, "scan pending", lambda: world.roll())
    assert world.answer() == world.truth
    right(world)


def manifests_are_kept(patch: Patch) -> None:
    manifests = DecodedRows.manifests
    decoded: dict[int, dict[int, Manifest]] = {}

    def decode_once(self: DecodedRows, reader: Reader, days: Sequence[int]) -> dict[int, Manifest]:
        return decoded.setdefault(id(self), manifests(self, reader, range(DAY, DAY + 3)))

    patch.setattr(DecodedRows, "manifests", decode_once)


def a_run_between_two_queries() -> None:
    world = world_of()
    assert world.answer(world.readers) == world.truth
    world.send((0, 2, 2.0))
    world.roll()
    right(world)


def nobody_looks_again(patch: Patch) -> None:
    patch.setattr(View, "raise_if_outdated", lambda self, hour: None)


def a_purge_in_the_middle_of_a_query() -> None:
    world = World(store := Faulty(MemoryBackend()))
    world.send((0, 1, 1.0))
    world.roll()
    world.send((0, 2, 2.0))
    world.roll(minor=True)

    def run_and_purge() -> None:
        world.roll()
        purge.purge(world.store, APP, world.placement.all_shards(APP), keep=0)

    before(store, "get chunks", run_and_purge)
    assert world.answer() == world.truth
    right(world)


def an_empty_directory(patch: Patch) -> None:
    directory = View.directory

    def emptied(self: View, unit: HourShard, generation: object) -> object:
        inputs = directory(self, unit, generation)  # type: ignore[arg-type]
        return msgspec.structs.replace(inputs, pages={}) if isinstance(inputs, Inputs) else inputs

    patch.setattr(View, "directory", emptied)


def a_page_that_is_missing() -> None:
    world = world_of()
    world.roll(minor=True)
    world.store.delete("chunks", [(key, None) for key in keys_of(world.store, "chunks")])
    refused(world.answer, IntegrityError)


def nobody_checks_the_tail(patch: Patch) -> None:
    patch.setattr(View, "_check_tail", lambda self, unit, entry: None)


def a_block_that_is_missing() -> None:
    world = world_of()
    world.store.delete("log", [(key, None) for key in keys_of(world.store, "log")])
    refused(world.answer, IntegrityError)


def an_old_tail_is_good_enough(patch: Patch) -> None:
    refresh = Tail.refresh
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint64)
    patch.setattr(
        Tail, "refresh", lambda self, reader, **how: nothing if self.as_of_ms else refresh(self, reader, **how)
    )


def a_batch_between_two_queries() -> None:
    world = world_of()
    assert world.answer(world.readers) == world.truth
    world.send((0, 2, 2.0))
    right(world)


def damage_is_no_data(patch: Patch) -> None:
    patch.setattr(Quarantine, "report", lambda *args: None)


def a_flipped_bit() -> None:
    world = world_of()
    world.roll(minor=True)
    [page] = keys_of(world.store, "chunks")
    flip(world.store, "chunks", page, b"v")
    reader = world.fresh()
    world.answer(reader)
    assert any("quarantine" in note or "damaged" in note for note in reader.damage()), reader.damage()


# --- 11, 17, 22: hours, retractions, shards --------------------------------------------------------------------------


def hours_of_any_state(patch: Patch) -> None:
    def there(self: RollupReader, shard: int, hour: int) -> bool:
        day = self.view.manifests.get(hour // 24)
        pack = day.hours.get(shard) if day else None
        return pack is not None and hour in pack.hours and (shard, hour) not in self.view.tail.hour_shards()

    patch.setattr(RollupReader, "_hour_is_exact", there)


def a_minor_run_of_late_data() -> None:
    world = world_of()
    world.roll()
    world.send((0, 2, 2.0))
    world.roll(minor=True)
    assert world.hours() == world.recount()


def a_retraction_after_a_run() -> None:
    world = world_of()
    world.send((0, 1, 2.0), source="wrong")
    world.roll()
    world.retract(source="wrong")
    assert world.hours() == world.recount()


def days_of_any_state(patch: Patch) -> None:
    def there(self: RollupReader, shard: int, day: int, in_force: object) -> bool:
        return shard in in_force.days and day in in_force.days[shard].days  # type: ignore[attr-defined]

    patch.setattr(RollupReader, "_day_is_exact", there)


def late_data_in_a_day_that_is_built() -> None:
    world = world_of()
    world.roll()
    world.send((0, 2, 2.0))
    assert world.days() == world.model.days()


def rollups_are_timeless(patch: Patch) -> None:
    patch.setattr(RollupReader, "_shows_all_to", lambda self, stamp_max_ms: True)


def an_earlier_moment_after_a_run() -> None:
    world = world_of()
    then = world.clock.now_ms()
    world.send((0, 1, 2.0))
    world.roll()
    assert world.days(world.fresh().asof(then)) == world.model.days(then)
    assert world.hours(world.fresh().asof(then)) == world.model.hours(then)


def an_undo_deletes(patch: Patch) -> None:
    end = retractions.end

    def deleted(store: Backend, app: int, number: int, now_ms: int) -> object:
        ended = end(store, app, number, now_ms)
        store.delete("retractions", [(keys.retraction(app, number), None)])
        return ended

    patch.setattr(retractions, "end", deleted)


def a_moment_between_retraction_and_undo() -> None:
    world = world_of()
    number = world.retract()
    then = world.clock.now_ms()
    world.undo(number)
    assert world.answer(world.fresh().asof(then)) == world.model.raw(then) == {}
    right(world)


def only_the_newest_epoch(patch: Patch) -> None:
    patch.setattr(PlacementTable, "all_shards", lambda self, app: sorted(self.newest.all_shards(app)))


def a_new_epoch() -> None:
    world = world_of((0, 1, 1.0), (1, 1, 1.0), (2, HOUR_MS + 1, 1.0))
    epochs.open_epoch(world.store, APP, function="byte", shards=8, spread=8)
    right(world)


def shards_apart(patch: Patch) -> None:
    plan = View.plan
    patch.setattr(View, "plan", lambda *args: dataclasses.replace(plan(*args), disjoint=True))


def late_data_under_a_new_epoch() -> None:
    world = world_of((0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0))
    world.roll()
    epochs.open_epoch(world.store, APP, function="byte", shards=16, spread=16)
    world.writer = Writer(world.store, epochs.read(world.store, APP))
    world.send((0, 2, 2.0), (1, 2, 2.0), (2, 1, 2.0))
    right(world)


# --- 25: LMDB ---------------------------------------------------------------------------------------------------------


def two_transactions(patch: Patch) -> None:
    pause = threading.Barrier(2)

    def torn(self: LmdbBackend, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        [row] = self.get(table, [key], [column])
        with contextlib.suppress(threading.BrokenBarrierError):
            pause.wait(0.05)
        if (row[column] if row else None) != expected:
            return False
        self.put([(table, [(key, {column: value})])])
        return True

    patch.setattr(LmdbBackend, "check_and_put", torn)


def two_threads_draw_numbers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = LmdbBackend(folder, map_bytes=1 << 24)
        drawn: list[int] = []

        def draw() -> None:
            drawn.extend(counters.take(store, b"runs", below=1_000) for _ in range(4))

        threads = [threading.Thread(target=draw) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
        assert sorted(drawn) == list(range(1, 9))


RULES = (
    Rule("accept_stamp", "workers stamp what they write", workers_stamp, a_redelivery_after_a_correction),
    Rule("append order", "commit record first", pending_first_then_blocks, a_writer_that_dies_after_its_first_step),
    Rule("pending_first", "manifests are read first", manifests_first, a_run_between_the_two_looks_of_a_query),
    Rule("fresh_manifest", "manifests are kept", manifests_are_kept, a_run_between_two_queries),
    Rule("recheck", "nobody looks again", nobody_looks_again, a_purge_in_the_middle_of_a_query),
    Rule("directory", "a missing page is no data", an_empty_directory, a_page_that_is_missing),
    Rule("missing blocks", "a missing block is no data", nobody_checks_the_tail, a_block_that_is_missing),
    Rule("tail cache", "a tail is never read again", an_old_tail_is_good_enough, a_batch_between_two_queries),
    Rule("quarantine", "damage is no data", damage_is_no_data, a_flipped_bit),
    Rule("stamp_match", "hours of any state will do", hours_of_any_state, a_minor_run_of_late_data),
    Rule("stamp_match of retractions", "the same", hours_of_any_state, a_retraction_after_a_run),
    Rule("days", "days of any state will do", days_of_any_state, late_data_in_a_day_that_is_built),
    Rule("rollups as of", "rollups answer any moment", rollups_are_timeless, an_earlier_moment_after_a_run),
    Rule("undo_keeps", "an undo deletes its row", an_undo_deletes, a_moment_between_retraction_and_undo),
    Rule("epoch_union", "only the newest epoch's shards", only_the_newest_epoch, a_new_epoch),
    Rule("cross_raw", "shards never share a metric", shards_apart, late_data_under_a_new_epoch),
    Rule("one transaction", "LMDB reads, then writes", two_transactions, two_threads_draw_numbers),
)
