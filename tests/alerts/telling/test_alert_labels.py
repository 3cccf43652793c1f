"""Labels and annotations of rules and groups: policies and silences match them, and every receiver gets them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from alerts import rulebook
from alerts.models import Episode, Rule
from alerts.models.telling import Inhibition, Notification, Silence
from alerts.notify.http.alert_format import alertmanager_alert
from alerts.rulefiles.apply import Author, import_files
from alerts.telling import actions, limits
from alerts.telling.alert_facts import annotations_of
from alerts.telling.configuration import view
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld, draft
from tests.alerts.telling.configure import policy

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
LABELS = {"team": "db", "shelf": "{{ $labels.host }}-shelf"}
ANNOTATIONS = {
    "summary": "CPU of {{ $labels.host }} at {{ $value }}",
    "description": "It is busy.",
    "runbook_url": "https://example.org/cpu",
}


def fire(world: AlertingWorld, value: float = 95) -> None:
    """Let host a fire, and everything due be sent."""
    world.evaluate_values(value)
    world.clock.advance(limits.GROUP_WAIT_MS)
    world.tell()


def first_line() -> dict[str, Any]:
    line: dict[str, Any] = Notification.objects.order_by("pk")[0].body["lines"][0]
    return line


def test_a_policy_takes_an_alert_by_a_label_of_its_rule(
    make_rule: MakeRule, world: AlertingWorld, app: App, people: dict[str, Any], mailoutbox: list[Any]
) -> None:
    policy(app, 'team="db", shelf="a-shelf"', "dba@example.org", by=people["olga"])
    policy(app, 'team="web"', "web@example.org", by=people["olga"])
    make_rule(labels=LABELS, receivers=())
    fire(world)
    assert [mail.to for mail in mailoutbox] == [["dba@example.org"]]


def test_a_silence_takes_an_alert_by_a_label_of_its_rule(
    make_rule: MakeRule, world: AlertingWorld, app: App, people: dict[str, Any], mailoutbox: list[Any]
) -> None:
    now_ms, by = world.clock.now_ms(), people["edda"]
    to_ms = now_ms + 3_600_000
    actions.add_silence(app.organisation, 'team="db"', from_ms=now_ms, to_ms=to_ms, comment="", by=by, now_ms=now_ms)
    make_rule(labels=LABELS)
    fire(world)
    assert mailoutbox == []


def test_a_row_that_cannot_be_read_holds_nobody_up_and_hides_nothing(
    make_rule: MakeRule,
    world: AlertingWorld,
    app: App,
    people: dict[str, Any],
    mailoutbox: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_ms, by = world.clock.now_ms(), people["edda"]
    to_ms = now_ms + 3_600_000
    policy(app, "{}", "first@example.org", by=people["olga"])
    policy(app, 'team="db"', "dba@example.org", by=people["olga"])
    actions.add_silence(app.organisation, 'team="db"', from_ms=now_ms, to_ms=to_ms, comment="", by=by, now_ms=now_ms)
    Silence.objects.update(matchers='team=~"("')
    Inhibition.objects.create(organisation=app.organisation, source="{}", target='team="db"', equal=[])
    make_rule(labels=LABELS, receivers=())
    fire(world)
    assert sorted(mail.to[0] for mail in mailoutbox) == ["dba@example.org", "first@example.org"]
    assert len({record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()}) == 3


def test_a_mail_has_summary_description_and_runbook(
    make_rule: MakeRule, world: AlertingWorld, mailoutbox: list[Any]
) -> None:
    make_rule(annotations=ANNOTATIONS)
    fire(world)
    plain, html = mailoutbox[0].body, mailoutbox[0].alternatives[0][0]
    for text in ("CPU of a at 95", "It is busy.", "https://example.org/cpu"):
        assert text in plain
        assert text in html


def test_a_runbook_that_is_no_web_address_is_no_link(
    make_rule: MakeRule, world: AlertingWorld, mailoutbox: list[Any]
) -> None:
    make_rule(annotations={"runbook_url": "javascript:alert(1)"})
    fire(world)
    assert "javascript" not in mailoutbox[0].body + mailoutbox[0].alternatives[0][0]


def test_an_alert_of_a_rule_file_is_what_prometheus_sends(
    app: App, world: AlertingWorld, people: dict[str, Any]
) -> None:
    policy(app, 'severity="warning"', "ops@example.org", by=people["olga"])
    rule = {"alert": "CPU", "expr": "cpu > 90", "labels": {"team": "db"}, "annotations": {"summary": "{{ $value }}"}}
    file = {"groups": [{"name": "g", "labels": {"env": "prod"}, "rules": [rule]}]}
    import_files(app, {"f": json.dumps(file)}, by=Author(people["edda"], "edda"), now_ms=world.clock.now_ms())
    fire(world)
    alert = alertmanager_alert(first_line(), at_ms=0, lasts_ms=0, base_url="")
    assert alert["labels"] == {"alertname": "CPU", "host": "a", "team": "db", "env": "prod"}
    assert alert["annotations"] == {"summary": "95"}


def test_another_rules_alert_has_its_severity_its_app_and_a_summary_besides(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    make_rule(labels=LABELS, annotations={"team_page": "x"})
    fire(world)
    alert = alertmanager_alert(first_line(), at_ms=0, lasts_ms=0, base_url="")
    own = {"severity": "warning", "app": "Shop", "team": "db", "shelf": "a-shelf"}
    assert alert["labels"] == {"alertname": "CPU is busy", "host": "a", **own}
    assert alert["annotations"]["team_page"] == "x"
    assert alert["annotations"]["summary"] == "CPU is busy: host=a"


def test_an_end_has_the_labels_of_its_beginning_though_the_value_is_another(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    make_rule(labels={"at": "{{ $value }}"}, annotations={"summary": "{{ $value }}"})
    fire(world, 95)
    world.clock.advance(limits.GROUP_INTERVAL_MS)
    world.evaluate_values(99, 10)
    world.tell()
    first, last = (row.body["lines"][0] for row in Notification.objects.order_by("pk"))
    assert (first["kind"], last["kind"]) == ("firing", "resolved")
    assert first["alert_labels"] == last["alert_labels"]


@pytest.mark.parametrize("aspect", ["missing", "error"])
def test_what_has_no_value_is_told_with_the_runbook_alone(make_rule: MakeRule, aspect: str) -> None:
    episode = Episode(rule=make_rule(annotations=ANNOTATIONS), aspect=aspect, labels={"host": "a"})
    assert annotations_of(episode) == {"runbook_url": "https://example.org/cpu"}


def test_a_new_label_of_a_rule_that_fires_is_matched_from_then_on(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, Any]
) -> None:
    rule = make_rule()
    fire(world)
    assert "team" not in view(Episode.objects.get()).labels
    rulebook.change(rule, draft(labels={"team": "db"}), by=people["edda"], now_ms=world.clock.now_ms())
    assert view(Episode.objects.get()).labels["team"] == "db"
