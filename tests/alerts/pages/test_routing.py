"""The pages of policies, inhibitions and maintenance windows: written, changed, deleted, refused; and the tester."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts import open_alerts
from alerts.models import Episode, Rule
from alerts.models.telling import ContactPoint, Inhibition, MuteTiming, Policy
from alerts.telling import limits
from alerts.telling.alert_facts import matched_labels
from spm.accounts.models import App
from spm.limits import LABELS_MAX
from tests.alerts.conftest import AlertingWorld
from tests.alerts.noise.past import alert
from tests.alerts.telling import configure

pytestmark = pytest.mark.django_db


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def tried(client: Client, labels: str) -> str:
    return text(client, f"/alerts/policies?labels={quote(labels)}")


def form_of(app: App, **changes: Any) -> dict[str, Any]:
    point, _ = ContactPoint.objects.get_or_create(organisation=app.organisation, name="On call")
    form = {"matchers": 'env="prod"', "contact_point": point.pk, "group_by": "alertname, host", "position": 0}
    return {**form, "wait_ms": "10s", "interval_ms": "", "repeat_ms": "1h", **changes}


def test_an_admin_creates_changes_and_deletes_a_policy(app: App, login: Callable[[str], Client]) -> None:
    assert login("edda").post("/alerts/policies", form_of(app)).status_code == 403
    assert login("olga").post("/alerts/policies", form_of(app)).status_code == 302
    policy = Policy.objects.get()
    assert (policy.matchers, policy.group_by) == ('env="prod"', ["alertname", "host"])
    assert (policy.wait_ms, policy.interval_ms, policy.repeat_ms) == (10_000, limits.GROUP_INTERVAL_MS, 3_600_000)
    assert 'value="1h"' in text(login("olga"), f"/alerts/policies/{policy.pk}")
    login("olga").post(f"/alerts/policies/{policy.pk}", form_of(app, matchers='env="test"'))
    assert Policy.objects.get().matchers == 'env="test"'
    assert "env=&quot;test&quot;" in text(login("vera"), "/alerts/policies")
    login("olga").post(f"/alerts/policies/{policy.pk}/delete")
    assert not Policy.objects.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matchers": "env=~"}, "matchers"),
        ({"wait_ms": "soon"}, "is not a duration"),
        ({"interval_ms": "2h"}, "the repetition not shorter"),
        ({"contact_point": 1 << 40}, "Select a valid choice"),
    ],
)
def test_a_policy_that_cannot_be_stays_on_its_form_with_the_reason(
    app: App, login: Callable[[str], Client], changes: dict[str, Any], reason: str
) -> None:
    answer = login("olga").post("/alerts/policies", form_of(app, **changes))
    assert (answer.status_code, reason in answer.content.decode()) == (200, True)
    assert not Policy.objects.exists()


def test_the_page_renders_no_more_open_alerts_than_it_shows(
    make_rule: Callable[..., Rule], login: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, rendered = make_rule(), list[Episode]()
    for host in range(20):
        alert(rule, 1, minutes=None, host=str(host))

    def render(episode: Episode) -> dict[str, str]:
        rendered.append(episode)
        return matched_labels(episode)

    monkeypatch.setattr(open_alerts, "matched_labels", render)
    assert text(login("vera"), "/alerts/policies").count("&amp;labels=") == 5
    assert len(rendered) <= 6


def steps_of(policy: Policy) -> list[tuple[int, str]]:
    return [(each.after_ms, each.contact_point.name) for each in policy.escalation.all()]


def test_steps_of_escalation_are_written_shown_changed_and_removed(app: App, login: Callable[[str], Client]) -> None:
    boss = ContactPoint.objects.create(organisation=app.organisation, name="Boss")
    olga, steps = login("olga"), {"after_1": "30m", "point_1": boss.pk, "after_2": "10m", "point_2": boss.pk}
    olga.post("/alerts/policies", form_of(app, **steps))
    policy = Policy.objects.get()
    assert steps_of(policy) == [(600_000, "Boss"), (1_800_000, "Boss")]
    page = text(olga, f"/alerts/policies/{policy.pk}")
    assert page.index('value="10m"') < page.index('value="30m"')
    olga.post(f"/alerts/policies/{policy.pk}", form_of(app))  # sent without these fields: they stay
    assert len(steps_of(policy)) == 2
    olga.post(f"/alerts/policies/{policy.pk}", form_of(app, after_1="", point_1="", after_2="1h", point_2=boss.pk))
    assert steps_of(policy) == [(3_600_000, "Boss")]
    olga.post(f"/alerts/policies/{policy.pk}", form_of(app, after_1="", point_1=""))
    assert steps_of(policy) == []


@pytest.mark.parametrize(
    ("after", "has_point", "reason"),
    [
        ("", True, "After how long does this step come?"),
        ("10m", False, "Who hears of it then?"),
        ("5s", True, "a step of escalation comes after 10000"),
        ("soon", True, "is not a duration"),
    ],
)
def test_a_step_of_escalation_that_cannot_be_stays_on_the_form_with_the_reason(
    app: App, login: Callable[[str], Client], after: str, has_point: bool, reason: str
) -> None:
    boss = ContactPoint.objects.create(organisation=app.organisation, name="Boss")
    step = {"after_1": after, "point_1": boss.pk if has_point else ""}
    answer = login("olga").post("/alerts/policies", form_of(app, **step))
    assert (answer.status_code, reason in answer.content.decode()) == (200, True)
    assert not Policy.objects.exists()


def test_the_tester_names_the_contact_point_and_says_why_not_the_others(
    app: App, people: dict[str, User], login: Callable[[str], Client]
) -> None:
    configure.policy(app, 'team="db"', "db@example.org", by=people["olga"])
    configure.policy(app, 'severity="critical"', "ops@example.org", by=people["olga"], position=1)
    page = tried(login("vera"), 'severity="critical", host="a"')
    assert "It goes to <strong>point 1</strong>" in page
    assert "there is no team; this takes team=&quot;db&quot;" in page
    assert "No policy takes it" in tried(login("vera"), 'host="a"')
    assert "an alert has labels" in tried(login("vera"), 'host!="a", b="c"')


def test_the_tester_offers_the_alerts_that_are_open(
    make_rule: Callable[..., Rule], world: AlertingWorld, login: Callable[[str], Client]
) -> None:
    make_rule()
    world.evaluate_values(95)
    assert "alertname=&quot;CPU is busy&quot;" in text(login("vera"), "/alerts/policies")


def test_the_tester_takes_as_many_labels_as_an_alert_has_each_once(
    app: App, people: dict[str, User], login: Callable[[str], Client]
) -> None:
    configure.policy(app, 'l24="x"', "ops@example.org", by=people["olga"])
    labels = ", ".join(f'l{n}="x"' for n in range(LABELS_MAX))
    assert "It goes to <strong>point 0</strong>" in tried(login("vera"), f'{labels}, path="{"x" * 2_000}"')
    assert "write each name once" in tried(login("vera"), 'l24="x", l24="y"')


def test_an_inhibition_is_created_shown_and_deleted(app: App, login: Callable[[str], Client]) -> None:
    form = {"source": 'alertname="down"', "target": 'severity="info"', "equal": "host"}
    assert "parse error" in login("olga").post("/alerts/inhibitions", {**form, "source": "down"}).content.decode()
    login("olga").post("/alerts/inhibitions", form)
    inhibition = Inhibition.objects.get()
    assert "is not told, for the same host" in text(login("vera"), "/alerts/policies")
    assert login("edda").post(f"/alerts/inhibitions/{inhibition.pk}/delete").status_code == 403
    login("olga").post(f"/alerts/inhibitions/{inhibition.pk}/delete")
    assert not Inhibition.objects.exists()


def test_an_editor_creates_a_window_and_sees_its_next_three_times(app: App, login: Callable[[str], Client]) -> None:
    form = {"name": "Backup", "matchers": 'host="a"', "cron": "0 2 * * 6", "zone": "Europe/Berlin", "duration_ms": "2h"}
    assert "there is no time zone" in login("edda").post("/alerts/windows", {**form, "zone": "Mars"}).content.decode()
    assert login("edda").post("/alerts/windows", form).status_code == 302
    page = text(login("vera"), "/alerts/windows")
    assert page.count(" UTC</time> – ") == limits.WINDOWS_SHOWN
    assert "Europe/Berlin, for 2h" in page
    login("edda").post(f"/alerts/windows/{MuteTiming.objects.get().pk}/delete")
    assert "No maintenance windows" in text(login("vera"), "/alerts/windows")


def test_what_belongs_to_another_organisation_is_not_there(
    app: App, foreign_app: App, people: dict[str, User], login: Callable[[str], Client]
) -> None:
    policy = configure.policy(foreign_app, 'a="b"', "x@example.org", by=people["mallory"])
    for path in (f"policies/{policy.pk}", f"policies/{policy.pk}/delete"):
        assert login("olga").post(f"/alerts/{path}", form_of(app)).status_code == 404
    assert "a=&quot;b&quot;" not in text(login("olga"), "/alerts/policies")
