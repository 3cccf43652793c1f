"""The pages of corrections, runs and retention in a browser without scripts, and the roles they need."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.forms import MomentField
from frontend.presenters import retractions as presenter
from rollups.models import RetractionRecord, Run, RunDay, RunKind
from rollups.services import runs as services_runs
from spm import limits
from spm.accounts.models import App, Membership, Role
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from spm.store.versions import retractions
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(alpha: Tenant, settings: Any) -> Tenant:
    """Two minutes of four hosts."""
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=120_000)
    return alpha


@pytest.fixture
def place(fleet: Tenant) -> str:
    """The page."""
    return f"/apps/{fleet.app.pk}/data/corrections"


def text_of(client: Client, address: str) -> str:
    """The page's text; it must be there."""
    response = client.get(address)
    assert response.status_code == 200, address
    return response.content.decode()


def as_role(client: Client, tenant: Tenant, role: Role) -> Client:
    """The same browser with a person of this role."""
    person = User.objects.create_user(f"{role}-3@alpha.example")
    Membership.objects.create(organisation=tenant.organisation, user=person, role=role)
    client.force_login(person)
    return client


def test_a_page_without_corrections_says_what_they_are_for(desk: Client, place: str) -> None:
    page = text_of(desk, place)
    assert "No data has been retracted" in page
    assert "None so far" in page


def test_a_preview_draws_what_would_be_left_of_its_first_metrics(desk: Client, place: str, fleet: Tenant) -> None:
    now = SystemClock().now_ms()
    page = desk.post(place, {"series": '{host="db-1"}', "reason": "clock"}).content.decode()
    assert page.count("data-chart ") == presenter.METRICS_DRAWN
    assert 'data-expr="cpu_usage_iowait{host=&quot;db-1&quot;}"' in page
    assert "more metrics: name one" in page
    assert 'data-draft="{&quot;series&quot;:' in page
    [(first, last)] = re.findall(r'data-from="(\d+)" data-to="(\d+)"', page)
    assert now - 600_000 < int(first) < int(last) <= now + 60_000
    assert "data-chart " not in desk.post(place, {"source": "nobody"}).content.decode()


def test_a_preview_of_several_metrics_by_pattern_names_each_once(desk: Client, place: str) -> None:
    page = desk.post(place, {"series": '{__name__=~"cpu_usage_.*",host="db-1"}', "reason": "clock"}).content.decode()
    assert 'data-expr="cpu_usage_iowait{host=&quot;db-1&quot;}"' in page
    assert "=~&quot;cpu_usage_.*&quot;,host" not in "".join(re.findall('data-expr="[^"]*"', page))


def test_a_draft_in_the_address_is_previewed_at_once_for_those_who_may(desk: Client, place: str, fleet: Tenant) -> None:
    assert "264 samples in 22 series" in text_of(desk, f"{place}?source=db-1")
    assert "samples in" not in text_of(desk, f"{place}?series=sum(")
    assert "samples in" not in text_of(desk, f"{place}?data_from=2026-01-01T00:00:00")  # too wide
    assert "264 samples" not in text_of(as_role(desk, fleet, Role.VIEWER), f"{place}?source=db-1")


def test_times_are_marked_for_the_zone_of_the_reader(desk: Client, place: str) -> None:
    desk.post(place, {"source": "db-1", "reason": "clock", "act": ""})
    page = text_of(desk, place)
    assert re.search(r'<time datetime="[\d-]+T[\d:]+Z" data-ms="\d+" data-form="full">[\d-]+ [\d:]+ UTC</time>', page)
    assert "(UTC)" not in page


def test_a_preview_comes_before_the_act(desk: Client, place: str, fleet: Tenant) -> None:
    form = {"source": "db-1", "series": "", "reason": "clock <was> wrong"}
    page = desk.post(place, form).content.decode()
    assert "264 samples in 22 series" in page
    assert 'name="act"' in page
    assert 'value="clock &lt;was&gt; wrong"' in page
    assert retractions.read(services_runs.site().store, fleet.app.pk) == ()
    answer = desk.post(place, {**form, "act": ""}, follow=True).content.decode()
    assert "Retraction 1 hides 264 samples in 22 series" in answer
    assert "clock &lt;was&gt; wrong" in answer
    assert "0 samples in 0 series" in desk.post(place, form).content.decode()


