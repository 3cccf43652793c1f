"""Who may ask about agents, and what the answer is. The broker itself asks in
``tests/ingest/senders/test_broker_agents.py``.
"""

import pytest
from django.test import Client

from ingest.http.broker_auth import is_allowed
from ingest.routing import AGENTS
from spm.accounts import tokens
from spm.accounts.models import App, Organisation, Token
from tests.support import process_state

pytestmark = pytest.mark.django_db(transaction=True)  # connections are given back, as at the end of a request
QUESTION = {"vhost": "/", "resource": "exchange", "name": AGENTS, "permission": "write"}


@pytest.fixture
def token(settings: object) -> Token:
    settings.SPM_BROKER_SECRET = "known"  # type: ignore[attr-defined]
    app = App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    return tokens.issue(app, name="agent", scopes=("ingest",))[0]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("known/vhost", {}, 200),
        ("wrong/vhost", {}, 404),
        ("known/else", {}, 404),
        ("known/vhost", {"X-Forwarded-For": "1.2.3.4"}, 404),
        ("known/vhost", {"Forwarded": "for=1"}, 404),
    ],
)
def test_only_direct_requests_with_the_secret_are_answered(
    token: Token, path: str, headers: dict[str, str], status: int
) -> None:
    answer = Client().post(f"/broker/{path}", {"username": token.prefix, "vhost": "/"}, headers=headers)
    assert answer.status_code == status


def test_without_a_secret_nobody_is_answered(token: Token, settings: object) -> None:
    settings.SPM_BROKER_SECRET = ""  # type: ignore[attr-defined]
    assert Client().post("/broker//vhost").status_code == 404
    assert Client().post("/broker/x/vhost").status_code == 404


@pytest.mark.parametrize(
    ("question", "changes", "answer"),
    [
        ("vhost", {}, True),
        ("vhost", {"vhost": "other"}, False),
        ("resource", {}, True),
        ("resource", {"permission": "configure"}, False),
        ("resource", {"permission": "read"}, False),
        ("resource", {"resource": "queue"}, False),
        ("resource", {"name": "spm.metrics"}, False),
        ("topic", {"routing_key": "{own}.host.with.dots"}, True),
        ("topic", {"routing_key": "{own}"}, True),
        ("topic", {"routing_key": "{own}x.host"}, False),
        ("topic", {"routing_key": "other.{own}"}, False),
        ("topic", {}, False),
        ("topic", {"routing_key": "{own}.h", "permission": "read"}, False),
        ("anything", {}, False),
    ],
)
def test_a_sender_may(token: Token, question: str, changes: dict[str, str], answer: bool) -> None:
    said = {name: text.format(own=token.prefix) for name, text in changes.items()}
    assert is_allowed(question, {**QUESTION, "username": token.prefix, **said}, "/") is answer


def test_nobody_may_do_anything_for_an_app_that_is_going(token: Token) -> None:
    App.objects.update(going="2026-01-01T00:00:00Z")
    assert not is_allowed("vhost", {**QUESTION, "username": token.prefix}, "/")


def test_answers_of_the_database_are_cached_for_seconds_only(token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_allowed("vhost", {**QUESTION, "username": token.prefix}, "/")
    tokens.revoke(token)
    assert is_allowed("vhost", {**QUESTION, "username": token.prefix}, "/"), "remembered for a moment"
    process_state.forget_principals()
    assert not is_allowed("vhost", {**QUESTION, "username": token.prefix}, "/")
