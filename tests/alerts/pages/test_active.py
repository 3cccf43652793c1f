"""The page of active alerts: what it lists, and that one click takes an alert."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from alerts.models import Episode, Rule
from alerts.models.telling import Acknowledgement, Silence
from alerts.telling import limits
from alerts.telling.limits import GROUP_WAIT_MS
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld
from tests.alerts.noise.past import alert

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
Login = Callable[[str], Client]


@pytest.fixture(autouse=True)
def page_clock(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.pages.alert.active._clock", world.clock)


@pytest.fixture
def fired(make_rule: MakeRule, world: AlertingWorld) -> Episode:
    make_rule()
    world.evaluate_values(95, host="web-1")
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return Episode.objects.get()


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/alerts/active{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_an_open_alert_is_listed_with_its_value_its_threshold_and_whom_it_was_told(
    fired: Episode, login: Login
) -> None:
    page = text(login("vera"))
    assert f'<a href="/alerts/{fired.pk}">CPU is busy</a>' in page
    assert all(each in page for each in ("cpu host=web-1", "95 <small", "&gt; 90", "ops@example.org", "firing"))
    assert "no-store" in login("vera").get("/alerts/active")["Cache-Control"]


def test_one_click_takes_an_alert_and_the_list_says_who_has_it(fired: Episode, login: Login) -> None:
    assert login("edda").post("/alerts/active", {"take": fired.pk}).status_code == 302
    assert Acknowledgement.objects.get().until_ms - Acknowledgement.objects.get().at_ms == limits.ACKNOWLEDGE_MS
    assert "edda until" in text(login("vera"))
    assert "No such alert" in text(login("vera"), "?taken=no")


@pytest.mark.parametrize(("button", "span_ms"), [("acknowledge", limits.ACKNOWLEDGE_MS), ("snooze", limits.SNOOZE_MS)])
def test_chosen_alerts_are_taken_together(make_rule: MakeRule, login: Login, button: str, span_ms: int) -> None:
    chosen = [alert(make_rule(), 1_000, minutes=None, host=host) for host in ("a", "b")]
    left = alert(make_rule(), 1_000, minutes=None, host="c")
    login("edda").post("/alerts/active", {button: "1", "alert": [each.pk for each in chosen]})
    taken = Acknowledgement.objects.all()
    assert {each.episode_id for each in taken} == {each.pk for each in chosen} != {left.pk}
    assert {each.until_ms - each.at_ms for each in taken} == {span_ms}


def test_chosen_alerts_are_silenced_by_what_is_particular_about_each(make_rule: MakeRule, login: Login) -> None:
    rule = make_rule()
    for host in ("a", "b"):
        alert(rule, 1_000, minutes=None, host=host)
    numbers = list(Episode.objects.values_list("pk", flat=True))
    login("edda").post("/alerts/active", {"silence": "1", "alert": numbers})
    silences = sorted(Silence.objects.values_list("matchers", flat=True))
    assert [f'host="{host}"' in text for host, text in zip("ab", silences, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("", {"a", "b"}),
        ("?severity=critical", {"b"}),
        ("?severity=unheard-of", {"a", "b"}),
        ('?matchers=host="a"', {"a"}),
        ("?taken=yes", set()),
        ("?cursor=" + "9" * 40, {"a", "b"}),
    ],
)
def test_the_list_is_filtered(make_rule: MakeRule, login: Login, query: str, hosts: set[str]) -> None:
    for host, severity in (("a", "warning"), ("b", "critical")):
        alert(make_rule(severity=severity), 1_000, minutes=None, host=host)
    page = text(login("vera"), query)
    assert {host for host in "ab" if f"host={host}<" in page} == hosts


def test_a_wrong_matcher_is_said(login: Login, app: App) -> None:
    assert 'role="alert"' in text(login("vera"), "?matchers=host")


def test_a_longer_list_goes_on(make_rule: MakeRule, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.pages.alert.active.SHOWN", 1)
    rule = make_rule()
    first, second = (alert(rule, 1_000, minutes=None, host=host) for host in ("a", "b"))
    page = text(login("vera"))
    assert f'id="alert-{second.pk}"' in page
    assert f'id="alert-{first.pk}"' not in page
    assert f'id="alert-{first.pk}"' in text(login("vera"), f"?cursor={second.pk}")


def test_what_is_about_to_fire_is_listed_as_pending(make_rule: MakeRule, world: AlertingWorld, login: Login) -> None:
    make_rule(for_ms=60_000)
    world.evaluate_values(95, host="web-1")
    page = text(login("vera"))
    assert "Nothing fires" in page
    assert "<h2>Pending</h2>" in page
    assert "cpu host=web-1" in page


def test_alerts_of_another_organisation_are_neither_listed_nor_taken(
    foreign_app: App, make_rule: MakeRule, login: Login
) -> None:
    own = alert(make_rule(), 1_000, minutes=None)
    foreign = alert(
        Rule.objects.create(app=foreign_app, name="Secret", expr="x", created_ms=1, changed_ms=1), 1_000, minutes=None
    )
    assert "Secret" not in text(login("vera"))
    login("edda").post("/alerts/active", {"take": foreign.pk})
    login("edda").post("/alerts/active", {"silence": "1", "alert": [foreign.pk]})
    assert (Acknowledgement.objects.count(), Silence.objects.count()) == (0, 0)
    assert login("mallory").get(f"/alerts/active?app={own.rule.app_id}").status_code == 404


def test_what_is_over_or_nothing_cannot_be_taken(make_rule: MakeRule, login: Login) -> None:
    over = alert(make_rule(), 1_000)
    said: list[Any] = []
    for posted in ({"take": over.pk}, {"acknowledge": "1"}, {"take": "9" * 30}):
        answer = login("edda").post("/alerts/active", posted, follow=True)
        said += [str(each) for each in answer.context["messages"]]
    assert said == ["These alerts are over.", "Choose alerts that go on.", "Choose alerts that go on."]