@pytest.mark.parametrize(
    ("form", "status", "text"),
    [
        ({"reason": "x"}, 409, "everything"),
        ({"series": "sum(", "reason": "x"}, 409, "unexpected end of input"),
        ({"source": "db-1", "data_from": "yesterday", "reason": "x"}, 400, "Enter a valid date"),
        (
            {"source": "db-1", "data_from": "9999-12-31T23:59:59", "data_to": "2020-01-01T00:00", "reason": "x"},
            409,
            "before it begins",
        ),
        ({"source": "db-1", "act": ""}, 409, "needs a reason"),
    ],
)
def test_what_cannot_be_taken_out_is_said_beside_the_words(
    desk: Client, place: str, form: dict[str, str], status: int, text: str
) -> None:
    answer = desk.post(place, form)
    assert (answer.status_code, text in answer.content.decode()) == (status, True)
    assert not RetractionRecord.objects.exists()


def test_an_undo_returns_to_the_list_with_a_word(desk: Client, place: str) -> None:
    desk.post(place, {"source": "db-1", "reason": "x", "act": ""})
    assert "is undone" in desk.post(f"{place}/1/undo", follow=True).content.decode()
    assert "was undone already" in desk.post(f"{place}/1/undo", follow=True).content.decode()


def test_a_store_that_is_away_costs_the_list_and_not_the_page(
    desk: Client, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr("rollups.services.retractions.list_retractions", away)
    assert "Retractions cannot be read now: no answer" in text_of(desk, place)


@pytest.mark.parametrize(
    ("role", "look", "act", "own"),
    [
        (Role.VIEWER, 403, 403, 403),
        (Role.EDITOR, 200, 403, 403),
        (Role.ADMIN, 200, 302, 403),
        (Role.OWNER, 200, 302, 200),
    ],
)
def test_each_role_gets_its_part_of_the_pages(
    client: Client, fleet: Tenant, place: str, role: Role, look: int, act: int, own: int
) -> None:
    browser = as_role(client, fleet, role)
    form = {"source": "db-1", "reason": "x"}
    assert browser.get(place).status_code == 200
    assert browser.post(place, form).status_code == look
    assert browser.post(place, {**form, "act": ""}).status_code == act
    assert browser.post(f"{place}/1/undo").status_code == act
    for rest in ("data/rollups", "data/rollups/table", "data/retention"):
        assert browser.get(f"/apps/{fleet.app.pk}/{rest}").status_code == own


def test_a_purge_says_what_goes_and_waits_for_its_words(desk: Client, place: str) -> None:
    desk.post(place, {"source": "db-1", "reason": "x", "act": ""})
    assert "264 samples in" in text_of(desk, f"{place}/1/purge")
    refused = desk.post(f"{place}/1/purge", {"confirm": "yes"})
    assert (refused.status_code, "type “purge 1”" in refused.content.decode()) == (400, True)
    answer = desk.post(f"{place}/1/purge", {"confirm": "purge 1"}, follow=True).content.decode()
    assert "264 samples of retraction 1 are deleted for good." in answer
    assert 'class="badge purged"' in answer
    assert desk.get(f"{place}/9/purge").status_code == 404


def test_a_purge_that_takes_long_is_left_to_the_command(
    desk: Client, place: str, fleet: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.post(place, {"source": "db-1", "reason": "x", "act": ""})
    monkeypatch.setattr(limits, "ERASE_HOURS_IN_REQUEST_MAX", 0)
    page = text_of(desk, f"{place}/1/purge")
    assert f"bin/manage erase_retracted {fleet.app.pk} 1" in page
    assert 'name="confirm"' not in page
    assert desk.post(f"{place}/1/purge", {"confirm": "purge 1"}).status_code == 409
    body = {"confirm": "purge 1"}
    address = f"/api/v1/apps/{fleet.app.pk}/retractions/1/purge"
    assert desk.post(address, body, content_type="application/json").status_code == 409
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("days", "status", "text"),
    [
        (("30", "400", ""), 200, "No data is older than that"),
        (("", "400", ""), 409, "cannot be kept longer"),
        (("0", "400", ""), 400, "greater than or equal to 1"),
    ],
)
def test_a_retention_is_previewed_before_it_is_saved(
    desk: Client, fleet: Tenant, days: tuple[str, str, str], status: int, text: str
) -> None:
    form = dict(zip(("raw_days", "hour_days", "day_days"), days, strict=True))
    answer = desk.post(f"/apps/{fleet.app.pk}/data/retention", form)
    assert (answer.status_code, text in answer.content.decode()) == (status, True)
    assert App.objects.get(pk=fleet.app.pk).raw_days == 90


def test_the_fields_of_a_retention_have_its_bounds(desk: Client, fleet: Tenant) -> None:
    page = desk.get(f"/apps/{fleet.app.pk}/data/retention").content.decode()
    for name in ("raw_days", "hour_days", "day_days"):
        assert f'name="{name}" min="{limits.RETENTION_DAYS_MIN}" max="{limits.RETENTION_DAYS_MAX}"' in page


def test_a_retention_is_saved_by_the_second_post(desk: Client, fleet: Tenant) -> None:
    form = {"raw_days": "14", "hour_days": "", "day_days": "", "act": ""}
    answer = desk.post(f"/apps/{fleet.app.pk}/data/retention", form, follow=True).content.decode()
    assert "The retention is changed" in answer
    app = App.objects.get(pk=fleet.app.pk)
    assert (app.raw_days, app.hour_days, app.day_days) == (14, None, None)


def test_an_owner_sees_runs_and_rolls_one_back(desk: Client, fleet: Tenant) -> None:
    run = services_runs.roll(services_runs.site(), apps=[fleet.app.pk], kind=RunKind.MINOR, executor="local")
    assert run is not None
    Run.objects.create(
        number=99,
        kind=RunKind.FULL,
        executor="spark",
        started=services_runs.site().now(),
        units=1,
        units_total=4,
        apps=[fleet.app.pk],
    )
    page = text_of(desk, f"/apps/{fleet.app.pk}/data/rollups")
    assert "1 of 4 hours (25 %)" in page
    answer = desk.post(f"/apps/{fleet.app.pk}/data/rollups/{run.number}/rollback", follow=True).content.decode()
    assert "is rolled back:" in answer
    assert {day.rolled_back for day in RunDay.objects.all()} == {True}  # two days, just after midnight
    again = desk.post(f"/apps/{fleet.app.pk}/data/rollups/{run.number}/rollback", follow=True).content.decode()
    assert "is in no history" in again


def test_a_run_without_a_total_shows_no_percentage(desk: Client, fleet: Tenant) -> None:
    Run.objects.create(
        number=99, kind=RunKind.FULL, executor="spark", started=services_runs.site().now(), apps=[fleet.app.pk]
    )
    assert "It is planning its work." in text_of(desk, f"/apps/{fleet.app.pk}/data/rollups")


def test_an_app_is_deleted_by_who_types_its_name(desk: Client, fleet: Tenant) -> None:
    place = f"/apps/{fleet.app.pk}/data/retention/delete"
    assert "Nothing was deleted" in desk.post(place, {"confirm": "delete"}, follow=True).content.decode()
    assert App.objects.get(pk=fleet.app.pk).going is None
    App.objects.create(organisation=fleet.organisation, name="other")
    assert "is deleted" in desk.post(place, {"confirm": fleet.app.name}, follow=True).content.decode()
    assert App.objects.get(pk=fleet.app.pk).going is not None
    assert desk.get(f"/apps/{fleet.app.pk}/").status_code == 404


@pytest.mark.parametrize("ms", [0, 1_700_000_000_000])
def test_a_time_survives_the_form(ms: int) -> None:
    field = MomentField()
    assert field.clean(field.widget.format_value(field.prepare_value(ms))) == ms
