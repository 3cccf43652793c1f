"""The rule editor: every kind is made and edited on the page, errors stand at their fields, and rules are tried."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import Rule, RuleGroup
from alerts.models.telling import ContactPoint, Policy, Receiver
from spm import query
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld, Machine
from tests.alerts.knowledge_world import Installation

pytestmark = pytest.mark.django_db
COMMON = {"name": "Rule", "severity": "critical", "receivers": "ops@example.org", "enabled": "on", "for_ms": "5m"}
COMPARED = {"comparator": ">", "threshold": "90"}
KINDS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "threshold": ({**COMPARED, "expr": "cpu", "recovery": "80"}, {"kind": "threshold", "recovery": 80.0}),
    "rate": ({**COMPARED, "expr": "cpu", "window_ms": "10m"}, {"kind": "rate", "window_ms": 600_000}),
    "change": ({**COMPARED, "expr": "cpu", "window_ms": "1h"}, {"kind": "change", "window_ms": 3_600_000}),
    "heartbeat": (
        {"expr": "cpu", "window_ms": "2m", "forget_ms": "1d", "by": "host, job"},
        {"kind": "heartbeat", "window_ms": 120_000, "forget_ms": 86_400_000, "by": ["host", "job"]},
    ),
    "anomaly": ({**COMPARED, "expr": "cpu", "weeks": "6", "spread_min": "2"}, {"weeks": 6, "spread_min": 2.0}),
    "forecast": ({**COMPARED, "expr": "cpu", "horizon_ms": "8h"}, {"kind": "forecast", "horizon_ms": 28_800_000}),
    "promql": ({"expr": "cpu > 90"}, {"kind": "threshold", "comparator": "", "recovery": None}),
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine({"web-1": 97.0, "web-2": 12.5})
    monkeypatch.setattr("alerts.pages.editor.views.query_engine", machine.query)
    monkeypatch.setattr("alerts.pages.editor.check.open_session", machine.open_session)
    return machine


@pytest.fixture
def editor(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["edda"])
    return client


def fields_of(page: str) -> dict[str, str]:
    """Return the fields of the form on a page, as a browser sends them."""
    fields = dict[str, str]()
    form = page[page.index('id="rule-form"') :]
    for tag in re.findall(r"<input[^>]*>", form):
        of = {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if of.get("type") not in ("radio", "checkbox") or " checked" in tag:
            fields[of["name"]] = of.get("value", "on" if of.get("type") == "checkbox" else "")
    for name, body in re.findall(r'<textarea name="(\w+)"[^>]*>\n?(.*?)</textarea>', form, re.DOTALL):
        fields[name] = html.unescape(body)
    for name, body in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', body)
        fields[name] = html.unescape(chosen[1]) if chosen else ""
    return fields


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_of_every_kind_is_made_and_saving_it_again_changes_nothing(
    app: App, machine: Machine, editor: Client, kind: str
) -> None:
    sent, wanted = KINDS[kind]
    assert editor.post(f"/alerts/new?app={app.pk}", {**COMMON, **sent, "kind": kind}).status_code == 302
    rule = Rule.objects.get()
    assert {name: getattr(rule, name) for name in wanted} == wanted
    before = Rule.objects.values().get()
    fields = fields_of(editor.get(f"/alerts/rules/{rule.pk}/edit").content.decode())
    assert editor.post(f"/alerts/rules/{rule.pk}/edit", fields).status_code == 302
    assert {**Rule.objects.values().get(), "changed_ms": 0} == {**before, "changed_ms": 0}


def test_a_composite_of_rules_of_the_app_is_made(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    part = make_rule()
    sent = {**COMMON, "kind": "composite", "expr": f"#{part.pk}", "by": "host"}
    assert editor.post(f"/alerts/new?app={app.pk}", sent).status_code == 302
    assert Rule.objects.get(kind="composite").by == ["host"]
    refusal = editor.post(f"/alerts/new?app={app.pk}", {**sent, "expr": "#999"}).content.decode()
    assert "rules that this app has not: #999" in refusal


def test_labels_and_texts_survive_being_shown_and_saved(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    texts = {"summary": "{{ $value }}", "runbook_url": "https://r", "dashboard": "line 1\nline = 2"}
    rule = make_rule(labels={"team": "db", "site": "{{ $labels.site }}"}, annotations=texts)
    fields = fields_of(editor.get(f"/alerts/rules/{rule.pk}/edit").content.decode())
    assert editor.post(f"/alerts/rules/{rule.pk}/edit", fields).status_code == 302
    rule.refresh_from_db()
    assert (rule.labels, rule.annotations) == ({"team": "db", "site": "{{ $labels.site }}"}, texts)


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        ("rate", {"window_ms": "soon"}, "&#x27;soon&#x27; is not a duration"),
        ("rate", {"window_ms": "0"}, "At least 1s; got 0"),
        ("anomaly", {"weeks": "2"}, "greater than or equal to 3"),
        ("heartbeat", {"by": "host, 1st"}, "“1st” is not a label that a rule can set"),
        ("threshold", {"labels": "team web"}, "“team web” has no ="),
        ("threshold", {"labels": "alertname=x"}, "“alertname” is not a label that a rule can set"),
        ("threshold", {"labels": "a=1\na=2"}, "a stands twice"),
        ("threshold", {"labels": "team={{ $valu }}"}, "Not a valid template"),
        ("threshold", {"summary": "{{ $valu }}"}, "Not a valid template"),
        ("threshold", {"hold_ms": "25h"}, "At most 1d; got 25h"),
        ("composite", {"expr": "#1 and"}, "lacks a rule"),
        ("rate", {"expr": "sum("}, "parse error"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(
    app: App, machine: Machine, editor: Client, kind: str, changes: dict[str, str], text: str
) -> None:
    sent = {**COMMON, **COMPARED, "expr": "cpu", "kind": kind, **changes}
    page = editor.post(f"/alerts/new?app={app.pk}", sent).content.decode()
    [name] = changes
    field = page[page.index(f'name="{name}"') :]
    assert text in field[: field.index("</div>\n")] or text in field[: field.index('<div class="field')]
    assert not Rule.objects.exists()


def test_a_rule_gets_a_schedule_and_its_page_says_when_its_alerts_are_told_next(
    app: App, machine: Machine, editor: Client
) -> None:
    schedule = {"schedule_cron": "0 8 * * 1-5", "schedule_ms": "10h", "schedule_zone": "Europe/Berlin"}
    address = f"/alerts/new?app={app.pk}"
    refused = editor.post(address, {**COMMON, **KINDS["threshold"][0], **schedule, "schedule_cron": "at eight"})
    assert "names no time: write five fields" in html.unescape(refused.content.decode())
    editor.post(address, {**COMMON, **KINDS["threshold"][0], **schedule})
    rule = Rule.objects.get()
    assert (rule.schedule_cron, rule.schedule_zone, rule.schedule_ms) == ("0 8 * * 1-5", "Europe/Berlin", 36_000_000)
    page = editor.get(f"/alerts/rules/{rule.pk}").content.decode()
    assert re.search(r"told for 10h from 0 8 \* \* 1-5 \(Europe/Berlin\), next from <time [^>]*>20", page)


@pytest.mark.parametrize(
    ("drawn", "written"),
    [
        ("avg by (host) (avg_over_time(cpu[$window]))", "avg by (host) (avg_over_time(cpu[5m]))"),
        ("rate(net[$__rate_interval]) + delta(x[$__range])", "rate(net[5m]) + delta(x[5m])"),
        ('x{path="$window"}', 'x{path="$window"}'),
    ],
)
def test_a_rule_that_begins_at_a_chart_has_windows_of_its_own(
    drawn: str, written: str, app: App, editor: Client
) -> None:
    page = editor.get("/alerts/new", {"app": str(app.pk), "expr": drawn}).content.decode()
    assert fields_of(page)["expr"].strip() == written


def test_what_the_chosen_kind_does_not_use_is_not_looked_at(app: App, machine: Machine, editor: Client) -> None:
    sent = {**COMMON, "kind": "promql", "expr": "cpu > 90", "window_ms": "soon", "threshold": "", "weeks": "99"}
    assert editor.post(f"/alerts/new?app={app.pk}", sent).status_code == 302


def test_a_rule_of_a_file_without_receivers_can_be_saved(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    rule = make_rule(receivers=())
    fields = fields_of(editor.get(f"/alerts/rules/{rule.pk}/edit").content.decode())
    assert editor.post(f"/alerts/rules/{rule.pk}/edit", fields).status_code == 302


@pytest.fixture
def history(
    app: App, make_rule: Callable[..., Rule], world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    """An app with a rule, whose host was busy twice: for a minute, and for five."""
    make_rule(expr="absent(cpu)")
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    monkeypatch.setattr("alerts.pages.editor.views._clock", world.clock)
    start_ms = world.clock.now_ms() // 10_000 * 10_000
    for step in range(180):
        busy = 30 <= step < 36 or 90 <= step < 120
        installation.send("a", start_ms + step * 10_000, 97.5 if busy else 20.0)
    world.clock.advance(1_800_000)
    installation.run_quietly(60)
    return installation


TRIED = {"kind": "threshold", "expr": "cpu", **COMPARED, "for_ms": "", "receivers": "a@example.org", "days": "1"}


def test_the_editor_says_how_often_a_rule_had_fired_and_what_a_longer_for_saves(
    app: App, history: Installation, people: dict[str, User], editor: Client
) -> None:
    page = " ".join(editor.post(f"/alerts/try?app={app.pk}", TRIED).content.decode().split())
    assert "Would have fired <strong>2 times</strong> in the last day, and sent 4 notifications" in page
    assert "<strong>1 receiver</strong>" in page
    assert '<td>1m</td><td class="number">1</td><td class="number">2</td><td>2</td>' in page
    assert page.count('class="fired"') == 2
    assert page.count('class="told"') == 4
    assert page.count('<path class="series') == 3
    assert Rule.objects.count() == 1


def test_receivers_of_policies_are_counted_once(app: App, history: Installation, editor: Client) -> None:
    point = ContactPoint.objects.create(organisation=app.organisation, name="P")
    for target in ("a@example.org", "b@example.org"):
        row = Receiver.objects.create(organisation=app.organisation, kind="mail", target=target, created_ms=0, tokens=1)
        point.receivers.add(row)
    waits = {"wait_ms": 0, "interval_ms": 1, "repeat_ms": 1}
    Policy.objects.create(organisation=app.organisation, matchers='severity="critical"', contact_point=point, **waits)
    counts = [
        editor.post(f"/alerts/try?app={app.pk}", {**TRIED, "severity": severity}).content.decode()
        for severity in ("critical", "info")
    ]
    assert ["each of 2 receivers" in page for page in counts] == [True, False]
    assert "<strong>1 receiver<" in counts[1]


def test_a_rule_is_tried_without_script_and_without_being_saved(
    app: App, history: Installation, editor: Client
) -> None:
    page = editor.post(f"/alerts/new?app={app.pk}", {**TRIED, "try": "1", "name": "Half done"}).content.decode()
    assert "Would have fired" in page
    assert 'value="Half done"' in page
    assert Rule.objects.count() == 1


def test_what_cannot_be_tried_says_why(app: App, history: Installation, editor: Client) -> None:
    page = editor.post(f"/alerts/try?app={app.pk}", {**TRIED, "threshold": ""}).content.decode()
    assert "A comparison needs a threshold" in page
    page = editor.post(f"/alerts/try?app={app.pk}", {**TRIED, "days": "30", "known": "then"}).content.decode()
    assert "a backtest cannot be that long" in page


def test_viewers_may_try_but_not_save(app: App, history: Installation, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["vera"])
    assert client.post(f"/alerts/try?app={app.pk}", TRIED).status_code == 200
    assert client.get(f"/alerts/new?app={app.pk}").status_code == 403


def test_a_body_without_fields_changes_nothing(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    rule = make_rule()
    assert editor.post(f"/alerts/rules/{rule.pk}/edit").status_code == 200
    rule.refresh_from_db()
    assert rule.enabled


def test_a_rule_that_was_changed_meanwhile_is_overwritten_only_by_who_knows(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    rule = make_rule()
    address = f"/alerts/rules/{rule.pk}/edit"
    fields = fields_of(editor.get(address).content.decode())
    assert editor.post(address, {**fields, "threshold": "70"}).status_code == 302
    tried = fields_of(editor.post(address, {**fields, "threshold": "80", "try": "1"}).content.decode())
    page = editor.post(address, {**tried, "threshold": "80"}).content.decode()
    assert "somebody else has changed this rule meanwhile" in page
    assert Rule.objects.get().threshold == 70
    assert editor.post(address, fields_of(page)).status_code == 302
    assert Rule.objects.get().threshold == 80


def test_a_number_that_is_emptied_gets_its_default(
    app: App, machine: Machine, editor: Client, make_rule: Callable[..., Rule]
) -> None:
    rule = make_rule(kind="anomaly", weeks=6, spread_min=2.0)
    address = f"/alerts/rules/{rule.pk}/edit"
    fields = fields_of(editor.get(address).content.decode())
    assert editor.post(address, {**fields, "weeks": "", "spread_min": ""}).status_code == 302
    rule.refresh_from_db()
    assert (rule.weeks, rule.spread_min) == (4, 0.0)


def test_an_existing_rule_is_tried_with_the_labels_of_its_group(
    app: App, history: Installation, people: dict[str, User], editor: Client, foreign_app: App
) -> None:
    point = ContactPoint.objects.create(organisation=app.organisation, name="P")
    row = Receiver.objects.create(organisation=app.organisation, kind="mail", target="b@x.org", created_ms=0, tokens=1)
    point.receivers.add(row)
    waits = {"wait_ms": 0, "interval_ms": 1, "repeat_ms": 1}
    Policy.objects.create(organisation=app.organisation, matchers='team="db"', contact_point=point, **waits)
    rule = Rule.objects.get()
    rule.group = RuleGroup.objects.create(app=app, file="f", name="g", labels={"team": "db"})
    rule.save()
    address = re.search(r'hx-post="([^"]+)"', editor.get(f"/alerts/rules/{rule.pk}/edit").content.decode())
    assert address is not None
    assert "each of 2 receivers" in editor.post(html.unescape(address[1]), TRIED).content.decode()
    stranger = Client()
    stranger.force_login(people["mallory"])
    assert stranger.post(f"/alerts/try?app={foreign_app.pk}&rule={rule.pk}", TRIED).status_code == 404
    assert [editor.post(f"/alerts/try?rule={odd}", TRIED).status_code for odd in ("x", "9" * 5_000, "\0")] == [404] * 3
