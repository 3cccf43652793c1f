"""A tick of beat costs what waits, and not what apps there are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rollups.models import Trouble
from rollups.run import agenda
from rollups.run.idle_apps import apps_to_measure
from rollups.services import runs as services_runs
from rollups.services.runs import Site
from spm.accounts.models import App, Organisation
from spm.clock import moment
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from tests.model.world import APP, DAY, NEXT_DAY, World
from tests.support.faults import Faulty

IDLE = range(100_000, 110_000)


@pytest.fixture
def world() -> World:
    """An app with data of three hours."""
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0), (0, 2 * HOUR_MS + 1, 3.0))
    return world


def looked_at(world: World, today: int) -> list[int]:
    return list(apps_to_measure(world.store, [*IDLE[:3], APP], days=(today - 1, today)))


@pytest.mark.django_db
def test_a_tick_over_ten_thousand_idle_apps_calls_the_store_a_hundred_times_at_most(
    world: World, tmp_path: Path
) -> None:
    store = Faulty(world.store)
    site = Site(store, "memory://", "local[1]", tmp_path, world.clock)
    backlog = services_runs._measure_backlog(site, [*IDLE[:5_000], APP, *IDLE[5_000:]], NEXT_DAY, 0)
    assert backlog.samples == 3
    assert len(store.calls) <= 100


def retracted(world: World) -> None:
    retractions.add(world.store, APP, Retraction(0, 1, 0, 0, 1, 0, 1, "host", (), "test", "test"))


REASONS: dict[str, Callable[[World], object]] = {
    "a day is marked": lambda world: agenda.mark_due(world.store, APP, [DAY - 9], 1),
    "it has a retraction": retracted,
    "a manifest of yesterday": lambda world: world.store.check_and_put(
        "manifest", keys.manifest(APP, NEXT_DAY // HOUR_MS // DAY_HOURS - 1), b"v", None, b"damaged, even"
    ),
}


@pytest.mark.parametrize("make", REASONS.values(), ids=REASONS.keys())
def test_an_app_is_looked_at_for_each_thing_that_may_want_a_run(make: Callable[[World], object]) -> None:
    world, today = World(), NEXT_DAY // HOUR_MS // DAY_HOURS
    assert looked_at(world, today) == []
    make(world)
    assert looked_at(world, today) == [APP]


def test_an_app_is_looked_at_while_a_batch_waits(world: World) -> None:
    assert looked_at(world, DAY + 100) == [APP]
    world.roll()
    assert looked_at(world, DAY + 100) == []


@pytest.mark.django_db
def test_a_trouble_of_an_idle_app_is_forgotten_once_it_is_over(world: World, tmp_path: Path) -> None:
    app = App.objects.create(id=IDLE[0], name="idle", organisation=Organisation.objects.create(name="ACME"))
    at = moment(NEXT_DAY)
    Trouble.objects.create(app=app, act="consider", day=None, reason="it was damaged", since=at, at=at)
    site = Site(world.store, "memory://", "local[1]", tmp_path, world.clock)
    services_runs._measure_backlog(site, [app.pk], NEXT_DAY, 0)
    assert not Trouble.objects.exists()
