"""Send your own data: a fresh token by the press of a button, shown once, inside commands ready to paste.

Each way of sending has its snippet, and says by itself when the first data came that way: the page asks every three
seconds, and is answered with nothing (204) as long as nothing new came.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from frontend.forms import TokenForm
from frontend.pages.base import AppPage
from frontend.presenters import snippets
from frontend.presenters.snippets import Snippet, Way
from ingest.models import Arrival, Heartbeat
from spm.accounts.models import App, Role, Source, Token
from spm.accounts.services import issue_token, revoke_token
from spm.errors import Refused

PLACEHOLDER, PLACEHOLDER_KEY = "YOUR_TOKEN", "YOUR_KEY"
SOURCES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """A way as the page shows it: ``open`` is the one that is unfolded, ``came`` its first arrival."""

    way: Way
    snippets: Sequence[Snippet]
    came: Arrival | None
    open: bool


class Send(AppPage):
    """Shows the commands; POST makes a token and shows them with it."""

    template_name = "frontend/send.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the app's tokens and the address programs send to."""
        context = {"form": TokenForm(), "secret": "", **kwargs}
        app, base = self.app(), self.request.build_absolute_uri("/").rstrip("/")
        heartbeats = list(Heartbeat.objects.filter(app=app).order_by("-pk"))
        key = str(heartbeats[0].key) if heartbeats else PLACEHOLDER_KEY
        chosen = self.request.GET.get("way", context.get("way", ""))
        opened = chosen if chosen in snippets.NAMES else snippets.NAMES[0]
        token = context["secret"] or PLACEHOLDER
        return super().get_context_data(
            base=base,
            tokens=_tokens(app),
            ways=_shown(app, base, token, key, opened),
            placeholder=PLACEHOLDER,
            heartbeats=heartbeats,
            **_arrived(app),
            **context,
        )

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """A token for sending, for people who may edit the app."""
        self.role = Role.EDITOR
        app, form = self.app(), TokenForm(request.POST)
        if not form.is_valid():
            return self.render_to_response(self.get_context_data(form=form), status=400)
        _, secret = issue_token(self.person, app, name=form.cleaned_data["name"], scopes=form.scopes)
        response = self.render_to_response(self.get_context_data(secret=secret))
        response["Cache-Control"] = "no-store"
        return response


class Arrivals(AppPage):
    """Who has sent to this app, and by which ways; 204 while that is what ``known`` says."""

    template_name = "frontend/parts/arrivals.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The newest sources first, and every way that has come."""
        arrived = _arrived(self.app())
        if request.GET.get("known") == arrived["known"]:
            return HttpResponse(status=204)
        return self.render_to_response(self.get_context_data(polled=True, **arrived))


class Revoke(AppPage):
    """Ends a token; POST only."""

    role = Role.EDITOR
    http_method_names = ["post"]

    def post(self, request: HttpRequest, app_id: int, token_id: int) -> HttpResponse:
        """Back to the page, with a word."""
        token = get_object_or_404(Token.objects.select_related("app__organisation"), app=self.app(), pk=token_id)
        try:
            revoke_token(self.person, token)
            messages.success(request, f"The token “{token.name}” is revoked. It stops working within five seconds.")
        except Refused as error:
            messages.warning(request, str(error))
        return redirect("frontend:send", app_id)


def _tokens(app: App) -> list[Token]:
    return list(app.tokens.filter(revoked=None))


def _shown(app: App, base: str, token: str, key: str, opened: str) -> list[Shown]:
    came = _came(app)
    return [
        Shown(
            way,
            [Snippet(each.place, snippets.filled(each.text, base=base, token=token, key=key)) for each in way.snippets],
            came.get(way.name),
            way.name == opened,
        )
        for way in snippets.WAYS
    ]


def _came(app: App) -> dict[str, Arrival]:
    """The first arrival of each way that has one, by the way's name."""
    arrivals = Arrival.objects.filter(app=app).order_by("-first_seen", "-pk")
    ways = {word: way.name for way in snippets.WAYS for word in way.arrivals}
    return {ways[arrival.way]: arrival for arrival in arrivals if arrival.way in ways}


def _arrived(app: App) -> dict[str, Any]:
    """What has come so far, and a mark by which the page knows it again."""
    came = _came(app)
    by_way = [(way, came[way.name]) for way in snippets.WAYS if way.name in came]
    sources = list(Source.objects.filter(app=app).order_by("-first_seen", "-pk")[:SOURCES_SHOWN])
    text = repr([(way.name, arrival.way) for way, arrival in by_way] + [source.name for source in sources])
    known = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return {"arrivals": by_way, "sources": sources, "known": known}
