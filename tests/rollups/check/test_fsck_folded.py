"""What a check says of a ledger of which hours are folded: nothing, unless a folded hour is damaged."""

from ingest.accounting.watermark_keeper import advance_watermarks
from rollups.check.findings import DAMAGED, Report
from rollups.check.fsck import fsck
from spm.limits import FSCK_BLOCK_AGE_MS, HISTORY_MAX, HOUR_MS
from spm.store import epochs
from spm.store.keys import PlacementTable
from spm.store.ledger import folded_hours, watermarks
from spm.store.ledger.folding import fold
from spm.store.ledger.limits import KEPT_MS
from spm.store.ledger.watermarks import Announcement
from spm.wire import Envelope
from tests.model.world import APP, World
from tests.support.faults import flip, keys_of


def check(world: World, *, repair: bool = False) -> Report:
    return fsck(world.store, APP, now_ms=world.clock.now_ms() + FSCK_BLOCK_AGE_MS + 1, repair=repair)


def fold_ledger(world: World, message: Envelope) -> None:
    """Fold the hour of the one message of a world; its ledger rows go, and its blocks stay."""
    stamp = message.stamp
    word = Announcement(stamp.ms, stamp.sequence, 1, len(message), 0, 0, 0, stamp.ms)
    watermarks.announce(world.store, APP, stamp.process, word)
    advance_watermarks(world.store, APP, stamp.ms)
    assert fold(world.store, APP, stamp.ms + KEPT_MS + 2 * HOUR_MS).rows
    assert keys_of(world.store, "log")


def test_a_damaged_folded_hour_is_named_and_an_intact_one_is_no_fault() -> None:
    world = World()
    message = world.send((0, 1, 1.0))
    world.roll()
    fold_ledger(world, message)
    assert check(world).findings == []
    key = folded_hours.key(APP, message.stamp.ms // HOUR_MS)
    flip(world.store, "ledger", key, folded_hours.COLUMN)
    assert [(f.kind, f.table, f.key) for f in check(world).findings] == [(DAMAGED, "ledger", key)]


def test_blocks_that_were_moved_away_are_not_brought_back_although_their_ledger_rows_are_folded() -> None:
    world = World(placement=PlacementTable.single(spread=1))  # all in one shard, where later only m2 belongs
    message = world.send((0, 1, 1.0), (1, 2, 2.0))
    world.roll()
    fold_ledger(world, message)
    epochs.open_epoch(world.store, APP, function="hash", shards=16, spread=3)
    world.migrate()
    for n in range(HISTORY_MAX + 1):  # until no former state knows what was there before
        world.send((2, 30 + n, 3.0))
        world.roll()
    assert check(world, repair=True).findings == []
    assert world.pending_rows() == 0
