"""The admin: every list and form opens, a token is shown once, its hash never."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client

from spm.accounts import audit, tokens
from spm.accounts.models import App, AuditEntry, Membership, Organisation, Source, Token
from tests.support.people import Tenant

MODELS = [Organisation, Membership, App, Token, Source, AuditEntry, User]


@pytest.fixture
def operator(client: Client, alpha: Tenant) -> Client:
    """A superuser's browser."""
    client.force_login(User.objects.create_superuser("operator", password="x"))
    Source.objects.create(app=alpha.app, name="web-1", first_seen="2026-01-01T00:00Z", last_seen="2026-01-01T00:00Z")
    audit.record("made", "x", actor=alpha.owner, organisation=alpha.organisation)
    return client


def address(model: type[Any], rest: str) -> str:
    """Of a page of the admin."""
    return f"/admin/{model._meta.app_label}/{model._meta.model_name}/{rest}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_lists_searches_and_forms_open(operator: Client, model: type[Any]) -> None:
    row = model.objects.first()
    for rest in ("", "?q=a", f"{row.pk}/change/"):
        assert operator.get(address(model, rest)).status_code == 200, rest


@pytest.mark.parametrize("model", [Source, AuditEntry], ids=lambda model: model.__name__)
def test_rows_that_the_system_writes_are_read_only(operator: Client, model: type[Any]) -> None:
    assert operator.get(address(model, "add/")).status_code == 403
    assert operator.post(address(model, f"{model.objects.first().pk}/delete/"), {"post": "yes"}).status_code == 403


def test_a_new_token_is_shown_once(operator: Client, alpha: Tenant) -> None:
    form = {"app": alpha.app.pk, "name": "made here", "scope_choice": ["ingest", "read"]}
    page = operator.post(address(Token, "add/"), form, follow=True).content.decode()
    [secret] = re.findall(r"spm_\w{8}_\w{38}", page)
    assert tokens.authenticate(secret, "read")
    assert secret not in operator.get(address(Token, "")).content.decode()
    assert AuditEntry.objects.filter(action="token issued", actor_name="operator").count() == 1


def test_a_token_page_shows_no_hash_and_saves_nothing(operator: Client, alpha: Tenant) -> None:
    token = alpha.app.tokens.get()
    page = operator.get(address(Token, f"{token.pk}/change/")).content
    assert bytes(token.digest).hex().encode() not in page
    assert b"digest" not in page


def test_the_action_revokes_the_chosen_tokens(operator: Client, alpha: Tenant) -> None:
    token = alpha.app.tokens.get()
    operator.post(address(Token, ""), {"action": "revoke_tokens", "_selected_action": [token.pk]})
    assert tokens.authenticate(alpha.token, "read") is None
    assert AuditEntry.objects.filter(action="token revoked").count() == 1


def test_every_action_of_the_admin_asks_for_a_permission_and_seeing_rows_is_not_enough(
    client: Client, alpha: Tenant
) -> None:
    """One test for all actions of all tables: a new one without ``permissions`` fails it."""
    for model_admin in admin.site._registry.values():
        for name in model_admin.actions or ():
            action = model_admin.get_action(name)
            permissions = getattr(action and action[0], "allowed_permissions", ["view"])
            assert "view" not in permissions, f"{model_admin}: {name}"
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_token"))
    client.force_login(viewer)
    assert client.get(address(Token, "")).status_code == 200
    client.post(address(Token, ""), {"action": "revoke_tokens", "_selected_action": [alpha.app.tokens.get().pk]})
    assert tokens.authenticate(alpha.token, "read") is not None


@pytest.mark.parametrize("model", [App, Token], ids=lambda model: model.__name__)
def test_apps_and_tokens_are_not_deleted_from_the_admin(operator: Client, model: type[Any]) -> None:
    assert operator.post(address(model, f"{model.objects.first().pk}/delete/"), {"post": "yes"}).status_code == 403


def test_a_password_set_here_is_noted(operator: Client, alpha: Tenant, settings: Any, tmp_path: Any) -> None:
    settings.SPM_DATA = tmp_path
    new = {"password1": "a long new one 77", "password2": "a long new one 77"}
    operator.post(f"/admin/auth/user/{alpha.owner.pk}/password/", new)
    alpha.owner.refresh_from_db()
    assert alpha.owner.check_password("a long new one 77")
    assert AuditEntry.objects.filter(action="password changed", actor_name="operator").count() == 1


def test_the_admin_has_every_model_of_accounts() -> None:
    assert set(MODELS) <= set(admin.site._registry)
