"""How long an app's data is kept, and what the deletion of an app or organisation does at once."""

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http import Http404
from django.test import Client

from spm import limits
from spm.accounts import access, services, tokens
from spm.accounts.models import App, AuditEntry
from spm.accounts.services import Retention
from spm.errors import Refused
from tests.support.people import Tenant


@pytest.mark.parametrize(
    ("raw", "hour", "day"),
    [
        (30, 29, None),
        (30, 400, 399),
        (None, 400, None),
        (1, None, 400),
        (0, 1, 1),
        (1, 1, limits.RETENTION_DAYS_MAX + 1),
    ],
    ids=["raw above hours", "hours above days", "raw for ever", "hours for ever", "nothing", "beyond a century"],
)
def test_a_retention_that_cannot_be_is_refused_by_the_deed(
    alpha: Tenant, raw: int | None, hour: int | None, day: int | None
) -> None:
    with pytest.raises(Refused):
        services.set_retention(alpha.owner, alpha.app, Retention(raw, hour, day))


@pytest.mark.parametrize(("raw", "hour", "day"), [(30, 29, None), (30, 400, 399), (None, 400, None), (0, 1, 1)])
def test_a_retention_that_cannot_be_is_refused_by_the_database(
    alpha: Tenant, raw: int | None, hour: int | None, day: int | None
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        App.objects.filter(pk=alpha.app.pk).update(raw_days=raw, hour_days=hour, day_days=day)


@pytest.mark.parametrize(("raw", "hour", "day"), [(7, 7, 7), (1, None, None), (None, None, None), (30, 400, None)])
def test_a_retention_is_kept_with_what_it_was_before(
    alpha: Tenant, raw: int | None, hour: int | None, day: int | None
) -> None:
    services.set_retention(alpha.owner, alpha.app, Retention(raw, hour, day))
    assert Retention.of(App.objects.get(pk=alpha.app.pk)) == Retention(raw, hour, day)
    detail = AuditEntry.objects.get(action="retention changed").detail
    assert detail["before"] == {"raw_days": 90, "hour_days": 400, "day_days": None}
    assert detail["after"] == {"raw_days": raw, "hour_days": hour, "day_days": day}


def test_a_deleted_app_is_seen_by_nobody_at_once(alpha: Tenant) -> None:
    assert tokens.authenticate(alpha.token, "read") is not None
    services.delete_app(alpha.owner, alpha.app)
    assert tokens.authenticate(alpha.token, "read") is None
    assert list(access.apps_of(alpha.owner)) == []
    with pytest.raises(Http404):
        access.require_app(alpha.owner, alpha.app.pk)


def test_a_token_that_a_process_still_remembers_reads_nothing_of_a_deleted_app(alpha: Tenant) -> None:
    principal = tokens.authenticate(alpha.token, "read")
    assert principal is not None
    services.delete_app(alpha.owner, alpha.app)
    with pytest.raises(Http404):
        access.app_of_token(principal, None)


def test_the_name_of_a_deleted_app_is_free_and_its_number_is_not(alpha: Tenant) -> None:
    services.delete_app(alpha.owner, alpha.app)
    again = App.objects.create(organisation=alpha.organisation, name=alpha.app.name)
    number = again.pk
    again.delete()
    assert App.objects.create(organisation=alpha.organisation, name="next").pk > number > alpha.app.pk


def test_a_deletion_is_noted_and_happens_once(alpha: Tenant) -> None:
    services.delete_app(alpha.owner, alpha.app)
    with pytest.raises(Refused, match="before"):
        services.delete_app(alpha.owner, alpha.app)
    entry = AuditEntry.objects.get(action="app deleted")
    assert (entry.actor, entry.detail) == (alpha.owner, {"app": alpha.app.pk})


def test_an_organisation_takes_its_apps_with_it(alpha: Tenant) -> None:
    second = App.objects.create(organisation=alpha.organisation, name="second")
    services.delete_organisation(alpha.owner, alpha.organisation)
    assert App.objects.filter(going=None).count() == 0
    assert {entry.subject for entry in AuditEntry.objects.filter(action="app deleted")} == {str(alpha.app), str(second)}


def test_the_admin_deletes_an_app_by_its_own_action_only(alpha: Tenant, client: Client) -> None:
    root = User.objects.create_superuser("root")
    client.force_login(root)
    assert client.get(f"/admin/accounts/app/{alpha.app.pk}/delete/").status_code == 403
    client.post("/admin/accounts/app/", {"action": "delete_with_data", "_selected_action": [str(alpha.app.pk)]})
    alpha.app.refresh_from_db()
    assert alpha.app.going is not None


def test_the_admin_deletes_an_organisation_by_its_own_action_only(alpha: Tenant, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    place = "/admin/accounts/organisation/"
    assert client.get(f"{place}{alpha.organisation.pk}/delete/").status_code == 403
    client.post(place, {"action": "delete_with_data", "_selected_action": [str(alpha.organisation.pk)]})
    alpha.organisation.refresh_from_db()
    assert alpha.organisation.going is not None
    assert App.objects.get().going is not None
