"""The fast path answers queries with a token as Django does: status, body, protective headers; and counts them."""

from __future__ import annotations

import base64
import gzip
import io
import json
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client, RequestFactory

from frontend.prometheus import fast_path
from frontend.prometheus.parameters import FORM
from spm import query, telemetry
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.limits import READ_FORM_BYTES_MAX
from spm.query.fake import FakeStorage
from tests.support import process_state

pytestmark = pytest.mark.django_db
API = "/prometheus/api/v1/"
GOOD = {"query": "up", "start": "0", "end": "2", "step": "1"}
HEADERS = (
    "Content-Type",
    "Retry-After",
    "WWW-Authenticate",
    "Allow",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cross-Origin-Opener-Policy",
)
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

LEFT_TO_DJANGO = {"a wrong method", "an address that is none", "a form of another kind"}


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    process_state.forget_tokens()
    app = App.objects.create(organisation=Organisation.objects.create(name="Ours"), name="shop")
    storage = FakeStorage().add("up", {"job": "a", "my.label": "x"}, [1_000, 2_000], [1, 0]).add("up", {}, [1_000], [3])
    monkeypatch.setattr(query, "storage_for", lambda _: storage)
    monkeypatch.setattr("frontend.prometheus.views.explanation_with_corrections", lambda *_: {"segments": []})
    return tokens.issue(app, name="grafana", scopes=["read"])[1]


@pytest.fixture
def rest() -> list[str]:
    """Return the paths of the calls that were passed on to Django."""
    return []


class Answer:
    """The response of a WSGI application."""

    def __init__(self, application: Any, environ: dict[str, Any]) -> None:
        self.status_code, self.headers = 0, dict[str, str]()
        self.content = b"".join(application(environ, self._begin))

    def _begin(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.status_code, self.headers = int(status.split()[0]), dict(headers)
        assert len(self.headers) == len(headers)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often old connections are closed, and close none: the test's transaction needs its own."""
    calls: list[int] = []
    monkeypatch.setattr(fast_path, "close_old_connections", lambda: calls.append(1))
    return calls


@pytest.fixture
def ask(rest: list[str], closed: list[int]) -> Any:
    """Return a function that sends a request to the fast path."""

    def pass_on(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        rest.append(environ["PATH_INFO"])
        start_response("204 No Content", [])
        return []

    application = fast_path.FastPath(pass_on)

    def send(method: str, path: str, headers: dict[str, str], **how: Any) -> Answer:
        request = getattr(RequestFactory(), method.lower())(path, headers=headers, **how)
        return Answer(application, {"HTTP_HOST": "testserver", **request.META})

    return send


def how_of(call: Call) -> dict[str, Any]:
    _, method, _, parameters = call
    if method == "DELETE":
        return {}
    if method == "POST" and not parameters:
        return {"data": "{}", "content_type": "text/json"}
    return {"data": urlencode(parameters), "content_type": FORM} if method == "POST" else {"data": parameters}


@pytest.mark.parametrize("call", CALLS, ids=[name for name, *_ in CALLS])
@pytest.mark.parametrize("who", ["a token", "an unknown token", "a password"])
def test_fast_path_and_django_answer_equally(
    call: Call, who: str, client: Client, secret: str, ask: Any, rest: list[str]
) -> None:
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    shown = {"a token": f"Bearer {secret}", "an unknown token": "Bearer spm_x", "a password": f"Basic {basic}"}
    name, method, path, _ = call
    headers = {"Authorization": shown[who]}
    quick, slow = (
        ask(method, API + path, headers, **how_of(call)),
        getattr(client, method.lower())(API + path, headers=headers, **how_of(call)),
    )
    if name in LEFT_TO_DJANGO:
        assert rest == [API + path]
        return
    assert rest == []
    assert (quick.status_code, quick.content) == (slow.status_code, slow.content)
    assert quick.headers["Content-Length"] == str(len(quick.content))
    for header in HEADERS:
        assert quick.headers.get(header) == slow.headers.get(header), header


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("query", {}),
        ("query", {"Authorization": "Digest x"}),
        ("query", {"Authorization": "Bearer x", "Host": "elsewhere.example"}),
        ("query", {"Authorization": "Bearer x", "Host": ""}),
        ("query", {"Authorization": "Bearer x", "X-Forwarded-Host": "testserver"}),
        ("query", {"Authorization": "Bearer x", "Content-Type": "Multipart/Form-Data; boundary=B"}),
        ("read", {"Authorization": "Bearer x"}),
        ("label/\xfc/values", {"Authorization": "Bearer x"}),
        ("nothing", {"Authorization": "Bearer x"}),
    ],
    ids=[
        "no token",
        "no kind of ours",
        "another host",
        "no host",
        "a proxy's host",
        "a form in parts",
        "a body of its own",
        "not ASCII",
        "none",
    ],
)
def test_an_unusual_call_is_passed_on_to_django(path: str, headers: dict[str, str], ask: Any, rest: list[str]) -> None:
    assert ask("GET", API + path, headers, data=GOOD).status_code == 204
    assert len(rest) == 1


