"""Claims about ingest/http/django_views.py: pushes need no session, and lose nothing that protects."""

import pytest
from django.test import Client
from django.urls import reverse

from ingest.http import reception, urls
from spm.web.protective_headers import POLICY

pytestmark = pytest.mark.django_db
PROTECTING = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PATHS = [reverse(f"ingest:{endpoint.name}") for endpoint in urls.ENDPOINTS.values()]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_protective_headers_and_no_cookie(path: str) -> None:
    answer = Client().post(path, b"m v=1", "text/plain")
    assert answer.status_code in (401, 405)
    assert {name: answer.headers.get(name) for name in PROTECTING} == PROTECTING
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert not answer.cookies
    assert "Vary" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_an_address_does_not_take_is_refused_with_a_reason(path: str) -> None:
    answer = Client().generic("BREW", path)
    text = answer.content.decode()
    assert answer.status_code == 405
    assert "does not take this method" in text
    assert "BREW" in text
    assert answer.headers["Allow"] in text


def test_protective_headers_are_those_of_pages_or_stricter() -> None:
    page, ping = Client().get("/login").headers, Client().get("/ping").headers
    for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy"):
        assert ping[name] == page[name]


@pytest.mark.parametrize("path", ["/login", "/write/", "/api/v1/metric", "/broker/x/user", "/ping/x"])
def test_other_paths_are_no_endpoints(path: str) -> None:
    assert urls.endpoint_of(path) is None


@pytest.mark.parametrize("path", PATHS)
def test_each_address_is_an_endpoint_under_the_name_that_pages_use(path: str) -> None:
    endpoint = urls.endpoint_of(path)
    assert endpoint is not None
    assert reverse(f"ingest:{endpoint.name}") == path


def test_the_addresses_of_a_pushgateway_are_one_endpoint() -> None:
    for path in ("/metrics/job/a", "/metrics/job/a/host/b", "/metrics/job@base64/YQ"):
        assert urls.endpoint_of(path) is urls.PUSHGATEWAY
    assert urls.endpoint_of("/metrics") is None


def test_a_host_that_is_not_ours_is_refused() -> None:
    assert Client(headers={"host": "evil.example"}).get("/ping").status_code == 400


def test_https_is_remembered_where_the_site_has_it(settings: object) -> None:
    settings.SECURE_HSTS_SECONDS = 60  # type: ignore[attr-defined]
    assert "max-age=60" in Client().get("/ping", secure=True).headers["Strict-Transport-Security"]
    assert "Strict-Transport-Security" not in Client().get("/ping").headers


def test_an_internal_error_is_answered_with_protective_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reception, "process_acceptor", breaks)
    monkeypatch.setattr(reception, "principal_of", lambda request: type("P", (), {"token_id": 1, "app_id": 1}))
    answer = Client(raise_request_exception=False).post("/write", b"m v=1", "text/plain")
    assert answer.status_code == 500
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
