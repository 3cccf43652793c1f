"""Rules by REST: create, list, edit with the version that was seen, switch, delete, files; who may do what."""

from typing import Any

import pytest
from django.test import Client

from alerts.models import AlertEvent, Episode, Instance, Rule, RuleVersionRow
from spm.accounts import tokens
from spm.accounts.models import AuditEntry, Role
from tests.frontend.api.test_corrections import as_role
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
BODY = {"name": "Busy", "expr": "cpu", "threshold": 90, "for_ms": 60_000, "receivers": ["ops@example.org"]}
FILE = "groups: [{name: g, rules: [{alert: A, expr: up == 0}, {record: 'a:b', expr: sum(up)}]}]"


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the app's rules."""
    return f"/api/v1/apps/{tenant.app.pk}/rules{rest}"


def create(client: Client, tenant: Tenant, **changes: Any) -> dict[str, Any]:
    """A new rule, as it was answered."""
    answer = client.post(at(tenant), {**BODY, **changes}, content_type="application/json")
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def edit(client: Client, tenant: Tenant, number: int, etag: str | None, **changes: Any) -> Any:
    """An edit of a rule."""
    headers = {} if etag is None else {"If-Match": etag}
    return client.patch(at(tenant, f"/{number}"), changes, content_type="application/json", headers=headers)


def put(client: Client, tenant: Tenant, text: str, query: str = "", **extra: Any) -> Any:
    """A rule file."""
    return client.put(at(tenant, f"/files/node.yml{query}"), text, content_type="application/yaml", **extra)


def test_a_rule_is_created_read_and_listed(desk: Client, alpha: Tenant) -> None:
    body = create(desk, alpha, labels={"team": "infra"}, annotations={"summary": "{{ $labels.host }}"})
    assert (body["comparator"], body["threshold"], body["state"], body["alerts"]) == (">", 90.0, "ok", 0)
    assert desk.get(at(alpha, f"/{body['id']}")).json() == body
    assert desk.get(at(alpha)).json() == {"rules": [body], "next": None}


def test_a_rule_has_a_schedule_that_is_checked(desk: Client, alpha: Tenant) -> None:
    schedule = {"schedule_cron": "0 8 * * 1-5", "schedule_zone": "Europe/Berlin", "schedule_ms": 36_000_000}
    body = create(desk, alpha, **schedule)
    assert {name: body[name] for name in schedule} == schedule
    for wrong in ({"schedule_cron": "at eight"}, {"schedule_zone": "Mars/Base"}, {"schedule_ms": 0}):
        answer = desk.post(at(alpha), {**BODY, **schedule, **wrong}, content_type="application/json")
        assert answer.status_code in (400, 422), wrong
    assert Rule.objects.count() == 1


def test_a_list_goes_on_at_its_cursor_and_can_be_filtered(desk: Client, alpha: Tenant) -> None:
    numbers = [create(desk, alpha, name=f"R{n}", severity="info" if n % 2 else "critical")["id"] for n in range(5)]
    first = desk.get(at(alpha, "?limit=2")).json()
    second = desk.get(at(alpha, f"?limit=3&cursor={first['next']}")).json()
    assert [rule["id"] for page in (first, second) for rule in page["rules"]] == numbers
    assert second["next"] is None
    assert [rule["name"] for rule in desk.get(at(alpha, "?severity=info")).json()["rules"]] == ["R1", "R3"]
    assert desk.get(at(alpha, "?phase=firing")).json()["rules"] == []
    assert desk.get(at(alpha, "?limit=9999")).status_code == 400


def test_an_edit_needs_the_version_that_it_rests_on(desk: Client, alpha: Tenant) -> None:
    number = create(desk, alpha)["id"]
    etag = desk.get(at(alpha, f"/{number}"))["ETag"]
    assert edit(desk, alpha, number, None, threshold=95).status_code == 428
    first = edit(desk, alpha, number, etag, threshold=95)
    assert (first.status_code, first.json()["threshold"], first.json()["for_ms"]) == (200, 95.0, 60_000)
    assert edit(desk, alpha, number, etag, threshold=99).status_code == 412
    assert Rule.objects.get(pk=number).threshold == 95.0
    assert edit(desk, alpha, number, first["ETag"], threshold=99).status_code == 200
    assert Rule.objects.get(pk=number).receivers == ["ops@example.org"]