@pytest.mark.parametrize(
    ("body", "length", "message"),
    [
        (b"query=1", READ_FORM_BYTES_MAX + 1, "at most"),
        (b"query=1", 9, "7 of its 9 bytes came"),  # the rest never arrives
    ],
)
def test_a_form_that_is_too_large_or_breaks_off_is_refused(
    body: bytes, length: int, message: str, secret: str, ask: Any
) -> None:
    headers = {"Authorization": f"Bearer {secret}"}
    answer = ask(
        "POST",
        API + "query",
        headers,
        data=body,
        content_type=FORM,
        CONTENT_LENGTH=str(length),
        **{"wsgi.input": io.BytesIO(body)},
    )
    assert (answer.status_code, message in answer.content.decode()) == (400, True)


def test_large_answers_are_compressed_for_clients_that_accept_gzip(secret: str, ask: Any) -> None:
    parameters = {
        "time": "1",
        "query": "count_values('a', vector(1)) or label_replace(vector(1), 'b', '" + "x" * 2_000 + "', '', '')",
    }
    headers = {"Authorization": f"Bearer {secret}"}
    plain = ask("GET", API + "query", headers, data=parameters)
    compressed = ask("GET", API + "query", {**headers, "Accept-Encoding": "gzip"}, data=parameters)
    assert (plain.headers.get("Content-Encoding"), compressed.headers["Content-Encoding"]) == (None, "gzip")
    assert len(compressed.content) < len(plain.content) == len(gzip.decompress(compressed.content))
    assert "Accept-Encoding" in compressed.headers["Vary"]


def test_an_internal_error_is_answered_logged_and_counted(
    secret: str, ask: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: int) -> None:
        raise ZeroDivisionError

    def counted() -> float:
        named = {"view": "frontend.prometheus.views.instant_query", "method": "GET", "code": "500"}
        return telemetry.REGISTRY.get_sample_value("spm_http_requests_total", named) or 0

    monkeypatch.setattr(query, "storage_for", broken)
    before = counted()
    answer = ask("GET", API + "query", {"Authorization": f"Bearer {secret}"}, data={"query": "up"})
    assert (answer.status_code, json.loads(answer.content)["errorType"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text
    assert caplog.records[-1].levelname == "ERROR"
    assert counted() == before + 1


def test_a_path_with_line_breaks_is_one_line_in_the_log(
    secret: str, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "django.request")
    headers = {"Authorization": f"Bearer {secret}"}
    assert ask("GET", API + "label/a%0aFORGED/values", headers, data={"start": "x"}).status_code == 400
    assert "FORGED" in caplog.text
    assert "\nFORGED" not in caplog.text


@pytest.mark.parametrize("authorization", ["Basic \xff", "Basic AA", "Basic !", "Bearer \xff", "Basic \u0100"])
def test_a_malformed_token_is_refused(authorization: str, secret: str, ask: Any, rest: list[str]) -> None:
    answer = ask("GET", API + "query", {}, data={"query": "1"}, HTTP_AUTHORIZATION=authorization)
    assert (answer.status_code, len(rest)) in ((401, 0), (204, 1))


def test_a_site_by_https_sends_hsts(secret: str, ask: Any, settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS, settings.SECURE_PROXY_SSL_HEADER = 60, ("HTTP_X_FORWARDED_PROTO", "https")
    headers = {"Authorization": f"Bearer {secret}"}
    for more, expected in (({}, None), ({"X-Forwarded-Proto": "https"}, "max-age=60")):
        answer = ask("GET", API + "query", {**headers, **more}, data={"query": "1"})
        assert answer.headers.get("Strict-Transport-Security") == expected


def test_connections_that_a_database_has_left_are_closed_before_a_call(
    secret: str, ask: Any, closed: list[int]
) -> None:
    for calls in (1, 2):
        ask("GET", API + "query", {"Authorization": f"Bearer {secret}"}, data={"query": "1"})
        assert len(closed) == calls


@pytest.mark.parametrize("path", ["/login", "/write", API + "query", "/api/v1/schema"])
def test_too_many_parameters_beside_a_character_set_are_refused_not_an_error_of_the_server(
    path: str,
) -> None:
    site = import_module("spm.web.asgi")
    environ = RequestFactory().post(path).environ
    odd = {"QUERY_STRING": "a=1&" * 1_001, "CONTENT_TYPE": "application/json; charset=utf-8"}
    assert 400 <= Answer(site.pages, environ | odd).status_code < 500
