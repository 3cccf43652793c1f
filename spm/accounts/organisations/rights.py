"""The table of rights: every act of the pages and of REST, and the lowest role that may do it.

Nothing else decides by a role: pages, templates and REST ask ``spm.accounts.access``, which knows the person, whether
they have a ``Right``. A program may do what the role of its token's scope may do; what only owners may do, no program
does. A link of a mail acts without a right (``alerts.telling.link_actions``). Two rules stand beside the table: nobody
gives, changes or takes a role above their own, and an organisation keeps an owner.
"""

from collections.abc import Collection
from enum import Enum, unique

from spm.accounts.models import Role

ROLES = (Role.VIEWER, Role.EDITOR, Role.ADMIN, Role.OWNER)  # each includes those before it
_SCOPES = {Role.VIEWER: "read", Role.EDITOR: "write", Role.ADMIN: "admin"}  # of tokens that may do as much


@unique
class Right(Enum):
    """An act: what it is, in words after “to”, and the lowest role that may do it."""

    # the organisation
    SEE_MEMBERS = "see the members", Role.VIEWER
    SEE_USAGE = "see what the apps use", Role.VIEWER
    LEAVE = "leave the organisation", Role.VIEWER
    INVITE = "invite people", Role.ADMIN
    MANAGE_MEMBERS = "change roles and remove people", Role.ADMIN
    RENAME = "rename the organisation", Role.ADMIN
    CREATE_APP = "create and rename apps", Role.ADMIN
    SEE_AUDIT = "read the audit log", Role.OWNER
    EXPORT = "export the organisation", Role.OWNER
    HAND_OVER = "hand the organisation over", Role.OWNER
    DELETE = "delete the organisation", Role.OWNER

    # an app: its data and all that is said about it
    SEE_APP = "see the app", Role.VIEWER
    EDIT_DASHBOARDS = "create, edit, import and delete dashboards", Role.EDITOR
    SET_RETENTION = "see and change how long data is kept", Role.OWNER
    DELETE_APP = "delete the app", Role.OWNER

    # what sends to it
    MANAGE_TOKENS = "see, create, rotate and revoke tokens", Role.EDITOR
    MANAGE_ADMIN_TOKENS = "create, rotate and revoke tokens with the scope admin", Role.ADMIN
    MANAGE_HEARTBEATS = "see the addresses of heartbeats, add and delete heartbeats", Role.EDITOR
    FORGET_AGENT = "remove an agent from the list", Role.EDITOR
    PUSH_AGENT_SETTINGS = "push settings to agents", Role.ADMIN

    # alerts and notifications
    TRY_RULE = "try a rule on past or present data", Role.VIEWER
    WRITE_RULES = "write, switch and delete rules", Role.EDITOR
    IMPORT_RULES = "import and delete rule files", Role.EDITOR
    ACKNOWLEDGE = "acknowledge alerts", Role.EDITOR
    SILENCE = "silence alerts", Role.EDITOR
    RETRY_NOTIFICATION = "send a notification again", Role.EDITOR
    TEST_RECEIVER = "send a test notification", Role.EDITOR
    MANAGE_POLICIES = "write and delete policies and inhibitions", Role.ADMIN
    MANAGE_CONTACT_POINTS = "see secrets of receivers, write and delete contact points", Role.ADMIN

    # the stream of events
    POST_EVENT = "write events", Role.EDITOR
    MANAGE_CONSUMER_GROUPS = "register, move and delete consumer groups", Role.EDITOR

    # corrections and runs
    PREVIEW_RETRACTION = "preview a retraction", Role.EDITOR
    RETRACT = "retract samples", Role.ADMIN
    UNDO_RETRACTION = "undo a retraction", Role.ADMIN
    PURGE = "delete retracted samples for good", Role.OWNER
    ROLL_BACK = "roll back a run", Role.OWNER

    def __init__(self, text: str, lowest_role: Role) -> None:
        self.text, self.lowest_role = text, lowest_role

    @property
    def scope(self) -> str | None:
        """The scope of a token that may do the act; None if it takes an owner in person."""
        return _SCOPES.get(self.lowest_role)


def may(role: str, right: Right) -> bool:
    """Whether a person with this role may do the act."""
    return includes(role, right.lowest_role)


def rights_of(role: str | None) -> dict[str, bool]:
    """For templates: whether this role, or nobody, may do each act, by its name in small letters."""
    return {right.name.lower(): role is not None and may(role, right) for right in Right}


def token_right(scopes: Collection[str]) -> Right:
    """The right to create, rotate or revoke a token with these scopes."""
    return Right.MANAGE_ADMIN_TOKENS if "admin" in scopes else Right.MANAGE_TOKENS


def rank(role: str) -> int:
    """How many roles a role includes beside itself."""
    return ROLES.index(Role(role))


def includes(role: str, other: str) -> bool:
    """Whether a role includes another one, or is the same."""
    return rank(role) >= rank(other)


def grantable(role: str) -> list[Role]:
    """The roles that a person with this role may give, the lowest first."""
    return [each for each in ROLES if includes(role, each)]
