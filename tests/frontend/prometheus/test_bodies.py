"""Forms and read requests are read up to a limit; an unreadable one is an error in JSON."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import cramjam
import pytest
from django.test import Client

from frontend.prometheus.parameters import FORM
from spm import query
from spm.limits import READ_FORM_BYTES_MAX
from spm.query.fake import FakeStorage
from spm.query.formats.remote_read import RemoteReadQuery
from spm.query.request.batches import Matcher
from tests.frontend.prometheus.test_federation import request_of
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
API = "/prometheus/api/v1/"
PARTS = "multipart/form-data; boundary=b"
ONE = b'--b\r\nContent-Disposition: form-data; name="query"\r\n\r\n1\r\n--b--\r\n'


@pytest.fixture
def bearer(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    storage = FakeStorage().add("up", {}, [1_000], [3])
    monkeypatch.setattr(query, "storage_for", lambda _: storage)
    return {"Authorization": f"Bearer {alpha.token}"}


TOO_LARGE = b"a" * (READ_FORM_BYTES_MAX + 1)
READ = bytes(cramjam.snappy.compress_raw(request_of(RemoteReadQuery((Matcher("__name__", "=", "up"),), 0, 2_000))))
BODIES = {
    "a form": ("query", urlencode({"query": "1"}).encode(), FORM),
    "a form in parts": ("query", ONE, PARTS),
    "a read request": ("read", READ, "application/x-protobuf"),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_up_to_its_limit(client: Client, bearer: dict[str, str], body: str) -> None:
    path, raw, kind = BODIES[body]
    answers = [client.generic("POST", API + path + "?time=1", each, kind, headers=bearer) for each in (raw, TOO_LARGE)]
    assert [answer.status_code for answer in answers] == [200, 400]
    error = json.loads(answers[1].content)
    assert (error["errorType"], f"wanted {READ_FORM_BYTES_MAX} at most" in error["error"]) == ("bad_data", True)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [("multipart/form-data", ONE), ("multipart/form-data; boundary=" + "b" * 300, ONE), (PARTS, b"--b\r\n" * 3_000)],
    ids=["no boundary", "a long boundary", "no parts"],
)
def test_a_malformed_multipart_form_is_refused_with_the_reason(
    client: Client, bearer: dict[str, str], kind: str, raw: bytes
) -> None:
    answer = client.generic("POST", API + "query", raw, kind, headers=bearer)
    assert (answer.status_code, json.loads(answer.content)["errorType"]) == (400, "bad_data")
