"""The page of incidents: its lines, filters and states, and who sees it."""

from collections.abc import Callable

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
    actions.acknowledge_episode(fired, by=people["edda"], for_ms=1_000, now_ms=fired.created_ms + 7 * MINUTE_MS)
    login("edda").post(f"/alerts/{fired.pk}/note", {"text": "the <disk> is full"})
    page = text(login("vera"))
    assert f'href="/alerts/{fired.pk}"' in page
    assert all(each in page for each in ("CPU is busy", "edda, after 7 min", "the &lt;disk&gt; is full", "1 open"))
    assert 'class="bar warning open"' in page
    assert page.count('class="tick"') == 1


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("", {"now", "days ago"}),
        ("?range=1h", {"now"}),
        ("?range=30d", {"now", "days ago", "weeks ago"}),
        ("?range=forever", {"now", "days ago"}),
        ("?severity=critical", {"days ago"}),
        ("?severity=unheard-of", {"now", "days ago"}),
        ('?matchers=host="now"', {"now"}),
        ("?by=host&start=" + "9" * 30, {"now", "days ago"}),
    ],
)
def test_the_page_is_filtered(make_rule: MakeRule, login: Login, query: str, hosts: set[str]) -> None:
    calm, loud = make_rule(), make_rule(name="Disk", severity="critical")
    for rule, host, hours in ((calm, "now", 0.5), (loud, "days ago", 72), (calm, "weeks ago", 24 * 20)):
        alert(rule, START_MS - round(hours * HOUR_MS), host=host)
    page = text(login("vera"), query)
    assert {host for host in ("now", "days ago", "weeks ago") if f"host={host}<" in page} == hosts


def test_lines_may_be_label_values(make_rule: MakeRule, login: Login) -> None:
    for name in ("CPU", "Disk"):
        alert(make_rule(name=name), START_MS - HOUR_MS, host="web-1")
    lanes = [text(login("vera"), query).count('<details class="lane"') for query in ("", "?by=host")]
    assert lanes == [2, 1]
    assert 'web-1 <small class="quiet">2</small>' in text(login("vera"), "?by=host")


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
    assert "host=s<" not in page
    assert "start=1" in page
    assert "host=s<" in text(login("vera"), "?by=alertname&start=1")


def test_deploys_and_notes_of_the_range_stand_above(app: App, login: Login, make_rule: MakeRule) -> None:
    alert(make_rule(), START_MS - HOUR_MS)
    texts = {"api 2.4.1": START_MS - HOUR_MS, "long ago": START_MS - 999 * HOUR_MS}
    for name, at_ms in texts.items():
        Event.objects.create(
            organisation=app.organisation, app=app, event_id=name, kind="deploy", text=name, at_ms=at_ms,
            made_ms=at_ms, is_posted=True,
        )  # fmt: skip
    page = text(login("vera"))
    assert "deploy: api 2.4.1" in page
    assert "long ago" not in page


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
