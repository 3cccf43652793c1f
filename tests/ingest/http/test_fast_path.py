"""Claims about ingest/http/fast_path.py: pushes go past what pages need, and lose nothing that protects."""

import pytest
from django.test import Client
from django.urls import reverse

from ingest.http import fast_path, reception, urls
from ingest.http.fast_path import POLICY

pytestmark = pytest.mark.django_db
PROTECTING = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PATHS = [reverse(f"ingest:{name}") for name in urls.FAST_PATH_NAMES]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_of_the_fast_path_has_protective_headers_and_no_cookie(path: str) -> None:
    answer = Client().post(path, b"m v=1", "text/plain")
    assert answer.status_code in (401, 405)
    assert {name: answer.headers.get(name) for name in PROTECTING} == PROTECTING
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert not answer.cookies
    assert "Vary" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
def test_a_method_that_the_fast_path_does_not_take_is_refused_with_a_reason(path: str) -> None:
    answer = Client().generic("BREW", path)
    said = answer.content.decode()
    assert answer.status_code == 405
    assert "does not take this method" in said
    assert "BREW" in said
    assert answer.headers["Allow"] in said


def test_fast_path_headers_are_those_of_pages_or_stricter() -> None:
    page, ping = Client().get("/login").headers, Client().get("/ping").headers
    for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy"):
        assert ping[name] == page[name]


def test_a_fast_path_view_has_the_url_name_that_pages_use() -> None:
    answer = Client().get("/ping")
    assert answer.wsgi_request.resolver_match is not None
    assert answer.wsgi_request.resolver_match.view_name == "ingest:ping"
    assert set(fast_path._views_by_path()) == set(PATHS)


@pytest.mark.parametrize("path", ["/login", "/write/", "/api/v1/metric", "/broker/x/user"])
def test_other_paths_do_not_take_the_fast_path(path: str) -> None:
    assert Client().get(path).headers["Content-Security-Policy"] != POLICY


def test_a_host_that_is_not_ours_is_refused() -> None:
    answer = Client(headers={"host": "evil.example"}).get("/ping")
    assert answer.status_code == 400
    assert answer.headers["Content-Security-Policy"] == POLICY


def test_https_is_remembered_where_the_site_has_it(settings: object) -> None:
    settings.SECURE_HSTS_SECONDS = 60  # type: ignore[attr-defined]
    assert Client().get("/ping", secure=True).headers["Strict-Transport-Security"] == "max-age=60"
    assert "Strict-Transport-Security" not in Client().get("/ping").headers


def test_an_internal_error_is_answered_with_protective_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reception, "process_acceptor", breaks)
    monkeypatch.setattr(reception, "principal_of", lambda request: type("P", (), {"token_id": 1}))
    answer = Client(raise_request_exception=False).post("/write", b"m v=1", "text/plain")
    assert answer.status_code == 500
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert b"ZeroDivisionError" not in answer.content
