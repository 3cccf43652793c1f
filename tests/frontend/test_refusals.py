"""Forms that are too large or bring files are refused before anything of them is kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from spm.accounts import tokens
from spm.limits import READ_FORM_BYTES_MAX
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(params=["/login", "/admin/login/", "/logout"])
def address(request: Any) -> str:
    """What anybody can post to."""
    return str(request.param)


@pytest.fixture
def browser() -> Client:
    """A browser whose requests pass through the check against forged ones, which reads the form first."""
    browser = Client(enforce_csrf_checks=True)
    browser.cookies["csrftoken"] = "a" * 32
    return browser


def large(bytes_: int) -> str:
    return "username=" + "a" * (bytes_ - len("username="))


def test_a_form_that_is_too_large_is_answered_with_413_and_a_page(browser: Client, address: str) -> None:
    answer = browser.generic("POST", address, large(READ_FORM_BYTES_MAX + 1), FORM)
    assert (answer.status_code, answer["Content-Type"]) == (413, "text/html; charset=utf-8")
    assert "at most 1,000,000 bytes" in answer.content.decode()


def test_the_largest_form_is_read(client: Client) -> None:
    assert client.generic("POST", "/login", large(READ_FORM_BYTES_MAX), FORM).status_code == 200


def test_a_form_with_too_many_fields_is_answered_with_413(client: Client) -> None:
    assert client.generic("POST", "/login", "&".join(["a=1"] * 1_000), FORM).status_code == 200
    answer = client.generic("POST", "/login", "&".join(["a=1"] * 1_001), FORM)
    assert (answer.status_code, "at most 1,000 fields" in answer.content.decode()) == (413, True)


@pytest.mark.parametrize("size", [0, 1, 3_000_000], ids=["empty", "small", "large"])
def test_a_file_is_refused_and_nothing_of_it_is_kept(
    browser: Client, address: str, size: int, tmp_path: Path, settings: Any
) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    answer = browser.post(address, {"username": "ada", "file": SimpleUploadedFile("a.txt", b"a" * size)})
    assert answer.status_code == 413
    assert list(tmp_path.iterdir()) == []


def test_a_form_in_parts_is_refused_by_its_length_before_it_is_read(client: Client) -> None:
    class Unreadable:
        def read(self, *_: int) -> bytes:
            raise AssertionError("the body was read")

        readline = read

    kind = "multipart/form-data; boundary=b"
    said = {"CONTENT_TYPE": kind, "CONTENT_LENGTH": str(READ_FORM_BYTES_MAX + 1), "wsgi.input": Unreadable()}
    assert client.generic("POST", "/login", **said).status_code == 413  # type: ignore[arg-type]


def test_a_form_in_parts_without_files_is_read(client: Client, alpha: Tenant) -> None:
    form = {"username": alpha.owner.get_username(), "password": "correct horse"}
    assert client.post("/login", form).status_code == 302  # the test client sends parts


@pytest.mark.parametrize("by", ["session", "token"])
def test_the_rest_interface_answers_a_large_body_with_413_in_json(client: Client, alpha: Tenant, by: str) -> None:
    if by == "session":
        client.force_login(alpha.owner)
    _, secret = tokens.issue(alpha.app, name="admin", scopes=["admin"])
    headers = {"Authorization": f"Bearer {secret}"} if by == "token" else {}
    body = json.dumps({"reason": "a" * READ_FORM_BYTES_MAX})
    address = f"/api/v1/apps/{alpha.app.pk}/retractions"
    answer = client.generic("POST", address, body, "application/json", headers=headers)
    assert (answer.status_code, "at most 1,000,000 bytes" in answer.json()["error"]) == (413, True)


def test_another_malformed_request_is_still_400(client: Client) -> None:
    assert client.get("/login", headers={"Host": "a b"}).status_code == 400
