"""Forms and read requests are read whether they come at once or in chunks; an unreadable one is an error in JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import cramjam
import pytest
from django.test import Client
from gunicorn.config import Config
from gunicorn.http import RequestParser

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


def chunks(body: bytes, size: int = 7) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def sent(client: Client, path: str, raw: bytes, kind: str, headers: dict[str, str]) -> Any:
    """Send a body in chunks, as the web server passes it on, and return the response."""
    head = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = next(RequestParser(Config(), iter([head + raw]), ("127.0.0.1", 1))).body
    said = {
        "CONTENT_TYPE": kind,
        "wsgi.input": body,
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked",
    }
    return client.generic("POST", API + path, headers=headers, **said)


READ = bytes(cramjam.snappy.compress_raw(request_of(RemoteReadQuery((Matcher("__name__", "=", "up"),), 0, 2_000))))
BODIES = {
    "a form": ("query", urlencode({"query": "1"}).encode(), FORM),
    "a form in parts": ("query", ONE, PARTS),
    "a read request": ("read", READ, "application/x-protobuf"),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_in_chunks_is_answered_as_one_with_a_length(client: Client, bearer: dict[str, str], body: str) -> None:
    path, raw, kind = BODIES[body]
    response = client.generic("POST", API + path + "?time=1", raw, kind, headers=bearer)
    cut = sent(client, path + "?time=1", chunks(raw), kind, bearer)
    assert (response.status_code, cut.status_code) == (200, 200), cut.content
    assert cut.content == response.content


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"zz\r\nquery=1\r\n0\r\n\r\n", "malformed"),
        (b"7\r\nquery=1", "malformed"),
        (chunks(b"a" * (READ_FORM_BYTES_MAX + 1), 100_000), "at most"),
    ],
    ids=["no number", "cut off", "too large"],
)
def test_chunks_that_are_malformed_or_too_many_are_refused_with_the_reason(
    client: Client, bearer: dict[str, str], body: str, raw: bytes, message: str
) -> None:
    path, _, kind = BODIES[body]
    answer = sent(client, path, raw, kind, bearer)
    error = json.loads(answer.content)
    assert (answer.status_code, error["errorType"], message in error["error"]) == (400, "bad_data", True)


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