def test_the_weak_form_of_an_etag_names_the_version_too(desk: Client, alpha: Tenant) -> None:
    number = create(desk, alpha)["id"]
    etag = desk.get(at(alpha, f"/{number}"))["ETag"]
    assert edit(desk, alpha, number, f"W/{etag}", threshold=95).status_code == 200
    assert edit(desk, alpha, number, f"W/{etag}", threshold=99).status_code == 412


def test_a_rule_is_switched_off_and_on_and_deleted(desk: Client, alpha: Tenant) -> None:
    number = create(desk, alpha)["id"]
    assert desk.post(at(alpha, f"/{number}/disable")).json()["enabled"] is False
    versions = RuleVersionRow.objects.count()
    assert desk.post(at(alpha, f"/{number}/disable")).status_code == 200
    assert RuleVersionRow.objects.count() == versions
    assert desk.post(at(alpha, f"/{number}/enable")).json()["enabled"] is True
    assert desk.delete(at(alpha, f"/{number}"), headers={"If-Match": '"old"'}).status_code == 412
    assert desk.delete(at(alpha, f"/{number}"), headers={"If-Match": "*"}).status_code == 204
    assert desk.get(at(alpha, f"/{number}")).status_code == 404
    assert {"rule.create", "rule.change", "rule.delete"} <= set(AuditEntry.objects.values_list("action", flat=True))


def test_the_alerts_of_a_rule_come_with_their_evidence(desk: Client, alpha: Tenant) -> None:
    number = create(desk, alpha)["id"]
    common: dict[str, Any] = {"rule_id": number, "fingerprint": "f", "labels": {"host": "a"}}
    Instance.objects.create(
        **common, aspect="value", phase="firing", since_ms=20, start_ms=20, active_ms=10, value=97.0
    )
    Episode.objects.create(**common, severity="warning", start_ms=20, created_ms=20, changed_ms=20, start_value=97.0)
    AlertEvent.objects.create(**common, before="pending", state="firing", episode_ms=10, at_ms=20, value=97.0, seq=7)
    body = desk.get(at(alpha, f"/{number}/alerts")).json()
    assert (body["instances"][0]["state"], body["instances"][0]["value"]) == ("firing", 97.0)
    [transition] = body["episodes"][0]["transitions"]
    assert (transition["at_ms"], transition["value"], transition["operation"]) == (20, 97.0, 7)
    assert desk.get(at(alpha, f"/{number}")).json()["state"] == "firing"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an expression that does not parse": ({"expr": "sum("}, "expr"),
    "an expression that looks ahead": ({"expr": "x offset -5m"}, "expr"),
    "a recovery on the wrong side": ({"recovery": 95}, "recovery"),
    "a receiver of no notifier": ({"receivers": ["nobody"]}, "receivers"),
    "a label that queries": ({"labels": {"a": "{{ query `up` }}"}}, "labels"),
    "a duration that is too long": ({"for_ms": 10**12}, "for_ms"),
    "a label with a sign in its name": ({"labels": {"team=a": "x"}}, "labels"),
    "a label that names the alert": ({"labels": {"alertname": "x"}}, "labels"),
    "two labels where one should be": ({"by": ["host, job"]}, "by"),
    "a comparator that is none": ({"comparator": "~"}, "comparator"),
}


@pytest.mark.parametrize(("changes", "field"), REFUSED.values(), ids=REFUSED)
def test_a_draft_that_cannot_be_names_its_field(
    desk: Client, alpha: Tenant, changes: dict[str, Any], field: str
) -> None:
    answer = desk.post(at(alpha), {**BODY, **changes}, content_type="application/json")
    assert (answer.status_code, list(answer.json())) == (400, ["error", field])
    number = create(desk, alpha)["id"]
    assert edit(desk, alpha, number, "*", **changes).status_code == 400


