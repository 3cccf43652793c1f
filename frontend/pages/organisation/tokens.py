"""The page of an organisation's tokens: create with scopes and an end, rotate with an overlap, revoke at once.

A secret is shown once, on the answer to the form that made it, which is stored nowhere.
"""

from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404

from frontend.pages.organisation.base import OrganisationPage
from frontend.pages.organisation.settings import app_of
from spm.accounts.models import App, Membership, Token
from spm.accounts.organisations.rights import Right, may, token_right
from spm.accounts.services import issue_token, revoke_token, rotate_token
from spm.accounts.tokens import SCOPES
from spm.clock import SystemClock, moment
from spm.errors import Refused

_clock = SystemClock()
TOKENS_SHOWN = 500
MEANINGS = {
    "ingest": "Send data",
    "read": "Read data, charts and alerts",
    "events": "Write events: deployments, notes",
    "write": "Read, and change what editors may change",
    "admin": "Everything that an admin of the app may do",
}
LIFETIMES = (("365", "a year"), ("30", "30 days"), ("90", "90 days"), ("", "for ever"))


def create(own: Membership, form: QueryDict) -> str:
    """Create a token; return its secret."""
    scopes = [scope for scope in SCOPES if scope in form.getlist("scopes")]
    _require(own, scopes)
    days = form.get("days", "")
    name = form.get("name", "").strip()[:120]
    if not name or not name.isprintable():
        raise Refused("A token needs a name.", wanted="where you will use it")
    lifetime = int(days) if days.isdecimal() and len(days) < 6 else None
    return issue_token(own.user, app_of(own, form), name=name, scopes=scopes, days=lifetime)[1]


def rotate(own: Membership, form: QueryDict) -> str:
    """Replace a token; return the new one's secret."""
    token = token_of(own, form.get("token", ""))
    _require(own, token.scope_set)
    return rotate_token(own.user, token)[1]


def revoke(own: Membership, form: QueryDict) -> str:
    """Revoke a token; there is no secret to show."""
    token = token_of(own, form.get("token", ""))
    _require(own, token.scope_set)
    revoke_token(own.user, token)
    return ""


class Tokens(OrganisationPage):
    """The tokens of all apps of an organisation."""

    template_name = "frontend/organisation/tokens.html"
    right = Right.MANAGE_TOKENS
    doers: ClassVar = {"create": create, "rotate": rotate, "revoke": revoke}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the tokens that work, and what a new one may be."""
        context = super().get_context_data(**kwargs)
        own: Membership = context["own"]
        now = moment(_clock.now_ms())
        rows = Token.objects.filter(app__organisation=own.organisation, app__going=None, revoked=None)
        tokens = rows.select_related("app", "created_by").order_by("app__name", "-created")[:TOKENS_SHOWN]
        may_admin = context["rights"]["manage_admin_tokens"]
        return {
            **context,
            "apps": App.objects.filter(organisation=own.organisation, going=None),
            "scopes": [(scope, text) for scope, text in MEANINGS.items() if scope != "admin" or may_admin],
            "lifetimes": LIFETIMES,
            "tokens": [
                (
                    token,
                    [MEANINGS[scope] for scope in SCOPES if scope in token.scope_set],
                    may_admin or "admin" not in token.scope_set,
                    token.expires is not None and token.expires <= now,
                )
                for token in tokens
            ],
        }

    def post(self, request: HttpRequest, organisation_id: int) -> HttpResponse:
        """Do the act; a new secret is shown with the page."""
        own = self.membership()
        act = self.doers.get(request.POST.get("act", ""))
        if act is None:
            raise Http404("There is no such act.")
        secret, status = "", 200
        try:
            secret = act(own, request.POST)
            if not secret:
                messages.success(request, "The token is revoked. It stops working within five seconds.")
        except Refused as error:
            messages.warning(request, str(error))
            status = 409
        page = self.render_to_response(self.get_context_data(secret=secret), status=status)
        page["Cache-Control"] = "no-store"
        return page


def token_of(own: Membership, number: str) -> Token:
    """The token of the organisation with this number."""
    rows = Token.objects.filter(app__organisation=own.organisation, app__going=None)
    rows = rows.select_related("app__organisation")
    return get_object_or_404(rows, pk=int(number) if number.isdecimal() and len(number) < 19 else 0)


def _require(own: Membership, scopes: Any) -> None:
    right = token_right(scopes)
    if not may(own.role, right):
        raise PermissionDenied(f"To {right.text}, you need the role {right.lowest_role}.")
