"""Send your own data: a fresh token by the press of a button, shown once, inside commands ready to paste."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from frontend.forms import TokenForm
from frontend.pages.base import AppPage
from spm.accounts.deeds import issue_token, revoke_token
from spm.accounts.models import App, Role, Token
from spm.errors import Refused

PLACEHOLDER = "YOUR_TOKEN"


class Send(AppPage):
    """Shows the commands; POST makes a token and shows them with it."""

    template_name = "frontend/send.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the app's tokens and the address programs send to."""
        context = {"form": TokenForm(), "secret": "", "placeholder": PLACEHOLDER, **kwargs}
        base = self.request.build_absolute_uri("/").rstrip("/")
        return super().get_context_data(base=base, tokens=_tokens(self.app()), **context)

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
    """Who has sent to this app, for the page that waits for the first data."""

    template_name = "frontend/parts/arrivals.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The newest sources first."""
        context = super().get_context_data(**kwargs)
        return {**context, "sources": context["app"].sources.order_by("-last_seen")[:5]}


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
