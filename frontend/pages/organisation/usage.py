"""The page of usage: what each app of an organisation uses of its quotas, and for how long it keeps data."""

from dataclasses import dataclass
from typing import Any

from frontend.pages.organisation.base import OrganisationPage
from frontend.presenters.delivery import QuotaUse, quota_of
from spm.accounts.models import App, Organisation, Source
from spm.accounts.organisations.limits import USAGE_APPS_SHOWN
from spm.accounts.organisations.rights import Right


@dataclass(frozen=True, slots=True)
class AppUsage:
    """What one app uses."""

    app: App
    quota: QuotaUse
    sources: int
    tokens: int

    @property
    def percent(self) -> int | None:
        """The part of the series' quota that is used; None while the store does not answer."""
        if self.quota.series is None:
            return None
        return round(100 * self.quota.series / max(1, self.quota.series_max))


class Usage(OrganisationPage):
    """Series, rate, sources and tokens of each app."""

    template_name = "frontend/organisation/usage.html"
    right = Right.SEE_USAGE

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the apps, those nearest to their quota first."""
        context = super().get_context_data(**kwargs)
        return {**context, "usage": usage_of(context["organisation"])}


def usage_of(organisation: Organisation) -> list[AppUsage]:
    """What each app uses, those nearest to their quota first."""
    apps = App.objects.filter(organisation=organisation, going=None)[:USAGE_APPS_SHOWN]
    rows = [
        AppUsage(app, quota_of(app), Source.objects.filter(app=app).count(), app.tokens.filter(revoked=None).count())
        for app in apps
    ]
    return sorted(rows, key=lambda row: -(row.percent or 0))
