"""Every operation of the schema has a command with curl that works as printed, and says which right it asks for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from frontend.help.curl import is_in_person, variables
from frontend.help.rights import RIGHTS, right_of
from ingest.accept.acceptor import Acceptor
from ingest.http import reception
from spm.accounts import tokens
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from tests.frontend.help.commands import request_of
from tests.frontend.rights_table import ROWS
from tests.frontend.site_walk import fill_world
from tests.support.acceptors import Recorder, silent_announcer
from tests.support.people import Tenant

REFUSED = {  # by the state of what they are about, not for what they send
    "run_rollback": 409,  # the run is in no history
}
ON_THE_LOOP = {"api_v1_events_get"}  # answered before Django


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # the library has no types
    for path, methods in generator.get_schema(request=None, public=True)["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


@pytest.fixture
def shell(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a shell of the owner, in a world in which each of them names something."""
    clock = SystemClock()
    acceptor = Acceptor(silent_announcer(clock), Recorder(), clock)
    monkeypatch.setattr(reception, "process_acceptor", lambda: acceptor)
    browser = Client()
    browser.force_login(alpha.owner)
    world = fill_world(alpha)
    named = {name.upper().replace("-", "_").rstrip("S"): value for name, value in world.items()}
    scopes = ["ingest", "read", "write", "admin"]
    reader = {"Authorization": f"Bearer {alpha.token}"}
    consumer = f"/api/v1/events/groups/{world['groups']}/consumers/{world['consumers']}"
    fetched = browser.post(f"{consumer}/fetch", {}, content_type="application/json", headers=reader)
    return {
        **named,
        "TOKEN": tokens.issue(alpha.app, name="all", scopes=scopes)[1],
        "SESSION": browser.cookies[settings.SESSION_COOKIE_NAME].value,
        "CSRF": "c" * 32,
        "AGENT": world["by-name"],
        "POSITION": str(fetched.json()["stream_position"]),
        "POLICY": world["policies"],
        "WINDOW": world["windows"],
        "REPORT": world["noise-reports"],
        "SILENCE": world["silences"],
        "SILENCE_ID": world["silence"],
        "TOKEN_NUMBER": world["tokens"],
    }


def test_every_operation_has_a_command_that_works_as_printed(shell: dict[str, str]) -> None:
    answers, count = {}, 0
    for method, path, operation in operations():
        [sample] = operation["x-codeSamples"]
        own = {"RETRACTION": shell["CORRECTION"]} if path.endswith("/purge") else {}  # the store takes nothing back
        request = request_of(sample["source"], {**shell, **own})
        assert request.method == method.upper(), path
        count += 1
        if operation["operationId"] in ON_THE_LOOP:
            continue
        answer = request.ask()
        assert str(answer.status_code) in operation["responses"], (method, path, answer.status_code)
        if answer.status_code >= 300:
            content = b"" if answer.streaming else answer.content
            answers[operation["operationId"]] = (answer.status_code, content[:200])
    assert count > 180
    assert {name: status for name, (status, _) in answers.items()} == REFUSED, answers


def test_a_command_needs_no_variable_that_nothing_gives(shell: dict[str, str]) -> None:
    wanted = {each for *_, operation in operations() for each in variables(operation["x-codeSamples"][0]["source"])}
    assert wanted - shell.keys() == set()


def test_a_command_of_a_person_names_the_site_where_it_is_https(settings: Any, shell: dict[str, str]) -> None:
    settings.SPM_BASE_URL = "https://spm.example"
    sources = {o["operationId"]: o["x-codeSamples"][0]["source"] for _, _, o in operations()}
    assert "-e https://spm.example/ " in sources["silence_create"]
    assert "-e " not in sources["silences"]
    assert sources["ingest_write_post"].endswith("https://spm.example/write")


def test_the_right_of_an_operation_is_the_one_by_which_the_site_is_walked() -> None:
    walked: dict[tuple[str, str], Any] = {}
    for row in ROWS:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", row.route)
        walked.setdefault((row.method.lower(), path), row.who)
    said = {(method, path): right_of(operation) for method, path, operation in operations()}
    both = said.keys() & walked.keys()
    assert len(both) > 170
    rights = {key: who if isinstance(who, Right) else None for key, who in walked.items()}
    assert {key: (said[key], rights[key]) for key in both if said[key] is not rights[key]} == {}
    names = {operation["operationId"] for *_, operation in operations()}
    assert RIGHTS.keys() <= names


def test_a_command_has_a_token_only_where_one_suffices() -> None:
    for method, path, operation in operations():
        [sample] = operation["x-codeSamples"]
        assert ("$TOKEN" in re.sub(r"\$TOKEN_NUMBER", "", sample["source"])) == (
            not is_in_person(operation) and operation["security"] != [{}]
        ), (method, path)
