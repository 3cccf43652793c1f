"""The page of incidents: its lines, filters and states, and who sees it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.history import limits
from alerts.models import Rule
from alerts.telling import actions
from spm.accounts.models import App
from spm.events.models import Event
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.noise.past import MINUTE_MS, alert

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
Login = Callable[[str], Client]
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@pytest.fixture(autouse=True)
def page_clock(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("incidents", "views"):
        monkeypatch.setattr(f"alerts.pages.alert.{module}._clock", world.clock)


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/alerts/incidents{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_line_has_the_alerts_of_a_rule_with_who_took_them_and_what_they_noted(
    make_rule: MakeRule, login: Login, people: dict[str, User]
) -> None:
    fired = alert(make_rule(), START_MS - HOUR_MS, minutes=None)
    alert(fired.rule, START_MS - 3 * HOUR_MS, host="nobody's")
    actions.acknowledge_episode(fired, by=people["edda"], for_ms=DAY_MS, now_ms=fired.created_ms + 7 * MINUTE_MS)
    login("edda").post(f"/alerts/{fired.pk}/note", {"text": "the <disk> is full"})
    page = text(login("vera"))
    assert f'href="/alerts/{fired.pk}"' in page
    assert all(each in page for each in ("CPU is busy", "edda, after 7 min", "the &lt;disk&gt; is full", "1 open"))
    assert 'class="bar warning open"' in page
    week_ms = 7 * DAY_MS
    at = round(1_000 * (week_ms - HOUR_MS + 7 * MINUTE_MS) / week_ms, 1)
    assert page.count('class="tick"') == 1
    assert f'class="tick" x1="{at}" x2="{at}"' in page


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("", {"now", "days ago"}),
        ("?range=1h", {"now"}),
        ("?range=24h", {"now"}),
        ("?range=30d", {"now", "days ago", "weeks ago"}),
        ("?range=90d", {"now", "days ago", "weeks ago", "months ago"}),
        ("?range=forever", {"now", "days ago"}),
        ("?severity=critical", {"days ago"}),
        ("?severity=unheard-of", {"now", "days ago"}),
        ('?matchers=host="now"', {"now"}),
        ("?by=host&start=" + "9" * 30, {"now", "days ago"}),
    ],
)
def test_the_page_is_filtered(make_rule: MakeRule, login: Login, query: str, hosts: set[str]) -> None:
    calm, loud = make_rule(), make_rule(name="Disk", severity="critical")
    for rule, host, hours in (
        (calm, "now", 0.5),
        (loud, "days ago", 72),
        (calm, "weeks ago", 480),
        (calm, "months ago", 1_500),
    ):
        alert(rule, START_MS - round(hours * HOUR_MS), host=host)
    page = text(login("vera"), query)
    assert {host for host in ("now", "days ago", "weeks ago", "months ago") if f"host={host}<" in page} == hosts


def test_lines_may_be_label_values(make_rule: MakeRule, login: Login) -> None:
    for name in ("CPU", "Disk"):
        alert(make_rule(name=name), START_MS - HOUR_MS, host="web-1")
    lanes = [text(login("vera"), query).count('<details class="lane"') for query in ("", "?by=host")]
    assert lanes == [2, 1]
    page = text(login("vera"), "?by=host")
    assert 'web-1 <small class="quiet">2</small>' in page
    assert 'Disk <small class="quiet">host=web-1' in page
    assert '<span class="quiet">without zone</span>' in text(login("vera"), "?by=zone")


def test_lines_may_be_those_of_each_label_but_what_all_alerts_have(make_rule: MakeRule, login: Login) -> None:
    alert(make_rule(), START_MS - HOUR_MS)
    assert re.findall(r"[?&;]by=(\w+)", text(login("vera"))) == ["host", "severity"]


def test_the_tiles_count_alerts_and_show_the_means(make_rule: MakeRule, login: Login, people: dict[str, User]) -> None:
    rule = make_rule()
    page = text(login("vera"))
    assert [re.findall(f"<dt>{name}</dt><dd>([^ <]*)", page) for name in ("Alerts", "Mean time to resolve")] == [
        ["0"],
        ["–"],
    ]
    fired = alert(rule, START_MS - HOUR_MS, minutes=None)
    actions.acknowledge_episode(fired, by=people["edda"], for_ms=DAY_MS, now_ms=fired.created_ms + 7 * MINUTE_MS)
    for host in "bc":
        alert(rule, START_MS - 2 * HOUR_MS, minutes=30, host=host)
    page = text(login("vera"))
    assert "<dt>Alerts</dt><dd>3</dd>" in page
    assert "<dt>Go on</dt><dd>1</dd>" in page
    assert "<dt>Mean time to acknowledge</dt><dd>7 min <small>1 of 3</small>" in page
    assert "<dt>Mean time to resolve</dt><dd>30 min</dd>" in page


def test_the_page_says_that_there_are_more_alerts_than_are_counted(
    make_rule: MakeRule, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INCIDENTS_MAX", 1)
    alert(make_rule(), START_MS - HOUR_MS)
    assert "More alerts than can be shown" not in text(login("vera"))
    alert(make_rule(), START_MS - HOUR_MS)
    assert "More alerts than can be shown" in text(login("vera"))


def test_missing_data_is_called_so(make_rule: MakeRule, login: Login) -> None:
    alert(make_rule(), START_MS - HOUR_MS, aspect="missing")
    assert "host=a: no data<" in text(login("vera"))


def test_a_longer_list_of_lines_goes_on_and_a_long_line_says_what_it_leaves_out(
    make_rule: MakeRule, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LANES_SHOWN", 1)
    monkeypatch.setattr(limits, "LISTED_MAX", 1)
    for n in range(2):
        alert(make_rule(name="First"), START_MS - HOUR_MS, host=f"f{n}")
    alert(make_rule(name="Second"), START_MS - 2 * HOUR_MS, host="s")
    page = text(login("vera"), "?by=alertname")
    assert "host=f1<" in page
    assert "host=f0<" not in page
    assert "1 earlier ones are not listed" in page
    assert page.count('class="bar warning"') == 2, "its line shows all"
    assert "host=s<" not in page
    assert "start=1" in page
    last = text(login("vera"), "?by=alertname&start=1")
    assert "host=s<" in last
    assert "host=f1<" not in last
    assert "Next lines" in page
    assert "Next lines" not in last


def test_deploys_and_notes_of_the_range_stand_above(
    app: App, login: Login, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    alert(make_rule(), START_MS - HOUR_MS)
    other = App.objects.create(organisation=app.organisation, name="Other")
    for name, hours, changes in (
        ("api 2.4.1", -1, {}),
        ("api 2.4.2", -2, {}),
        ("long ago", -999, {}),
        ("later", 1, {}),
        ("of another app", -1, {"app": other}),
        ("of the product itself", -1, {"is_posted": False}),
    ):
        fields: dict[str, Any] = {"app": app, "is_posted": True, "kind": "deploy", "made_ms": START_MS, **changes}
        at_ms = START_MS + hours * HOUR_MS
        Event.objects.create(organisation=app.organisation, event_id=name, text=name, at_ms=at_ms, **fields)
    shown = re.findall("deploy: ([^<]*)<", text(login("vera"), f"?app={app.pk}"))
    assert sorted(shown) == ["api 2.4.1", "api 2.4.2"]
    monkeypatch.setattr("alerts.pages.alert.incidents._MARKS_SHOWN", 1)
    assert len(re.findall("deploy: ", text(login("vera"), f"?app={app.pk}"))) == 1


def test_the_page_says_that_nothing_fired_that_nothing_matches_and_what_is_wrong(app: App, login: Login) -> None:
    assert "Nothing fired" in text(login("vera"))
    assert "No such alert" in text(login("vera"), "?severity=critical")
    assert 'role="alert"' in text(login("vera"), "?matchers=host")


def test_another_organisations_incidents_are_not_found(
    app: App, foreign_app: App, make_rule: MakeRule, login: Login
) -> None:
    own = alert(make_rule(), START_MS - HOUR_MS, host="ours")
    assert "host=ours" not in text(login("mallory"))
    assert login("mallory").get(f"/alerts/incidents?app={app.pk}").status_code == 404
    assert login("mallory").post(f"/alerts/{own.pk}/note", {"text": "x"}).status_code == 404
    assert Client().get("/alerts/incidents").status_code == 302


def test_each_app_has_its_own_incidents(app: App, make_rule: MakeRule, login: Login) -> None:
    other = App.objects.create(organisation=app.organisation, name="Other")
    rule = Rule.objects.create(app=other, name="Secret", expr="x", created_ms=1, changed_ms=1)
    alert(rule, START_MS - HOUR_MS, host="other")
    alert(make_rule(), START_MS - HOUR_MS, host="own")
    page = text(login("vera"), f"?app={app.pk}")
    assert "host=own<" in page
    assert "host=other<" not in page


def test_a_note_takes_the_right_to_write_events_and_a_text(make_rule: MakeRule, login: Login) -> None:
    fired = alert(make_rule(), START_MS - HOUR_MS)
    assert login("vera").post(f"/alerts/{fired.pk}/note", {"text": "x"}).status_code == 403
    for wrong in ("", " \0", "x" * 501):
        login("edda").post(f"/alerts/{fired.pk}/note", {"text": wrong})
    assert not Event.objects.filter(kind="note").exists()


def test_a_note_of_one_alert_is_not_shown_at_another(make_rule: MakeRule, login: Login) -> None:
    rule = make_rule()
    first, second = (alert(rule, START_MS - HOUR_MS, host=host) for host in "ab")
    login("edda").post(f"/alerts/{first.pk}/note", {"text": "rebooted it"})
    pages = [login("vera").get(f"/alerts/{each.pk}").content.decode() for each in (first, second)]
    assert ["rebooted it" in page for page in pages] == [True, False]
