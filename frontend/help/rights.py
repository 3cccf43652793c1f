"""Says in the OpenAPI schema which right an operation asks for, as ``x-right``: the act, its lowest role, its scope.

An operation on an app or an organisation asks for ``SEE_APP`` unless the table has it; a test compares all of them with
the rights that the site is walked with. Enter by ``describe``, a hook of the schema generator.
"""

from collections.abc import Mapping
from typing import Any

from spm.accounts.organisations.rights import Right

RIGHTS: Mapping[str, Right] = {
    "agent_forget": Right.FORGET_AGENT,
    "agent_settings_push": Right.PUSH_AGENT_SETTINGS,
    **dict.fromkeys(("alert_acknowledge", "alert_end"), Right.ACKNOWLEDGE),
    "audit": Right.SEE_AUDIT,
    **dict.fromkeys(("alertmanager_silence_create", "alertmanager_silence_expire"), Right.SILENCE),
    "backtest": Right.TRY_RULE,
    **dict.fromkeys(("consumer_group_delete", "consumer_group_register"), Right.MANAGE_CONSUMER_GROUPS),
    "consumer_group_seek": Right.MANAGE_CONSUMER_GROUPS,
    **dict.fromkeys(("contact_point_delete", "contact_point_write"), Right.MANAGE_CONTACT_POINTS),
    **dict.fromkeys(("dashboard_create", "dashboard_delete", "dashboard_import"), Right.EDIT_DASHBOARDS),
    **dict.fromkeys(("dashboard_restore", "dashboard_save", "ready_dashboard_copy"), Right.EDIT_DASHBOARDS),
    **dict.fromkeys(("inhibition_create", "inhibition_delete", "inhibition_replace"), Right.MANAGE_POLICIES),
    **dict.fromkeys(("invitation_revoke", "invitations", "invite"), Right.INVITE),
    "maintenance_window_create": Right.SILENCE,
    "maintenance_window_delete": Right.SILENCE,
    "maintenance_window_replace": Right.SILENCE,
    **dict.fromkeys(("member_remove", "member_role"), Right.MANAGE_MEMBERS),
    "members": Right.SEE_MEMBERS,
    "notification_retry": Right.RETRY_NOTIFICATION,
    "organisation_rename": Right.RENAME,
    **dict.fromkeys(("policy_create", "policy_delete", "policy_replace"), Right.MANAGE_POLICIES),
    "post_event": Right.POST_EVENT,
    "receiver_test": Right.TEST_RECEIVER,
    "retract": Right.RETRACT,
    "retraction_preview": Right.PREVIEW_RETRACTION,
    "retraction_purge": Right.PURGE,
    "retraction_undo": Right.UNDO_RETRACTION,
    **dict.fromkeys(("rule_create", "rule_delete", "rule_disable"), Right.WRITE_RULES),
    **dict.fromkeys(("rule_edit", "rule_enable"), Right.WRITE_RULES),
    **dict.fromkeys(("rule_file_delete", "rule_file_put"), Right.IMPORT_RULES),
    "run_rollback": Right.ROLL_BACK,
    **dict.fromkeys(("silence_create", "silence_end"), Right.SILENCE),
    **dict.fromkeys(("token", "token_create", "token_revoke", "token_rotate", "tokens"), Right.MANAGE_TOKENS),
    "usage": Right.SEE_USAGE,
}
_OF_NO_APP = frozenset(  # those of programs that send, and what every reader sees
    {
        *("agents", "agent_register", "agent_heartbeat", "agent_version", "apps", "organisations"),
        *("api_v1_import_post", "query_builder_read", "query_builder_write"),
    }
)


def right_of(operation: Mapping[str, Any]) -> Right | None:
    """Return the right that an operation asks for; None where a login or a token suffices."""
    name = str(operation["operationId"])
    if name in _OF_NO_APP or "ingest" in operation["tags"]:
        return None
    return RIGHTS.get(name, Right.SEE_APP)


def describe(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Add its right to every operation that asks for one; where no token may ask, take tokens from its security."""
    for path, methods in result["paths"].items():
        for operation in methods.values():
            right = right_of(operation)
            scope = None if right is None or _is_in_person(path) else right.scope
            if right is not None:
                words = {"act": right.text, "role": right.lowest_role.value}
                operation["x-right"] = {**words, "scope": scope} if scope else words
            if _is_in_person(path) or (right is not None and scope is None):
                operation["security"] = [{"cookieAuth": []}]
    return result


def _is_in_person(path: str) -> bool:
    """Whether an address is about people: a token is of one app, and has no stars."""
    return path.startswith("/api/v1/organisations") or path.endswith("/star")
