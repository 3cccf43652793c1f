"""What people do with the members of an organisation, each act with its entry in the audit log.

Rows of one organisation are locked, so two owners who leave at one moment cannot both leave. A membership that is gone
counts from the next request on. Enter by any function.
"""

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from spm.accounts import audit
from spm.accounts.models import Membership, Organisation, Role
from spm.accounts.organisations.rights import Right, includes, may
from spm.errors import Refused


def add(user: User, organisation: Organisation, role: str) -> Membership:
    """Make a person a member; one who is a member already keeps the higher role."""
    membership, is_new = Membership.objects.get_or_create(organisation=organisation, user=user, defaults={"role": role})
    if not is_new and not includes(membership.role, role):
        membership.role = role
        membership.save(update_fields=["role"])
    return membership


def change_role(actor: Membership, member: Membership, role: str) -> None:
    """Give a member another role."""
    if role not in Role.values:
        raise Refused("There is no such role.", got=role, wanted=", ".join(Role.values))
    with transaction.atomic():
        present = _locked(member)
        _check_rank(actor, present, role)
        if present.role == Role.OWNER and role != Role.OWNER:
            _check_other_owner(present)
        before, present.role = present.role, role
        present.save(update_fields=["role"])
        _record("role changed", actor, present, {"before": before, "after": role})


def remove(actor: Membership, member: Membership) -> None:
    """Take a member out of the organisation."""
    with transaction.atomic():
        present = _locked(member)
        _check_rank(actor, present, present.role)
        if present.role == Role.OWNER:
            _check_other_owner(present)
        _record("member removed", actor, present, {"role": present.role})
        present.delete()


def leave(member: Membership) -> None:
    """Leave the organisation oneself."""
    with transaction.atomic():
        present = _locked(member)
        if present.role == Role.OWNER:
            _check_other_owner(present)
        _record("member left", present, present, {"role": present.role})
        present.delete()


def transfer(actor: Membership, member: Membership) -> None:
    """Make another member an owner, and oneself an admin."""
    with transaction.atomic():
        own, other = _locked(actor), _locked(member)
        if not may(own.role, Right.HAND_OVER) or own.pk == other.pk:
            raise Refused("Only an owner can hand an organisation over, and to somebody else.")
        other.role, own.role = Role.OWNER, Role.ADMIN
        Membership.objects.bulk_update([other, own], ["role"])
        _record("ownership transferred", own, other, {})


def owners_of(organisation: Organisation) -> QuerySet[Membership]:
    """The owners of an organisation."""
    return Membership.objects.filter(organisation=organisation, role=Role.OWNER)


def _locked(member: Membership) -> Membership:
    """The member's present row, while all rows of the organisation are locked."""
    rows = list(Membership.objects.select_for_update().filter(organisation_id=member.organisation_id).order_by("pk"))
    row = next((row for row in rows if row.pk == member.pk), None)
    if row is None:
        raise Refused("This person is no member any more.")
    return row


def _check_rank(actor: Membership, member: Membership, role: str) -> None:
    highest = member.role if includes(member.role, role) else role
    if not includes(actor.role, highest):
        raise Refused(f"Only people with the role {highest} may do this.", got=f"your role {actor.role}")


def _check_other_owner(member: Membership) -> None:
    others = owners_of(member.organisation).exclude(pk=member.pk)
    if not others.filter(user__is_active=True).exists():
        raise Refused(
            "An organisation keeps at least one owner.", remedy="Make another member an owner first, or delete it."
        )


def _record(action: str, actor: Membership, member: Membership, detail: dict[str, str]) -> None:
    subject, organisation = member.user.get_username(), member.organisation
    audit.record(action, subject, actor=actor.user, organisation=organisation, detail=dict(detail))
