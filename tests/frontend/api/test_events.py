"""Events by REST: writing them, reading them by position, and consuming them in groups, each by its own rights."""

import json
from typing import Any

import pytest
from django.test import Client

from spm.accounts import tokens
from spm.accounts.models import App
from spm.events import log
from tests.support.people import Tenant, make_tenant

EVENTS, GROUP = "/api/v1/events", "/api/v1/events/groups/mailers"


@pytest.fixture
def tenant(db: None) -> Tenant:
    """An app whose events are written and read."""
    return make_tenant("one")


def call(app: App, scope: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """What a token with one scope is answered."""
    _, secret = tokens.issue(app, name=scope, scopes=[scope])
    answer = Client().generic(
        method,
        path,
        "" if body is None else json.dumps(body),
        "application/json",
        headers={"authorization": f"Bearer {secret}"},
    )
    return answer.status_code, answer.json() if answer.content else None


def post(app: App, text: str, scope: str = "events", **more: object) -> tuple[int, Any]:
    return call(app, scope, "POST", EVENTS, {"kind": "deploy", "text": text, "at_ms": 5, **more})


def test_a_posted_event_has_a_position_at_once(tenant: Tenant) -> None:
    assert post(tenant.app, "api 4.2", id="b-1", link="https://ci.example/1") == (
        201,
        {"id": "b-1", "stream_position": 1},
    )
    assert post(tenant.app, "api 4.2", id="b-1", link="https://ci.example/1") == (
        200,
        {"id": "b-1", "stream_position": 1},
    )
    assert post(tenant.app, "api 4.3", id="b-1")[0] == 409
    [event] = log.read(tenant.organisation.pk, tenant.app.pk, 0).events
    assert (event.text, event.author, event.key) == ("api 4.2", "token events", "deploy")


@pytest.mark.parametrize(
    ("scope", "code"), [("events", 201), ("write", 201), ("admin", 201), ("read", 401), ("ingest", 401)]
)
def test_a_token_writes_events_by_its_scope(tenant: Tenant, scope: str, code: int) -> None:
    assert post(tenant.app, "x", scope)[0] == code


def test_a_token_that_may_only_write_events_reads_nothing(tenant: Tenant) -> None:
    assert call(tenant.app, "events", "GET", "/api/v1/apps")[0] == 401
    assert call(tenant.app, "events", "GET", "/api/v1/events/groups")[0] == 401


@pytest.mark.parametrize(
    "wrong", [{"kind": "No Kind"}, {"text": ""}, {"end_ms": 4}, {"link": "javascript:alert(1)"}, {"body": [1]}]
)
def test_what_is_no_event_is_refused(tenant: Tenant, wrong: dict[str, object]) -> None:
    assert post(tenant.app, **{"text": "x", **wrong})[0] == 400  # type: ignore[arg-type]


def test_a_group_is_registered_read_and_moved(tenant: Tenant) -> None:
    app = tenant.app
    for text in ("a", "b", "c"):
        post(app, text, key=text)
    assert call(app, "read", "PUT", GROUP, {})[0] == 403
    code, group = call(app, "write", "PUT", GROUP, {"stream_position": "oldest", "partitions": 4})
    assert (code, group["lag"], group["partitions"]) == (201, 3, {"0": 0, "1": 0, "2": 0, "3": 0})
    name = call(app, "read", "POST", f"{GROUP}/consumers", {})[1]["consumer"]
    code, got = call(app, "read", "POST", f"{GROUP}/consumers/{name}/fetch", {"max": 2})
    assert (code, [event["text"] for event in got["events"]], got["fence"]) == (200, ["a", "b"], 1)
    commit = {"stream_position": got["stream_position"]}
    assert call(app, "read", "POST", f"{GROUP}/consumers/{name}/commit", commit)[1]["partitions_moved"] == 4
    assert call(app, "read", "GET", GROUP)[1]["lag"] == 1
    assert call(app, "write", "PUT", f"{GROUP}/position", {"stream_position": "0"})[1]["lag"] == 3
    assert call(app, "read", "DELETE", f"{GROUP}/consumers/{name}")[0] == 204
    assert call(app, "read", "POST", f"{GROUP}/consumers/{name}/fetch", {})[0] == 409
    assert call(app, "write", "DELETE", GROUP)[0] == 204
    assert call(app, "read", "GET", GROUP)[0] == 404


def test_a_position_that_is_gone_is_answered_with_the_oldest(tenant: Tenant) -> None:
    for text in ("a", "b", "c"):
        post(tenant.app, text)
    log.prune(10**15, kept_max=1)
    code, answer = call(tenant.app, "write", "PUT", GROUP, {"stream_position": "0"})
    assert (code, answer["oldest"]) == (410, 3)


def test_another_tenant_sees_neither_groups_nor_events(tenant: Tenant) -> None:
    other = make_tenant("two").app
    post(tenant.app, "a")
    call(tenant.app, "write", "PUT", GROUP, {})
    assert call(other, "read", "GET", "/api/v1/events/groups") == (200, [])
    assert call(other, "admin", "GET", GROUP)[0] == 404
    assert call(other, "admin", "GET", f"{GROUP}?app={tenant.app.pk}")[0] == 404
