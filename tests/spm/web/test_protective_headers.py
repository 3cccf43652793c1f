"""No cache keeps what people and programs read, and pages cannot use devices."""

import pytest
from django.test import Client

from spm.web.protective_headers import PERMISSIONS
from tests.support.people import Tenant, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def alpha(db: None) -> Tenant:
    """An organisation."""
    return make_tenant("alpha")


@pytest.mark.parametrize("path", ["/", "/apps/{app}/", "/account", "/api/v1/apps", "/api/v1/schema", "/nothing/here"])
def test_an_answer_to_a_person_is_kept_by_no_cache(client: Client, alpha: Tenant, path: str) -> None:
    client.force_login(alpha.owner)
    answer = client.get(path.format(app=alpha.app.pk))
    assert "no-store" in answer["Cache-Control"]
    is_page = answer.headers.get("Content-Type", "").startswith("text/html")
    assert answer.headers.get("Permissions-Policy") == (PERMISSIONS if is_page else None)


def test_a_page_is_compressed_although_no_cache_keeps_it(client: Client, alpha: Tenant) -> None:
    client.force_login(alpha.owner)
    answer = client.get(f"/apps/{alpha.app.pk}/", headers={"Accept-Encoding": "gzip"})
    assert (answer["Content-Encoding"], answer["Cache-Control"]) == ("gzip", "no-store")


def test_a_view_that_says_how_long_its_answer_is_kept_is_obeyed(client: Client) -> None:
    first = client.get("/agent.pyz")
    assert first["Cache-Control"].startswith("public, max-age=")
    again = client.get("/agent.pyz", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, "Cache-Control" in again.headers) == (304, False)


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"Authorization": "Bearer spm_none"}, 401)])
def test_the_schema_is_refused_to_strangers_in_json(client: Client, headers: dict[str, str], status: int) -> None:
    answer = client.get("/api/v1/schema", headers=headers)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})


def test_the_schema_is_given_to_a_program_that_reads(client: Client, alpha: Tenant) -> None:
    answer = client.get("/api/v1/schema", headers={"Authorization": f"Bearer {alpha.token}"})
    assert (answer.status_code, answer.content[:8]) == (200, b"openapi:")
