"""What people do to accounts, each with its entry in the audit log, in one transaction.

Pages, the REST interface and the admin call these and decide nothing themselves. Enter by the name of the deed.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from spm.accounts import audit, bootstrap, tokens
from spm.accounts.models import App, Organisation, Token
from spm.clock import SystemClock, moment
from spm.errors import Refused
from spm.limits import RETENTION_DAYS_MAX

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days samples, hours and days of an app are kept; ``None``: for ever."""

    raw_days: int | None
    hour_days: int | None
    day_days: int | None

    @classmethod
    def of(cls, app: App) -> "Retention":
        """The app's own."""
        return cls(app.raw_days, app.hour_days, app.day_days)

    def check(self) -> None:
        """Raises ``Refused`` for one that cannot be: what is made of something is kept at least as long as it."""
        tiers = [
            RETENTION_DAYS_MAX + 1 if days is None else days for days in (self.raw_days, self.hour_days, self.day_days)
        ]
        if min(tiers) < 1 or any(days is not None and days > RETENTION_DAYS_MAX for days in asdict(self).values()):
            raise Refused("a retention is 1 day or more", wanted=f"at most {RETENTION_DAYS_MAX} days, or for ever")
        if tiers != sorted(tiers):
            raise Refused("samples cannot be kept longer than hours, nor hours longer than days")


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


def set_retention(actor: User, app: App, retention: Retention) -> None:
    """Keep the app's data so long from now on. What is older goes with the next sealing, not at once."""
    retention.check()
    with transaction.atomic():
        before = Retention.of(App.objects.select_for_update().get(pk=app.pk))
        App.objects.filter(pk=app.pk).update(**asdict(retention))
        detail = {"app": app.pk, "before": asdict(before), "after": asdict(retention)}
        audit.record("retention changed", str(app), actor=actor, organisation=app.organisation, detail=detail)
    app.refresh_from_db()


def delete_app(actor: User | None, app: App) -> None:
    """Nobody sees it or sends to it from now on; its bytes and then its row go a little later, for good."""
    now = moment(_clock.now_ms())
    with transaction.atomic():
        if App.objects.filter(pk=app.pk, going=None).update(going=now) == 0:
            raise Refused("This app was deleted before.", got=app.pk)
        for token in app.tokens.filter(revoked=None):
            tokens.revoke(token)
        audit.record("app deleted", str(app), actor=actor, organisation=app.organisation, detail={"app": app.pk})


def delete_organisation(actor: User | None, organisation: Organisation) -> None:
    """All its apps likewise; its row goes with the last of theirs."""
    now = moment(_clock.now_ms())
    with transaction.atomic():
        if Organisation.objects.filter(pk=organisation.pk, going=None).update(going=now) == 0:
            raise Refused("This organisation was deleted before.", got=organisation.pk)
        for app in organisation.apps.filter(going=None):
            delete_app(actor, app)
        audit.record("organisation deleted", str(organisation), actor=actor, organisation=organisation)


def password_changed(user: User, data_dir: Path, *, actor: User | None = None) -> None:
    """Note it (by another person, when ``actor`` is given), and remove the file that shows the first password."""
    audit.record("password changed", user.get_username(), actor=actor or user, organisation=None)
    bootstrap.forget_first_login(data_dir, user)
