"""Ready dashboards and stars by REST: what suits, a copy, and marks that are a person's own."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.dashboards import storage
from frontend.dashboards.document import check
from frontend.dashboards.models import Dashboard, Star
from spm.accounts import tokens
from spm.accounts.models import Membership
from spm.clock import SystemClock
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the app's dashboards."""
    return f"/api/v1/apps/{tenant.app.pk}/dashboards{rest}"


@pytest.fixture
def shop(alpha: Tenant) -> Dashboard:
    return storage.create(alpha.app, check({"title": "Shop"}), storage.Author(alpha.owner, 1_000))


def test_what_suits_is_listed_read_and_copied(desk: Client, alpha: Tenant, settings: Any) -> None:
    assert desk.get(at(alpha, "/ready")).json() == {"ready": []}
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=60_000)
    (row,) = desk.get(at(alpha, "/ready")).json()["ready"]
    assert (row["key"], row["title"]) == ("host-agent", "Hosts")
    document = desk.get(at(alpha, "/ready/host-agent")).json()["document"]
    assert not Dashboard.objects.exists()
    copied = desk.post(at(alpha, "/ready/host-agent"))
    assert copied.status_code == 201
    assert copied.json()["document"] == document
    assert copied["ETag"] == f'"{Dashboard.objects.get().uid}-1"'


def test_there_is_no_other_ready_dashboard(desk: Client, alpha: Tenant) -> None:
    for method in (desk.get, desk.post):
        answer = method(at(alpha, "/ready/pie"))
        assert answer.status_code == 404
        assert "host-agent" in answer.json()["error"]


def test_a_star_is_a_persons_own_and_setting_it_twice_sets_it_once(
    desk: Client, alpha: Tenant, shop: Dashboard
) -> None:
    address = at(alpha, f"/{shop.uid}/star")
    assert [desk.put(address).status_code for _ in range(2)] == [204, 204]
    assert Star.objects.count() == 1
    assert [row["starred"] for row in desk.get(at(alpha)).json()["dashboards"]] == [True]
    other = Client()
    person = User.objects.create_user("other@alpha.example")
    Membership.objects.create(organisation=alpha.organisation, user=person, role="viewer")
    other.force_login(person)
    assert [row["starred"] for row in other.get(at(alpha)).json()["dashboards"]] == [False]
    assert [desk.delete(address).status_code for _ in range(2)] == [204, 204]
    assert not Star.objects.exists()


def test_a_program_has_no_stars(client: Client, alpha: Tenant, shop: Dashboard) -> None:
    headers = {"Authorization": f"Bearer {tokens.issue(alpha.app, name='p', scopes=['write', 'read'])[1]}"}
    refused = client.put(at(alpha, f"/{shop.uid}/star"), headers=headers)
    assert refused.status_code == 403
    assert "A star belongs to a person" in refused.json()["error"]
    assert [row["starred"] for row in client.get(at(alpha), headers=headers).json()["dashboards"]] == [False]


def test_the_page_of_a_ready_dashboard_draws_it_and_saves_nothing(desk: Client, alpha: Tenant) -> None:
    answer = desk.get(f"/apps/{alpha.app.pk}/dashboards/ready/host-agent")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert page.count("data-chart ") > 5
    assert 'name="ready" value="host-agent"' in page
    assert not Dashboard.objects.exists()
    assert desk.get(f"/apps/{alpha.app.pk}/dashboards/ready/pie").status_code == 404


def test_full_screen_goes_on_to_the_next_starred_one_else_to_the_next(
    desk: Client, alpha: Tenant, shop: Dashboard
) -> None:
    def following(dashboard: Dashboard) -> str:
        page = desk.get(f"/apps/{alpha.app.pk}/dashboards/{dashboard.uid}").content.decode()
        address = page.partition('data-advance="')[2].partition('"')[0]
        return address.rpartition("/")[2]

    assert following(shop) == ""
    cpu, web = (
        storage.create(alpha.app, check({"title": title}), storage.Author(alpha.owner, 1_000))
        for title in ("CPU", "Web")
    )
    assert [following(each) for each in (cpu, shop, web)] == [shop.uid, web.uid, cpu.uid]
    for each in (shop, cpu):
        Star.objects.create(dashboard=each, person=alpha.owner)
    assert [following(each) for each in (cpu, shop, web)] == [shop.uid, cpu.uid, cpu.uid]
