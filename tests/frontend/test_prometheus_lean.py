"""Queries with a token go past the middleware of pages, and are answered the same: status, body, what protects."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

from frontend.prometheus import lean
from ingest.lean import Lean as Plain
from spm import query
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.query.fake import FakeStorage

pytestmark = pytest.mark.django_db
API = "/prometheus/api/v1/"
GOOD = {"query": "up", "start": "0", "end": "2", "step": "1"}
HEADERS = (
    "Content-Type", "Retry-After", "WWW-Authenticate", "Allow", "X-Frame-Options", "X-Content-Type-Options",
    "Referrer-Policy", "Cross-Origin-Opener-Policy",
)  # fmt: skip
Call = tuple[str, str, str, dict[str, Any]]
CALLS: list[Call] = [
    ("a range query", "GET", "query_range", GOOD),
    ("an instant query by form", "POST", "query", {"query": "sum(up)", "time": "1"}),
    ("an explained answer", "GET", "query", {"query": "up", "time": "1", "explain": "1"}),
    ("names, cut short", "GET", "labels", {"match[]": "up", "limit": "1"}),
    ("values of a label", "GET", "label/job/values", {}),
    ("values of a label with an odd name", "GET", "label/U__my_2e_label/values", {}),
    ("a malformed query", "GET", "query", {"query": "up{"}),
    ("a missing parameter", "GET", "query_range", {"query": "up"}),
    ("too many steps", "GET", "query_range", {**GOOD, "end": "100000"}),
    ("a wrong method", "DELETE", "query", {}),
    ("an address that is none", "GET", "queries", {}),
    ("a form of another kind", "POST", "query", {}),
]


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    tokens.clear_cache()
    app = App.objects.create(organisation=Organisation.objects.create(name="Ours"), name="shop")
    held = FakeStorage().add("up", {"job": "a", "my.label": "x"}, [1_000, 2_000], [1, 0]).add("up", {}, [1_000], [3])
    monkeypatch.setattr(query, "storage_for", lambda _: held)
    monkeypatch.setattr("frontend.prometheus.views.explained", lambda *_: {"segments": []})
    return tokens.issue(app, name="grafana", scopes=["read"])[1]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that the lean way has answered."""
    found: list[str] = []
    answer = Plain.__call__

    def noted(self: Plain, request: Any) -> Any:
        if isinstance(self, lean.Lean) and self._doors.get(request.path_info):
            found.append(request.path_info)
        return answer(self, request)

    monkeypatch.setattr(Plain, "__call__", noted)
    return found


def both(call: Call, headers: dict[str, str], client: Client) -> list[Any]:
    """The answers of the lean way and of all middleware."""
    _, method, path, asked = call
    how: dict[str, Any] = {"data": asked} if method != "POST" or asked else {"data": "{}", "content_type": "text/json"}
    if method == "DELETE":
        how = {}
    ways = [getattr(client, method.lower())(API + path, headers=headers, **how)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lean, "PREFIX", "/nowhere/")
        ways.append(getattr(client, method.lower())(API + path, headers=headers, **how))
    return ways


@pytest.mark.parametrize("call", CALLS, ids=[name for name, *_ in CALLS])
@pytest.mark.parametrize("who", ["a token", "an unknown token", "a password"])
def test_both_ways_answer_alike(call: Call, who: str, client: Client, secret: str) -> None:
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    shown = {"a token": f"Bearer {secret}", "an unknown token": "Bearer spm_x", "a password": f"Basic {basic}"}
    quick, slow = both(call, {"Authorization": shown[who]}, client)
    assert (quick.status_code, quick.content) == (slow.status_code, slow.content)
    for header in HEADERS:
        assert quick.headers.get(header) == slow.headers.get(header), header


def test_only_calls_with_a_token_go_the_lean_way(client: Client, secret: str, passed: list[str]) -> None:
    client.get(API + "query", GOOD)
    assert passed == []
    client.get(API + "label/job/values", headers={"Authorization": f"Bearer {secret}"})
    assert passed == [API + "label/job/values"]


def test_a_host_that_is_not_ours_is_refused_on_both_ways(client: Client, secret: str) -> None:
    call = ("", "GET", "query", {"query": "1"})
    answers = both(call, {"Authorization": f"Bearer {secret}", "Host": "elsewhere.example"}, client)
    assert [answer.status_code for answer in answers] == [400, 400]
