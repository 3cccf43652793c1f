"""Claims about how an app comes to lie in other shards by command and by itself, and how it is shown (PROTOCOL 22)."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.urls import reverse

from ingest.writer import Writer
from rollups.models import Run, RunKind
from rollups.move import redistribute
from rollups.move.redistribute import measure_rate
from rollups.services import maintenance as services_maintenance
from rollups.services import placement
from rollups.services.placement import PlacementRequest
from rollups.services.runs import Site
from spm import limits
from spm.accounts.models import App, Organisation
from spm.errors import PlacementUnfit, Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs
from spm.store.backends import open_backend
from spm.store.keys import BYTE, CLOSED, CLOSING, HASH, OPEN, PlacementEpoch, PlacementTable
from spm.store.placement import SETTING
from tests.model.world import APP, NEXT_DAY, START, World, meanwhile

pytestmark = pytest.mark.django_db
NARROW = PlacementTable.single(spread=1)
DAY_MS = DAY_HOURS * HOUR_MS


@pytest.fixture
def app(db: None) -> App:
    """An app that keeps everything for ever."""
    organisation = Organisation.objects.create(name="ACME")
    return App.objects.create(id=APP, name="shop", organisation=organisation, raw_days=None, hour_days=None)


@pytest.fixture
def world(app: App) -> World:
    """Data of three hours in one shard, rolled up."""
    world = World(placement=NARROW)
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0), (2, 2 * HOUR_MS + 1, 3.0), (1, 2, 4.0))
    world.roll()
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    return world


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    """Where it happens."""
    return Site(world.store, "memory://", "local[1]", tmp_path, world.clock)


def right(world: World) -> None:
    """Samples, hours and days, of a reader that has just started and of one that lives on."""
    world.clock.advance(2_000)
    for storage in (world.fresh(), world.readers):
        assert world.answer(storage) == world.truth
        assert world.hours(storage) == world.model.hours()
        assert world.days(storage) == world.model.days()


def states(world: World) -> list[tuple[str, int, int, int]]:
    return [(e.function, e.shards, e.spread, e.state) for e in world.spread().epochs]


def busy(world: World, hours: int = 3, samples: int = 30) -> None:
    """So many samples in each of the last hours, rolled up."""
    now = world.clock.now_ms() - START
    for hour in range(1, hours + 1):
        world.send(*((n % 3, now - hour * HOUR_MS + n + 1, 1.0) for n in range(samples)))
    world.roll(now_ms=world.clock.now_ms())


def test_an_app_is_spread_by_command_and_its_former_epoch_closed(site: Site, world: World) -> None:
    moved = placement.redistribute(site, APP, PlacementRequest(spread=6))
    assert (moved.hour_shards > 0, moved.obstacles) == (True, ())
    assert states(world) == [(HASH, 16, 1, CLOSED), (HASH, 16, 6, OPEN)]
    right(world)


@pytest.mark.parametrize(
    ("wish", "wanted"),
    [
        (PlacementRequest(shards=8), (HASH, 8, 1)),
        (PlacementRequest(function=BYTE), (BYTE, 16, 1)),
        (PlacementRequest(spread=12, shards=32), (HASH, 32, 12)),
        (PlacementRequest(spread=3, shards=4, function=BYTE), (BYTE, 4, 3)),
    ],
    ids=["buckets", "strategy", "both numbers", "all"],
)
def test_what_is_not_wished_for_stays(
    site: Site, world: World, wish: PlacementRequest, wanted: tuple[str, int, int]
) -> None:
    assert placement.redistribute(site, APP, wish).obstacles == ()
    assert states(world)[-1] == (*wanted, OPEN)
    right(world)


def test_a_wish_that_cannot_be_leaves_everything_as_it_is(site: Site, world: World) -> None:
    for wish in (
        PlacementRequest(spread=17),
        PlacementRequest(shards=0),
        PlacementRequest(function="odd"),
        PlacementRequest(shards=200, function=BYTE),
        PlacementRequest(1),
    ):
        with pytest.raises(Refused):
            placement.redistribute(site, APP, wish)
    assert states(world) == [(HASH, 16, 1, OPEN)]
    assert not Run.objects.exists()


def test_what_a_late_writer_puts_there_meanwhile_is_moved_in_the_same_go(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch keeps the epoch from closing in the first round; the second takes it along."""
    late = Writer(world.store, NARROW)
    late.write([world.send((0, 9, 1.0))])  # it has looked, and will put its next batch by what it knows
    closing = redistribute.close_epoch

    def sends_first(*arguments: Any) -> redistribute.EpochClosing:
        monkeypatch.undo()
        world.writer = late
        world.send((1, 40, 5.0), (2, 40, 6.0))
        return closing(*arguments)

    monkeypatch.setattr(redistribute, "close_epoch", sends_first)
    moved = placement.redistribute(site, APP, PlacementRequest(spread=6))
    assert moved.obstacles == ()
    assert states(world)[0][3] == CLOSED
    right(world)


