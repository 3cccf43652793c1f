"""What people do to accounts, each with its entry in the audit log, in one transaction.

Pages, the REST interface and the admin call these and decide nothing themselves. Enter by the name of the deed.
"""

from collections.abc import Iterable
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from spm.accounts import audit, bootstrap, tokens
from spm.accounts.models import App, Token
from spm.errors import Refused


def issue_token(actor: User, app: App, *, name: str, scopes: Iterable[str]) -> tuple[Token, str]:
    """A new token and its secret, which nobody can be shown again."""
    with transaction.atomic():
        token, secret = tokens.issue(app, name=name, scopes=scopes)
        detail = {"app": app.pk, "scopes": token.scopes}
        audit.record("token issued", str(token), actor=actor, organisation=app.organisation, detail=detail)
    return token, secret


def revoke_token(actor: User, token: Token) -> None:
    """End the token; ``Refused`` when it had ended before."""
    with transaction.atomic():
        if not tokens.revoke(token):
            raise Refused("This token was revoked before.", got=token.prefix)
        organisation = token.app.organisation
        audit.record("token revoked", str(token), actor=actor, organisation=organisation, detail={"app": token.app_id})


def password_changed(user: User, data_dir: Path, *, actor: User | None = None) -> None:
    """Note it (by another person, when ``actor`` is given), and remove the file that shows the first password."""
    audit.record("password changed", user.get_username(), actor=actor or user, organisation=None)
    bootstrap.forget_first_login(data_dir, user)
