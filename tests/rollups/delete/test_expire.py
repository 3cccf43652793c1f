"""Claims about expiry: days outlive their hours exactly, and at last only the seals remain."""

import pytest

from rollups.delete.purge import purge
from rollups.run.local import LocalExecutor
from spm.limits import HOUR_MS
from spm.store import manifest
from spm.store.ledger import commit_records
from spm.store.manifest import EXPIRED
from tests.model.world import APP, DAY, START, Crash, World, crash_at, whole_day
from tests.rollups.delete.expiry import DAY_MS, HOURS, LATER, RAW, expire_app, filled, outcomes, rows, with_late_data


def aged() -> World:
    """A day whose samples are gone and whose days are in force."""
    world = filled()
    world.roll(now_ms=LATER)
    expire_app(world)
    for hour in HOURS:
        world.model.seal(hour)
    return world


def test_an_expired_day_answers_from_days_alone() -> None:
    world = aged()
    done = expire_app(world, raw=1, hour=1)
    assert done.expired_days == [DAY]
    assert {world.manifest().seal(hour) for hour in HOURS} == {EXPIRED}
    assert rows(world, "hours") == 0
    assert world.days() == world.model.days()
    assert world.hours() == {}


def test_hours_stay_until_their_day_is_built_from_them() -> None:
    world = with_late_data()
    done = expire_app(world, raw=1, hour=1)
    assert done.expired_days == []
    assert "no daily row is made of all" in done.errors[-1]
    world.roll(now_ms=LATER)
    assert expire_app(world, raw=1, hour=1).expired_days == [DAY]
    assert {n: row for (n, _), row in world.days().items()} == whole_day(world)


@pytest.mark.parametrize("point", ["expired", "hours deleting"])
def test_an_expiry_killed_anywhere_is_finished_by_the_next(point: str) -> None:
    world = aged()
    with pytest.raises(Crash):
        expire_app(world, raw=1, hour=1, at=crash_at(point))
    assert world.days() == world.model.days()
    expire_app(world, raw=1, hour=1)
    assert rows(world, "hours") == 0
    assert world.days() == world.model.days()


def test_no_run_builds_an_expired_day_again() -> None:
    world = aged()
    expire_app(world, raw=1, hour=1)
    world.send((0, 3, 100.0))
    world.driver().roll(LocalExecutor(world.store), [APP], now_ms=LATER + DAY_MS, sweep=True)
    assert world.days() == world.model.days()
    assert outcomes(world, commit_records.EXPIRED_HOUR) == 1


def test_days_go_after_their_time_and_only_the_seals_are_left() -> None:
    world = aged()
    assert expire_app(world, raw=1, hour=1, day=1).dropped_days == [DAY]
    assert rows(world, *RAW, "inputs", "hours", "days") == 0
    assert world.days() == {}
    after = world.manifest()
    assert (after.entries, after.hours, set(after.seals.values())) == ({}, {}, {EXPIRED})
    world.send((0, 3, 100.0))
    expire_app(world, raw=1, hour=1, day=1)
    assert outcomes(world, commit_records.EXPIRED_HOUR) == 1
    assert world.answer() == {}


@pytest.mark.parametrize("point", ["expired", "days dropped", "hours deleting"])
@pytest.mark.parametrize("times", [1, 2])
def test_dropping_days_killed_anywhere_is_finished_by_the_next(point: str, times: int) -> None:
    world = aged()
    try:
        expire_app(world, raw=1, hour=1, day=1, at=crash_at(point, times))
    except Crash:
        expire_app(world, raw=1, hour=1, day=1)
    purge(world.store, APP, keep=0)
    assert rows(world, *RAW, "inputs", "hours", "days") == 0
    assert world.days() == {}


def test_a_month_keeps_the_days_whose_time_has_not_come() -> None:
    world = aged()
    world.send((0, 25 * HOUR_MS, 5.0))
    world.roll(now_ms=LATER)
    expire_app(world, raw=1, hour=1, day=1, now_ms=START + 2 * DAY_MS)
    wanted = {name: row for name, row in world.model.days().items() if name[1] == DAY + 1}
    assert world.days() == wanted != {}


def test_manifests_of_sealed_days_are_read_as_they_were_written() -> None:
    world = aged()
    before = world.manifest()
    assert manifest.decode(manifest.encode(before)) == before
