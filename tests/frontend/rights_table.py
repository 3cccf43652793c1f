"""Who may ask what at which address of the site: the rows that ``test_rights.py`` walks.

A row has the right that an answer needs, and the answer's status for those who have it. Where it is not a right that
decides, ``Who`` says what does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from frontend.pages.registry import PAGES
from spm.accounts.organisations.rights import Right


class Who(Enum):
    """Who gets an answer at an address that no role opens."""

    EVERYBODY = auto()
    ACCOUNT = auto()  # pages of one's own account, by a library: a stranger logs in first
    PERSON = auto()  # with a session
    READER = auto()  # a program whose token reads
    SENDER = auto()  # a program whose token sends
    STAFF = auto()


@dataclass(frozen=True, slots=True)
class Row:
    """One question. ``status``: the answer to those who may; None: whatever the library says."""

    method: str
    route: str
    who: Right | Who
    status: int | None = 200
    body: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""

    def form(self, values: Mapping[str, str]) -> dict[str, Any]:
        """The body with the numbers that stand for what a world has."""
        return {name: text.format(**values) if isinstance(text, str) else text for name, text in self.body.items()}

    def __str__(self) -> str:
        return f"{self.method} {self.route} {' '.join(f'{name}={value}' for name, value in self.body.items())}".strip()


def _all(method: str, root: str, who: Right | Who, *routes: str, status: int | None = 200) -> list[Row]:
    return [Row(method, root + route, who, status) for route in routes]


_API, _APP, _ORG = "/api/v1/apps/<int:app_id>", "/apps/<int:app_id>", "/org/<int:organisation_id>/settings"
_ORGANISATION, _PROMETHEUS = "/api/v1/organisations/<int:organisation_id>", "/prometheus/api/v1"

ORGANISATION_PAGES = [
    Row("GET", f"{_ORG}/members", Right.SEE_MEMBERS),
    Row("GET", f"{_ORG}/apps", Right.SEE_MEMBERS),
    Row("GET", f"{_ORG}/tokens", Right.MANAGE_TOKENS),
    Row("GET", f"{_ORG}/usage", Right.SEE_USAGE),
    Row("GET", f"{_ORG}/audit", Right.SEE_AUDIT),
    Row("GET", f"{_ORG}/audit", Right.SEE_AUDIT, query="form=csv"),
    Row("GET", f"{_ORG}/general", Right.RENAME),
    Row("GET", f"{_ORG}/export", Right.EXPORT),
    *(
        Row("POST", f"{_ORG}/{page}", right, 404)
        for page, right in (
            ("usage", Right.SEE_USAGE),
            ("audit", Right.SEE_AUDIT),
            ("export", Right.EXPORT),
        )
    ),  # they have no acts
]
ACTS = [
    Row("POST", f"{_ORG}/{page}", right, 200 if page == "tokens" else 302, form)
    for page, right, form in (
        ("members", Right.INVITE, {"act": "invite", "emails": "new@example.org", "role": "viewer"}),
        ("members", Right.INVITE, {"act": "resend", "invitation": "{invitations}"}),
        ("members", Right.INVITE, {"act": "revoke", "invitation": "{invitations}"}),
        ("members", Right.MANAGE_MEMBERS, {"act": "role", "member": "{members}", "role": "editor"}),
        ("members", Right.MANAGE_MEMBERS, {"act": "remove", "member": "{members}"}),
        ("members", Right.HAND_OVER, {"act": "transfer", "member": "{members}"}),
        ("members", Right.LEAVE, {"act": "leave"}),
        ("apps", Right.CREATE_APP, {"act": "create", "name": "New"}),
        ("apps", Right.CREATE_APP, {"act": "rename", "app": "{apps}", "name": "Other"}),
        ("apps", Right.DELETE_APP, {"act": "delete", "app": "{apps}", "confirm": "alpha production"}),
        ("tokens", Right.MANAGE_TOKENS, {"act": "create", "app": "{apps}", "name": "n", "scopes": ["ingest"]}),
        ("tokens", Right.MANAGE_ADMIN_TOKENS, {"act": "create", "app": "{apps}", "name": "n", "scopes": ["admin"]}),
        ("tokens", Right.MANAGE_TOKENS, {"act": "rotate", "token": "{tokens}"}),
        ("tokens", Right.MANAGE_TOKENS, {"act": "revoke", "token": "{tokens}"}),
        ("tokens", Right.MANAGE_ADMIN_TOKENS, {"act": "revoke", "token": "{admin token}"}),
        ("general", Right.RENAME, {"act": "rename", "name": "Other"}),
        ("general", Right.DELETE, {"act": "delete", "confirm": "alpha"}),
    )
]
ORGANISATION_CALLS = [
    Row("PATCH", _ORGANISATION, Right.RENAME, body={"name": "Other"}),
    Row("GET", f"{_ORGANISATION}/members", Right.SEE_MEMBERS),
    Row("PATCH", f"{_ORGANISATION}/members/<int:number>", Right.MANAGE_MEMBERS, body={"role": "editor"}),
    Row("DELETE", f"{_ORGANISATION}/members/<int:number>", Right.MANAGE_MEMBERS, 204),
    Row("GET", f"{_ORGANISATION}/invitations", Right.INVITE),
    Row("POST", f"{_ORGANISATION}/invitations", Right.INVITE, 201, {"email": "new@example.org", "role": "viewer"}),
    Row("DELETE", f"{_ORGANISATION}/invitations/<int:number>", Right.INVITE, 204),
    Row("GET", f"{_ORGANISATION}/audit", Right.SEE_AUDIT),
    Row("GET", f"{_ORGANISATION}/usage", Right.SEE_USAGE),
]
TOKENS = [
    Row("GET", f"{_API}/tokens", Right.MANAGE_TOKENS),
    Row("POST", f"{_API}/tokens", Right.MANAGE_TOKENS, 201, {"name": "n", "scopes": ["read"]}),
    Row("POST", f"{_API}/tokens", Right.MANAGE_ADMIN_TOKENS, 201, {"name": "n", "scopes": ["admin"]}),
    Row("GET", f"{_API}/tokens/<int:number>", Right.MANAGE_TOKENS),
    Row("GET", f"{_API}/tokens/{{admin token}}", Right.MANAGE_ADMIN_TOKENS),
    Row("POST", f"{_API}/tokens/<int:number>/rotate", Right.MANAGE_TOKENS, 201),
    Row("POST", f"{_API}/tokens/{{admin token}}/rotate", Right.MANAGE_ADMIN_TOKENS, 201),
    Row("DELETE", f"{_API}/tokens/<int:number>", Right.MANAGE_TOKENS, 204),
    Row("DELETE", f"{_API}/tokens/{{admin token}}", Right.MANAGE_ADMIN_TOKENS, 204),
    Row("GET", f"{_APP}/add-data", Right.SEE_APP),
    Row("GET", f"{_APP}/add-data/arrivals", Right.SEE_APP),
    Row("POST", f"{_APP}/add-data", Right.MANAGE_TOKENS, 200, {"name": "n", "use": "read"}),
    Row("POST", f"{_APP}/tokens/<int:token_id>/revoke", Right.MANAGE_TOKENS, 302),
    Row("POST", f"{_APP}/tokens/{{admin token}}/revoke", Right.MANAGE_ADMIN_TOKENS, 302),
]
SENDERS = [
    Row("GET", f"{_API}/agents", Right.SEE_APP),
    Row("GET", f"{_API}/agents/settings", Right.SEE_APP),
    Row("PUT", f"{_API}/agents/settings", Right.PUSH_AGENT_SETTINGS, body={"match": "*", "settings": {"period_s": 5}}),
    Row("GET", f"{_API}/agents/by-name/<path:agent>", Right.SEE_APP),
    Row("DELETE", f"{_API}/agents/by-name/<path:agent>", Right.FORGET_AGENT, 204),
    *_all("GET", _APP, Right.SEE_APP, "/data/sources", "/data/sources/table", "/heartbeats"),
    Row("POST", f"{_APP}/data/sources/settings", Right.PUSH_AGENT_SETTINGS, 302, {"match": "*", "period_s": "5"}),
    Row("POST", f"{_APP}/heartbeats", Right.MANAGE_HEARTBEATS, 302, {"name": "nightly"}),
    Row("POST", f"{_APP}/heartbeats/<int:number>/delete", Right.MANAGE_HEARTBEATS, 302),
    Row("GET", "/api/v1/agents", Who.READER),
    *_all("POST", "/api/v1/agents", Who.SENDER, "", "/heartbeat"),
    Row("GET", "/api/v1/agents/version", Who.SENDER),
]
_POLICY = {"matchers": 'host="b"', "contact_point": "{contact-points}"}
_INHIBITION = {"source": 'alertname="down"', "target": 'host="b"'}
_WINDOW = {"name": "Backup", "matchers": 'host="b"', "cron": "0 2 * * 6", "duration_ms": 60_000}
ALERTS = [
    *_all("GET", f"{_API}/rules", Right.SEE_APP, "", "/files", "/<int:number>", "/<int:number>/alerts"),
    Row("POST", f"{_API}/rules", Right.WRITE_RULES, 201, {"name": "N", "expr": "up", "receivers": []}),
    Row("PATCH", f"{_API}/rules/<int:number>", Right.WRITE_RULES, 428),
    Row("DELETE", f"{_API}/rules/<int:number>", Right.WRITE_RULES, 428),
    Row("POST", f"{_API}/rules/<int:number>/enable", Right.WRITE_RULES),
    Row("POST", f"{_API}/rules/<int:number>/disable", Right.WRITE_RULES),
    Row("GET", f"{_API}/rules/files/<str:name>", Right.SEE_APP),
    Row("PUT", f"{_API}/rules/files/<str:name>", Right.IMPORT_RULES),
    Row("DELETE", f"{_API}/rules/files/<str:name>", Right.IMPORT_RULES),
    Row("POST", f"{_API}/rules/backtest", Right.TRY_RULE, 400),
    *_all("GET", "/alerts", Right.SEE_APP, "/", "/rules/<int:rule_id>", "/notifications"),
    *_all("GET", "/alerts", Right.SEE_APP, "/notifications/<int:notification_id>", "/silences", "/silences/preview"),
    *_all("GET", "/alerts", Right.SEE_APP, "/active", "/incidents", "/events"),
    Row("POST", "/alerts/events", Right.POST_EVENT, 302, {"kind": "note", "text": "seen"}),
    Row("POST", "/alerts/<int:episode_id>/end", Right.ACKNOWLEDGE, 302),
    Row("POST", "/alerts/<int:episode_id>/note", Right.POST_EVENT, 302, {"text": "seen"}),
    Row("POST", "/alerts/active", Right.ACKNOWLEDGE, 302),
    Row("GET", "/alerts/files", Right.SEE_APP),
    Row("POST", "/alerts/files", Right.IMPORT_RULES),
    Row("GET", "/alerts/files/<str:name>", Right.SEE_APP),
    Row("GET", "/alerts/check", Right.TRY_RULE),
    Row("POST", "/alerts/try", Right.TRY_RULE),
    Row("GET", "/alerts/<int:episode_id>", Right.SEE_APP),
    Row("POST", "/alerts/<int:episode_id>/take", Right.ACKNOWLEDGE, 302),
    *_all("GET", "/alerts", Right.WRITE_RULES, "/new", "/rules/<int:rule_id>/edit"),
    *_all("POST", "/alerts", Right.WRITE_RULES, "/new", "/rules/<int:rule_id>/edit"),
    Row("POST", "/alerts/rules/<int:rule_id>/delete", Right.WRITE_RULES, 302),
    Row("POST", "/alerts/notifications/<int:notification_id>/retry", Right.RETRY_NOTIFICATION, 302),
    Row("POST", "/alerts/notifications/<int:notification_id>/acknowledge", Right.ACKNOWLEDGE, 302),
    Row("POST", "/alerts/contact-points", Right.MANAGE_CONTACT_POINTS, 302),
    Row("POST", "/alerts/contact-points/<int:point_id>/delete", Right.MANAGE_CONTACT_POINTS, 302),
    Row("GET", "/alerts/noise", Right.SEE_APP),
    Row("POST", "/alerts/contact-points/<int:point_id>/report", Right.MANAGE_CONTACT_POINTS, 302),
    *_all("GET", f"{_ORGANISATION}/noise-reports", Right.SEE_APP, "", "/now", "/<int:number>"),
    Row("POST", "/alerts/receivers/<int:receiver_id>/test", Right.TEST_RECEIVER, 302),
    Row("POST", "/alerts/silences", Right.SILENCE),
    *_all("GET", "/alerts", Right.SEE_APP, "/policies", "/windows"),
    Row("GET", "/alerts/policies/<int:policy_id>", Right.MANAGE_POLICIES),
    *_all("POST", "/alerts", Right.MANAGE_POLICIES, "/policies", "/policies/<int:policy_id>", "/inhibitions"),
    Row("POST", "/alerts/policies/<int:policy_id>/delete", Right.MANAGE_POLICIES, 302),
    Row("POST", "/alerts/inhibitions/<int:inhibition_id>/delete", Right.MANAGE_POLICIES, 302),
    Row("POST", "/alerts/windows", Right.SILENCE),
    Row("POST", "/alerts/windows/<int:window_id>/delete", Right.SILENCE, 302),
    Row("POST", "/alerts/silences/<int:silence_id>/end", Right.SILENCE, 302),
    *_all("GET", _ORGANISATION, Right.SEE_APP, "/notifications", "/notifications/<int:number>", "/receivers"),
    Row("GET", f"{_ORGANISATION}/notifications/budget", Right.SEE_APP),
    Row("POST", f"{_ORGANISATION}/notifications/<int:number>/retry", Right.RETRY_NOTIFICATION),
    Row("POST", f"{_ORGANISATION}/receivers/<int:number>/test", Right.TEST_RECEIVER, 201),
    Row("POST", f"{_ORGANISATION}/alerts/<int:number>/acknowledge", Right.ACKNOWLEDGE),
    Row("POST", f"{_ORGANISATION}/alerts/<int:number>/end", Right.ACKNOWLEDGE),
    Row("GET", f"{_ORGANISATION}/contact-points", Right.SEE_APP),
    Row(
        "POST",
        f"{_ORGANISATION}/contact-points",
        Right.MANAGE_CONTACT_POINTS,
        201,
        {"name": "P", "receivers": ["p@example.org"]},
    ),
    Row("DELETE", f"{_ORGANISATION}/contact-points/<int:number>", Right.MANAGE_CONTACT_POINTS, 204),
    *_all("GET", _ORGANISATION, Right.SEE_APP, "/alerts", "/policies", "/inhibitions", "/maintenance-windows"),
    Row("GET", f"{_ORGANISATION}/incidents", Right.SEE_APP),
    Row("POST", f"{_ORGANISATION}/policies/test", Right.SEE_APP, body={"labels": {"host": "b"}}),
    Row("POST", f"{_ORGANISATION}/policies", Right.MANAGE_POLICIES, 201, _POLICY),
    Row("PUT", f"{_ORGANISATION}/policies/<int:number>", Right.MANAGE_POLICIES, body=_POLICY),
    Row("DELETE", f"{_ORGANISATION}/policies/<int:number>", Right.MANAGE_POLICIES, 204),
    Row("POST", f"{_ORGANISATION}/inhibitions", Right.MANAGE_POLICIES, 201, _INHIBITION),
    Row("PUT", f"{_ORGANISATION}/inhibitions/<int:number>", Right.MANAGE_POLICIES, body=_INHIBITION),
    Row("DELETE", f"{_ORGANISATION}/inhibitions/<int:number>", Right.MANAGE_POLICIES, 204),
    Row("POST", f"{_ORGANISATION}/maintenance-windows", Right.SILENCE, 201, _WINDOW),
    Row("PUT", f"{_ORGANISATION}/maintenance-windows/<int:number>", Right.SILENCE, body=_WINDOW),
    Row("DELETE", f"{_ORGANISATION}/maintenance-windows/<int:number>", Right.SILENCE, 204),
    *_all("GET", f"{_ORGANISATION}/silences", Right.SEE_APP, "", "/<int:number>"),
    Row("POST", f"{_ORGANISATION}/silences", Right.SILENCE, 201, {"matchers": 'host="b"', "to_ms": "{soon}"}),
    Row("DELETE", f"{_ORGANISATION}/silences/<int:number>", Right.SILENCE, 204),
    *_all("GET", "/api/v2", Right.SEE_APP, "/alerts", "/alerts/groups", "/silences", "/silence/<str:silence>"),
    *_all("GET", "/api/v2", Right.SEE_APP, "/status", "/receivers"),
    Row(
        "POST",
        "/api/v2/silences",
        Right.SILENCE,
        body={
            "matchers": [{"name": "host", "value": "b", "isRegex": False}],
            "startsAt": "2000-01-01T00:00:00Z",
            "endsAt": "{later}",
            "createdBy": "ops",
            "comment": "disk",
        },
    ),
    Row("DELETE", "/api/v2/silence/<str:silence>", Right.SILENCE),
]
_GROUP, _CONSUMER = "/api/v1/events/groups/<slug:name>", "/api/v1/events/groups/<slug:name>/consumers/<str:consumer>"
EVENTS = [
    Row(
        "POST", "/api/v1/events", Right.POST_EVENT, 201, {"app": "{apps}", "kind": "deploy", "text": "4.2", "at_ms": 5}
    ),
    *_all("GET", "", Right.SEE_APP, "/api/v1/events/groups", _GROUP),
    Row("PUT", _GROUP, Right.MANAGE_CONSUMER_GROUPS, body={"partitions": 2}),
    Row("PUT", f"{_GROUP}/position", Right.MANAGE_CONSUMER_GROUPS, body={"stream_position": "oldest"}),
    Row("DELETE", _GROUP, Right.MANAGE_CONSUMER_GROUPS, 204),
    Row("POST", f"{_GROUP}/consumers", Right.SEE_APP, 201),
    Row("DELETE", _CONSUMER, Right.SEE_APP, 204),
    Row("POST", f"{_CONSUMER}/fetch", Right.SEE_APP),
    Row("POST", f"{_CONSUMER}/commit", Right.SEE_APP, 400, {"stream_position": "oldest"}),
]
CORRECTIONS = [
    *_all("GET", _API, Right.SEE_APP, "/runs", "/runs/<int:number>", "/corrections", "/retractions"),
    Row("POST", f"{_API}/runs/<int:number>/rollback", Right.ROLL_BACK, 409),
    Row("POST", f"{_API}/retractions", Right.RETRACT, 400),
    Row("POST", f"{_API}/retractions/preview", Right.PREVIEW_RETRACTION, 409),
    Row("POST", f"{_API}/retractions/<int:number>/undo", Right.UNDO_RETRACTION),
    Row("POST", f"{_API}/retractions/<int:number>/purge", Right.PURGE, 400),
    Row("GET", f"{_APP}/data/corrections", Right.SEE_APP),
    Row("POST", f"{_APP}/data/corrections", Right.PREVIEW_RETRACTION, 409),
    Row("POST", f"{_APP}/data/corrections", Right.RETRACT, 409, {"act": ""}),
    Row("GET", f"{_APP}/data/corrections/<int:number>/purge", Right.PURGE),
    Row("POST", f"{_APP}/data/corrections/<int:number>/purge", Right.PURGE, 400),
    Row("POST", f"{_APP}/data/corrections/<int:number>/undo", Right.UNDO_RETRACTION, 302),
    *_all("GET", _APP, Right.ROLL_BACK, "/data/rollups", "/data/rollups/table"),
    Row("POST", f"{_APP}/data/rollups/<int:number>/rollback", Right.ROLL_BACK, 302),
    Row("GET", f"{_APP}/data/retention", Right.SET_RETENTION),
    Row("POST", f"{_APP}/data/retention", Right.SET_RETENTION),
    Row("POST", f"{_APP}/data/retention/delete", Right.DELETE_APP, 302),
]
_TIMES = "start=0&end=60&step=60"
_PANELS = {"app": "{apps}", "start": 0, "end": 60_000, "panels": [{"id": "a", "expr": "up"}]}
DATA = [
    Row("GET", "/api/v1/charts", Right.SEE_APP, query="expr=up"),
    Row("POST", "/api/v1/charts/batch", Right.SEE_APP, body=_PANELS),
    Row("POST", "/api/v1/charts/batch", Right.PREVIEW_RETRACTION, body={**_PANELS, "draft": {"source": "a"}}),
    Row("GET", "/api/v1/search", Right.SEE_APP, query="q=web"),
    Row("GET", "/api/v1/percentiles", Right.SEE_APP, query="match=cpu&q=0.5&by=host"),
    *_all("GET", _API, Right.SEE_APP, "/sources", "/completeness", "/metrics", "/balance", "/account", "/rejections"),
    *_all("GET", _API, Right.SEE_APP, "/balance/hours", "/account/hours", "/balance/rows", "/account/rows"),
    Row("GET", f"{_API}/labels", Right.SEE_APP, query="metric=up"),
    Row("GET", f"{_API}/changes", Right.SEE_APP, query="start=0&end=3600000"),
    Row("GET", f"{_APP}/explore/changes", Right.SEE_APP, query="from=0&to=3600000"),
    *(Row(method, "/api/v1/export", Right.SEE_APP, query="match[]=up") for method in ("GET", "POST")),
    *_all("GET", _APP, Right.SEE_APP, "/", "/home", "/hosts", "/hosts-part", "/completeness", "/explore"),
    *_all("GET", f"{_APP}/data", Right.SEE_APP, "/ingestion", "/ingestion/hours", "/ingestion/download"),
    *_all("GET", f"{_APP}/data", Right.SEE_APP, "/rejected", "/dead-letters"),
    *_all("GET", _APP, Who.EVERYBODY, *(f"/{old}" for page in PAGES for old in page.former), status=301),
    *_all("GET", _APP, Right.SEE_APP, "/hosts/<host:host>", "/system", status=404),  # no such host; not the own app
    *(
        Row(method, f"{_PROMETHEUS}/{name}", Right.SEE_APP, query=query)
        for method in ("GET", "POST")
        for name, query in {
            "query": "query=up",
            "query_range": f"query=up&{_TIMES}",
            "query_exemplars": f"query=up&{_TIMES}",
            "series": "match[]=up",
            "format_query": "query=up",
            "parse_query": "query=up",
            **dict.fromkeys(("labels", "label/<str:name>/values", "metadata", "rules", "alerts", "targets"), ""),
            "features": "",
            **dict.fromkeys(("targets/metadata", "alertmanagers", "notifications", "status/buildinfo"), ""),
            **dict.fromkeys(("status/runtimeinfo", "status/flags", "status/config", "status/tsdb"), ""),
        }.items()
    ),
    Row("POST", f"{_PROMETHEUS}/read", Right.SEE_APP, 400),
    *(Row(method, "/prometheus/federate", Right.SEE_APP, query="match[]=up") for method in ("GET", "POST")),
]
_API_DASHBOARD = f"{_API}/dashboards/<slug:uid>"
_DASHBOARD = f"{_APP}/dashboards/<slug:uid>"
DASHBOARDS = [
    *_all("GET", f"{_API}/dashboards", Right.SEE_APP, "", "/<slug:uid>", "/<slug:uid>/versions"),
    *_all("GET", f"{_API}/dashboards/ready", Right.SEE_APP, "", "/<slug:key>"),
    Row("POST", f"{_API}/dashboards/ready/<slug:key>", Right.EDIT_DASHBOARDS, 201),
    *(Row(method, f"{_API_DASHBOARD}/star", Right.SEE_APP, 204) for method in ("PUT", "DELETE")),
    Row("GET", f"{_API_DASHBOARD}/versions/<int:number>", Right.SEE_APP),
    Row("POST", f"{_API_DASHBOARD}/versions/<int:number>/restore", Right.EDIT_DASHBOARDS),
    Row("POST", f"{_API}/dashboards", Right.EDIT_DASHBOARDS, 400),
    Row("POST", f"{_API}/dashboards/import", Right.EDIT_DASHBOARDS, 400),
    Row("PUT", _API_DASHBOARD, Right.EDIT_DASHBOARDS, 400),
    Row("DELETE", _API_DASHBOARD, Right.EDIT_DASHBOARDS, 428),
    *_all("GET", f"{_APP}/dashboards", Right.SEE_APP, "", "/<slug:uid>", "/<slug:uid>/json"),
    Row("POST", f"{_APP}/dashboards", Right.EDIT_DASHBOARDS, 302, {"title": "New"}),
    *_all("GET", f"{_APP}/dashboards", Right.EDIT_DASHBOARDS, "/import", "/<slug:uid>/edit", "/<slug:uid>/settings"),
    Row("POST", f"{_APP}/dashboards/import", Right.EDIT_DASHBOARDS, 400),
    Row("POST", f"{_DASHBOARD}/edit", Right.EDIT_DASHBOARDS, 302, {"act": "add", "version": "1", "layout": "[]"}),
    Row("GET", f"{_DASHBOARD}/panels/<int:number>", Right.EDIT_DASHBOARDS),
    Row("POST", f"{_DASHBOARD}/panels/<int:number>", Right.EDIT_DASHBOARDS, 302, {"act": "delete", "version": "1"}),
    Row("POST", f"{_DASHBOARD}/star", Right.SEE_APP, 302),
    Row("GET", f"{_APP}/dashboards/ready/<slug:key>", Right.SEE_APP),
    Row("GET", f"{_DASHBOARD}/variables", Right.EDIT_DASHBOARDS),
    Row("POST", f"{_DASHBOARD}/settings", Right.EDIT_DASHBOARDS, 302, {"act": "about", "version": "1", "title": "New"}),
    Row("POST", f"{_DASHBOARD}/variables", Right.EDIT_DASHBOARDS, 302, {"version": "1"}),
    Row("POST", f"{_DASHBOARD}/settings", Right.EDIT_DASHBOARDS, 302, {"act": "delete", "confirm": "Shop"}),
    Row("POST", f"{_DASHBOARD}/settings", Right.EDIT_DASHBOARDS, 302, {"act": "restore", "number": "1"}),
]
_FLOWS = [
    "/signup",
    "/login",
    "/login/key",
    "/logout",
    "/account/reset",
    "/account/reset/<account:uidb36>-<str:key>",
    "/account/email/confirm/<str:key>",
    "/account/code",
    "/sso/signup",
    "/sso/<str:provider_id>/login",
    "/sso/<str:provider_id>/login/callback",
    "/account/keys/<int:pk>/rename",
    "/account/keys/<int:pk>/remove",
]
_OWN = [
    "/password",
    "/password/set",
    "/reauthenticate",
    "/email",
    "/security",
    "/code/again",
    "/app/add",
    "/app/remove",
    "/recovery-codes",
    "/recovery-codes/new",
    "/recovery-codes/download",
    "/keys",
    "/keys/add",
    "/keys/again",
    "/sessions",
    "/sso",
]
_NOTICES = ["/account/inactive", "/account/email/sent", "/account/reset/sent", "/account/reset/done", "/sso/cancelled"]
ACCOUNTS = [
    Row("GET", "/api/v1/apps", Who.PERSON),
    Row("GET", "/api/v1/organisations", Who.PERSON),
    Row("GET", "/api/v1/schema", Who.PERSON),
    Row("GET", "/api/v1/query-builder", Who.PERSON, query="expr=up"),
    Row("POST", "/api/v1/query-builder", Who.PERSON, body={"metric": "up"}),
    Row("GET", "/", Who.PERSON, None),
    Row("GET", "/help", Who.PERSON),
    *_all("GET", "/help", Who.PERSON, "/docs/<path:name>", "/files/<path:name>", status=404),  # none is called "none"
    Row("GET", "/help/api", Who.PERSON),
    Row("GET", "/help/api/<slug:name>", Who.PERSON, 404),  # no operation is called "none"
    Row("GET", "/org/new", Who.PERSON),
    Row("POST", "/org/new", Who.PERSON, 409),  # a new organisation needs a name
    *(Row(method, f"/account{route}", Who.ACCOUNT, None) for method in ("GET", "POST") for route in _OWN),
    *(Row(method, route, Who.EVERYBODY, None) for method in ("GET", "POST") for route in _FLOWS),
    *_all("GET", "", Who.EVERYBODY, *_NOTICES, "/sso/error", status=None),
    Row("GET", "/invitations/<str:secret>", Who.EVERYBODY, 302),
    Row("GET", "/invitation", Who.EVERYBODY),
    Row("POST", "/invitation", Who.PERSON, 302),
]
_PUSHES = [
    "/write",
    "/api/v2/write",
    "/api/v3/write_lp",
    "/api/v1/metrics",
    "/api/v1/collectd",
    "/api/put",
    "/api/v1/write",
    "/api/v1/push",
    "/prometheus/api/v1/write",
    "/api/v1/import",
    "/api/v1/import/prometheus",
    "/v1/metrics",
    "/otlp/v1/metrics",
    "/api/v1/otlp/v1/metrics",
    "/prometheus/api/v1/otlp/v1/metrics",
    "/query",
]
SITE = [
    *_all("POST", "", Who.SENDER, *_PUSHES),
    Row("PUT", "/api/v1/import/prometheus", Who.SENDER),
    Row("GET", "/query", Who.SENDER),
    *(Row(method, r"/^metrics/(?P<group>job(?:@base64)?/.+)$", Who.SENDER) for method in ("POST", "PUT")),
    Row("GET", "/ping", Who.EVERYBODY, 204),
    *_all("GET", "", Who.EVERYBODY, "/health", "/ready", "/agent.pyz", "/agent.pyz.sha256"),
    Row("GET", "/health/alerting", Who.EVERYBODY),
    Row("GET", "/metrics", Who.STAFF),
    Row("GET", "/^prometheus/", Who.EVERYBODY, 404),
    Row("GET", "/^api/", Who.EVERYBODY, 404),
    *_all("GET", "", Who.EVERYBODY, "/livez", "/readyz"),
    *_all("GET", "", Who.EVERYBODY, "/-/healthy", "/-/ready", "/prometheus/-/healthy", "/prometheus/-/ready"),
    *(Row(method, r"/^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$", Who.EVERYBODY, 404) for method in ("GET", "POST")),
    *(Row(method, "/a/<str:text>", Who.EVERYBODY, 404) for method in ("GET", "POST")),  # a link that nobody signed
    *_all("GET", "/alerts", Who.EVERYBODY, "/mail", "/mail/<path:rest>", status=302),
    Row("POST", r"/^broker/(?P<secret>[^/]+)/(?P<question>user|vhost|resource|topic)$", Who.EVERYBODY, 404),
]
ROWS: list[Row] = [
    *ORGANISATION_PAGES,
    *ACTS,
    *ORGANISATION_CALLS,
    *TOKENS,
    *SENDERS,
    *ALERTS,
    *EVENTS,
    *CORRECTIONS,
    *DATA,
    *DASHBOARDS,
    *ACCOUNTS,
    *SITE,
]
