"""The page of members: who they are, who is invited, and every change to that (``invitation_mail`` has the mail)."""

from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import QueryDict
from django.shortcuts import get_object_or_404

from frontend.pages.organisation.base import Act, OrganisationPage
from frontend.pages.organisation.invitation_mail import send_invitation
from spm.accounts.models import Invitation, Membership, Token
from spm.accounts.organisations import invitations, members, rights
from spm.accounts.organisations.limits import INVITED_AT_ONCE_MAX
from spm.accounts.organisations.rights import Right
from spm.accounts.services import revoke_token
from spm.clock import SystemClock, moment
from spm.errors import LimitExceeded, Refused

_clock = SystemClock()
MEMBERS_SHOWN = 500


def invite(own: Membership, form: QueryDict) -> str:
    """Invite the addresses of the form, each by a mail of its own."""
    addresses = list(dict.fromkeys(form.get("emails", "").replace(",", " ").replace(";", " ").lower().split()))
    if not 1 <= len(addresses) <= INVITED_AT_ONCE_MAX:
        raise LimitExceeded("Invite some people at once.", got=len(addresses), wanted=f"1 to {INVITED_AT_ONCE_MAX}")
    for address in addresses:
        _check_address(address)
    for address in addresses:
        send_invitation(own, address, form.get("role", ""))
    return f"Invited: {', '.join(addresses)}. Each gets a mail with a link."


def change_role(own: Membership, form: QueryDict) -> str:
    """Change a member's role."""
    member = _member(own, form)
    members.change_role(own, member, form.get("role", ""))
    return f"{member.user} is {form['role']} now."


def remove(own: Membership, form: QueryDict) -> str:
    """Remove a member, and the tokens that they made if the form says so."""
    member = _member(own, form)
    members.remove(own, member)
    theirs = list(tokens_made_by(member)) if "revoke" in form else []
    for token in theirs:
        revoke_token(own.user, token)
    more = f" {len(theirs)} tokens that they made are revoked." if theirs else ""
    return f"{member.user} is no member any more.{more}"


def transfer(own: Membership, form: QueryDict) -> str:
    """Make another member an owner, and oneself an admin."""
    member = _member(own, form)
    members.transfer(own, member)
    return f"{member.user} is an owner now, and you are an admin."


def leave(own: Membership, form: QueryDict) -> str:
    """Leave the organisation."""
    members.leave(own)
    return f"You have left {own.organisation}."


def resend(own: Membership, form: QueryDict) -> str:
    """Send a new link; the one before stops working."""
    old = _invitation(own, form)
    send_invitation(own, old.email, old.role)
    return f"{old.email} gets a new mail. The link of the one before does not work any more."


def revoke(own: Membership, form: QueryDict) -> str:
    """Take an invitation back."""
    invitation = _invitation(own, form)
    invitations.revoke(own, invitation)
    return f"The invitation of {invitation.email} is revoked."


class Members(OrganisationPage):
    """Members and invitations."""

    template_name = "frontend/organisation/members.html"
    right = Right.SEE_MEMBERS
    acts: ClassVar = {
        "invite": Act(Right.INVITE, invite),
        "resend": Act(Right.INVITE, resend),
        "revoke": Act(Right.INVITE, revoke),
        "role": Act(Right.MANAGE_MEMBERS, change_role),
        "remove": Act(Right.MANAGE_MEMBERS, remove),
        "transfer": Act(Right.HAND_OVER, transfer),
        "leave": Act(Right.LEAVE, leave),
    }

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the members, each with whether the person may change them, and the open invitations."""
        context = super().get_context_data(**kwargs)
        own: Membership = context["own"]
        rows = Membership.objects.filter(organisation=own.organisation).select_related("user")
        people = sorted(rows[:MEMBERS_SHOWN], key=lambda row: (-rights.rank(row.role), row.user.username))
        may = context["rights"]["manage_members"]
        return {
            **context,
            "members": [
                (row, may and row.pk != own.pk and rights.includes(own.role, row.role), tokens_made_by(row).count())
                for row in people
            ],
            "grantable": [(role.value, role.label) for role in rights.grantable(own.role)],
            "invitations": invitations.pending(own.organisation),
            "now": moment(_clock.now_ms()),
        }


def tokens_made_by(member: Membership) -> Any:
    """The tokens of the organisation that work and that this person made."""
    rows = Token.objects.filter(app__organisation_id=member.organisation_id, created_by=member.user_id, revoked=None)
    return rows.select_related("app__organisation")


def _member(own: Membership, form: QueryDict) -> Membership:
    number = form.get("member", "")
    rows = Membership.objects.filter(organisation=own.organisation).select_related("user", "organisation")
    return get_object_or_404(rows, pk=int(number) if number.isdecimal() and len(number) < 19 else 0)


def _invitation(own: Membership, form: QueryDict) -> Invitation:
    number = form.get("invitation", "")
    rows = Invitation.objects.filter(organisation=own.organisation)
    return get_object_or_404(rows, pk=int(number) if number.isdecimal() and len(number) < 19 else 0)


def _check_address(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError as error:
        raise Refused("This is no mail address.", got=repr(address[:80]), wanted="name@example.org") from error
