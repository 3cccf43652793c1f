"""The pages of an invited person. The link only moves its secret into the session; a button accepts it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views import View
from django.views.generic import TemplateView

from frontend.pages.account import newcomers
from spm.errors import Refused


class InvitationLink(View):
    """The link of the mail."""

    def get(self, request: HttpRequest, secret: str) -> HttpResponse:
        """Keep the secret, and show the page without it in the address."""
        newcomers.keep(request, secret)
        answer = redirect("frontend:invitation")
        answer["Cache-Control"] = "no-store"
        answer["Referrer-Policy"] = "no-referrer"
        return answer


class Invitation(TemplateView):
    """Who invites, to what; POST joins with the account that is logged in."""

    template_name = "frontend/organisation/invitation.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the invitation of this session."""
        return super().get_context_data(invitation=newcomers.invitation_of(self.request), **kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Join, and go to the organisation's first app."""
        if not request.user.is_authenticated:
            return redirect("frontend:login")
        try:
            newcomers.accept(request, request.user)
        except Refused as error:
            messages.warning(request, str(error))
            return redirect("frontend:invitation")
        messages.success(request, "Welcome. You are a member now.")
        return redirect("frontend:home")
