"""Dashboards by REST: create, read, change with versions, restore, delete, import; by people and by programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from frontend.dashboards.models import Dashboard
from spm.accounts.models import AuditEntry
from spm.accounts.services import issue_token
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
SAMPLES = Path(__file__).parents[2] / "dashboards/grafana/samples"
TWO = [{"number": 1, "title": "CPU", "queries": [{"expr": "cpu"}]}, {"number": 2, "title": "Memory", "y": 8}]


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the app's dashboards."""
    return f"/api/v1/apps/{tenant.app.pk}/dashboards{rest}"


def titled(title: str, *panels: dict[str, Any]) -> dict[str, Any]:
    """A body with a document."""
    return {"document": {"title": title, "panels": list(panels or TWO)}}


def create(client: Client, tenant: Tenant) -> Any:
    """The answer to a new dashboard of two panels."""
    return client.post(at(tenant), titled("Shop"), content_type="application/json")


def put(client: Client, address: str, body: dict[str, Any], etag: str = "") -> Any:
    """The answer to a change."""
    headers = {"If-Match": etag} if etag else {}
    return client.put(address, body, content_type="application/json", headers=headers)


def test_a_dashboard_is_created_listed_and_read(desk: Client, alpha: Tenant) -> None:
    created = create(desk, alpha)
    uid = created.json()["uid"]
    assert created.status_code == 201
    read = desk.get(at(alpha, f"/{uid}"))
    assert (read.json(), read["ETag"]) == (created.json(), created["ETag"])
    assert [each["title"] for each in read.json()["document"]["panels"]] == ["CPU", "Memory"]
    (row,) = desk.get(at(alpha) + "?q=hop").json()["dashboards"]
    assert (row["uid"], row["version"]) == (uid, 1)
    assert desk.get(at(alpha) + "?q=nothing").json() == {"dashboards": [], "next": None}


def test_a_change_needs_the_version_that_was_read(desk: Client, alpha: Tenant) -> None:
    created = create(desk, alpha)
    address = at(alpha, f"/{created.json()['uid']}")
    assert put(desk, address, titled("A")).status_code == 428
    saved = put(desk, address, titled("A"), created["ETag"])
    assert (saved.status_code, saved.json()["version"]) == (200, 2)
    assert put(desk, address, titled("B"), created["ETag"]).status_code == 412
    assert put(desk, address, titled("B"), saved["ETag"]).json()["document"]["title"] == "B"


def test_the_etag_of_a_compressed_answer_names_its_version_too(desk: Client, alpha: Tenant) -> None:
    one, two = TWO
    body = titled(
        "Shop", one, {**two, "title": "Memory " * 25}, *({**one, "number": n, "y": 9 * n} for n in range(3, 9))
    )
    created = desk.post(at(alpha), body, content_type="application/json")
    assert created.status_code == 201, created.content
    address = at(alpha, f"/{created.json()['uid']}")
    read = desk.get(address, headers={"Accept-Encoding": "gzip"})
    assert (read["Content-Encoding"], read["ETag"]) == ("gzip", f"W/{created['ETag']}")
    assert put(desk, address, titled("A"), read["ETag"]).status_code == 200
    assert put(desk, address, titled("B"), read["ETag"]).status_code == 412


def test_a_change_of_an_older_version_keeps_others_and_conflicts_where_both_changed(
    desk: Client, alpha: Tenant
) -> None:
    address = at(alpha, f"/{create(desk, alpha).json()['uid']}")
    one, two = TWO
    first = put(desk, address, {**titled("Shop", {**one, "title": "CPU now"}, two), "base": 1})
    merged = put(desk, address, {**titled("Shop", one, {**two, "title": "Memory now"}), "base": 1})
    assert first.status_code == 200
    assert [each["title"] for each in merged.json()["document"]["panels"]] == ["CPU now", "Memory now"]
    refused = put(desk, address, {**titled("Shop", {**one, "title": "Mine"}, two), "base": 1})
    assert refused.status_code == 409
    assert "panel “Mine”" in refused.json()["error"]


def test_an_older_version_is_read_and_restored(desk: Client, alpha: Tenant) -> None:
    created = create(desk, alpha)
    address = at(alpha, f"/{created.json()['uid']}")
    put(desk, address, titled("Other"), created["ETag"])
    assert desk.get(f"{address}/versions/1").json()["document"]["title"] == "Shop"
    assert desk.post(f"{address}/versions/1/restore").json()["document"]["title"] == "Shop"
    assert [each["number"] for each in desk.get(f"{address}/versions").json()["versions"]] == [3, 2, 1]
    for number in (9, 2**70):
        assert desk.get(f"{address}/versions/{number}").status_code == 404


