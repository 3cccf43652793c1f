"""OpenTSDB's endpoint answers as OpenTSDB does, so that its clients go on, try again or give up as they would there."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from ingest.accept.acceptor import Acceptor
from ingest.accept.admission import Admission
from ingest.http import reception
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.store.backends.memory import MemoryBackend
from tests.support import process_state
from tests.support.acceptors import Recorder, silent_announcer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("ingest.http.urls")]
NOW_MS = 1_700_000_000_000
POINT = {"metric": "sys.cpu.user", "timestamp": 1_699_999_000, "value": 1.5, "tags": {"host": "a"}}
BAD = {**POINT, "value": "much"}


@pytest.fixture
def quota() -> list[Quota]:
    return [Quota()]


@pytest.fixture
def transport(quota: list[Quota], monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder, clock = Recorder(), FakeClock(NOW_MS)
    admission = Admission(MemoryBackend(), clock, lambda app: quota[0])
    acceptor = Acceptor(silent_announcer(clock), recorder, clock, admission)
    monkeypatch.setattr(reception, "process_acceptor", lambda: acceptor)
    yield recorder
    process_state.forget_tokens()
    process_state.forget_quotas()


@pytest.fixture
def put(client: Client, transport: Recorder) -> Any:
    app = App.objects.create(organisation=Organisation.objects.create(name="Example"), name="Shop")
    secret = tokens.issue(app, name="agent", scopes=["ingest"])[1]

    def call(body: object, parameters: str = "", **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {secret}", **headers}
        return client.generic("POST", f"/api/put{parameters}", raw, "application/json", headers=sent)

    return call


def test_points_are_stored_and_the_answer_is_empty(put: Any, transport: Recorder) -> None:
    answer = put(gzip.compress(json.dumps([POINT, {**POINT, "value": 2}]).encode()), **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert transport.published[0].values.tolist() == [1.5, 2.0]
    assert transport.published[0].ts.tolist() == [1_699_999_000_000] * 2


@pytest.mark.parametrize(
    ("body", "parameters", "status", "fields"),
    [
        ([POINT], "?summary", 200, {"success": 1, "failed": 0}),
        ([POINT], "?details", 200, {"success": 1, "failed": 0, "errors": []}),
        ([POINT, BAD], "?summary=true", 400, {"success": 1, "failed": 1}),
    ],
)
def test_counts_are_answered_where_they_are_asked_for(
    put: Any, body: object, parameters: str, status: int, fields: object
) -> None:
    answer = put(body, parameters)
    assert (answer.status_code, answer.json()) == (status, fields)


def test_details_have_the_rejected_points_and_the_others_are_stored(put: Any, transport: Recorder) -> None:
    answer = put([POINT, BAD], "?details")
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["datapoint"]["metric"]) == (400, "sys.cpu.user")
    assert error["datapoint"]["timestamp"] == 1_699_999_000_000
    assert error["error"].startswith("point 2: ")
    assert transport.published[0].values.tolist() == [1.5]


@pytest.mark.parametrize(("body", "headers"), [([BAD], {}), (b"{", {}), ([], {}), ([POINT], {"Authorization": ""})])
def test_errors_have_the_form_of_opentsdb(put: Any, body: object, headers: dict[str, str]) -> None:
    answer = put(body, **headers)
    error = answer.json()["error"]
    assert answer.status_code == (401 if headers else 400) == error["code"]
    assert error["message"]
    assert error["details"]


def test_points_over_the_rate_are_to_be_sent_again(put: Any, quota: list[Quota]) -> None:
    quota[0] = Quota(samples_per_s=1)
    assert put([POINT] * 50).status_code == 204
    answer = put([POINT] * 50)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, 503)
    assert int(answer.headers["Retry-After"]) > 0
