"""Invitations: a mail with a link lets one person, with the mail's address, join an organisation with a role.

1. ``create`` stores a keyed hash of a random secret and returns the secret, for the mail. A second invitation of the
   same address revokes the first.
2. ``find`` looks a secret up: it must be neither used, revoked nor expired, nor come from an organisation that is gone.
3. ``accept`` counts once: a conditional update decides between two at one moment. The account's address must be that of
   the invitation; since the link came by mail, it is confirmed by that.

Opening the link changes nothing. Enter by these three and ``revoke``.
"""

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from spm.accounts import audit, tokens
from spm.accounts.models import Invitation, Membership, Organisation, Role
from spm.accounts.organisations import members
from spm.accounts.organisations.limits import INVITATION_MS, INVITATIONS_OPEN_MAX
from spm.accounts.organisations.rights import includes
from spm.clock import SystemClock, moment
from spm.errors import LimitExceeded, Refused

_clock = SystemClock()


def create(actor: Membership, email: str, role: str) -> tuple[Invitation, str]:
    """Invite an address; return the invitation and its secret, which cannot be shown again."""
    if role not in Role.values or not includes(actor.role, role):
        raise Refused("Nobody gives a role above their own.", got=role, wanted=f"at most {actor.role}")
    email, now_ms, secret = email.strip().lower(), _clock.now_ms(), tokens.random_secret()
    organisation = actor.organisation
    with transaction.atomic():
        Organisation.objects.select_for_update().get(pk=organisation.pk)
        _open(organisation).filter(email=email).update(revoked=moment(now_ms))
        if _open(organisation).count() >= INVITATIONS_OPEN_MAX:
            raise LimitExceeded("Too many invitations are open.", got=INVITATIONS_OPEN_MAX, remedy="Revoke some first.")
        invitation = Invitation.objects.create(
            organisation=organisation,
            email=email,
            role=role,
            digest=tokens.keyed_digest(secret),
            invited_by=actor.user,
            created=moment(now_ms),
            expires=moment(now_ms + INVITATION_MS),
        )
        audit.record("member invited", email, actor=actor.user, organisation=organisation, detail={"role": role})
    return invitation, secret


def find(secret: str) -> Invitation | None:
    """The invitation that may be accepted with this secret."""
    rows = Invitation.objects.filter(
        digest=tokens.keyed_digest(secret),
        accepted=None,
        revoked=None,
        expires__gt=moment(_clock.now_ms()),
        organisation__going=None,
    )
    return rows.select_related("organisation", "invited_by").first()


def pending(organisation: Organisation) -> QuerySet[Invitation]:
    """The invitations that wait for their people, newest first; those that expired are shown until they are revoked."""
    return _open(organisation).select_related("invited_by")


def accept(secret: str, user: User) -> Membership:
    """Make the person a member; raise ``Refused`` when the invitation is not for this account or not open any more."""
    now = moment(_clock.now_ms())
    with transaction.atomic():
        invitation = find(secret)
        if invitation is None:
            raise Refused("This invitation is not valid any more.", remedy="Ask for a new one.")
        if not _is_for(invitation, user):
            raise Refused(
                "This invitation is for another address.", remedy=f"Log in as {invitation.email}, or ask for a new one."
            )
        is_first = Invitation.objects.filter(pk=invitation.pk, accepted=None, revoked=None).update(accepted=now)
        if not is_first:
            raise Refused("This invitation was accepted before.")
        _confirm(invitation.email, user)
        membership = members.add(user, invitation.organisation, invitation.role)
        detail = {"role": membership.role}
        audit.record(
            "member joined", user.get_username(), actor=user, organisation=invitation.organisation, detail=detail
        )
    return membership


def revoke(actor: Membership, invitation: Invitation) -> None:
    """Take an invitation back."""
    with transaction.atomic():
        if not _open(actor.organisation).filter(pk=invitation.pk).update(revoked=moment(_clock.now_ms())):
            raise Refused("This invitation is not open any more.")
        audit.record("invitation revoked", invitation.email, actor=actor.user, organisation=actor.organisation)


def _open(organisation: Organisation) -> QuerySet[Invitation]:
    return Invitation.objects.filter(organisation=organisation, accepted=None, revoked=None)


def _is_for(invitation: Invitation, user: User) -> bool:
    addresses = EmailAddress.objects.filter(user=user).values_list("email", flat=True)
    return invitation.email in {user.email.lower(), *(address.lower() for address in addresses)}


def _confirm(email: str, user: User) -> None:
    """Note that the person reads this address, unless another account has confirmed it before."""
    address, _ = EmailAddress.objects.get_or_create(user=user, email=email)
    if address.set_verified():
        address.set_as_primary(conditional=True)
