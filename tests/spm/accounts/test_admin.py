"""The admin: every list and form opens, a token is shown once, its hash never."""

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory

from spm.accounts import audit, tokens
from spm.accounts.admin import Audited
from spm.accounts.models import App, AuditEntry, Membership, Organisation, Source, Token
from tests.support.people import Tenant, make_tenant

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


def test_an_issued_token_cannot_be_edited(operator: Client, alpha: Tenant) -> None:
    form = {"app": alpha.app.pk, "name": "other", "scope_choice": ["admin"]}
    token = alpha.app.tokens.get()
    assert operator.post(address(Token, f"{token.pk}/change/"), form).status_code == 403
    assert alpha.app.tokens.get().scopes == token.scopes


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


def change(operator: Client, model: type[Any], row: Any, **values: Any) -> None:
    """Change fields of a row by its form in the admin."""
    page: Any = operator.get(address(model, f"{row.pk}/change/"))
    form = {name: value for name, value in page.context["adminform"].form.initial.items() if value is not None}
    for inline in page.context["inline_admin_formsets"]:
        prefix = inline.formset.prefix
        form |= {f"{prefix}-TOTAL_FORMS": 0, f"{prefix}-INITIAL_FORMS": 0}
    assert operator.post(address(model, f"{row.pk}/change/"), {**form, **values}).status_code == 302


def test_a_role_that_staff_change_is_noted_with_the_one_before(operator: Client, alpha: Tenant) -> None:
    member = Membership.objects.get(user=alpha.viewer)
    change(operator, Membership, member, role="owner")
    entry = AuditEntry.objects.get(action="membership changed")
    assert (entry.organisation, entry.actor_name, entry.address) == (alpha.organisation, "operator", "127.0.0.1")
    assert entry.detail == {"before": {"role": "viewer"}, "after": {"role": "owner"}}


def test_an_app_that_staff_move_is_noted_by_both_organisations(operator: Client, alpha: Tenant) -> None:
    beta = make_tenant("beta")
    change(operator, App, alpha.app, organisation=beta.organisation.pk, name="moved")
    entries = AuditEntry.objects.filter(action="app changed")
    assert {entry.organisation for entry in entries} == {alpha.organisation, beta.organisation}
    before = {"organisation": f"{alpha.organisation} ({alpha.organisation.pk})", "name": alpha.app.name}
    after = {"organisation": f"{beta.organisation} ({beta.organisation.pk})", "name": "moved"}
    assert entries[0].detail == {"app": alpha.app.pk, "before": before, "after": after}


def test_a_retention_that_staff_change_is_noted_as_on_the_page(operator: Client, alpha: Tenant) -> None:
    change(operator, App, alpha.app, raw_days=1)
    detail = AuditEntry.objects.get(action="retention changed").detail
    assert (detail["app"], detail["before"]["raw_days"], detail["after"]["raw_days"]) == (alpha.app.pk, 90, 1)


def test_people_that_staff_add_change_and_delete_are_noted_without_passwords(operator: Client, alpha: Tenant) -> None:
    new = {"password1": "a long new one 77", "password2": "a long new one 77", "usable_password": "true"}
    assert operator.post(address(User, "add/"), {"username": "eve", **new}).status_code == 302
    eve = User.objects.get(username="eve")
    change(operator, User, eve, is_staff="on", date_joined_0="2026-01-01", date_joined_1="00:00")
    operator.post(address(User, f"{alpha.viewer.pk}/delete/"), {"post": "yes"})
    operator.post(address(User, ""), {"action": "delete_selected", "_selected_action": [eve.pk], "post": "yes"})
    entries = AuditEntry.objects.filter(action__startswith="user ").order_by("pk")
    assert [(entry.action, entry.subject) for entry in entries] == [
        ("user added", "eve"),
        ("user changed", "eve"),
        ("user deleted", alpha.viewer.username),
        ("user deleted", "eve"),
    ]
    assert entries[1].detail["after"]["is_staff"] is True
    assert entries[2].organisation == alpha.organisation
    assert "a long new one" not in str([entry.detail for entry in entries])


def test_members_that_staff_change_on_the_page_of_an_organisation_are_noted(operator: Client, alpha: Tenant) -> None:
    page: Any = operator.get(address(Organisation, f"{alpha.organisation.pk}/change/"))
    form = dict(page.context["adminform"].form.initial)
    for inline in page.context["inline_admin_formsets"]:
        sets = inline.formset
        form |= {
            f"{sets.prefix}-TOTAL_FORMS": len(sets.initial_forms),
            f"{sets.prefix}-INITIAL_FORMS": sets.initial_form_count(),
        }
        for one in sets.initial_forms:
            form |= {f"{one.prefix}-{name}": value for name, value in one.initial.items() if value is not None}
            form |= {f"{one.prefix}-id": one.instance.pk, f"{one.prefix}-organisation": alpha.organisation.pk}
            if one.instance == Membership.objects.get(user=alpha.viewer):
                form |= {f"{one.prefix}-DELETE": "on"}
            elif one.instance == alpha.app:
                form |= {f"{one.prefix}-rate_max": 70}
    answer = operator.post(address(Organisation, f"{alpha.organisation.pk}/change/"), form)
    assert answer.status_code == 302
    noted = set(AuditEntry.objects.values_list("action", flat=True))
    assert noted >= {"membership deleted", "app changed", "change quotas"}
    assert "organisation changed" not in noted


def test_every_table_that_staff_may_change_notes_it() -> None:
    """Those that are not ``Audited`` call acts that note themselves."""
    by_acts = {"Token", "Policy", "MuteTiming", "Inhibition", "Authenticator"}
    staff = RequestFactory().get("/")
    staff.user = User(is_superuser=True, is_active=True)
    for model, model_admin in admin.site._registry.items():
        may = (model_admin.has_add_permission, model_admin.has_change_permission, model_admin.has_delete_permission)
        if any(each(staff) for each in may) and model.__name__ not in by_acts:
            assert isinstance(model_admin, Audited), model
