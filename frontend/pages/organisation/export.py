"""The export of an organisation itself as JSON: people, apps, dashboards, tokens without secrets, open invitations."""

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse

from frontend.dashboards import storage
from frontend.pages.organisation.base import OrganisationPage
from spm.accounts.models import App, Membership, Organisation, Token
from spm.accounts.organisations import invitations
from spm.accounts.organisations.rights import Right


class Export(OrganisationPage):
    """The file."""

    right = Right.EXPORT

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer with the file."""
        content = orjson.dumps(content_of(self.membership().organisation), option=orjson.OPT_INDENT_2)
        answer = HttpResponse(content, content_type="application/json")
        answer["Content-Disposition"] = 'attachment; filename="organisation.json"'
        answer["Cache-Control"] = "no-store"
        return answer


def content_of(organisation: Organisation) -> dict[str, Any]:
    """What the file holds."""
    apps = ("id", "name", "created", "raw_days", "hour_days", "day_days", "series_max", "rate_max")
    tokens = (
        "app_id",
        "name",
        "prefix",
        "scopes",
        "created",
        "created_by__username",
        "expires",
        "last_used",
        "revoked",
    )
    return {
        "organisation": {"id": organisation.pk, "name": organisation.name, "created": organisation.created},
        "members": list(
            Membership.objects.filter(organisation=organisation).values(
                "user__username", "user__email", "role", "created"
            )
        ),
        "apps": list(App.objects.filter(organisation=organisation, going=None).values(*apps)),
        "dashboards": storage.exported(organisation),
        "tokens": list(Token.objects.filter(app__organisation=organisation, app__going=None).values(*tokens)),
        "invitations": list(invitations.pending(organisation).values("email", "role", "created", "expires")),
    }
