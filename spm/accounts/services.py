"""The acts of people on organisations, apps and tokens, each in one transaction with its entry in the audit log.

Pages, the REST interface and the admin call these functions and decide nothing themselves. Enter by any of them.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from spm.accounts import audit, bootstrap, tokens
from spm.accounts.models import App, Organisation, Token
from spm.accounts.organisations.limits import TOKEN_DAYS_MAX, TOKEN_OVERLAP_MS
from spm.clock import SystemClock, moment
from spm.errors import Refused
from spm.limits import HOUR_MS, RETENTION_DAYS_MAX, RETENTION_DAYS_MIN

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days samples, hours and days of an app are kept; ``None``: for ever."""

    raw_days: int | None
    hour_days: int | None
    day_days: int | None

    @classmethod
    def of(cls, app: App) -> "Retention":
        """The retention of an app."""
        return cls(app.raw_days, app.hour_days, app.day_days)

    def check(self) -> None:
        """Raise ``Refused`` for an impossible one: rollup rows are kept at least as long as the data they rest on."""
        days_kept = [
            RETENTION_DAYS_MAX + 1 if days is None else days for days in (self.raw_days, self.hour_days, self.day_days)
        ]
        if not all(days is None or RETENTION_DAYS_MIN <= days <= RETENTION_DAYS_MAX for days in asdict(self).values()):
            raise Refused(
                f"a retention is {RETENTION_DAYS_MIN} day or more",
                wanted=f"at most {RETENTION_DAYS_MAX} days, or for ever",
            )
        if days_kept != sorted(days_kept):
            raise Refused("samples cannot be kept longer than hours, nor hours longer than days")


def issue_token(
    actor: User | None, app: App, *, name: str, scopes: Iterable[str], days: int | None = None, program: str = ""
) -> tuple[Token, str]:
    """Issue a token for so many days (None: for ever); return it and its secret, which cannot be shown again.

    ``program``: the name of the one that acts, where it is no person.
    """
    if days is not None and not 1 <= days <= TOKEN_DAYS_MAX:
        raise Refused("A token is good for some days.", got=days, wanted=f"1 to {TOKEN_DAYS_MAX}, or for ever")
    expires = None if days is None else moment(_clock.now_ms() + days * 24 * HOUR_MS)
    with transaction.atomic():
        token, secret = tokens.issue(app, name=name, scopes=scopes, created_by=actor, expires=expires)
        detail = {"app": app.pk, "scopes": token.scopes, "expires": str(expires) if expires else None}
        audit.record(
            "token issued", str(token), actor=actor, organisation=app.organisation, detail=detail, name=program
        )
    return token, secret


def rotate_token(actor: User | None, token: Token, *, program: str = "") -> tuple[Token, str]:
    """Issue a token that replaces another one; both work for ``TOKEN_OVERLAP_MS``, so that senders can be changed."""
    now_ms = _clock.now_ms()
    with transaction.atomic():
        present = Token.objects.select_for_update().select_related("app__organisation").get(pk=token.pk)
        end = moment(now_ms + TOKEN_OVERLAP_MS)
        if present.revoked is not None or (present.expires is not None and present.expires <= moment(now_ms)):
            raise Refused("This token does not work any more.", got=present.prefix, remedy="Create a new one.")
        lifetime = None if present.expires is None else present.expires - present.created
        expires = None if lifetime is None else moment(now_ms) + lifetime
        scopes = present.scope_set
        new, secret = tokens.issue(present.app, name=present.name, scopes=scopes, created_by=actor, expires=expires)
        present.expires = min(end, present.expires or end)
        present.save(update_fields=["expires"])
        detail = {"app": present.app_id, "replaces": present.prefix, "until": str(present.expires)}
        audit.record(
            "token rotated", str(new), actor=actor, organisation=present.app.organisation, detail=detail, name=program
        )
    return new, secret


def revoke_token(actor: User | None, token: Token, *, program: str = "") -> None:
    """Revoke a token; raise ``Refused`` when it was revoked before."""
    with transaction.atomic():
        if not tokens.revoke(token):
            raise Refused("This token was revoked before.", got=token.prefix)
        organisation = token.app.organisation
        detail = {"app": token.app_id}
        audit.record("token revoked", str(token), actor=actor, organisation=organisation, detail=detail, name=program)


def set_retention(actor: User, app: App, retention: Retention) -> None:
    """Set how long the app's data is kept. Older data expires with the next daily maintenance, not at once."""
    retention.check()
    with transaction.atomic():
        before = Retention.of(App.objects.select_for_update().get(pk=app.pk))
        App.objects.filter(pk=app.pk).update(**asdict(retention))
        detail = {"app": app.pk, "before": asdict(before), "after": asdict(retention)}
        audit.record("retention changed", str(app), actor=actor, organisation=app.organisation, detail=detail)
    app.refresh_from_db()


def delete_app(actor: User | None, app: App) -> None:
    """Delete an app: from now on nobody sees it or sends to it; its data, and then its row, are deleted later."""
    now = moment(_clock.now_ms())
    with transaction.atomic():
        if App.objects.filter(pk=app.pk, going=None).update(going=now) == 0:
            raise Refused("This app was deleted before.", got=app.pk)
        for token in app.tokens.filter(revoked=None):
            tokens.revoke(token)
        audit.record("app deleted", str(app), actor=actor, organisation=app.organisation, detail={"app": app.pk})


def delete_organisation(actor: User | None, organisation: Organisation) -> None:
    """Delete an organisation with all its apps; its row is deleted after the last of theirs."""
    now = moment(_clock.now_ms())
    with transaction.atomic():
        if Organisation.objects.filter(pk=organisation.pk, going=None).update(going=now) == 0:
            raise Refused("This organisation was deleted before.", got=organisation.pk)
        for app in organisation.apps.filter(going=None):
            delete_app(actor, app)
        audit.record("organisation deleted", str(organisation), actor=actor, organisation=organisation)


def password_changed(user: User, data_dir: Path, *, address: str, actor: User | None = None) -> None:
    """Record a changed password (by ``actor``, if another person did it), and remove the file with the first one."""
    detail = {"address": address}
    audit.record("password changed", user.get_username(), actor=actor or user, organisation=None, detail=detail)
    bootstrap.forget_first_login(data_dir, user)
