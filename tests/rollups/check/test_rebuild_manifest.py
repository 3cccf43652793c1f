"""Claims about rollups/check/rebuild_manifest.py: a day whose manifest is damaged answers as before, or why not."""

from collections.abc import Callable

import pytest

from rollups.check.findings import DAMAGED, LOST, UNKNOWN, Report
from rollups.check.fsck import fsck
from rollups.crash_points import ignore_point
from rollups.delete.purge import purge
from rollups.run.rollback import roll_back
from spm.limits import FSCK_BLOCK_AGE_MS, HOUR_MS
from spm.store import keys
from spm.store.ledger import dead_letters
from spm.store.manifest import Manifest
from spm.store.versions import generations
from tests.model.world import APP, DAY, START, Crash, World, crash_at
from tests.rollups.check.test_fsck import NOW, filled, rows
from tests.rollups.delete.expiry import expire_app
from tests.support.faults import flip

CELL = keys.manifest(APP, DAY)


def check(world: World) -> Report:
    """A check of the app that rebuilds damaged manifests."""
    return fsck(world.store, APP, now_ms=NOW + FSCK_BLOCK_AGE_MS, rebuild_manifests=True, repair=True)


def damage(world: World) -> Manifest:
    """Flip a bit of the day's manifest; return what it was."""
    before = world.manifest(DAY)
    flip(world.store, "manifest", CELL, b"v")
    return before


def rolled_often() -> World:
    """Several generations, superseded ones among them, blocks that wait, and one value that was corrected."""
    world = filled()
    world.send((0, 1, 1.5), (1, HOUR_MS + 7, 3.0))
    world.roll(minor=True, now_ms=NOW)
    world.send((0, 9, 1.25))
    world.roll(now_ms=NOW)
    world.send((2, 11, 4.0))
    world.roll(minor=True, now_ms=NOW)
    world.send((3, 12, 6.0))
    return world


def rolled_back() -> World:
    """A run was rolled back: its batches are on the replay list."""
    world = filled()
    world.send((0, 1, 1.5))
    world.roll(now_ms=NOW)
    roll_back(world.store, 2, [APP])
    return world


def rolled_back_and_purged() -> World:
    """The batches on the replay list are only in their blocks."""
    world = rolled_back()
    purge(world.store, APP, keep=0)
    assert any(entry.state.replay for entry in world.manifest(DAY).entries.values())
    return world


def killed() -> World:
    """A run was killed before it published: its generations are complete, and no manifest named them."""
    world = filled()
    world.send((0, 1, 1.5))
    with pytest.raises(Crash):
        world.roll(now_ms=NOW, at=crash_at("compacted"))
    return world


def purged() -> World:
    """Superseded generations and compacted blocks are gone."""
    world = rolled_often()
    purge(world.store, APP, keep=0)
    return world


STORIES = [filled, rolled_often, rolled_back, rolled_back_and_purged, killed, purged]


@pytest.mark.parametrize("story", STORIES, ids=lambda each: each.__name__)
def test_a_day_whose_manifest_is_damaged_answers_as_before(story: Callable[[], World]) -> None:
    world = story()
    damage(world)
    report = check(world)
    assert [f.kind for f in report.findings if f.table == "manifest"] == [DAMAGED]
    assert report.status == 0, report.findings
    assert world.answer() == world.truth
    world.roll(now_ms=NOW)
    assert world.answer() == world.truth
    assert check(world).findings == []


def test_without_the_option_a_damaged_manifest_is_only_named() -> None:
    world = filled()
    damage(world)
    report = fsck(world.store, APP, now_ms=NOW + FSCK_BLOCK_AGE_MS, repair=True)
    assert [(f.kind, f.repaired) for f in report.findings if f.table == "manifest"] == [(DAMAGED, False)]


@pytest.mark.parametrize("samples_max", [1, 2, 3])
def test_how_a_generation_is_paged_is_read_from_its_pages(samples_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations.paginate, "__kwdefaults__", {"samples_max": samples_max})
    world = World()
    world.send(*((series, series % 4 + 1, float(series)) for series in range(40)))
    world.roll(now_ms=NOW)
    before = damage(world)
    assert any(g.page_bits for e in before.entries.values() for g in e.state.generations)
    check(world)
    after = world.manifest(DAY)
    assert world.answer() == world.truth
    assert after.fence != before.fence, "no run that planned before may publish"


def test_a_generation_without_a_page_is_left_out_and_what_is_lost_is_named() -> None:
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.5), (2, 3, 5.0))
    world.roll(minor=True, now_ms=START + HOUR_MS // 2)  # without rollup rows
    purge(world.store, APP, keep=0)
    damage(world)
    key, _ = rows(world, "chunks")[0]
    world.store.delete("chunks", [(key, None)])
    report = check(world)
    assert LOST in {finding.kind for finding in report.findings}
    assert report.status == 1
    assert world.answer().items() < world.truth.items()


def test_the_damaged_cell_is_kept() -> None:
    world = filled()
    damage(world)
    [row] = world.store.get("manifest", [CELL])
    assert row is not None
    check(world)
    copies = [dead_letters.decode(cells[b"v"]) for _, cells in world.store.scan("dead", b"", b"\xff" * 40)]
    assert row[b"v"] in [copy.body for copy in copies]


def test_a_day_with_expired_samples_is_not_rebuilt() -> None:
    world = filled()
    expire_app(world, raw=1, at=ignore_point)
    damage(world)
    [before] = world.store.get("manifest", [CELL])
    report = check(world)
    assert UNKNOWN in {finding.kind for finding in report.findings}
    assert world.store.get("manifest", [CELL]) == [before]
