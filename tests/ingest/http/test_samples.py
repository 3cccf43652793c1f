"""Pushes over HTTP: who may send, what is accepted, what is answered, and when."""

import base64
import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models import QuerySet
from django.test import Client

from ingest.accept import acceptor, identity, rejections
from ingest.accept.acceptor import Acceptor
from ingest.http import reception
from ingest.models import RejectedLine
from ingest.transport.direct import DirectTransport
from ingest.writer import Writer
from spm import limits
from spm.accounts import sources, tokens
from spm.accounts.models import App, Organisation, Source
from spm.clock import FakeClock
from spm.errors import QueueUnavailable, SpmError, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import parse_canonical
from tests.support import process_state
from tests.support.acceptors import Recorder, silent_announcer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("ingest.http.urls")]
NOW_MS = 1_700_000_000_000


@pytest.fixture
def app() -> App:
    organisation = Organisation.objects.create(name="Example")
    return App.objects.create(organisation=organisation, name="Shop")


@pytest.fixture
def transport() -> Recorder:
    return Recorder()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture(autouse=True)
def _acceptor(transport: Recorder, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    process_acceptor = Acceptor(silent_announcer(clock), transport, clock)
    monkeypatch.setattr(reception, "process_acceptor", lambda: process_acceptor)
    yield
    process_state.forget_tokens()


@pytest.fixture
def secret(app: App) -> str:
    return tokens.issue(app, name="agent", scopes=["ingest"])[1]


@pytest.fixture
def post(client: Client, secret: str) -> Any:
    """Post a body with the token: text as it is, anything else as JSON."""

    def send(path: str, body: Any, **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return client.post(path, raw, "text/plain", headers={"Authorization": f"Bearer {secret}", **headers})

    return send


SAMPLE = {"samples": [{"metric": "m", "tags": {"host": "a"}, "value": 1.5, "time": 5}]}
LINE = "cpu,host=a user=1i 5000000"


def test_json_is_published_and_answered_with_its_count(post: Any, transport: Recorder, app: App) -> None:
    answer = post("/api/v1/metrics", SAMPLE)
    [envelope] = transport.published
    assert answer.status_code == 202
    assert answer.json() == {"accepted": 1, "rejected": 0, "errors": [], "message_id": envelope.message_id.hex()}
    of_the_past = 2  # samples of 1970 are stamped under a number of their own
    assert (envelope.app, envelope.stamp.process, envelope.stamp.ms) == (app.pk, of_the_past, NOW_MS)


@pytest.mark.parametrize("path", ["/write?db=metrics&precision=ns", "/api/v2/write?org=o&bucket=b", "/write"])
def test_lines_are_published_with_an_empty_answer(path: str, post: Any, transport: Recorder) -> None:
    answer = post(path, LINE)
    assert (answer.status_code, answer.content) == (204, b"")
    assert parse_canonical(transport.published[0].series.canonical(0)) == ("cpu_user", {"host": "a"})
    assert transport.published[0].ts.tolist() == [5]


def test_precision_is_that_of_the_address(post: Any, transport: Recorder) -> None:
    assert post("/write?precision=s", "m v=1 5").status_code == 204
    assert transport.published[0].ts.tolist() == [5000]


def test_lines_beside_bad_ones_are_kept(post: Any, transport: Recorder) -> None:
    answer = post("/write", f"{LINE}\ncpu user=x\n{LINE}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("partial write: 1 rejected; the first is line 2: ")
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (2, 1)
    assert len(transport.published[0]) == 2
    assert transport.published[0].rejected == 1


def test_texts_beside_numbers_are_no_error_to_their_sender_and_are_noted(
    post: Any, transport: Recorder, app: App
) -> None:
    assert post("/write", 'system uptime=5i,uptime_format="1 day"').status_code == 204
    assert (len(transport.published[0]), transport.published[0].rejected) == (1, 0)
    assert kept_of(app).get().example == 'uptime_format="1 day"'


def test_json_samples_beside_bad_ones_are_kept(post: Any, transport: Recorder) -> None:
    answer = post("/api/v1/metrics", {"samples": [SAMPLE["samples"][0], {"metric": "", "value": 1}]})
    assert answer.status_code == 202
    assert [error["line"] for error in answer.json()["errors"]] == [2]
    assert len(transport.published[0]) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [("/write", "bad"), ("/api/v1/metrics", {"samples": [{}]}), ("/api/v1/metrics", {})],
    ids=["a bad line", "a bad sample", "no sample"],
)
def test_nothing_taken_is_a_bad_request_and_not_published(path: str, body: Any, post: Any, transport: Recorder) -> None:
    assert post(path, body).status_code == 400
    assert transport.published == []


@pytest.mark.parametrize("body", ["", "\n", "# a comment\n\n"])
@pytest.mark.parametrize("path", ["/write", "/api/v2/write"])
def test_lines_of_nothing_are_a_204_as_clients_probe_with_them(
    path: str, body: str, post: Any, transport: Recorder
) -> None:
    assert post(path, body).status_code == 204
    assert transport.published == []


def test_error_names_the_received_and_the_expected_value(post: Any) -> None:
    answer = post("/write?precision=fortnight", LINE)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "got", "wanted", "remedy"}
    assert answer.json()["got"] == "fortnight"


def basic(secret: str) -> str:
    return "Basic " + base64.b64encode(f"user:{secret}".encode()).decode()


@pytest.mark.parametrize("style", ["Bearer {}", "Token {}", "basic", "query"])
def test_token_is_taken_in_every_form(style: str, client: Client, secret: str) -> None:
    header = basic(secret) if style == "basic" else style.format(secret)
    headers = {} if style == "query" else {"Authorization": header}
    path = f"/write?token={secret}" if style == "query" else "/write"
    assert client.post(path, LINE, "text/plain", headers=headers).status_code == 204


@pytest.mark.parametrize("path", ["/write", "/api/v2/write", "/api/v1/metrics", "/query"])
@pytest.mark.parametrize("token", [None, "spm_wrong", "read"])
def test_without_an_ingest_token_nothing_is_taken(
    path: str, token: str | None, client: Client, app: App, transport: Recorder
) -> None:
    if token == "read":
        token = tokens.issue(app, name="reader", scopes=["read"])[1]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.post(path, LINE, "text/plain", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert transport.published == []


def test_gzip_is_inflated(post: Any, transport: Recorder) -> None:
    assert post("/write", gzip.compress(LINE.encode()), **{"Content-Encoding": "gzip"}).status_code == 204
    assert len(transport.published[0]) == 1


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [("br", b"x", 415), ("gzip", b"x", 400), ("gzip", gzip.compress(b"x" * (limits.BODY_DECODED_BYTES_MAX + 1)), 413)],
    ids=["unknown encoding", "not gzip", "a bomb"],
)
def test_body_that_cannot_be_inflated_is_refused(encoding: str, body: bytes, status: int, post: Any) -> None:
    answer = post("/write", body, **{"Content-Encoding": encoding})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "got", "wanted", "remedy"}


