"""Claims about what goes for good, with its record: retention per app, and when beat does which."""

from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings

from rollups.delete import tombstones
from rollups.limits import TOMBSTONE_KEPT_MS
from rollups.models import Run, RunDay, RunKind, RunState
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from rollups.services.maintenance import ExpiryPreview
from rollups.services.runs import Site
from spm import limits
from spm.accounts.models import App, Organisation
from spm.accounts.services import Retention, delete_app
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.ledger import folding
from spm.store.ledger.folding import FoldResult
from spm.store.manifest import SEALED
from tests.model.world import APP, NEXT_DAY, START, World, parsed

pytestmark = pytest.mark.django_db
DAY_MS = DAY_HOURS * HOUR_MS


@pytest.fixture
def app(db: None) -> App:
    """An app that keeps everything for ever."""
    organisation = Organisation.objects.create(name="ACME")
    return App.objects.create(id=APP, name="shop", organisation=organisation, raw_days=None, hour_days=None)


@pytest.fixture
def world(app: App) -> World:
    """Data of three hours, rolled up."""
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0), (0, 2 * HOUR_MS + 1, 3.0))
    world.roll()
    world.clock.jump(NEXT_DAY + 5 * DAY_MS - world.clock.now_ms())
    return world


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    """Where it happens."""
    return Site(world.store, "memory://", "local[1]", tmp_path, world.clock)


def test_a_shorter_retention_says_first_what_would_go(site: Site, app: App) -> None:
    result = services_maintenance.preview_expiry(site, APP, Retention(1, None, None))
    assert [each.resolution for each in result] == ["Samples"]
    assert result[0].rows > 0
    assert result[0].size_bytes > 0
    assert services_maintenance.preview_expiry(site, APP, Retention(30, None, None)) == []


def test_an_app_without_an_end_keeps_all_and_leaves_no_run(site: Site, app: App) -> None:
    assert services_maintenance.expire(site, apps=[APP]) == {}
    assert not Run.objects.exists()


