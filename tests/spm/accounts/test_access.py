"""Who sees which app."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404

from spm.accounts import access, tokens
from spm.accounts.models import Membership, Role
from spm.accounts.organisations.rights import Right
from spm.accounts.tokens import Principal
from tests.support.people import Tenant, make_tenant


@pytest.fixture
def beta(db: None) -> Tenant:
    """Others."""
    return make_tenant("beta")


def test_a_person_sees_the_apps_of_their_organisations_only(alpha: Tenant, beta: Tenant) -> None:
    assert list(access.apps_of(alpha.viewer)) == [alpha.app]


def test_a_person_of_two_organisations_sees_both(alpha: Tenant, beta: Tenant) -> None:
    Membership.objects.create(organisation=beta.organisation, user=alpha.viewer, role=Role.VIEWER)
    assert list(access.apps_of(alpha.viewer)) == [alpha.app, beta.app]


def test_nobody_sees_nothing(alpha: Tenant) -> None:
    assert not access.apps_of(AnonymousUser()).exists()


def test_a_superuser_has_no_passage_around_memberships(alpha: Tenant, beta: Tenant) -> None:
    alpha.owner.is_superuser = True
    alpha.owner.save()
    with pytest.raises(Http404):
        access.require_app(alpha.owner, beta.app.pk)


@pytest.mark.parametrize("number", [0, -1, 1 << 32, 1 << 70, 999_999])
def test_a_number_without_an_app_is_not_found(alpha: Tenant, number: int) -> None:
    with pytest.raises(Http404):
        access.require_app(alpha.owner, number)


@pytest.mark.parametrize(
    ("has", "right", "enough"),
    [
        (has, right, at >= needed)
        for at, has in enumerate(("viewer", "editor", "admin", "owner"))
        for needed, right in enumerate((Right.SEE_APP, Right.SILENCE, Right.RETRACT, Right.PURGE))
    ],
)
def test_a_role_includes_the_lower_ones(alpha: Tenant, has: str, right: Right, enough: bool) -> None:
    Membership.objects.filter(user=alpha.viewer).update(role=has)
    assert access.has_right(alpha.viewer, alpha.app, right) is enough
    if enough:
        assert access.require_app(alpha.viewer, alpha.app.pk, right) == alpha.app
        return
    with pytest.raises(PermissionDenied, match=f"you need the role {right.lowest_role} in alpha, and yours is {has}"):
        access.require_app(alpha.viewer, alpha.app.pk, right)


def test_staff_look_at_the_products_own_app_and_change_nothing_there(alpha: Tenant, beta: Tenant) -> None:
    type(alpha.organisation).objects.filter(pk=alpha.organisation.pk).update(internal=True)
    beta.owner.is_staff = True
    alpha.app.refresh_from_db()
    assert access.require_app(beta.owner, alpha.app.pk) == alpha.app
    assert {right for right in Right if access.has_right(beta.owner, alpha.app, right)} == {
        right for right in Right if right.lowest_role == Role.VIEWER
    }


def test_a_membership_that_ended_counts_at_the_next_question(alpha: Tenant) -> None:
    assert access.require_app(alpha.viewer, alpha.app.pk)
    Membership.objects.filter(user=alpha.viewer).delete()
    with pytest.raises(Http404):
        access.require_app(alpha.viewer, alpha.app.pk)


def principal_of(secret: str) -> Principal:
    principal = tokens.authenticate(secret, "read")
    assert principal is not None
    return principal


def test_a_token_reads_its_own_app_without_naming_it(alpha: Tenant) -> None:
    assert access.app_of_token(principal_of(alpha.token), None) == alpha.app


def test_a_token_that_names_another_app_finds_nothing(alpha: Tenant, beta: Tenant) -> None:
    with pytest.raises(Http404):
        access.app_of_token(principal_of(alpha.token), beta.app.pk)


def test_a_session_reads_the_first_app_when_none_is_named(alpha: Tenant) -> None:
    assert access.app_of_person(alpha.viewer, None) == alpha.app
