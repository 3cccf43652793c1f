"""A new protocol is one file with a ``parse`` and one registry line: HTTP and RabbitMQ then accept its bodies."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.test import Client
from django.urls import resolve

from ingest.accept.acceptor import Acceptor
from ingest.accept.admission import Admission
from ingest.http import reception
from ingest.http.urls import protocol_endpoints, urls_of
from ingest.protocols import by_content
from ingest.protocols.registry import PROTOCOLS, Protocol, ViewName
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.store.backends.memory import MemoryBackend
from spm.wire import parse_canonical
from tests.support import process_state
from tests.support.acceptors import Recorder, silent_announcer

NOW_MS = 1_700_000_000_000
MODULE = '''
"""Reads lines ``name;value`` after a first line ``#csv``."""

import numpy as np

from spm.wire import Parsed, SeriesTable, canonical


def parse(body, *, now_ms, over_quota=False):
    rows = [line.split(";") for line in body.decode().splitlines()[1:]]
    return Parsed(
        series=SeriesTable.from_canonical([canonical(name, {}) for name, _ in rows]),
        series_index=np.arange(len(rows), dtype=np.int32),
        ts=np.full(len(rows), now_ms, np.int64),
        values=np.array([float(value) for _, value in rows]),
    )


def is_csv(body):
    return body.startswith(b"#csv")
'''
BODY = b"#csv\nup;1\nload;0.5\n"


@pytest.fixture
def csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Protocol:
    (tmp_path / "csv_protocol_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("csv_protocol_of_a_test")
    return Protocol("csv", module.parse, ViewName.COMMON, {"csv": "api/v1/csv"}, "ms", module.is_csv)


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder, clock = Recorder(), FakeClock(NOW_MS)
    admission = Admission(MemoryBackend(), clock, lambda app: Quota())
    acceptor = Acceptor(silent_announcer(clock), recorder, clock, admission)
    monkeypatch.setattr(reception, "process_acceptor", lambda: acceptor)
    yield recorder
    process_state.forget_tokens()


@pytest.mark.django_db
def test_a_new_protocol_is_accepted_over_http_with_one_file_and_one_line(
    csv: Protocol, transport: Recorder, client: Client, settings: Any
) -> None:
    urls = ModuleType("urls_with_csv")
    urls.urlpatterns = urls_of(protocol_endpoints((*PROTOCOLS, csv)))  # type: ignore[attr-defined]  # a module for Django
    settings.ROOT_URLCONF = urls
    app = App.objects.create(organisation=Organisation.objects.create(name="Example"), name="Shop")
    secret = tokens.issue(app, name="agent", scopes=["ingest"])[1]
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.post("/api/v1/csv", BODY, "text/plain", headers=headers).status_code == 200
    envelope = transport.published[0]
    names = [parse_canonical(envelope.series.canonical(int(number)))[0] for number in envelope.series_index]
    assert dict(zip(names, envelope.values.tolist(), strict=True)) == {"up": 1.0, "load": 0.5}


def test_a_new_protocol_is_recognised_in_messages_of_the_broker(csv: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_content, "PROTOCOLS", (*PROTOCOLS, csv))
    assert by_content.QueuedBody(BODY, "").protocol is csv
    assert by_content.parse(BODY, "", NOW_MS).values.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one.paths], ids=lambda one: one.name)
@pytest.mark.urls("ingest.http.urls")
def test_every_protocol_of_the_registry_answers_at_its_paths(protocol: Protocol) -> None:
    assert [resolve(f"/{path}").url_name for path in protocol.paths.values()] == list(protocol.paths)


def test_names_and_paths_of_the_registry_are_unique() -> None:
    names = [one.name for one in PROTOCOLS]
    paths = [path for one in PROTOCOLS for path in one.paths.values()]
    assert (len(set(names)), len(set(paths))) == (len(names), len(paths))
