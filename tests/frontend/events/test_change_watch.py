"""A look finds each kind of event in the tables and the store, once, and costs the same number of queries always."""

from typing import Any

import orjson
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from alerts.models import AlertEvent, Rule
from frontend.events import change_watch
from frontend.events.change_watch import ChangeWatch
from frontend.events.event_ids import Feed, Seen
from frontend.events.hub import News
from rollups.models import Run, RunDay, RunKind
from spm import limits
from spm.accounts import audit
from spm.accounts.models import Source
from spm.clock import FakeClock, moment
from spm.errors import StoreUnavailable
from spm.events import outbox
from spm.events.outbox import Draft, Place
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PendingKey, PlacementTable
from tests.support.people import Tenant

MS = 1_700_000_000_000
pytestmark = pytest.mark.django_db


@pytest.fixture
def store() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MS)


@pytest.fixture
def watch(store: MemoryBackend, clock: FakeClock) -> ChangeWatch:
    watch = ChangeWatch(lambda: store, clock)
    watch.look([])
    return watch


def settle(watch: ChangeWatch, clock: FakeClock) -> Seen:
    """What is seen when numbers that earlier tests rolled back are waited for no longer."""
    clock.advance(limits.EVENTS_GAP_S * 1000)
    look = watch.look([])
    assert look.news == ()
    return look.seen


def shown(news: tuple[News, ...]) -> list[tuple[int, str, Any]]:
    return [(each.app, each.kind, orjson.loads(each.body)) for each in news]


def fire(tenant: Tenant, labels: dict[str, str], name: str = "hot", at_ms: int = MS) -> AlertEvent:
    rule, _ = Rule.objects.get_or_create(
        app=tenant.app, name=name, defaults={"expr": "1", "created_ms": 1, "changed_ms": 1}
    )
    return AlertEvent.objects.create(
        rule=rule,
        fingerprint="f",
        labels=labels,
        before="pending",
        state="firing",
        episode_ms=at_ms,
        at_ms=at_ms,
        value=3,
    )


def test_look_finds_an_alert_of_its_app(watch: ChangeWatch, alpha: Tenant) -> None:
    event = fire(alpha, {"host": "a"})
    [(app, kind, body)] = shown(watch.look([]).news)
    assert (app, kind) == (alpha.app.pk, "alert")
    assert body == {
        "id": event.pk,
        "rule": event.rule_id,
        "name": "hot",
        "series": {"host": "a"},
        "aspect": "value",
        "state": "firing",
        "before": "pending",
        "at_ms": MS,
        "value": 3.0,
    }
    assert watch.look([]).news == ()


def test_alert_with_too_long_a_series_comes_without_it(watch: ChangeWatch, alpha: Tenant) -> None:
    fire(alpha, {f"label{n}": "x" * 200 for n in range(40)})
    [(_, _, body)] = shown(watch.look([]).news)
    assert body["series"] is None
    assert body["name"] == "hot"


def test_run_over_many_days_is_one_event_of_each_app(watch: ChangeWatch, alpha: Tenant, beta: Tenant) -> None:
    run = Run.objects.create(number=7, kind=RunKind.FULL, executor="local", started=moment(MS))
    for tenant in (alpha, beta):
        for day in ("2026-01-01", "2026-01-02"):
            sizes = {"units": 1, "samples": 1, "size_bytes": 1, "published": True}
            RunDay.objects.create(run=run, app=tenant.app, day=day, **sizes)
    body = {"run": 7, "state": "done"}
    assert shown(watch.look([]).news) == [(alpha.app.pk, "run", body), (beta.app.pk, "run", body)]


