"""Claims about troubles of one app: whatever is damaged or late there, runs and deletions of other apps go on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rollups.decide.start import RunStart
from rollups.limits import ROLL_TROUBLE_GAP_MS
from rollups.models import Run, RunKind, Trouble, date_of
from rollups.services import maintenance, runs
from rollups.services.runs import Site
from spm.accounts.models import App, Organisation
from spm.errors import LimitExceeded, StoreUnavailable
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend, Step
from spm.store.manifest import SEALED, month_of
from tests.model.world import APP, DAY, FIRST, NEXT_DAY, START, World, parsed

pytestmark = pytest.mark.django_db
OTHER = 8
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
DAMAGED = (
    *("manifest", "month", "config", "retractions", "pending", "log", "chunks", "timelines", "inputs", "hours"),
    *("days", "ledger", "series", "marks", "dead"),
)


@pytest.fixture
def world() -> World:
    """Two apps of two organisations, each with a rolled-up hour and samples that wait."""
    for number, name in ((APP, "ACME"), (OTHER, "OTHER")):
        App.objects.create(id=number, name="shop", organisation=Organisation.objects.create(name=name), raw_days=3)
    world = World()
    world.store.check_and_put("config", epochs.row_key(OTHER), epochs.COLUMN, None, epochs.encode(world.placement))
    send(world, APP, 1)
    send(world, OTHER, 1)
    return world


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    return Site(world.store, "memory://", "local[1]", tmp_path, world.clock)


def send(world: World, app: int, *times: int) -> None:
    world.clock.advance(1)
    given = parsed([(0, ms, 1.0) for ms in times])
    world.writer.write([world.acceptor.stamp_message(app=app, source="h", parsed=given, message_id=bytes(16))])


def pending(world: World, app: int) -> int:
    return sum(1 for start, stop in keys.app_ranges("pending", app) for _ in world.store.scan("pending", start, stop))


def run(site: Site) -> None:
    runs.roll(site, apps=[APP, OTHER], kind=RunKind.FULL, executor="local")


def flip(store: Backend, table: str) -> None:
    """Flip a bit in the first row of a kind that the app has; one that has none gets bytes that nobody wrote."""
    where = {"manifest": keys.manifest(APP, DAY), "month": keys.manifest_month(APP, month_of(DAY))}
    where |= {"config": epochs.row_key(APP), "retractions": keys.retraction(APP, 9), "marks": keys.watermark(APP, 1)}
    where |= {"dead": keys.dead(APP, START, bytes(16))}
    key = where.get(table) or next(k for a, b in keys.app_ranges(table, APP) for k, _ in store.scan(table, a, b))
    table = "manifest" if table == "month" else table
    [row] = store.get(table, [key])
    if row is None:
        store.check_and_put(table, key, b"v", None, b"damaged bytes")
        return
    column, raw = next(iter(row.items()))
    damaged = bytearray(raw)
    damaged[len(raw) // 2] ^= 4
    store.put([(table, [(key, {column: bytes(damaged)})])])


@pytest.mark.parametrize("table", DAMAGED)
def test_one_flipped_bit_of_an_app_stops_no_run_seal_or_purge_of_another(site: Site, world: World, table: str) -> None:
    world.clock.jump(NEXT_DAY + DAY_MS - world.clock.now_ms())
    run(site)
    for app in (APP, OTHER):
        send(world, app, HOUR_MS + 5)
    flip(world.store, table)
    world.clock.advance(15 * MINUTE_MS)
    assert runs.consider(site, launch=lambda: run(site)) == RunStart.SPARK
    assert pending(world, OTHER) == 0
    world.clock.jump(START + 9 * DAY_MS - world.clock.now_ms())
    assert maintenance.maintain(site, apps=[APP, OTHER])
    [row] = world.store.get("manifest", [keys.manifest(OTHER, DAY)])
    assert row is not None
    assert manifest.decode(row[b"v"]).seal(FIRST) == SEALED
    assert not [1 for a, b in keys.app_ranges("chunks", OTHER) for _ in world.store.scan("chunks", a, b)]
    assert not Trouble.objects.filter(app_id=OTHER).exists()
    assert not maintenance.consider(site, launch=lambda: None), "it is done for today"


@pytest.mark.parametrize("table", ["manifest", "month", "config", "retractions"])
def test_a_damage_shows_as_a_trouble_of_its_app_and_goes_when_it_is_mended(
    site: Site, world: World, table: str
) -> None:
    world.clock.jump(NEXT_DAY + DAY_MS - world.clock.now_ms())
    run(site)
    before = [(table, list(world.store.scan(table, b"", b"\xff" * 64))) for table in keys.TABLES]
    send(world, APP, HOUR_MS + 5)
    flip(world.store, table)
    world.clock.advance(15 * MINUTE_MS)
    runs.consider(site, launch=lambda: run(site))
    runs.consider(site, launch=lambda: None)
    maintenance.maintain(site, apps=[APP, OTHER])
    assert set(Trouble.objects.values_list("app_id", flat=True)) == {APP}
    world.store.put(before)
    world.store.delete("retractions", [(keys.retraction(APP, 9), None)])
    run(site)
    runs.consider(site, launch=lambda: None)
    world.clock.advance(DAY_MS + 1)
    maintenance.maintain(site, apps=[APP, OTHER])
    assert not Trouble.objects.exists()


def test_late_samples_of_one_app_are_noted_and_never_stop_the_beat(site: Site, world: World) -> None:
    """Somebody with an old clock sends for a sealed hour, again and again."""
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    run(site)
    world.clock.jump(START + 6 * DAY_MS - world.clock.now_ms())
    maintenance.maintain(site, apps=[APP, OTHER])
    for _ in range(3):
        send(world, APP, 9)
        send(world, OTHER, 6 * DAY_MS - HOUR_MS)
        world.clock.advance(11 * MINUTE_MS)
        assert runs.consider(site, launch=lambda: run(site)) != RunStart.NOTHING
        assert pending(world, OTHER) == 0
    assert "came after their hour's retention" in (Run.objects.first() or Run()).message


def test_a_day_that_fails_rests_and_others_are_rolled(site: Site, world: World) -> None:
    send(world, APP, DAY_MS + 5)
    [victim, *_] = [k for a, b in keys.app_ranges("log", APP) for k, _ in world.store.scan("log", a, b)]
    world.store.delete("log", [(victim, None)])
    day = keys.LogKey.parse(victim).hour // DAY_HOURS
    world.clock.jump(NEXT_DAY + DAY_MS - world.clock.now_ms())
    run(site)
    [trouble] = Trouble.objects.all()
    assert (trouble.app_id, str(trouble.day), trouble.act) == (APP, str(date_of(day)), "run")
    assert "missing" in trouble.reason
    assert runs.consider(site, launch=lambda: None) == RunStart.NOTHING
    send(world, OTHER, HOUR_MS + 5)
    world.clock.advance(11 * MINUTE_MS)
    assert runs.consider(site, launch=lambda: run(site)) == RunStart.SPARK
    assert pending(world, OTHER) == 0
    world.clock.advance(ROLL_TROUBLE_GAP_MS + 1)
    assert runs.consider(site, launch=lambda: None) == RunStart.SPARK, "it is tried again"


def test_a_page_that_the_store_refuses_for_its_size_ends_no_run_of_another(site: Site, world: World) -> None:
    """As HBase refuses a page of one series with more than a million values that do not compress."""
    put = world.store.put

    def refusing(steps: Sequence[Step]) -> None:
        if any(table == "chunks" and keys.app_of(table, key) == APP for table, rows in steps for key, _ in rows):
            raise LimitExceeded("a cell is too large for HBase")
        put(steps)

    world.store.put = refusing  # type: ignore[method-assign]
    world.clock.jump(NEXT_DAY - world.clock.now_ms())
    run(site)
    assert (pending(world, APP) > 0, pending(world, OTHER)) == (True, 0)
    assert "too large" in Trouble.objects.get(app_id=APP).reason


def test_a_store_that_does_not_answer_is_no_app_s_trouble(site: Site, world: World) -> None:
    def away(*given: object, **named: object) -> object:
        raise StoreUnavailable("away")

    world.store.scan = away  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        run(site)
    assert not Trouble.objects.exists()