def test_a_file_is_put_read_put_again_and_deleted(desk: Client, alpha: Tenant) -> None:
    dry = put(desk, alpha, FILE, "?dry_run=true").json()
    assert (dry["summary"], dry["dry_run"], Rule.objects.count()) == ("3 new, 0 changed, 0 gone", True, 0)
    assert put(desk, alpha, FILE).json()["diff"] == dry["diff"]
    assert put(desk, alpha, FILE).json()["summary"] == "no change"
    assert desk.get(at(alpha, "/files")).json() == {"files": ["node.yml"]}
    text = desk.get(at(alpha, "/files/node.yml"))
    assert text["Content-Type"] == "application/yaml"
    assert put(desk, alpha, text.content.decode()).json()["summary"] == "no change"
    assert desk.get(at(alpha, "?file=node.yml&group=g")).json()["rules"][0]["file"] == "node.yml"
    assert desk.delete(at(alpha, "/files/node.yml")).json()["summary"] == "0 new, 0 changed, 3 gone"
    assert desk.get(at(alpha, "/files/node.yml")).status_code == 404
    assert desk.delete(at(alpha, "/files/node.yml")).status_code == 404


@pytest.mark.parametrize("text", ["groups: [", "groups: [{name: &a g}, {name: *a}]", "x" * 1_000_001, "[" * 5_000])
def test_a_file_that_is_wrong_is_refused_with_its_line(desk: Client, alpha: Tenant, text: str) -> None:
    answer = put(desk, alpha, text)
    assert (answer.status_code, answer.json()["error"][:14]) == (400, "node.yml, line")
    assert put(desk, alpha, b"\xff\xfe").status_code == 400  # type: ignore[arg-type]  # bytes that are no text


@pytest.mark.parametrize(("role", "code"), [(Role.VIEWER, 403), (Role.EDITOR, 201), (Role.OWNER, 201)])
def test_rules_are_read_by_viewers_and_written_by_editors(client: Client, alpha: Tenant, role: Role, code: int) -> None:
    browser = as_role(client, alpha, role)
    assert browser.post(at(alpha), BODY, content_type="application/json").status_code == code
    assert browser.get(at(alpha)).status_code == 200
    assert put(browser, alpha, FILE).status_code == (403 if code == 403 else 200)


@pytest.mark.parametrize(("scope", "code"), [("read", 403), ("write", 201), ("admin", 201), ("ingest", 401)])
def test_a_token_writes_rules_by_its_scope_and_under_its_name(
    client: Client, alpha: Tenant, scope: str, code: int
) -> None:
    _, secret = tokens.issue(alpha.app, name="robot", scopes=[scope])
    extra: dict[str, Any] = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    assert client.post(at(alpha), BODY, content_type="application/json", **extra).status_code == code
    if code == 201:
        assert AuditEntry.objects.get(action="rule.create").actor_name == "token robot"
        assert put(client, alpha, FILE, **extra).status_code == 200


def test_rules_of_others_are_not_there(desk: Client, alpha: Tenant, beta: Tenant, client: Client) -> None:
    number = create(desk, alpha)["id"]
    put(desk, alpha, FILE)
    client.force_login(beta.owner)
    for rest in (f"/{number}", f"/{number}/alerts", "/files/node.yml"):
        assert client.get(at(alpha, rest)).status_code == 404
        assert client.get(at(beta, rest)).status_code == 404
    assert edit(client, beta, number, "*", threshold=1).status_code == 404
    assert client.post(at(beta, f"/{number}/disable")).status_code == 404


def test_the_schema_names_every_operation_of_rules(desk: Client, alpha: Tenant) -> None:
    text = desk.get("/api/v1/schema").content.decode()
    names = ("rules", "rule_create", "rule_edit", "rule_delete", "rule_alerts", "rule_enable", "rule_file_put")
    assert [name for name in names if f"operationId: {name}\n" not in text] == []
