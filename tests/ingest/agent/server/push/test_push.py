"""Pushes over HTTP: the outcome of a message for each answer of the server."""

import pytest

from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Outcome, Verdict
from ingest.agent.server.push.http import outcome_of
from ingest.agent.spool.records import Message
from spm.errors import Refused
from tests.ingest.agent.conftest import FakeServer

MESSAGE = Message(1, b"\xab" * 16, b"zipped")


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((status, Verdict.ACCEPTED) for status in (200, 202, 204)),
        *((status, Verdict.REJECTED) for status in (400, 413, 415, 422)),
        *((status, Verdict.RETRY) for status in (301, 401, 403, 404, 408, 429, 500, 502, 503, 504)),
    ],
)
def test_the_status_of_an_answer_decides_the_verdict(status: int, verdict: Verdict) -> None:
    assert outcome_of(status, b"", None).verdict is verdict


def test_a_push_carries_the_token_the_source_and_the_id(server: FakeServer) -> None:
    assert open_push(server.url, token="secret", source="web-1").send(MESSAGE) == Outcome(Verdict.ACCEPTED)
    (request,) = server.requests
    assert request.path == "/write?precision=ms"
    assert request.body == b"zipped"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["content-encoding"] == "gzip"
    assert request.headers["x-message-id"] == "ab" * 16
    assert request.headers["x-spm-source"] == "web-1"


def test_pushes_share_one_connection(server: FakeServer) -> None:
    push = open_push(server.url, token="t", source="h")
    server.script, server.answer = [204, 500, 400, 204], b"reason"
    for _ in range(4):
        push.send(MESSAGE)
    assert server.connections == 1


def test_an_open_connection_that_the_server_closed_is_opened_again_at_once(server: FakeServer) -> None:
    push = open_push(server.url, token="t", source="h")
    push.send(MESSAGE)
    server.script = [0, 204]
    assert push.send(MESSAGE).verdict is Verdict.ACCEPTED
    assert server.ids == ["ab" * 16] * 3
    assert server.connections == 2


def test_a_server_that_closes_connections_is_retried_later_not_at_once(server: FakeServer) -> None:
    server.script = [0, 0, 0]
    assert open_push(server.url, token="t", source="h").send(MESSAGE).verdict is Verdict.RETRY
    assert len(server.requests) == 1


def test_a_missing_server_is_retried() -> None:
    outcome = open_push("http://127.0.0.1:1", token="t", source="h").send(MESSAGE)
    assert outcome.verdict is Verdict.RETRY
    assert "refused" in outcome.reason


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)])
def test_the_pause_that_a_server_requests_is_read(server: FakeServer, text: str, seconds: float | None) -> None:
    server.script, server.headers = [429], {"Retry-After": text}
    assert open_push(server.url, token="t", source="h").send(MESSAGE).retry_after_s == seconds


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://x:99999", "http://x:y"])
def test_an_address_of_an_unknown_scheme_is_rejected(url: str) -> None:
    with pytest.raises(Refused):
        open_push(url, token="t", source="h")
