"""The export of an organisation itself as JSON: people, apps, dashboards, tokens without secrets, open invitations."""

from collections.abc import Iterator
from typing import Any

import orjson
from django.http import HttpRequest, StreamingHttpResponse

from frontend.dashboards import storage
from frontend.pages.organisation.base import OrganisationPage
from spm.accounts.models import App, Membership, Organisation, Token
from spm.accounts.organisations import invitations
from spm.accounts.organisations.rights import Right


class Export(OrganisationPage):
    """The file."""

    right = Right.EXPORT

    def get(  # type: ignore[override]  # a view may answer with a stream, too
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> StreamingHttpResponse:
        """Answer with the file."""
        answer = StreamingHttpResponse(file_of(self.membership().organisation), content_type="application/json")
        answer["Content-Disposition"] = 'attachment; filename="organisation.json"'
        answer["Cache-Control"] = "no-store"
        return answer


def file_of(organisation: Organisation) -> Iterator[bytes]:
    """Yield the file piece by piece: all dashboards of an organisation do not fit into memory."""
    head = orjson.dumps(content_of(organisation), option=orjson.OPT_INDENT_2).removesuffix(b"\n}")
    yield head + b',\n  "dashboards": ['
    for at, dashboard in enumerate(storage.exported(organisation)):
        yield (b",\n" if at else b"\n") + orjson.dumps(dashboard)
    yield b"]\n}"


def content_of(organisation: Organisation) -> dict[str, Any]:
    """What the file holds beside dashboards."""
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
        "tokens": list(Token.objects.filter(app__organisation=organisation, app__going=None).values(*tokens)),
        "invitations": list(invitations.pending(organisation).values("email", "role", "created", "expires")),
    }