@pytest.mark.parametrize(
    ("action", "state"), [("roll back", "rolled back"), ("retract", "retracted"), ("undo", "undone")]
)
def test_act_on_the_samples_of_apps_is_an_event_of_them(
    watch: ChangeWatch, alpha: Tenant, beta: Tenant, action: str, state: str
) -> None:
    detail = {"apps": [alpha.app.pk]} if action == "roll back" else {"app": alpha.app.pk}
    audit.record(action, "x", actor=None, organisation=alpha.organisation, detail=detail)
    audit.record("token issued", "x", actor=None, organisation=beta.organisation, detail={"app": beta.app.pk})
    assert shown(watch.look([]).news) == [(alpha.app.pk, "run", {"run": None, "state": state})]


def test_new_source_is_an_event_and_its_next_message_is_none(watch: ChangeWatch, alpha: Tenant) -> None:
    source = Source.objects.create(app=alpha.app, name="web-1", first_seen=moment(MS), last_seen=moment(MS))
    body = {"name": "web-1", "state": "new", "first_ms": MS}
    assert shown(watch.look([]).news) == [(alpha.app.pk, "source", body)]
    Source.objects.filter(pk=source.pk).update(last_seen=moment(MS + 60_000))
    assert watch.look([]).news == ()


def test_data_is_an_event_of_apps_with_listeners_alone(watch: ChangeWatch, store: MemoryBackend) -> None:
    for app in (1, 2):
        key = PendingKey(PlacementTable().all_shards(app)[0], app, MS, 1).to_bytes()
        store.put([("pending", [(key, {b"0000": b"x"})])])
    assert shown(watch.look([2]).news) == [(2, "data", {"accepted_ms": MS})]


def test_store_that_does_not_answer_hides_no_other_event(alpha: Tenant) -> None:
    def absent() -> Backend:
        raise StoreUnavailable("away")

    watch = ChangeWatch(absent, FakeClock(MS))
    watch.look([alpha.app.pk])
    fire(alpha, {})
    assert [each.kind for each in watch.look([alpha.app.pk]).news] == ["alert"]


def test_look_takes_as_many_queries_for_many_apps_as_for_one(watch: ChangeWatch, alpha: Tenant, beta: Tenant) -> None:
    counts = []
    for apps in ([alpha.app.pk], [alpha.app.pk, beta.app.pk, *range(1_000, 1_500)]):
        fire(alpha, {}, at_ms=len(apps))
        fire(beta, {}, at_ms=len(apps))
        with CaptureQueriesContext(connection) as queries:
            watch.look(apps)
        counts.append(len(queries))
    assert counts == [len(change_watch._TABLES) + 2] * 2  # and one each for what the relay has to do, and for positions


def test_look_that_finds_too_many_rows_is_incomplete_and_goes_on_behind_them(
    watch: ChangeWatch, clock: FakeClock, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EVENTS_LOOK_ROWS_MAX", 3)
    for number in range(4):
        last = fire(alpha, {}, at_ms=number)
    look = watch.look([])
    assert (look.is_incomplete, look.news) == (True, ())
    assert settle(watch, clock)[Feed.ALERTS] == last.pk
    fire(alpha, {}, at_ms=9)
    look = watch.look([])
    assert (look.is_incomplete, len(look.news)) == (False, 1)


def test_first_look_does_not_tell_the_past(alpha: Tenant, store: MemoryBackend, clock: FakeClock) -> None:
    event = fire(alpha, {})
    watch = ChangeWatch(lambda: store, clock)
    assert watch.look([]).news == ()
    assert settle(watch, clock)[Feed.ALERTS] == event.pk


def test_a_stream_that_went_on_is_an_event_of_every_app_that_is_listened_to(
    watch: ChangeWatch, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EVENTS_LOOK_APPS_MAX", 2)  # of one query
    place = Place(alpha.organisation.pk, alpha.app.pk)
    with transaction.atomic():
        outbox.emit(place, [Draft(kind="note", text="n", at_ms=MS)], now_ms=MS)
    apps = [*range(100_000, 100_003), alpha.app.pk]
    assert shown(watch.look(apps).news) == [(alpha.app.pk, "event", {"stream_position": 1})]
    assert watch.look(apps).news == ()
