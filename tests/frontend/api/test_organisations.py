"""Members, invitations, tokens and audit log for programs; who may call what, ``test_rights.py`` walks."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from spm.accounts import tokens
from spm.accounts.models import AuditEntry, Invitation, Membership, Role, Token
from spm.accounts.organisations import invitations
from spm.accounts.services import issue_token
from tests.support.people import Tenant

ROOT = "/api/v1/organisations/{organisation}"


@pytest.fixture
def people(alpha: Tenant, beta: Tenant) -> dict[str, User]:
    """A person of each role, and one of another organisation."""
    everyone = {"owner": alpha.owner, "viewer": alpha.viewer, "outsider": beta.owner}
    for role in ("admin", "editor"):
        everyone[role] = User.objects.create_user(f"{role}@alpha.example")
        Membership.objects.create(organisation=alpha.organisation, user=everyone[role], role=role)
    return everyone


@pytest.fixture
def values(alpha: Tenant, people: dict[str, User]) -> dict[str, Any]:
    """The numbers in addresses."""
    owner = Membership.objects.get(user=alpha.owner)
    return {
        "organisation": alpha.organisation.pk,
        "app": alpha.app.pk,
        "editor": Membership.objects.get(user=people["editor"]).pk,
        "second": Membership.objects.create(
            organisation=alpha.organisation, user=User.objects.create_user("second")
        ).pk,
        "invitation": invitations.create(owner, "guest@example.org", "viewer")[0].pk,
        "token": issue_token(alpha.owner, alpha.app, name="sender", scopes=["ingest"])[0].pk,
        "admin_token": issue_token(alpha.owner, alpha.app, name="robot", scopes=["admin"])[0].pk,
    }


def call(browser: Client, method: str, address: str, body: Any, **headers: Any) -> Any:
    return getattr(browser, method)(address, body, content_type="application/json", **headers)


def test_a_token_manages_the_tokens_of_its_app(client: Client, alpha: Tenant, values: dict[str, Any]) -> None:
    _, secret = issue_token(alpha.owner, alpha.app, name="robot", scopes=["admin"])
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    answer = call(client, "post", f"/api/v1/apps/{alpha.app.pk}/tokens", {"name": "x", "scopes": ["ingest"]}, **headers)
    assert tokens.authenticate(answer.json()["secret"], "ingest")
    assert AuditEntry.objects.get(subject__startswith="x ").actor_name == "token robot"


def test_a_new_token_is_good_for_a_year_and_its_secret_is_in_one_answer_alone(desk: Client, alpha: Tenant) -> None:
    address = f"/api/v1/apps/{alpha.app.pk}/tokens"
    answer = call(desk, "post", address, {"name": "n", "scopes": ["read"]})
    token = Token.objects.get(name="n")
    assert answer["Cache-Control"] == "no-store"
    assert token.expires is not None
    assert answer.json()["secret"] not in desk.get(address).content.decode()


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("post", "/api/v1/apps/{app}/tokens", {"name": "n", "scopes": []}),
        ("post", "/api/v1/apps/{app}/tokens", {"name": "n", "scopes": ["root"]}),
        ("post", "/api/v1/apps/{app}/tokens", {"name": "n", "scopes": ["read"], "days": 0}),
        ("post", ROOT + "/invitations", {"email": "no address", "role": "viewer"}),
        ("post", ROOT + "/invitations", {"email": "a@example.org", "role": "king"}),
        ("get", ROOT + "/audit?since=yesterday", None),
    ],
)
def test_a_malformed_call_says_what_was_wanted(
    desk: Client, values: dict[str, Any], method: str, address: str, body: Any
) -> None:
    answer = call(desk, method, address.format(**values), body)
    assert answer.status_code == 400
    assert answer.json()


def test_the_last_owner_cannot_leave_and_nobody_gives_more_than_they_have(
    desk: Client, alpha: Tenant, people: dict[str, User], values: dict[str, Any]
) -> None:
    owner = Membership.objects.get(user=alpha.owner)
    address = f"/api/v1/organisations/{alpha.organisation.pk}/members"
    assert call(desk, "delete", f"{address}/{owner.pk}", None).status_code == 409
    admin = Client()
    admin.force_login(people["admin"])
    assert call(admin, "patch", f"{address}/{values['editor']}", {"role": "owner"}).status_code == 409
    assert Membership.objects.filter(role=Role.OWNER).count() == 2, "of both organisations"
    invitation = {"email": "x@example.org", "role": "owner"}
    assert call(admin, "post", f"{address[:-8]}/invitations", invitation).status_code == 409
    assert not Invitation.objects.filter(email="x@example.org").exists()


def test_the_schema_has_every_address_of_an_organisation(desk: Client) -> None:
    paths = desk.get("/api/v1/schema?format=json").json()["paths"]
    assert len([path for path in paths if path.startswith("/api/v1/organisations") or "/tokens" in path]) == 35
