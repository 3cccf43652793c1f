"""The page that shows how to send data: a new token, shown once, inside commands ready to paste.

An app without a token gets its first one at once: a script submits the form.

Each method of sending has its snippet and shows when the first data arrived by it: the page asks every three seconds
and gets 204 as long as nothing new has arrived.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from frontend.agent_file import agent_archive
from frontend.forms import TokenForm
from frontend.pages.base import AppPage
from frontend.presenters import snippets
from frontend.presenters.snippets import SendMethod, Snippet
from ingest.models import Arrival, Heartbeat, RejectedLine
from spm.accounts.access import require_app
from spm.accounts.models import App, Source, Token
from spm.accounts.organisations.rights import Right, token_right
from spm.accounts.services import issue_token, revoke_token
from spm.errors import Refused

PLACEHOLDER, PLACEHOLDER_KEY = "YOUR_TOKEN", "YOUR_KEY"
SOURCES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MethodCard:
    """A method of sending as the page draws it; ``open``: its snippets are unfolded."""

    method: SendMethod
    snippets: Sequence[Snippet]
    first_arrival: Arrival | None
    open: bool


class Send(AppPage):
    """Shows the commands; POST issues a token and shows them with it."""

    template_name = "frontend/send.html"
    shows_secrets = True  # a new token, and the key of a heartbeat

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the methods and the address of the server; for editors the app's tokens and the key of a heartbeat."""
        context = super().get_context_data(**{"form": TokenForm(), "secret": "", **kwargs})
        app, may, base = context["app"], context["rights"], self.request.build_absolute_uri("/").rstrip("/")
        heartbeats = list(Heartbeat.objects.filter(app=app).order_by("-pk")) if may["manage_heartbeats"] else []
        key = str(heartbeats[0].key) if heartbeats else PLACEHOLDER_KEY
        selected = self.request.GET.get("way", context.get("way", ""))
        open_name = selected if selected in snippets.NAMES else snippets.NAMES[0]
        token = context["secret"] or PLACEHOLDER
        return {
            **context,
            "base": base,
            "tokens": _tokens(app, may) if may["manage_tokens"] else [],
            "is_first": not context["secret"] and not app.tokens.exists(),
            "methods": _method_cards(app, base, token, key, open_name),
            "placeholder": PLACEHOLDER,
            "heartbeats": heartbeats,
            **_arrival_context(app),
        }

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Issue a token; for editors."""
        self.right = Right.MANAGE_TOKENS
        app, form = self.app(), TokenForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        _, secret = issue_token(self.person, app, name=form.cleaned_data["name"], scopes=form.scopes)
        return self.render_to_response(self.get_context_data(secret=secret))


class Arrivals(AppPage):
    """The sources and methods that have sent to this app; 204 if nothing changed since ``known``."""

    template_name = "frontend/parts/arrivals.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer with the newest sources first, and every method by which data has arrived."""
        arrivals = _arrival_context(self.app())
        if request.GET.get("known") == arrivals["known"]:
            return HttpResponse(status=204)
        return self.render_to_response(self.get_context_data(polled=True, **arrivals))


class Revoke(AppPage):
    """Revokes a token; POST only."""

    right = Right.MANAGE_TOKENS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, token_id: int) -> HttpResponse:
        """Revoke the token and return to the page."""
        token = get_object_or_404(Token.objects.select_related("app__organisation"), app=self.app(), pk=token_id)
        require_app(self.person, app_id, token_right(token.scope_set))
        try:
            revoke_token(self.person, token)
            messages.success(request, f"The token “{token.name}” is revoked. It stops working within five seconds.")
        except Refused as error:
            messages.warning(request, str(error))
        return redirect("frontend:send", app_id)


def _tokens(app: App, may: Mapping[str, bool]) -> list[tuple[Token, bool]]:
    """List the app's tokens, each with whether the person may revoke it."""
    return [(each, may[token_right(each.scope_set).name.lower()]) for each in app.tokens.filter(revoked=None)]


def _method_cards(app: App, base: str, token: str, key: str, open_name: str) -> list[MethodCard]:
    arrivals, sha256 = _first_arrivals(app), agent_archive().sha256
    return [
        MethodCard(
            method,
            [
                Snippet(each.place, snippets.fill_snippet(each.text, base=base, token=token, key=key, sha256=sha256))
                for each in method.snippets
            ],
            arrivals.get(method.name),
            method.name == open_name,
        )
        for method in snippets.SEND_METHODS
    ]


def _first_arrivals(app: App) -> dict[str, Arrival]:
    """Return the first arrival of each method that has one, by the method's name."""
    arrivals = Arrival.objects.filter(app=app).order_by("-first_seen", "-pk")
    methods = {way: method.name for method in snippets.SEND_METHODS for way in method.arrivals}
    return {methods[arrival.way]: arrival for arrival in arrivals if arrival.way in methods}


def _arrival_context(app: App) -> dict[str, Any]:
    """Return what has arrived so far, and a hash of it by which the page notices a change."""
    first = _first_arrivals(app)
    arrivals = [(method, first[method.name]) for method in snippets.SEND_METHODS if method.name in first]
    sources = list(Source.objects.filter(app=app).order_by("-first_seen", "-pk")[:SOURCES_SHOWN])
    rejected = RejectedLine.objects.filter(app=app).first()
    facts = [(method.name, arrival.way) for method, arrival in arrivals], [source.name for source in sources]
    text = repr((facts, rejected and rejected.pk))
    known = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return {"arrivals": arrivals, "sources": sources, "rejected": rejected, "known": known}