def test_a_dashboard_is_deleted_in_the_version_that_was_read(desk: Client, alpha: Tenant) -> None:
    created = create(desk, alpha)
    address = at(alpha, f"/{created.json()['uid']}")
    assert desk.delete(address).status_code == 428
    assert desk.delete(address, headers={"If-Match": '"other"'}).status_code == 412
    assert desk.delete(address, headers={"If-Match": created["ETag"]}).status_code == 204
    assert not Dashboard.objects.exists()


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ([], 400),
        ({"title": " "}, 400),
        ({"title": "A", "panels": [{"number": 1, "kind": "pie"}]}, 400),
        ({"title": "A" * 201}, 422),
        ({"title": "\ud800"}, 400),
        ({"title": "A", "panels": [{"number": 1, "kind": "\ud800"}]}, 400),
    ],
)
def test_a_document_that_is_wrong_is_refused(desk: Client, alpha: Tenant, document: Any, status: int) -> None:
    answer = desk.post(at(alpha), json.dumps({"document": document}), content_type="application/json")
    assert answer.status_code == status
    assert not Dashboard.objects.exists()


@pytest.mark.parametrize("sample", ["classic.json", "v2.json"])
def test_a_dashboard_of_grafanas_is_reported_and_then_saved(desk: Client, alpha: Tenant, sample: str) -> None:
    text = (SAMPLES / sample).read_text()
    tried = desk.post(at(alpha, "/import?dry_run=true"), text, content_type="application/json")
    assert (tried.status_code, tried.json()["uid"], Dashboard.objects.count()) == (200, None, 0)
    lines = tried.json()["report"]
    assert {each["result"] for each in lines} == {"imported", "changed", "left out"}
    assert all(each["notes"] for each in lines if each["result"] != "imported")
    saved = desk.post(at(alpha, "/import"), text, content_type="application/json")
    assert (saved.status_code, saved.json()["report"]) == (201, lines)
    assert desk.get(at(alpha, f"/{saved.json()['uid']}")).json()["document"] == tried.json()["document"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"panels": 1}'])
def test_what_is_no_dashboard_is_refused(desk: Client, alpha: Tenant, text: str) -> None:
    assert desk.post(at(alpha, "/import"), text, content_type="application/json").status_code == 400


def test_a_file_that_is_too_large_is_said_to_be_so(desk: Client, alpha: Tenant) -> None:
    answer = desk.post(at(alpha, "/import"), "é" * 500_000, content_type="application/json")
    assert (answer.status_code, answer.json()["error"][:21]) == (422, "the file is too large")


def test_a_version_that_is_not_there_yet_is_no_conflict(desk: Client, alpha: Tenant) -> None:
    address = at(alpha, f"/{create(desk, alpha).json()['uid']}")
    answer = put(desk, address, {**titled("A"), "base": 9})
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        "there is no such version yet; got 9; wanted at most 1",
    )


def test_a_program_saves_under_the_name_of_its_token(client: Client, alpha: Tenant) -> None:
    _, secret = issue_token(alpha.owner, alpha.app, name="terraform", scopes=["write"])
    headers = {"Authorization": f"Bearer {secret}"}
    created = client.post(at(alpha), titled("Shop"), content_type="application/json", headers=headers)
    assert created.status_code == 201
    address = at(alpha, f"/{created.json()['uid']}/versions")
    assert client.get(address, headers=headers).json()["versions"][0]["author"] == "token terraform"
    entry = AuditEntry.objects.get(action="dashboard.created")
    assert (entry.actor, entry.actor_name) == (None, "token terraform")


def test_the_schema_names_the_refusals_of_bodies_where_there_is_a_body(desk: Client, alpha: Tenant) -> None:
    paths = desk.get("/api/v1/schema?format=json").json()["paths"]
    address = "/api/v1/apps/{app_id}/dashboards"
    refused = desk.post(at(alpha), "<a/>", content_type="application/xml")
    assert str(refused.status_code) in paths[address]["post"]["responses"]
    assert {"413", "415"} <= paths[address]["post"]["responses"].keys()
    assert not {"413", "415"} & paths[address]["get"]["responses"].keys()
