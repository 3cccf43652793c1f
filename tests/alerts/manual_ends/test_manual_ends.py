"""Ending an alert by hand: told once like any end, on record, and the same in a replay."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from alerts import journal, rulebook
from alerts.backtesting import backtests
from alerts.judging.versions import Steps
from alerts.models import Aspect, Episode, EpisodeStatus, Instance, Lane, ManualEnd, Operation, Rule
from alerts.telling.limits import GROUP_INTERVAL_MS, GROUP_WAIT_MS
from spm import query
from spm.accounts.models import App, AuditEntry
from spm.errors import Refused
from spm.limits import RULE_PERIOD_MS
from tests.alerts.conftest import AlertingWorld
from tests.alerts.knowledge_world import Installation
from tests.alerts.noise.past import alert
from tests.alerts.replay.comparison import ALWAYS, differences, episodes_of, written_episodes

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
Login = Callable[[str], Client]


@pytest.fixture
def fired(make_rule: MakeRule, world: AlertingWorld) -> Episode:
    make_rule()
    world.evaluate_values(95, host="web-1")
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return Episode.objects.get()


def end(episode: Episode, person: User, world: AlertingWorld) -> ManualEnd:
    return rulebook.end_alert(episode, by=person, now_ms=world.clock.now_ms())


def test_an_alert_ends_at_the_next_step_and_fires_again_only_after_it_was_well(
    fired: Episode, world: AlertingWorld, people: dict[str, User]
) -> None:
    at_ms = end(fired, people["edda"], world).at_ms
    assert at_ms == Lane.objects.get().position_ms + RULE_PERIOD_MS
    world.evaluate_values(95, 96, 97, host="web-1")
    fired.refresh_from_db()
    assert (fired.status, fired.end_ms, fired.end_reason) == (EpisodeStatus.ENDED, at_ms, "person")
    assert Instance.objects.get().phase == "closed"
    world.evaluate_values(50, 95, host="web-1")
    assert Episode.objects.filter(status=EpisodeStatus.OPEN).count() == 1
    assert Episode.objects.count() == 2


def test_receivers_hear_of_it_once_like_of_any_end(
    fired: Episode, world: AlertingWorld, people: dict[str, User]
) -> None:
    end(fired, people["edda"], world)
    for _ in range(3):
        world.evaluate_values(95, host="web-1")
        world.clock.advance(GROUP_INTERVAL_MS)
        world.tell()
    subjects = [each.subject.partition("]")[0] for each in mail.outbox]
    assert subjects == ["[FIRING", "[RESOLVED"]
    assert "Ended by a person" in mail.outbox[1].body


def test_it_is_on_record_who_ended_it_and_a_second_time_changes_nothing(
    fired: Episode, world: AlertingWorld, people: dict[str, User]
) -> None:
    first = end(fired, people["edda"], world)
    assert end(fired, people["olga"], world) == first
    [row] = ManualEnd.objects.all()
    assert (row.by, row.made_ms, row.seq) == (people["edda"], world.clock.now_ms(), first.seq)
    [entry] = AuditEntry.objects.filter(action="alert.end")
    assert (entry.actor, entry.detail["episode"]) == (people["edda"], fired.pk)


@pytest.mark.parametrize("fields", [{"minutes": 1}, {"minutes": None, "aspect": Aspect.ERROR}], ids=["over", "error"])
def test_what_is_over_and_a_rule_that_cannot_be_judged_are_not_ended(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, User], fields: dict[str, object]
) -> None:
    with pytest.raises(Refused):
        end(alert(make_rule(), 1_000, **fields), people["edda"], world)  # type: ignore[arg-type]
    assert not ManualEnd.objects.exists()


def test_an_operation_under_way_loses_its_number(fired: Episode, world: AlertingWorld, people: dict[str, User]) -> None:
    seq = Lane.objects.get().seq
    end(fired, people["edda"], world)
    assert Lane.objects.get().seq == seq + 1


def test_a_replay_says_what_live_judging_said_also_where_late_data_judged_the_end_again(
    app: App, make_rule: MakeRule, world: AlertingWorld, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    make_rule()
    installation.run_quietly(60)
    for second in range(0, 240, 2):
        now_ms = world.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in ("a", "b"):
                installation.send(host, now_ms, 95.0)
            if second < 60:
                late_from_ms = now_ms
        installation.tick()
        if second == 120:
            end(Episode.objects.get(labels__host="a"), people["edda"], world)
    installation.send("c", late_from_ms, 95.0)  # two minutes late: the steps around the end are judged again
    installation.run_quietly(120)
    lane = Lane.objects.get()
    [row] = ManualEnd.objects.all()
    assert Operation.objects.filter(after_ms__lt=row.at_ms, upto_ms__gt=row.at_ms).exists()
    ended = Episode.objects.get(labels__host="a")
    assert (ended.end_ms, ended.end_reason) == (row.at_ms, "person")
    versions = journal.versions_between(lane, 0, ALWAYS)
    steps = Steps(lane.first_ms + RULE_PERIOD_MS, lane.position_ms, RULE_PERIOD_MS)
    _, mismatches, last = differences(lane, backtests.said_as_live_knew(app.pk, versions, steps))
    assert mismatches == []
    assert episodes_of(last) == written_episodes()


def test_the_page_ends_an_alert_and_says_who_did(
    fired: Episode, world: AlertingWorld, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.pages.alert.views._clock", world.clock)
    assert "End alert" in login("edda").get(f"/alerts/{fired.pk}").content.decode()
    assert login("vera").post(f"/alerts/{fired.pk}/end").status_code == 403
    assert login("mallory").post(f"/alerts/{fired.pk}/end").status_code == 404
    assert not ManualEnd.objects.exists()
    assert login("edda").post(f"/alerts/{fired.pk}/end").status_code == 302
    page = login("vera").get(f"/alerts/{fired.pk}").content.decode()
    assert "It ends at the next step, as asked by edda" in " ".join(page.split())
    world.evaluate_values(95, host="web-1")
    page = login("vera").get(f"/alerts/{fired.pk}").content.decode()
    assert "Ended by edda" in " ".join(page.split())
    assert "End alert" not in page


def test_rest_ends_an_alert_of_ones_own_organisation(fired: Episode, app: App, foreign_app: App, login: Login) -> None:
    path = f"/api/v1/organisations/{app.organisation_id}/alerts/{fired.pk}/end"
    foreign = f"/api/v1/organisations/{foreign_app.organisation_id}/alerts/{fired.pk}/end"
    refused = [
        login(name).post(at).status_code for name, at in (("vera", path), ("mallory", path), ("mallory", foreign))
    ]
    assert refused == [403, 404, 404]
    answer = login("edda").post(path)
    assert answer.status_code == 200
    assert (answer.json()["by"], answer.json()["at_ms"]) == ("edda", ManualEnd.objects.get().at_ms)
