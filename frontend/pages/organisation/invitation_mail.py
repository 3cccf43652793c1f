"""The mail of an invitation to an organisation: its text, and who gets it."""

from django.conf import settings
from django.urls import reverse

from alerts.notify import account_mail
from spm.accounts.models import Invitation, Membership
from spm.accounts.organisations import invitations
from spm.accounts.organisations.limits import INVITATION_MS
from spm.clock import SystemClock
from spm.errors import Refused
from spm.limits import DAY_HOURS, HOUR_MS

_clock = SystemClock()

_BODY = """{who} invites you to {organisation}, as {role}.

{url}

The link is for {email} alone, works once, and is good for {days} days. If you do not know what it is about, do nothing.

--
SPM · {base}
"""


def send_invitation(own: Membership, address: str, role: str) -> Invitation:
    """Invite one address, and put the mail into the outbox."""
    if Membership.objects.filter(organisation=own.organisation, user__emailaddress__email=address).exists():
        raise Refused("This person is a member already.", got=address)
    invitation, secret = invitations.create(own, address, role)
    path = reverse("frontend:invitation_link", args=[secret])
    body = _BODY.format(
        who=own.user.get_username(),
        organisation=own.organisation,
        role=role,
        days=INVITATION_MS // (DAY_HOURS * HOUR_MS),
        url=f"{settings.SPM_BASE_URL}{path}",
        email=address,
        base=settings.SPM_BASE_URL,
    )
    account_mail.queue(address, f"[SPM] Invitation to {own.organisation}", body, now_ms=_clock.now_ms())
    return invitation
