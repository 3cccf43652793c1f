"""Claims about which shards answer a day together, while and after an app's shards change (PROTOCOL 11, 22, 23).

The first epoch puts all metrics into shard 11; the next ones m0 and m1 into 13 and m2 into 11, or m0 and m2 into 0 and
m1 into 4. A day may be answered by day aggregates only if no metric can lie in two of the shards that answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from rollups.decide.retention import RetentionPeriods, with_seals_only
from rollups.move.redistribute import close_epoch
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.request.provenance import DAYS, HOURS, RAW
from spm.store import epochs, keys, manifest
from spm.store.keys import BYTE, HASH, PlacementTable
from spm.store.manifest import EXPIRED, SEALED
from tests.model.world import APP, DAY, FIRST, NEXT_DAY, World

NARROW = PlacementTable.single(spread=1)
WIDER, BYTES = (HASH, 16, 3), (BYTE, 16, 1)
Shape = tuple[str, int, int]


def narrow() -> World:
    """Three hours of four series of three metrics, rolled up in shard 11."""
    world = World(placement=NARROW)
    for hour in range(3):
        world.send(*((series, hour * HOUR_MS + 1 + series, float(series + hour)) for series in range(4)))
    world.roll()
    return world


def open_to(world: World, shape: Shape) -> None:
    """Open an epoch: writers use its shards from now on."""
    function, shards, spread = shape
    epochs.open_epoch(world.store, APP, function=function, shards=shards, spread=spread)
    world.send((2, 30 * HOUR_MS, 1.0))  # of the next day: by now the writer uses the epoch


def moved(shape: Shape, *, close: bool = True, world: World | None = None) -> World:
    """A world moved to another epoch, with the former one closed."""
    world = world or narrow()
    former = world.spread().newest.number
    open_to(world, shape)
    world.roll()
    world.migrate()
    world.roll()
    if close:
        assert close_epoch(world.store, APP, former).closed
        world.roll()
    return world


def retained(world: World, keep: RetentionPeriods) -> World:
    """Let samples expire, or hours too."""
    world.retain(keep, days_later=4)
    return world


def late_in_one_shard() -> World:
    world = moved(WIDER)
    world.send((0, 77, 9.0))
    return world


def a_metric_in_two() -> World:
    """A world before the move: m0 lies in shard 11 by the former epoch, and in 13 by the newest."""
    world = narrow()
    open_to(world, WIDER)
    world.send((0, 2, 50.0), (0, 1, 60.0))
    world.roll()
    return world


def hours_of_a_metric_in_two() -> World:
    """A day whose first hours lie in shard 11 and a later one in 13; each shard's row of the day is exact for it."""
    world = narrow()
    open_to(world, WIDER)
    world.send(*((series, 5 * HOUR_MS + 1, 7.0) for series in (0, 1, 3)))  # of m0 and m1
    world.roll()
    assert {shard for shard, pack in world.month(DAY).days.items() if DAY in pack.days} == {11, 13}
    return world


def sealed_before_the_move() -> World:
    world = retained(narrow(), RetentionPeriods(raw_days=1))
    open_to(world, BYTES)
    world.roll()
    world.migrate()
    assert close_epoch(world.store, APP, 0).closed
    return world


def expired_with_days_of_before() -> World:
    """A world whose month still names rows of the day in two shards that were emptied: their inputs no longer exist."""
    world = moved((HASH, 16, 1), world=moved(BYTES))  # there and back
    world.send(*((series, 77, 9.0) for series in range(4)))
    world.roll()
    retained(world, RetentionPeriods(raw_days=1, hour_days=2))
    assert EXPIRED in world.manifest().seals.values()
    assert len([b for b, pack in world.month(DAY).days.items() if DAY in pack.days]) == 3
    return world


def expired_and_forgotten() -> World:
    """A world whose manifest no longer says what the day was made of: its row is all that remains, and is used."""
    world = retained(moved(WIDER), RetentionPeriods(raw_days=1, hour_days=2))
    now = world.manifest()
    after = manifest.encode(with_seals_only(now, now.nonce + 1))
    assert world.store.check_and_put("manifest", keys.manifest(APP, DAY), b"v", manifest.encode(now), after)
    return world


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and where the day is answered from."""

    make_world: Callable[[], World]
    resolutions: set[str]


CASES = {
    "one shard": Case(narrow, {DAYS}),
    "two shards, each with its metrics": Case(lambda: moved(WIDER), {DAYS}),
    "two shards that nothing was in before": Case(lambda: moved(BYTES), {DAYS}),
    "two shards while the former epoch is open": Case(lambda: moved(WIDER, close=False), {RAW}),
    "one of two shards has late data": Case(late_in_one_shard, {HOURS, RAW}),
    "a metric in two shards": Case(a_metric_in_two, {RAW, HOURS}),
    "hours of a metric in two shards": Case(hours_of_a_metric_in_two, {HOURS}),
    "sealed in a shard of a closed epoch": Case(sealed_before_the_move, {DAYS}),
    "sealed in two shards": Case(lambda: retained(moved(WIDER), RetentionPeriods(raw_days=1)), {HOURS}),
    "expired in two shards": Case(lambda: retained(moved(WIDER), RetentionPeriods(raw_days=1, hour_days=2)), {DAYS}),
    "expired, with a row of days of before the move": Case(expired_with_days_of_before, {DAYS}),
    "expired, and the manifest no longer says what its days were made of": Case(expired_and_forgotten, {DAYS}),
}


def of_the_day(world: World) -> dict[tuple[int, int], dict[str, float]]:
    return {key: row for key, row in world.days().items() if key[1] == DAY}


def resolutions_of(storage: AppStorage, metric: str = "m.") -> set[str]:
    """Where the day's answer comes from."""
    matchers = [Matcher("__name__", "=~", metric)]
    return {
        resolution
        for resolution, _ in storage.select_cells(
            matchers, np.array([FIRST, FIRST + DAY_HOURS]), ["sum"]
        ).provenance.ranges
    }


@pytest.mark.parametrize("name", CASES)
def test_a_day_is_answered_once_and_from_the_coarsest_resolution_that_is_exact(name: str) -> None:
    case = CASES[name]
    world = case.make_world()
    expected = {key: row for key, row in world.model.days().items() if key[1] == DAY}
    assert len(expected) == 4
    assert of_the_day(world) == expected
    assert resolutions_of(world.fresh()) == case.resolutions


def test_only_the_shard_of_a_metric_that_is_asked_for_must_be_exact() -> None:
    world = late_in_one_shard()  # in shard 13, where m0 and m1 are
    assert resolutions_of(world.fresh(), "m2") == {DAYS}
    assert resolutions_of(world.fresh(), "m0") == {HOURS, RAW}


@pytest.mark.parametrize(
    "keep", [RetentionPeriods(raw_days=1), RetentionPeriods(raw_days=1, hour_days=2)], ids=["sealed", "expired"]
)
def test_an_as_of_answer_leaves_out_a_day_without_samples(keep: RetentionPeriods) -> None:
    """Its row contains what counted when it was sealed: an as-of answer leaves it out, in every shard."""
    world = retained(moved(WIDER), keep)
    assert max(world.manifest().seals.values()) >= SEALED
    then = world.fresh().asof(NEXT_DAY * 2)
    assert {key for key in world.days(then) if key[1] == DAY} == set()
