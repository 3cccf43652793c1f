"""What the database itself refuses."""

import pytest
from django.db import IntegrityError, models, transaction
from django.db.models import ProtectedError

from spm.accounts.models import APP_ID_MAX, App, Membership, Role, Source, Token
from tests.support.people import Tenant


def refused(row: models.Model) -> bool:
    """Whether the database turns the row away."""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        return True
    return False


def test_a_person_belongs_to_an_organisation_once(alpha: Tenant) -> None:
    assert refused(Membership(organisation=alpha.organisation, user=alpha.owner, role=Role.VIEWER))


def test_a_role_nobody_knows_is_refused(alpha: Tenant) -> None:
    Membership.objects.all().delete()
    assert refused(Membership(organisation=alpha.organisation, user=alpha.owner, role="emperor"))


def test_an_app_name_is_unique_in_an_organisation(alpha: Tenant) -> None:
    assert refused(App(organisation=alpha.organisation, name=alpha.app.name))


@pytest.mark.parametrize("number", [0, -1, APP_ID_MAX + 1])
def test_an_app_number_that_does_not_fit_the_key_is_refused(alpha: Tenant, number: int) -> None:
    assert refused(App(id=number, organisation=alpha.organisation, name="x"))


def test_the_largest_app_number_fits(alpha: Tenant) -> None:
    assert not refused(App(id=APP_ID_MAX, organisation=alpha.organisation, name="x"))


def test_an_app_number_is_not_given_again(alpha: Tenant) -> None:
    gone = App.objects.create(organisation=alpha.organisation, name="short lived")
    number = gone.pk
    gone.delete()
    assert App.objects.create(organisation=alpha.organisation, name="next").pk > number


def test_an_organisation_with_apps_is_not_deleted(alpha: Tenant) -> None:
    with pytest.raises(ProtectedError):
        alpha.organisation.delete()


def test_a_source_name_is_unique_in_an_app(alpha: Tenant) -> None:
    source = {"app": alpha.app, "name": "x", "first_seen": "2026-01-01T00:00Z", "last_seen": "2026-01-01T00:00Z"}
    Source.objects.create(**source)
    assert refused(Source(**source))


def test_a_token_prefix_is_unique(alpha: Tenant) -> None:
    prefix = alpha.app.tokens.get().prefix
    assert refused(Token(app=alpha.app, name="x", scopes="read", prefix=prefix, digest=b"x"))