def test_retention_leaves_a_run_with_the_days_it_sealed(site: Site, app: App, world: World) -> None:
    App.objects.update(raw_days=2)
    hours = world.hours()
    [result] = services_maintenance.expire(site, apps=[APP]).values()
    assert result.errors == []
    assert [world.manifest().seal(START // HOUR_MS + n) for n in range(3)] == [SEALED] * 3
    assert world.hours() == hours
    run, day = Run.objects.get(), RunDay.objects.get()
    assert (run.kind, run.state, run.units) == (RunKind.SEAL, RunState.DONE, len(result.sealed_hours))
    assert (day.app_id, str(day.day), day.published) == (APP, "2023-08-31", False)
    assert services_maintenance.preview_expiry(site, APP, Retention(2, None, None)) == []


def test_beat_tidies_when_the_last_time_is_a_day_old(site: Site, app: App, world: World) -> None:
    started: list[int] = []
    assert services_maintenance.consider(site, launch=lambda: started.append(1))
    assert services_maintenance.maintain(site, apps=[APP])
    assert not services_maintenance.consider(site, launch=lambda: started.append(2))
    world.clock.advance(DAY_MS)
    assert services_maintenance.consider(site, launch=lambda: started.append(3))
    assert started == [1, 3]


def test_the_ledger_is_folded_once_a_day(site: Site, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def fold(_: object, app_id: int, now_ms: int) -> FoldResult:
        calls.append((app_id, now_ms))
        return FoldResult(2, 7)

    monkeypatch.setattr(folding, "fold", fold)
    services_maintenance.maintain(site, apps=[APP])
    services_maintenance.maintain(site, apps=[APP])
    assert calls == [(APP, site.clock.now_ms())]
    assert services_maintenance.fold_ledgers(site, apps=[APP]) == FoldResult(2, 7)


def test_beat_erases_a_deleted_app_without_waiting_for_tomorrow(site: Site, app: App, world: World) -> None:
    services_maintenance.maintain(site, apps=[APP])
    delete_app(None, app)
    App.objects.update(going=site.now())
    assert not services_maintenance.consider(site, launch=_never)
    world.clock.advance(limits.ERASE_AFTER_MS)
    assert services_maintenance.consider(site, launch=lambda: None)
    services_maintenance.maintain(site, apps=[])
    assert not App.objects.exists()


def test_messages_of_a_deleted_app_that_come_weeks_later_leave_nothing(site: Site, app: App, world: World) -> None:
    late = world.acceptor.stamp_message(app=APP, source="h", parsed=parsed([(0, 5, 1.0)]), message_id=bytes(16))
    delete_app(None, app)
    App.objects.update(going=site.now())
    world.clock.advance(limits.ERASE_AFTER_MS)
    services_maintenance.maintain(site, apps=[])
    world.clock.advance(20 * DAY_MS)
    world.writer.write([late])
    assert rows_of_app(world), "a writer asks no database"
    services_maintenance.maintain(site, apps=[])
    assert not rows_of_app(world)
    assert services_maintenance.unlisted_apps(site) == []
    world.clock.advance(TOMBSTONE_KEPT_MS)
    services_maintenance.maintain(site, apps=[])
    assert tombstones.read(world.store) == {}


def test_an_app_that_has_a_deleted_apps_number_keeps_its_rows(site: Site, app: App, world: World) -> None:
    before = rows_of_app(world)
    tombstones.put(world.store, APP, site.clock.now_ms())
    assert services_maintenance.delete_stragglers(site) == {}
    assert rows_of_app(world) == before


def test_apps_that_only_the_store_knows_are_named(site: Site, app: App, world: World) -> None:
    assert services_maintenance.unlisted_apps(site) == []
    App.objects.all().delete()
    assert services_maintenance.unlisted_apps(site) == [APP]


def rows_of_app(world: World) -> list[tuple[str, bytes]]:
    """The keys of the app's rows in every table."""
    tables = [table for table in keys.TABLES if table != "config"]
    ranges = [(table, each) for table in tables for each in keys.app_ranges(table, APP)]
    return [(table, key) for table, each in ranges for key, _ in world.store.scan(table, *each)]


def test_the_commands_say_what_they_do(app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"lmdb://{tmp_path}/store"
    world = World(open_backend(url))
    world.send((0, 1, 1.0))
    world.roll()
    App.objects.update(raw_days=2)
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        call_command("fsck")
        assert "1 hours and " in (text := capsys.readouterr().out)
        assert "all is well" in text
        call_command("fsck", "--hour", "2020-01-01T00")
        assert " 0 hours and 0 days recounted" in capsys.readouterr().out
        call_command("retention", "--dry-run")
        assert "shop: samples, " in capsys.readouterr().out
        call_command("retention")
        assert "shop: deleted samples of 24 hours" in capsys.readouterr().out
        call_command("retention")
        assert "nothing is older" in capsys.readouterr().out
        call_command("redistribute", str(APP), "--spread", "6", "--local")
        assert "hour shards moved" in capsys.readouterr().out
        call_command("maintain")
        assert "done" in capsys.readouterr().out
        call_command("delete_app", "--dry-run")
        assert "no deleted app is due" in capsys.readouterr().out
    assert ExpiryPreview("Samples", 1, 2).rows == 1
    assert services_runs.all_apps() == [APP]


def test_a_check_that_finds_something_says_so_and_fails(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"lmdb://{tmp_path}/store"
    world = World(open_backend(url))
    world.send((0, 1, 1.0))
    world.roll()
    [row] = [
        key for b in world.placement.all_shards(APP) for key, _ in world.store.scan("chunks", *keys.app_range(b, APP))
    ]
    world.store.delete("chunks", [(row, None)])
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path), pytest.raises(SystemExit) as ended:
        call_command("fsck")
    assert ended.value.code == 1
    assert "lost: chunks" in capsys.readouterr().out


def _never() -> None:
    raise AssertionError("nothing was to be started")


@pytest.mark.spark
@pytest.mark.slow
def test_a_check_and_a_purge_on_spark_say_what_they_say_without(
    app: App, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"lmdb://{tmp_path}/store"
    world = World(open_backend(url))
    for value in range(3):
        world.send((0, 1, float(value)))
        world.roll()

    def said(*words: str) -> str:
        call_command(*words)
        return capsys.readouterr().out

    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        assert "1 hours and 0 days recounted" in (text := said("fsck", "--spark"))
        assert "all is well" in text
        plain = said("purge", "--keep", "0", "--dry-run")
        assert "rows of chunks" in plain
        assert said("purge", "--keep", "0", "--dry-run", "--spark") == plain
        assert said("purge", "--keep", "0", "--spark") == plain.replace("would be", "were")
        assert said("purge", "--keep", "0") == "nothing to purge\n"
    assert world.hours() == world.recount()
