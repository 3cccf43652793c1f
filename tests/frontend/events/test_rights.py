"""Who may listen: the token's app or an app of the session's person, and nobody any more once that has ended."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from frontend.events.rights import Grant, NoSuchApp, NotSignedIn, credential_of, grant_of
from spm.accounts import services, tokens
from spm.accounts.models import Membership, Token
from tests.support import process_state
from tests.support.people import Tenant


def with_token(tenant: Tenant, app: int | None = None) -> Any:
    return credential_of(f"Bearer {tenant.token}", "", app)


def with_session(client: Client, app: int | None = None) -> Any:
    return credential_of("", f"other=1; {settings.SESSION_COOKIE_NAME}={client.session.session_key}", app)


def test_token_listens_to_its_app_and_to_no_other(alpha: Tenant, beta: Tenant) -> None:
    assert grant_of(with_token(alpha)) == Grant(alpha.app.pk, alpha.organisation.pk)
    assert grant_of(with_token(alpha, alpha.app.pk)).app_id == alpha.app.pk
    with pytest.raises(NoSuchApp):
        grant_of(with_token(alpha, beta.app.pk))


def test_token_without_the_scope_to_read_is_refused(alpha: Tenant) -> None:
    _, secret = tokens.issue(alpha.app, name="sender", scopes=["ingest"])
    with pytest.raises(NotSignedIn):
        grant_of(credential_of(f"Bearer {secret}", "", None))


def test_token_that_was_revoked_is_refused(alpha: Tenant) -> None:
    credential = with_token(alpha)
    grant_of(credential)
    tokens.revoke(Token.objects.get(app=alpha.app))
    with pytest.raises(NotSignedIn):
        grant_of(credential)


def test_invalid_token_never_falls_back_to_the_session(desk: Client, alpha: Tenant) -> None:
    credential = credential_of("Bearer spm_x", f"{settings.SESSION_COOKIE_NAME}={desk.session.session_key}", None)
    with pytest.raises(NotSignedIn):
        grant_of(credential)


def test_session_listens_to_apps_of_its_person_alone(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    assert grant_of(with_session(desk)).app_id == alpha.app.pk
    assert grant_of(with_session(desk, alpha.app.pk)) == Grant(alpha.app.pk, alpha.organisation.pk)
    with pytest.raises(NoSuchApp):
        grant_of(with_session(desk, beta.app.pk))


def log_out(tenant: Tenant, key: str) -> None:
    import_module(settings.SESSION_ENGINE).SessionStore(key).delete()


def change_password(tenant: Tenant, key: str) -> None:
    tenant.owner.set_password("another horse")
    tenant.owner.save()


def deactivate(tenant: Tenant, key: str) -> None:
    tenant.owner.is_active = False
    tenant.owner.save()


@pytest.mark.parametrize("act", [log_out, change_password, deactivate])
def test_session_that_has_ended_is_refused(desk: Client, alpha: Tenant, act: Callable[[Tenant, str], None]) -> None:
    credential = with_session(desk, alpha.app.pk)
    assert grant_of(credential).app_id == alpha.app.pk
    act(alpha, credential.session)
    with pytest.raises(NotSignedIn):
        grant_of(credential)


def test_app_that_was_deleted_is_lost(desk: Client, alpha: Tenant) -> None:
    credential, program = with_session(desk, alpha.app.pk), with_token(alpha)
    services.delete_app(alpha.owner, alpha.app)
    process_state.forget_tokens()
    for each in (credential, program):
        with pytest.raises((NoSuchApp, NotSignedIn)):
            grant_of(each)


def test_removed_member_may_no_longer_listen(desk: Client, alpha: Tenant) -> None:
    credential = with_session(desk, alpha.app.pk)
    Membership.objects.filter(user=alpha.owner).delete()
    with pytest.raises(NoSuchApp):
        grant_of(credential)


@pytest.mark.parametrize("cookies", ["", "a=b", "=;;", "sessionid=", "sessionid=unknown"])
def test_request_without_credentials_is_refused(db: None, cookies: str) -> None:
    with pytest.raises(NotSignedIn):
        grant_of(credential_of("", cookies, None))