def test_what_waits_is_said_and_done_by_the_next_go(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closing = redistribute.EpochClosing(False, ("1 hour(s) of day 19600 are still in its shards",))
    monkeypatch.setattr(redistribute, "close_epoch", lambda *_: closing)
    moved = placement.redistribute(site, APP, PlacementRequest(spread=6))
    assert moved.obstacles == closing.obstacles
    assert placement.summarise(site, APP).obstacles == closing.obstacles
    assert Run.objects.filter(kind=RunKind.REDISTRIBUTE).count() == 2, "the second found nothing to move, and ended it"
    monkeypatch.undo()
    right(world)
    assert placement.redistribute(site, APP).obstacles == ()
    assert placement.summarise(site, APP).obstacles == ()
    right(world)


@pytest.mark.parametrize("point", ["planned", "compacted", "publish sent", "moved", "epoch closing", "epoch closed"])
def test_whatever_is_written_in_the_midst_of_it_answers_are_right(
    site: Site, world: World, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent() -> None:
        world.send((0, 77, 7.0), (1, 25 * HOUR_MS, 8.0))
        right(world)

    monkeypatch.setattr("rollups.crash_points.from_environment", lambda _: meanwhile(point, sent))
    placement.redistribute(site, APP, PlacementRequest(spread=6))
    monkeypatch.undo()
    right(world)
    assert placement.redistribute(site, APP).obstacles == ()
    assert world.spread().has_one_live_epoch
    right(world)


# --- by itself --------------------------------------------------------------------------------------------------------


def test_an_app_that_has_grown_is_spread_by_the_daily_round_and_its_epoch_closed(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To as many shards as its rate asks for: hours of before, in fewer shards, do not widen it once more."""
    monkeypatch.setattr(limits, "SPREAD_HOUR_SHARD_SAMPLES", 10)
    assert placement.widen(site, apps=[APP]) == []
    busy(world)
    assert services_maintenance.maintain(site, apps=[APP])
    assert states(world) == [(HASH, 16, 1, CLOSED), (HASH, 16, 4, OPEN)]
    right(world)
    world.clock.advance(HOUR_MS)
    assert placement.widen(site, apps=[APP]) == []
    busy(world, hours=1, samples=900)
    assert placement.widen(site, apps=[APP]) == [APP]
    assert states(world)[-1] == (HASH, 16, 16, OPEN)
    right(world)


def test_the_rate_is_that_of_the_last_days_hours_wherever_they_lie(world: World) -> None:
    now = world.clock.now_ms()
    assert measure_rate(world.store, APP, now) == 1  # four samples of three hours, and one of them ended a day ago
    assert measure_rate(world.store, APP, now + DAY_MS) == 0
    busy(world, hours=2, samples=31)
    world.send((0, now - START - 5, 9.0))  # one more, which a minor run adds
    world.roll(minor=True, now_ms=now)
    before = measure_rate(world.store, APP, now)
    assert before == round((31 + 32 + 1) / 3)
    epochs.open_epoch(world.store, APP, function=HASH, shards=16, spread=3)
    world.migrate()
    assert measure_rate(world.store, APP, now) == before


def test_the_daily_round_goes_on_with_what_a_crash_or_a_command_has_begun(site: Site, world: World) -> None:
    epochs.open_epoch(world.store, APP, function=HASH, shards=16, spread=5)
    epochs.set_state(world.store, APP, 0, CLOSING)
    assert placement.widen(site, apps=[APP]) == [APP]
    assert world.spread().has_one_live_epoch
    right(world)


def test_a_large_app_is_moved_on_spark(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    monkeypatch.setattr(placement, "redistribute", lambda *_, executor, **__: requests.append(executor))
    epochs.open_epoch(site.store, APP, function=HASH, shards=16, spread=2)
    placement.widen(site, apps=[APP])
    monkeypatch.setattr(limits, "ROLL_LOCAL_SAMPLES_MAX", 20)
    busy(world)
    placement.widen(site, apps=[APP])
    assert requests == ["local", "spark"]


# --- for people -------------------------------------------------------------------------------------------------------


def test_people_are_shown_how_an_app_lies(site: Site, world: World) -> None:
    assert placement.summarise(site, APP) == placement.PlacementSummary("hash, 1 of 16 shards", (), 1, ())
    epochs.open_epoch(world.store, APP, function=BYTE, shards=32, spread=1)
    epochs.set_state(world.store, APP, 0, CLOSING)
    summary = placement.summarise(site, APP)
    assert (summary.newest, summary.former) == ("byte, 1 of 32 shards", ("0: hash, 1 of 16 shards, closing",))


def test_a_worker_without_the_placement_function_gives_up_and_nothing_moves(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine of a cluster whose module is missing, or is another one."""
    monkeypatch.setenv(SETTING, "tests.rollups.placing")
    epochs.open_epoch(world.store, APP, function="two bytes", shards=64, spread=64)
    before = world.manifest()
    lacking = meanwhile("planned", lambda: monkeypatch.delenv(SETTING))
    report = world.migrate(lacking)
    assert report.remaining > 0
    assert "no placement function 'two bytes'" in "\n".join(report.errors)
    assert world.manifest() == before
    monkeypatch.setenv(SETTING, "tests.rollups.placing")
    right(world)
    assert placement.redistribute(site, APP).obstacles == ()
    assert world.spread().has_one_live_epoch
    right(world)


@pytest.fixture
def url(app: App, tmp_path: Path) -> str:
    """A store on disk with an app of one shard."""
    url = f"lmdb://{tmp_path}/store"
    world = World(open_backend(url), placement=NARROW)
    world.send((0, 1, 1.0), (1, 2, 2.0))
    return url


def test_the_command_opens_moves_and_closes(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        words = ["redistribute", str(APP), "--local"]
        call_command(*words, "--spread", "4", "--shards", "8")
        assert "all former epochs are closed" in capsys.readouterr().out
        call_command(*words)
        assert "0 hour shards moved; all former epochs" in capsys.readouterr().out
        with pytest.raises(CommandError, match="unknown placement function"):
            call_command(*words, "--strategy", "odd")
    assert [e.state for e in epochs.read(open_backend(url), APP).epochs] == [CLOSED, OPEN]


def test_the_admin_shows_epochs_and_lets_a_move_go_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, ...]] = []
    monkeypatch.setattr(placement, "start_process", lambda *words: begun.append(words))
    epochs.open_epoch(open_backend(url), APP, function=HASH, shards=16, spread=4)
    page = reverse("admin:rollups_spreading_changelist")
    client, look = Client(), Client()
    client.force_login(User.objects.create_superuser("root"))
    look.force_login(_person("rollups.view_spreading"))
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        text = client.get(page).content.decode()
        assert "hash, 4 of 16 shards" in text
        assert "0: hash, 1 of 16 shards, open" in text
        act = {"action": "go_on", "_selected_action": [str(APP)]}
        look.post(page, act)
        assert begun == []
        client.post(page, act)
    assert begun == [("redistribute", str(APP))]


def test_an_app_without_its_placement_function_is_shown_as_such_and_never_moved(site: Site, world: World) -> None:
    """Without the function nobody knows where the data lies, so it is neither read nor moved."""
    lost = epochs.encode(
        PlacementTable((PlacementEpoch(0, HASH, 16, 1, OPEN), PlacementEpoch(1, "gone/0123456789abcdef", 16, 2)))
    )
    name, before = epochs.row_key(APP), epochs.encode(world.spread())
    assert world.store.check_and_put("config", name, epochs.COLUMN, before, lost)
    assert "no placement function 'gone'" in placement.summarise(site, APP).newest
    with pytest.raises(PlacementUnfit):
        placement.redistribute(site, APP)
    with pytest.raises(PlacementUnfit):
        world.answer()


def _person(permission: str) -> User:
    room, _, name = permission.partition(".")
    person = User.objects.create_user("looker", is_staff=True)
    person.user_permissions.add(Permission.objects.get(content_type__app_label=room, codename=name))
    return person