def test_body_over_the_limit_is_refused(post: Any, transport: Recorder) -> None:
    assert post("/write", b"#" * limits.BODY_BYTES_MAX).status_code == 204
    assert post("/write", b"#" * (limits.BODY_BYTES_MAX + 1)).status_code == 413


def test_chunked_body_is_read_from_the_servers_stream(client: Client, secret: str, transport: Recorder) -> None:
    environ: dict[str, Any] = {
        "CONTENT_LENGTH": "",
        "wsgi.input": io.BytesIO(LINE.encode()),
        "wsgi.input_terminated": True,
    }
    answer = client.generic("POST", "/write", headers={"Authorization": f"Bearer {secret}"}, **environ)
    assert answer.status_code == 204
    assert len(transport.published[0]) == 1


@pytest.mark.parametrize("error", [QueueUnavailable("full"), StoreUnavailable("gone")], ids=["queue", "store"])
def test_unsure_message_is_never_acknowledged(error: SpmError, post: Any, transport: Recorder) -> None:
    transport.error = error
    for path, body in (("/write", LINE), ("/api/v1/metrics", SAMPLE)):
        answer = post(path, body)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(limits.RETRY_AFTER_S))


def test_bodies_in_work_are_limited(post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "BODIES_AT_ONCE_MAX", 1)
    process_acceptor = Acceptor(silent_announcer(FakeClock()), Recorder(), FakeClock(NOW_MS))
    monkeypatch.setattr(reception, "process_acceptor", lambda: process_acceptor)
    with process_acceptor.reserve_body():
        answer = post("/write", LINE)
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert post("/write", LINE).status_code == 204


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        pytest.param("00112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff", id="hex"),
        pytest.param("batch 17", identity._given_id("batch 17").hex(), id="text"),
        pytest.param("x" * limits.MESSAGE_ID_CHARS_MAX, identity._given_id("x" * 128).hex(), id="as long as can be"),
    ],
)
def test_message_keeps_the_senders_id(given: str, taken: str, post: Any, transport: Recorder) -> None:
    assert post("/write", LINE, **{"X-Message-Id": given}).headers["X-Message-Id"] == taken
    assert transport.published[0].message_id.hex() == taken


def test_message_id_one_too_long_is_refused(post: Any) -> None:
    assert post("/write", LINE, **{"X-Message-Id": "x" * (limits.MESSAGE_ID_CHARS_MAX + 1)}).status_code == 400


def test_same_body_sent_again_has_the_same_id_and_a_new_stamp(post: Any, transport: Recorder) -> None:
    post("/write", LINE)
    post("/write", gzip.compress(LINE.encode()), **{"Content-Encoding": "gzip"})
    first, again = transport.published
    assert first.message_id == again.message_id
    assert first.stamp < again.stamp


