"""The base of the pages of an organisation: checks the right, draws the tabs, runs the acts of a form.

A page lists its ``acts``: for each name of a form's button the right that it needs and the function that does it, which
returns what is then said. A refusal is said, too; both lead back to the page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.generic import TemplateView

from spm.accounts.access import require_organisation
from spm.accounts.models import Membership
from spm.accounts.organisations import rights
from spm.accounts.organisations.rights import Right
from spm.errors import LimitExceeded, Refused


@dataclass(frozen=True, slots=True)
class Act:
    """An act of a page; ``do`` gets the person's membership and the form, and returns what is then said."""

    right: Right
    do: Callable[[Membership, QueryDict], str]


TABS = (
    ("organisation_members", "Members", Right.SEE_MEMBERS),
    ("organisation_apps", "Apps", Right.SEE_MEMBERS),
    ("organisation_tokens", "Tokens", Right.MANAGE_TOKENS),
    ("organisation_usage", "Usage", Right.SEE_USAGE),
    ("organisation_audit", "Audit log", Right.SEE_AUDIT),
    ("organisation_general", "General", Right.RENAME),
)


class OrganisationPage(LoginRequiredMixin, TemplateView):
    """A page under ``org/<organisation_id>/settings/``; 404 for a foreign organisation, 403 without the right."""

    right: Right
    acts: ClassVar[Mapping[str, Act]] = {}

    @property
    def person(self) -> User:
        """The person who is logged in."""
        return cast(User, self.request.user)

    def membership(self, right: Right | None = None) -> Membership:
        """Return the person's membership, if it has the right."""
        return require_organisation(self.person, self.kwargs["organisation_id"], right or self.right)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the organisation, the tabs, and what the person may do."""
        own = self.membership()
        context = {
            "organisation": own.organisation,
            "own": own,
            "rights": rights.rights_of(own.role),
            "tabs": [
                (
                    text,
                    reverse(f"frontend:{name}", args=[own.organisation_id]),
                    name == self.request.resolver_match.url_name,
                )
                for name, text, right in TABS
                if self.request.resolver_match and rights.may(own.role, right)
            ],
        }
        return super().get_context_data(**{**context, **kwargs})

    def post(self, request: HttpRequest, organisation_id: int) -> HttpResponse:
        """Do the act that the form names, and lead back to the page."""
        act = self.acts.get(request.POST.get("act", ""))
        if act is None:
            self.membership()
            raise Http404("There is no such act.")
        own = self.membership(act.right)
        try:
            messages.success(request, act.do(own, request.POST))
        except (Refused, LimitExceeded) as error:
            messages.warning(request, str(error))
        return self.after(own)

    def after(self, own: Membership) -> HttpResponse:
        """Where an act leads: to the page, or home for those who may not see it any more."""
        is_member = Membership.objects.filter(pk=own.pk, organisation__going=None).exists()
        return redirect(self.request.path) if is_member else redirect("frontend:home")
