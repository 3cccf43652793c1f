"""What a new person begins with: the organisation that invited them, or one of their own with a first app.

The secret of an invitation's link is moved into the session, so that it stands in no address of a page. Enter by
``welcome``.
"""

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse

from spm.accounts.access import apps_of
from spm.accounts.models import Invitation
from spm.accounts.organisations import invitations, settings

_SECRET = "invitation"


def keep(request: HttpRequest, secret: str) -> None:
    """Keep an invitation's secret in the session."""
    request.session[_SECRET] = secret


def invitation_of(request: HttpRequest) -> Invitation | None:
    """The open invitation of this session, if it has one."""
    secret = request.session.get(_SECRET)
    return invitations.find(secret) if secret else None


def is_invited(request: HttpRequest) -> bool:
    """Whether this session has an open invitation."""
    return invitation_of(request) is not None


def accept(request: HttpRequest, user: User) -> None:
    """Accept the session's invitation; raise ``Refused``."""
    invitations.accept(request.session.get(_SECRET, ""), user)
    request.session.pop(_SECRET, None)


def welcome(request: HttpRequest, user: User) -> None:
    """Let a new person join the organisation that invites them, else own one with an app."""
    invitation = invitation_of(request)
    if invitation is not None and invitation.email == user.email.lower():
        accept(request, user)
    else:
        settings.create_first(user)


def first_page(request: HttpRequest) -> str:
    """The page on which a new person begins: how to send data to their first app."""
    app = apps_of(request.user).first()
    return reverse("frontend:home") if app is None or app.tokens.exists() else reverse("frontend:send", args=[app.pk])