@pytest.mark.parametrize("other", ["/api/v2/write", "/write"], ids=["another path", "another body"])
def test_other_message_has_another_id(other: str, post: Any, transport: Recorder) -> None:
    post("/write", LINE)
    post(other, LINE if other != "/write" else LINE + "1")
    assert len({envelope.message_id for envelope in transport.published}) == 2


def test_message_with_our_time_in_it_is_another_each_time(post: Any, transport: Recorder) -> None:
    for _ in range(2):
        post("/write", "m v=1")
    assert len({envelope.message_id for envelope in transport.published}) == 2


@pytest.mark.parametrize(
    ("header", "query", "source"),
    [("web-1", "", "web-1"), ("", "?source=web-2", "web-2"), ("web-1", "?source=web-2", "web-1")],
    ids=["header", "address", "both"],
)
def test_source_is_named_by_the_sender(header: str, query: str, source: str, post: Any, transport: Recorder) -> None:
    headers = {"X-SPM-Source": header} if header else {}
    assert post(f"/write{query}", LINE, **headers).status_code == 204
    assert transport.published[0].source == source
    assert Source.objects.get().name == source


def test_source_without_name_is_that_of_its_token(post: Any, transport: Recorder, app: App) -> None:
    post("/write", LINE)
    assert transport.published[0].source == f"token-{app.tokens.get().pk}"


@pytest.mark.parametrize("source", ["x" * (limits.SOURCE_BYTES_MAX + 1), "a\x07b"], ids=["one too long", "a bell"])
def test_unusable_source_is_refused(source: str, post: Any) -> None:
    assert post("/write", LINE, **{"X-SPM-Source": source}).status_code == 400


def kept_of(app: App) -> QuerySet[RejectedLine]:
    return RejectedLine.objects.filter(app=app)


def test_rejections_are_kept_for_people(post: Any, app: App) -> None:
    post("/write", f"bad\n{LINE}\ncpu user=x", **{"X-SPM-Source": "web-1"})
    rows = list(kept_of(app).order_by("line").values_list("line", "example", "source", "time_ms"))
    assert rows == [(1, "bad", "web-1", NOW_MS), (3, "cpu user=x", "web-1", NOW_MS)]


def test_ring_of_rejections_keeps_the_newest(post: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "REJECTIONS_KEPT_MAX", 3)
    post("/write", "a\nb")
    post("/write", "c\nd")
    assert list(kept_of(app).values_list("example", flat=True)) == ["d", "c", "b"]


def test_ring_of_another_app_is_left_alone(post: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "REJECTIONS_KEPT_MAX", 1)
    other = App.objects.create(organisation=app.organisation, name="Other")
    RejectedLine.objects.create(app=other, time_ms=1, source="s", line=1, reason="r")
    post("/write", "a\nb")
    assert kept_of(other).count() == 1


def test_broken_sender_does_not_keep_the_database_busy(post: Any, app: App, clock: FakeClock) -> None:
    for _ in range(limits.REJECTION_NOTES_MAX + 1):
        post("/write", "bad")
    assert kept_of(app).count() == limits.REJECTION_NOTES_MAX
    clock.advance(limits.REJECTION_NOTES_PER_MS)
    post("/write", "bad")
    assert kept_of(app).count() == limits.REJECTION_NOTES_MAX + 1


def test_durable_message_is_acknowledged_although_the_database_fails(
    post: Any, transport: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationalError("locked")

    monkeypatch.setattr(sources, "execute_many", fail)
    assert post("/write", LINE).status_code == 204
    assert len(transport.published) == 1


@pytest.mark.parametrize("method", ["get", "head"])
def test_ping_answers_anybody(method: str, client: Client) -> None:
    assert getattr(client, method)("/ping").status_code == 204


def test_influx_client_finds_its_database(client: Client, secret: str) -> None:
    headers = {"Authorization": f"Token {secret}"}
    shown = client.get("/query", {"q": "SHOW DATABASES"}, headers=headers).json()
    assert shown["results"][0]["series"][0]["values"] == [["metrics"]]
    created = client.post(
        "/query", "q=CREATE+DATABASE+%22telegraf%22", "application/x-www-form-urlencoded", headers=headers
    )
    assert (created.status_code, created.json()) == (200, {"results": [{"statement_id": 0}]})
    assert client.get("/query", {"q": "SELECT 1"}, headers=headers).status_code == 400


@pytest.mark.parametrize("path", ["/write", "/api/v1/metrics"])
def test_other_methods_are_not_allowed(path: str, client: Client) -> None:
    assert client.get(path).status_code == 405


def test_accepted_samples_are_in_the_store(post: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend("memory://new")
    transport = DirectTransport(Writer(backend, PlacementTable()))
    process_acceptor = Acceptor(silent_announcer(FakeClock(), backend), transport, FakeClock(NOW_MS))
    monkeypatch.setattr(reception, "process_acceptor", lambda: process_acceptor)
    assert post("/write", LINE).status_code == 204
    rows = list(backend.scan("log", b"", b"\xff" * 40))
    process_acceptor.close()
    assert len(rows) == 1
