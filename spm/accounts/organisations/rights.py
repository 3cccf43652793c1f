"""The table of rights: the lowest role that may do each act in an organisation. Pages and REST both read it.

Two rules stand beside the table: nobody gives, changes or takes a role above their own, and an organisation keeps an
owner. Enter by ``require``.
"""

from enum import StrEnum

from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied

from spm.accounts.access import require_organisation
from spm.accounts.models import Membership, Role

ROLES = (Role.VIEWER, Role.EDITOR, Role.ADMIN, Role.OWNER)  # each includes those before it


class Right(StrEnum):
    """An act in an organisation."""

    SEE_MEMBERS = "see its members"
    SEE_USAGE = "see what its apps use"
    LEAVE = "leave it"
    MANAGE_TOKENS = "create, rotate and revoke tokens"
    MANAGE_ADMIN_TOKENS = "create, rotate and revoke tokens with the scope admin"
    INVITE = "invite people"
    MANAGE_MEMBERS = "change roles and remove people"
    RENAME = "rename the organisation"
    CREATE_APP = "create and rename apps"
    SEE_AUDIT = "read the audit log"
    DELETE_APP = "delete an app"
    EXPORT = "export everything"
    DELETE = "delete the organisation"


LOWEST_ROLE: dict[Right, Role] = {
    Right.SEE_MEMBERS: Role.VIEWER,
    Right.SEE_USAGE: Role.VIEWER,
    Right.LEAVE: Role.VIEWER,
    Right.MANAGE_TOKENS: Role.EDITOR,
    Right.MANAGE_ADMIN_TOKENS: Role.ADMIN,
    Right.INVITE: Role.ADMIN,
    Right.MANAGE_MEMBERS: Role.ADMIN,
    Right.RENAME: Role.ADMIN,
    Right.CREATE_APP: Role.ADMIN,
    Right.SEE_AUDIT: Role.OWNER,
    Right.DELETE_APP: Role.OWNER,
    Right.EXPORT: Role.OWNER,
    Right.DELETE: Role.OWNER,
}


def may(role: str, right: Right) -> bool:
    """Whether a person with this role may do the act."""
    return includes(role, LOWEST_ROLE[right])


def includes(role: str, other: str) -> bool:
    """Whether a role includes another one, or is the same."""
    return ROLES.index(Role(role)) >= ROLES.index(Role(other))


def require(person: User | AnonymousUser, organisation_id: int, right: Right) -> Membership:
    """The person's membership, if it gives the right; 404 for a foreign organisation, 403 for too low a role."""
    membership = require_organisation(person, organisation_id)
    if not may(membership.role, right):
        raise PermissionDenied(f"To {right}, you need the role {LOWEST_ROLE[right]}. Ask one of its owners.")
    return membership


def grantable(role: str) -> list[Role]:
    """The roles that a person with this role may give, the lowest first."""
    return [each for each in ROLES if includes(role, each)]
