"""The REST interface of corrections: previews, retractions, undos, runs and their roll backs, and who may do what."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.presenters import retractions as presenter
from rollups.models import Correction, CorrectionCause, RetractionRecord, Run, RunDay, RunKind, RunState
from rollups.services import runs as services_runs
from spm.accounts import tokens
from spm.accounts.models import AuditEntry, Membership, Role
from spm.clock import SystemClock
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(alpha: Tenant, settings: Any) -> Tenant:
    """Two minutes of four hosts."""
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=120_000)
    return alpha


FORM = "application/x-www-form-urlencoded"


def at(tenant: Tenant, rest: str) -> str:
    """An address of the app."""
    return f"/api/v1/apps/{tenant.app.pk}/{rest}"


def post(client: Client, address: str, body: dict[str, Any] | None = None, **extra: Any) -> Any:
    """A JSON request."""
    return client.post(address, body or {}, content_type="application/json", **extra)


def as_role(client: Client, tenant: Tenant, role: Role) -> Client:
    """The same browser with a person of this role."""
    person = User.objects.create_user(f"{role}-2@alpha.example")
    Membership.objects.create(organisation=tenant.organisation, user=person, role=role)
    client.force_login(person)
    return client


def test_a_preview_describes_and_counts_what_would_be_removed(desk: Client, fleet: Tenant) -> None:
    body = post(desk, at(fleet, "retractions/preview"), {"series": 'cpu_usage_total{host="web-1"}'}).json()
    assert (body["samples"], body["series"], body["sources"]) == (12, 1, ["web-1"])
    assert body["metrics"] == ["cpu_usage_total"]
    assert body["text"].startswith("12 samples in 1 series, ")
    assert body["text"].endswith("0 past alerts")
    assert desk.get(at(fleet, "retractions")).json() == []


def test_a_retraction_is_listed_with_who_why_and_how_much(desk: Client, fleet: Tenant) -> None:
    answer = post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "clock was wrong"})
    assert answer.status_code == 201
    [retraction] = desk.get(at(fleet, "retractions")).json()
    assert retraction == answer.json()
    assert (retraction["state"], retraction["author"], retraction["reason"]) == (
        "in force",
        "owner@alpha.example",
        "clock was wrong",
    )
    assert retraction["counted"]["series"] == 22
    assert retraction["counted"]["samples"] == 22 * 12


def test_an_undo_brings_the_samples_back_and_is_noted(desk: Client, fleet: Tenant) -> None:
    number = post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "x"}).json()["number"]
    assert post(desk, at(fleet, "retractions/preview"), {"source": "db-1"}).json()["samples"] == 0
    undone = post(desk, at(fleet, f"retractions/{number}/undo"))
    assert (undone.status_code, undone.json()["state"]) == (200, "undone")
    assert post(desk, at(fleet, "retractions/preview"), {"source": "db-1"}).json()["samples"] == 264
    notes = {entry.action: entry.detail for entry in AuditEntry.objects.filter(action__in=["retract", "undo"])}
    assert {notes["undo"]["before"], notes["undo"]["after"]} == {"left out", "counted"}
    assert notes["retract"]["from"] == "127.0.0.1"
    assert notes["retract"]["samples"] == 264


def test_a_second_undo_is_refused_and_an_unknown_one_is_not_found(desk: Client, fleet: Tenant) -> None:
    number = post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "x"}).json()["number"]
    assert post(desk, at(fleet, f"retractions/{number}/undo")).status_code == 200
    assert post(desk, at(fleet, f"retractions/{number}/undo")).status_code == 409
    assert post(desk, at(fleet, "retractions/999/undo")).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 409),
        ({"series": "sum("}, 400),
        ({"series": "sum(cpu)"}, 400),
        ({"series": '{host=~".*"}'}, 400),
        ({"source": "x", "data_from": "yesterday"}, 400),
        ({"source": "x", "data_from": 5, "data_to": 5}, 409),
        ({"source": "x" * 300}, 400),
        ({"series": "m" * 5_000}, 400),
    ],
)
def test_a_draft_that_cannot_be_says_why(desk: Client, fleet: Tenant, body: dict[str, Any], status: int) -> None:
    for address in ("retractions/preview", "retractions"):
        answer = post(desk, at(fleet, address), {**body, "reason": "x"})
        assert answer.status_code == status
        assert answer.json()
    assert not RetractionRecord.objects.exists()


@pytest.mark.parametrize("raw", [b"[" * 50_000, b'{"source":' * 50_000, b"9" * 5_000, b"null", b"[]", b"\xff\xfe"])
def test_a_body_that_is_no_draft_is_malformed(desk: Client, fleet: Tenant, raw: bytes) -> None:
    for address in ("retractions/preview", "retractions", "retractions/1/purge"):
        assert desk.post(at(fleet, address), raw, content_type="application/json").status_code in (400, 404)


@pytest.mark.parametrize("number", [0, 2**63, 2**64, 10**30])
def test_numbers_that_nothing_has_are_not_found(desk: Client, fleet: Tenant, number: int) -> None:
    addresses = [f"retractions/{number}/undo", f"retractions/{number}/purge", f"runs/{number}/rollback"]
    assert {post(desk, at(fleet, address)).status_code for address in addresses} == {404}
    assert desk.get(at(fleet, f"runs/{number}")).status_code == 404
    for act in (f"corrections/{number}/undo", f"corrections/{number}/purge", f"rollups/{number}/rollback"):
        assert desk.post(f"/apps/{fleet.app.pk}/data/{act}").status_code in (302, 400, 404)


def test_a_retraction_needs_a_reason(desk: Client, fleet: Tenant) -> None:
    answer = post(desk, at(fleet, "retractions"), {"source": "db-1"})
    assert (answer.status_code, list(answer.json())) == (400, ["error", "reason"])
    assert answer.json()["error"] == "reason: This field is required."


@pytest.mark.parametrize(
    ("role", "preview", "act"),
    [(Role.VIEWER, 403, 403), (Role.EDITOR, 200, 403), (Role.ADMIN, 200, 201), (Role.OWNER, 200, 201)],
)
def test_a_role_may_do_its_part_and_no_more(client: Client, fleet: Tenant, role: Role, preview: int, act: int) -> None:
    browser = as_role(client, fleet, role)
    body = {"source": "db-1", "reason": "x"}
    assert post(browser, at(fleet, "retractions/preview"), body).status_code == preview
    assert post(browser, at(fleet, "retractions"), body).status_code == act
    number = next((r.number for r in RetractionRecord.objects.all()), 1)
    assert post(browser, at(fleet, f"retractions/{number}/undo")).status_code in ({403} if act == 403 else {200})
    assert browser.get(at(fleet, "retractions")).status_code == 200
    assert browser.get(at(fleet, "runs")).status_code == 200


@pytest.mark.parametrize(
    ("scopes", "preview", "act"),
    [(["read"], 403, 403), (["write"], 200, 403), (["admin"], 200, 201), (["ingest"], 401, 401)],
)
def test_a_token_may_do_what_its_scope_says(
    client: Client, fleet: Tenant, scopes: list[str], preview: int, act: int
) -> None:
    _, secret = tokens.issue(fleet.app, name="robot", scopes=scopes)
    extra = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    body = {"source": "db-1", "reason": "x"}
    assert post(client, at(fleet, "retractions/preview"), body, **extra).status_code == preview
    answer = post(client, at(fleet, "retractions"), body, **extra)
    assert answer.status_code == act
    assert act != 201 or answer.json()["author"] == "token robot"


def test_a_session_without_its_check_of_origin_changes_nothing(fleet: Tenant) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(fleet.owner)
    assert post(browser, at(fleet, "retractions"), {"source": "db-1", "reason": "x"}).status_code == 403


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x", FORM, "text/plain"])
@pytest.mark.parametrize(
    ("method", "address"), [("POST", "dashboards/import"), ("PUT", "rules/files/a"), ("POST", "retractions")]
)
def test_a_session_may_send_a_body_of_any_type(fleet: Tenant, method: str, address: str, kind: str) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(fleet.owner)
    browser.cookies["csrftoken"] = "a" * 32
    answers = [
        browser.generic(method, at(fleet, address), b"csrfmiddlewaretoken=" + b"a" * 32, kind, headers=headers)
        for headers in ({"X-CSRFToken": "a" * 32}, {})
    ]
    assert answers[0].status_code in (400, 415, 422)
    assert answers[1].status_code == 403  # a form of another site could bring a field


@pytest.mark.parametrize(
    "address", ["retractions", "retractions/preview", "retractions/{number}/undo", "runs/{run}/rollback"]
)
def test_nothing_of_another_app_can_be_changed(desk: Client, fleet: Tenant, beta: Tenant, address: str) -> None:
    post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "x"})
    number = RetractionRecord.objects.get().number
    desk.force_login(beta.owner)
    place = address.format(number=number, run=1)
    assert post(desk, at(fleet, place), {"source": "db-1", "reason": "x"}).status_code == 404
    own = post(desk, at(beta, place), {"source": "db-1", "reason": "x"})
    assert own.status_code == (404 if "{" in address else own.status_code)
    assert desk.get(at(fleet, "retractions")).status_code == 404


def test_numbers_are_words_as_people_write_them() -> None:
    assert presenter.count_noun(1, "hour") == "1 hour"
    assert presenter.count_noun(1_234, "sample") == "1,234 samples"


@pytest.mark.parametrize("confirm", ["", "purge", "yes", "purge 2"])
def test_a_purge_that_is_not_confirmed_deletes_nothing(desk: Client, fleet: Tenant, confirm: str) -> None:
    post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "x"})
    assert post(desk, at(fleet, "retractions/1/purge"), {"confirm": confirm}).status_code == 400
    assert post(desk, at(fleet, "retractions/1/undo")).status_code == 200


def test_a_purge_deletes_for_good_and_forbids_the_undo(desk: Client, fleet: Tenant) -> None:
    post(desk, at(fleet, "retractions"), {"source": "db-1", "reason": "x"})
    answer = post(desk, at(fleet, "retractions/1/purge"), {"confirm": "purge 1"})
    assert (answer.status_code, answer.json()["versions"], answer.json()["troubles"]) == (200, 264, [])
    [retraction] = desk.get(at(fleet, "retractions")).json()
    assert (retraction["state"], retraction["counted"]["purged_by"]) == ("purged", "owner@alpha.example")
    assert post(desk, at(fleet, "retractions/1/undo")).status_code == 409
    assert post(desk, at(fleet, "retractions/preview"), {"source": "web-1"}).json()["samples"] == 264
    assert AuditEntry.objects.get(action="purge").detail["versions"] == 264


def test_a_purge_is_an_owners_in_person(client: Client, fleet: Tenant) -> None:
    _, secret = tokens.issue(fleet.app, name="robot", scopes=["admin"])
    body, extra = {"confirm": "purge 1"}, {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    post(client, at(fleet, "retractions"), {"source": "db-1", "reason": "x"}, **extra)
    assert post(client, at(fleet, "retractions/1/purge"), body, **extra).status_code == 403
    assert post(as_role(client, fleet, Role.ADMIN), at(fleet, "retractions/1/purge"), body).status_code == 403


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_finished_run_shows_the_apps_own_part(desk: Client, fleet: Tenant, beta: Tenant) -> None:
    run = services_runs.roll(
        services_runs.site(), apps=[fleet.app.pk, beta.app.pk], kind=RunKind.MINOR, executor="local"
    )
    assert run is not None
    RunDay.objects.create(run=run, app=beta.app, day="2020-01-01", published=True, units=7, samples=9, size_bytes=1)
    [listed] = desk.get(at(fleet, "runs")).json()
    assert (listed["number"], listed["state"], listed["kind"]) == (run.number, "done", "minor")
    assert listed["samples"] == run.samples
    assert listed["eta_s"] is None


def test_a_run_at_work_shows_how_far_it_is(desk: Client, fleet: Tenant) -> None:
    now = services_runs.site().now()
    started = now.replace(microsecond=0)
    Run.objects.create(
        number=5,
        kind=RunKind.FULL,
        executor="spark",
        started=started,
        units=30,
        units_total=120,
        samples=3_000_000,
        apps=[fleet.app.pk],
    )
    one = desk.get(at(fleet, "runs/5")).json()
    assert (one["state"], one["units"], one["units_total"]) == ("running", 30, 120)
    assert one["samples_per_s"] > 0
    assert one["eta_s"] > 0


def test_a_run_at_work_for_others_too_tells_none_of_their_numbers(desk: Client, fleet: Tenant, beta: Tenant) -> None:
    started = services_runs.site().now().replace(microsecond=0)
    Run.objects.create(
        number=5,
        kind=RunKind.FULL,
        executor="spark",
        started=started,
        units=3_017,
        units_total=12_068,
        samples=3_000_017,
        apps=[fleet.app.pk, beta.app.pk],
    )
    one = desk.get(at(fleet, "runs/5")).json()
    assert (one["percent"], one["state"]) == (25, "running")
    assert [one[name] for name in ("units", "units_total", "samples", "samples_per_s")] == [None] * 4
    for address in (
        at(fleet, "runs"),
        f"/apps/{fleet.app.pk}/data/rollups",
        f"/apps/{fleet.app.pk}/data/rollups/table",
    ):
        shown = desk.get(address).content.decode()
        assert not re.search(r"3,?017|12,?068|3,?000,?017", shown)
        assert "25" in shown


def test_a_run_of_others_is_not_found(desk: Client, fleet: Tenant, beta: Tenant) -> None:
    Run.objects.create(
        number=5, kind=RunKind.FULL, executor="spark", started=services_runs.site().now(), apps=[beta.app.pk]
    )
    assert desk.get(at(fleet, "runs/5")).status_code == 404
    assert desk.get(at(fleet, "runs")).json() == []


def test_a_roll_back_stays_within_the_app(desk: Client, fleet: Tenant, beta: Tenant, settings: Any) -> None:
    sample_app.fill(settings.SPM_STORE_URL, beta.app.pk, now_ms=SystemClock().now_ms(), span_ms=120_000)
    run = services_runs.roll(
        services_runs.site(), apps=[fleet.app.pk, beta.app.pk], kind=RunKind.MINOR, executor="local"
    )
    assert run is not None
    answer = post(desk, at(fleet, f"runs/{run.number}/rollback"))
    assert answer.status_code == 200
    assert sum(day["units"] for day in answer.json()) == desk.get(at(fleet, f"runs/{run.number}")).json()["units"]
    assert {day.app_id: day.rolled_back for day in RunDay.objects.all()} == {fleet.app.pk: True, beta.app.pk: False}
    assert Run.objects.get(number=run.number).state == RunState.DONE
    assert desk.get(at(fleet, f"runs/{run.number}")).json()["state"] == "rolled back"
    assert post(desk, at(fleet, f"runs/{run.number}/rollback")).status_code == 409


def test_corrected_hours_are_listed(desk: Client, fleet: Tenant) -> None:
    now = services_runs.site().now()
    Correction.objects.create(
        app=fleet.app, hour=now, run=3, cause=CorrectionCause.LATE, samples=7, sources=["db-1"], at=now
    )
    [row] = desk.get(at(fleet, "corrections")).json()
    assert (row["cause"], row["samples"], row["sources"], row["run"]) == ("late", 7, ["db-1"], 3)
