"""While the first start compiles its kernels, what needs one is 503 with Retry-After and says how far it is."""

import json
import logging

import pytest
from django.test import Client, RequestFactory

from frontend.refusals import server_error
from spm.errors import StillCompiling
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.store.backends.memory import MemoryBackend
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
TEXT = "the first start is compiling its kernels, 3 of 9 are done"
PROGRAMS = ["/prometheus/api/v1/query?query=up", "/api/v1/export?match[]=up"]
PAGES = ["/apps/{app}/", "/apps/{app}/data/corrections", "/alerts/"]


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """No view of the store can be had, since its kernels are missing."""

    def refuse(*_: object, **__: object) -> None:
        raise StillCompiling(TEXT)

    monkeypatch.setattr(AppStorage, "with_view", refuse)
    monkeypatch.setattr(Engine, "instant", refuse)
    monkeypatch.setattr(MemoryBackend, "scan", refuse)


@pytest.mark.parametrize("address", PROGRAMS)
def test_programs_get_503_when_to_try_again_and_how_far_it_is(address: str, alpha: Tenant) -> None:
    program = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {alpha.token}"})
    answer = program.get(address)
    body = b"".join(answer) if answer.streaming else answer.content
    assert (answer.status_code, int(answer["Retry-After"]) > 0) == (503, True), body
    assert TEXT in body.decode()


@pytest.mark.parametrize("address", PAGES)
def test_people_get_their_page_or_one_that_says_how_far_it_is(address: str, desk: Client, alpha: Tenant) -> None:
    desk.raise_request_exception = False
    answer = desk.get(address.format(app=alpha.app.pk))
    assert answer.status_code in (200, 503)
    if answer.status_code == 503:
        assert int(answer["Retry-After"]) > 0
        assert "The first start is compiling its kernels, 3 of 9 are done." in answer.content.decode()
        assert answer["Refresh"] == "5"


def test_a_view_that_handles_no_error_of_the_store_becomes_the_page_that_says_so(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StillCompiling(TEXT)

    monkeypatch.setattr("frontend.pages.overview.Overview.get_context_data", refuse)
    desk.raise_request_exception = False
    answer = desk.get(f"/apps/{alpha.app.pk}/")
    assert (answer.status_code, answer["Retry-After"], answer["Refresh"]) == (503, "2", "5")
    assert "Almost ready" in answer.content.decode()
    assert "3 of 9 are done." in answer.content.decode()


@pytest.mark.parametrize("address", ["/api/v1/apps", "/prometheus/api/v1/query"])
def test_a_program_whose_view_handles_no_error_of_the_store_reads_json(address: str) -> None:
    try:
        raise StillCompiling(TEXT)
    except StillCompiling:
        answer = server_error(RequestFactory().get(address))
    assert (answer.status_code, json.loads(answer.content)) == (503, {"error": TEXT})
    assert "Refresh" not in answer


def test_such_a_page_is_one_line_of_the_log_without_a_traceback(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StillCompiling(TEXT)

    monkeypatch.setattr("frontend.pages.overview.Overview.get_context_data", refuse)
    desk.raise_request_exception = False
    desk.get(f"/apps/{alpha.app.pk}/")
    [line] = [record for record in caplog.records if record.name == "django.request"]
    assert (line.exc_info, line.levelno) == (None, logging.WARNING)
    assert line.getMessage() == f"Service Unavailable: /apps/{alpha.app.pk}/: {TEXT}"


def test_another_error_of_a_page_keeps_its_traceback(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("frontend.pages.overview.Overview.get_context_data", fail)
    desk.raise_request_exception = False
    desk.get(f"/apps/{alpha.app.pk}/")
    [line] = [record for record in caplog.records if record.name == "django.request"]
    assert line.exc_info is not None
    assert line.levelno == logging.ERROR
