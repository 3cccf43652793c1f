"""Claims about ingest/http/openapi.py: the schema has every address of ingest, and its examples are accepted."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from ingest.accept.acceptor import Acceptor
from ingest.http import reception
from ingest.http.openapi import describe
from ingest.http.urls import ENDPOINTS, PUSHGATEWAY
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.clock import SystemClock
from tests.support import process_state
from tests.support.acceptors import Recorder, silent_announcer

GROUP = "/metrics/job/{job}"
PATHS: dict[str, Any] = describe({"paths": {}}, None, None, True)["paths"]
SAMPLES = [
    pytest.param(method, operation, id=f"{method} {path}")
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    if "x-codeSamples" in operation
]


def test_every_address_of_ingest_is_described_with_its_methods() -> None:
    own = {f"/{route}": endpoint for route, endpoint in ENDPOINTS.items()} | {GROUP: PUSHGATEWAY}
    assert PATHS.keys() == own.keys()
    for path, endpoint in own.items():
        wanted = {method.lower() for method in endpoint.methods} - {"head", "delete"}
        assert PATHS[path].keys() == wanted, path


def test_every_push_has_an_example_unless_its_body_is_binary() -> None:
    without = {path for path, methods in PATHS.items() for o in methods.values() if "x-codeSamples" not in o}
    assert without == {
        *("/api/v1/write", "/api/v1/push", "/prometheus/api/v1/write"),
        *("/ping", "/health", "/ready", "/query"),
    }


def test_no_two_operations_have_one_name() -> None:
    names = [operation["operationId"] for methods in PATHS.values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A token of an app, whose pushes are accepted."""
    clock = SystemClock()
    acceptor = Acceptor(silent_announcer(clock), Recorder(), clock)
    monkeypatch.setattr(reception, "process_acceptor", lambda: acceptor)
    app = App.objects.create(organisation=Organisation.objects.create(name="Example"), name="Shop")
    yield tokens.issue(app, name="agent", scopes=["ingest"])[1]
    process_state.forget_tokens()


@pytest.mark.django_db
@pytest.mark.urls("ingest.http.urls")
@pytest.mark.parametrize(("method", "operation"), SAMPLES)
def test_the_example_of_an_operation_is_accepted(method: str, operation: dict[str, Any], secret: str) -> None:
    [sample] = operation["x-codeSamples"]
    script = sample["source"].replace("curl ", r"printf '%s\0' ", 1)  # its words, as the shell reads them
    done = subprocess.run(["sh", "-c", script], env={**os.environ, "TOKEN": secret}, capture_output=True, check=True)
    words = done.stdout.decode().split("\0")[:-1]
    headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
    body, path = words[words.index("--data-binary") + 1], words[-1].removeprefix("http://localhost:8000")
    kind, authorization = headers["Content-Type"], {"Authorization": headers["Authorization"]}
    answer = Client().generic(method.upper(), path, body, kind, headers=authorization)
    assert str(answer.status_code) in operation["responses"]
    assert answer.status_code < 300, answer.content
