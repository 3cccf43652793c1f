"""Export and import over HTTP: samples keep their bits from one app to another, and apps stay separate."""

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from frontend.prometheus import endpoint
from frontend.transfer import import_
from ingest.accept import process_acceptor as own_acceptor
from ingest.accept.rate_allowance import TooFast
from spm.accounts import tokens
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.errors import StoreUnavailable
from spm.query.request.admission import MachineSlots, QueryAdmission
from spm.store.backends import open_backend
from tests.support.faults import flip, keys_of
from tests.support.people import Tenant
from tests.support.store_reader import roll

pytestmark = pytest.mark.django_db(transaction=True)
LINES = (
    b'{"metric":{"__name__":"up","job":"a"},"values":[1,"NaN:7ff0000000000002",-0.0],'
    b'"timestamps":[1700000000000,1700000001000,1700003600001]}\n'
    b'{"metric":{"__name__":"load"},"values":[0.1],"timestamps":[1600000000000]}\n'
)


@pytest.fixture(autouse=True)
def fresh_acceptor(own_store: None) -> Iterator[None]:
    """Open the process' acceptor on this test's store, and close it before the store."""
    own_acceptor.close_process_acceptor()
    own_acceptor.process_acceptor()
    yield
    own_acceptor.close_process_acceptor()


def token(app: App, *scopes: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.issue(app, name='t', scopes=scopes)[1]}"}


def import_samples(client: Client, app: App, body: bytes, form: str = "jsonl", **headers: str) -> Any:
    sent = {**token(app, "ingest"), "Accept": "application/json", **headers}
    return client.post(f"/api/v1/import?format={form}", body, content_type="application/octet-stream", headers=sent)


def export_samples(
    client: Client, app: App, form: str = "jsonl", match: str = '{__name__!=""}', **parameters: str
) -> bytes:
    response = client.get(
        "/api/v1/export", {"match[]": match, "format": form, **parameters}, headers=token(app, "read")
    )
    assert response.status_code == 200, response.content
    return b"".join(response)


def read_whole(response: Any) -> bytes:
    """Return the body of an export; raise ``StoreUnavailable`` if its head or its end says so."""
    if response.status_code == 503:
        raise StoreUnavailable(response.content.decode())
    return b"".join(response)


def samples_of(body: bytes) -> dict[tuple[str, int], str]:
    """Return samples by series and time, however lines are cut."""
    samples: dict[tuple[str, int], str] = {}
    for one in map(json.loads, body.splitlines()):
        pairs = zip(one["timestamps"], one["values"], strict=True)
        samples |= {(json.dumps(one["metric"]), time): str(value) for time, value in pairs}
    return samples


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_what_one_app_exports_another_imports_to_the_same_bits(
    client: Client, alpha: Tenant, beta: Tenant, form: str
) -> None:
    assert import_samples(client, alpha.app, LINES).json() == {
        "accepted": 4,
        "rejected": 0,
        "messages": 1,
        "errors": [],
    }
    assert import_samples(client, beta.app, export_samples(client, alpha.app, form), form).json()["accepted"] == 4
    assert (
        samples_of(export_samples(client, beta.app))
        == samples_of(export_samples(client, alpha.app))
        == samples_of(LINES)
    )


def test_a_file_that_is_sent_twice_counts_once(client: Client, alpha: Tenant) -> None:
    for _ in range(2):
        assert import_samples(client, alpha.app, LINES).status_code == 200
    assert samples_of(export_samples(client, alpha.app)) == samples_of(LINES)


def test_a_whole_file_is_answered_as_victoriametrics_does(client: Client, alpha: Tenant) -> None:
    """vmctl takes every other answer than a 204 for an error, and gives up after some tries."""
    answer = import_samples(client, alpha.app, LINES, Accept="*/*")
    assert (answer.status_code, answer.content, answer["X-SPM-Accepted"], answer["X-SPM-Messages"]) == (
        204,
        b"",
        "4",
        "1",
    )
    half = import_samples(client, alpha.app, LINES + b"nonsense\n", Accept="*/*")
    assert (half.status_code, half.json()["accepted"], half.json()["rejected"]) == (400, 4, 1)


def test_extra_labels_stand_on_every_series_of_a_file(client: Client, alpha: Tenant) -> None:
    form = "jsonl&extra_label=dc=x=y&extra_label=job=moved"
    assert import_samples(client, alpha.app, LINES, form).status_code == 200
    forms = {
        json.loads(line)["metric"]["__name__"]: json.loads(line)["metric"]
        for line in export_samples(client, alpha.app).splitlines()
    }
    assert forms == {name: {"__name__": name, "dc": "x=y", "job": "moved"} for name in ("up", "load")}
    wrong = import_samples(client, alpha.app, LINES, "jsonl&extra_label=dc")
    assert (wrong.status_code, wrong.json()["error"]) == (400, "a parameter extra_label is no label")


def test_bodies_and_answers_may_be_compressed(client: Client, alpha: Tenant) -> None:
    assert (
        import_samples(client, alpha.app, gzip.compress(LINES), **{"Content-Encoding": "gzip"}).json()["accepted"] == 4
    )
    headers = {**token(alpha.app, "read"), "Accept-Encoding": "gzip"}
    response = client.get("/api/v1/export", {"match[]": "load"}, headers=headers)
    assert response["Content-Encoding"] == "gzip"
    assert b'"load"' in gzip.decompress(b"".join(response))


def test_each_series_is_exported_once_however_many_selectors_match(client: Client, alpha: Tenant) -> None:
    import_samples(client, alpha.app, LINES)
    parameters = {"match[]": ["up", '{job="a"}', "load"], "start": "1600000000", "end": "1700000000"}
    response = client.get("/api/v1/export", parameters, headers=token(alpha.app, "read"))
    body = b"".join(response)
    up, load = '{"__name__": "up", "job": "a"}', '{"__name__": "load"}'
    assert samples_of(body) == {(up, 1700000000000): "1", (load, 1600000000000): "0.1"}


def test_nothing_of_another_app_is_exported(client: Client, alpha: Tenant, beta: Tenant) -> None:
    import_samples(client, beta.app, LINES)
    assert export_samples(client, alpha.app) == b""
    assert b"up" not in export_samples(client, alpha.app, "csv")


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({}, 400),
        ({"match[]": "up", "format": "xml"}, 400),
        ({"match[]": "1+1"}, 400),
        ({"match[]": "up", "start": "5", "end": "1"}, 400),
    ],
)
def test_export_that_cannot_be_is_refused_with_its_status(
    client: Client, alpha: Tenant, parameters: dict[str, str], status: int
) -> None:
    response = client.get("/api/v1/export", parameters, headers=token(alpha.app, "read"))
    assert (response.status_code, json.loads(response.content)["errorType"]) == (status, "bad_data")


def test_import_needs_the_right_to_send_and_export_the_right_to_read(client: Client, alpha: Tenant) -> None:
    reads = client.post("/api/v1/import", LINES, content_type="text/plain", headers=token(alpha.app, "read"))
    sends = client.get("/api/v1/export", {"match[]": "up"}, headers=token(alpha.app, "ingest"))
    assert (reads.status_code, sends.status_code) == (401, 401)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_damage_that_an_export_meets_ends_it_in_error_and_then_stands_in_its_head(
    client: Client, alpha: Tenant, settings: Any, form: str
) -> None:
    import_samples(client, alpha.app, LINES)
    store = open_backend(settings.SPM_STORE_URL)
    roll(store, 5, app=alpha.app.pk)
    flip(store, "chunks", keys_of(store, "chunks")[-1], b"v")
    question, reader = {"match[]": '{__name__!=""}', "format": form}, token(alpha.app, "read")
    with pytest.raises(StoreUnavailable):
        read_whole(client.get("/api/v1/export", question, headers=reader))
    again = client.get("/api/v1/export", question, headers=reader)
    assert "1 damaged row(s) of chunks are quarantined and left out" in again["X-SPM-Warnings"]
    assert b"".join(again)


def test_damage_is_a_warning_of_every_answer(client: Client, alpha: Tenant, settings: Any) -> None:
    import_samples(client, alpha.app, LINES)
    store = open_backend(settings.SPM_STORE_URL)
    flip(store, "log", keys_of(store, "log")[-1], b"v")  # of the oldest hour, which the first query reads
    reader, address = token(alpha.app, "read"), "/prometheus/api/v1/query"
    query = client.get(address, {"query": "load", "time": "1600000000"}, headers=reader).json()
    other = client.get(address, {"query": "up", "time": "1700000001"}, headers=reader).json()
    export = client.get("/api/v1/export", {"match[]": "up"}, headers=reader)
    for warnings in ("; ".join(query["warnings"]), "; ".join(other["warnings"]), export["X-SPM-Warnings"]):
        assert "1 damaged row(s) of log are quarantined and left out" in warnings


def test_the_admission_of_an_unread_export_ends(client: Client, alpha: Tenant) -> None:
    import_samples(client, alpha.app, LINES)
    for _ in range(20):  # more than the running and waiting queries of an organisation
        response = client.get("/api/v1/export", {"match[]": "up"}, headers=token(alpha.app, "read"))
        assert response.status_code == 200
        response.close()


def test_a_stalled_export_holds_no_admission_and_still_ends_complete(
    client: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = QueryAdmission(running_max=1, waiting_max=2, wait_s=0.1, streams_max=2)
    monkeypatch.setattr(endpoint, "admission", admission)
    import_samples(client, alpha.app, LINES)

    def get(path: str = "/api/v1/export", **parameters: str) -> Any:
        return client.get(path, {"match[]": '{__name__!=""}', **parameters}, headers=token(alpha.app, "read"))

    stalled = [iter(get()) for _ in range(2)]
    first_pieces = [next(each) for each in stalled]
    query = get("/prometheus/api/v1/query", query="1")
    assert (query.status_code, get().status_code) == (200, 429)
    assert [samples_of(first + b"".join(rest)) for first, rest in zip(first_pieces, stalled, strict=True)] == [
        samples_of(LINES)
    ] * 2


def test_bad_file_says_what_is_wrong_and_what_was_accepted(client: Client, alpha: Tenant) -> None:
    answer = import_samples(client, alpha.app, b"a,b\n1,2\n", "csv")
    assert answer.status_code == 400
    assert "columns" in answer.json()["error"]
    half = import_samples(client, alpha.app, LINES + b"nonsense\n").json()
    assert (half["accepted"], half["rejected"], half["errors"][0]["line"]) == (4, 1, 3)


TABLE = b"metric,time_ms,value\nm,1700000000000,1\n"


@pytest.mark.parametrize(
    ("form", "body", "headers"),
    [
        ("csv", TABLE + b"m,5\n", {}),
        ("csv", b"a,b\n1,2\n", {}),
        ("csv", b"\xff", {}),
        ("parquet", b"PAR1", {}),
        ("csv", b'metric,label.a,time_ms,value\nm,"' + b"x" * 20_000_000, {}),
        ("jsonl", LINES + b"x" * 21_000_000, {}),
        ("jsonl", b"nonsense", {}),
        ("prometheus", b"\xff\xfe", {}),
        ("xml", TABLE, {}),
        ("csv", gzip.compress(TABLE)[:-9], {"Content-Encoding": "gzip"}),
        ("csv", TABLE, {"Content-Encoding": "gzip"}),
        ("csv", TABLE, {"Content-Encoding": "br"}),
    ],
    ids=range(12),
)
def test_every_refusal_says_what_to_do(
    client: Client, alpha: Tenant, form: str, body: bytes, headers: dict[str, str]
) -> None:
    response = import_samples(client, alpha.app, body, form, **headers)
    answer = response.json()
    assert answer["remedy"], answer
    assert response.status_code in (400, 413)
    assert "straddling" not in str(answer)


def test_good_line_before_one_that_is_too_long_is_stored(client: Client, alpha: Tenant) -> None:
    answer = import_samples(client, alpha.app, LINES + b"x" * 21_000_000)
    assert (answer.status_code, answer.json()["accepted"]) == (413, 4)
    assert "from line 3 on" in answer.json()["remedy"]
    assert samples_of(export_samples(client, alpha.app)) == samples_of(LINES)


def test_an_import_obeys_the_rate_of_its_app(client: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app with a rate of 100 a second took 100,000 samples in 0.4 s by importing them."""
    App.objects.filter(pk=alpha.app.pk).update(rate_max=1)
    now_ms = own_acceptor.process_acceptor().clock.now_ms()
    stamps = [now_ms - 3_600_000 * hour for hour in range(20)]
    body = json.dumps({"metric": {"__name__": "m"}, "values": [1] * 20, "timestamps": stamps}).encode()
    assert import_samples(client, alpha.app, body).status_code == 200  # one body may overdraw the rate
    refused = import_samples(client, alpha.app, body)
    assert (refused.status_code, refused.json()["accepted"]) == (429, 0)
    assert 1 <= int(refused["Retry-After"]) <= 10
    assert "SPM_APP_RATE_MAX" in refused.json()["remedy"]


@pytest.mark.parametrize(("for_s", "waits"), [(60, True), (15, False)], ids=["in time", "too late"])
def test_a_long_import_waits_for_its_rate_and_not_for_ever(for_s: int, waits: bool) -> None:
    clock = FakeClock()
    start_s = clock.monotonic()

    class Limited:
        def __init__(self) -> None:
            self.clock = clock

        def check_rate(self, app: int) -> None:
            if clock.monotonic() < start_s + 25:
                raise TooFast(100, 10.0)

    acceptor: Any = Limited()
    with nullcontext() if waits else pytest.raises(TooFast):
        import_._wait_for_rate(acceptor, 1, start_s + for_s)
    assert clock.monotonic() - start_s == (30 if waits else 10)


@pytest.mark.timed
def test_a_file_that_grows_a_thousandfold_is_refused_early(client: Client, alpha: Tenant) -> None:
    """1 GB of comments in 972 kB of gzip held a thread for 110 s."""
    body = gzip.compress(b"# x\n" * 5_000_000)
    begun = time.thread_time()
    answer = import_samples(client, alpha.app, body, "prometheus", **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["accepted"]) == (413, 0)
    assert "without compression" in answer.json()["remedy"]
    assert time.thread_time() - begun < 2


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the slots of imports, for which nobody waits long."""
    path = tmp_path / "slots"
    monkeypatch.setattr(import_, "_admission", QueryAdmission(1, 1, 0.1, MachineSlots(path, 1)))
    return path


def test_one_import_of_an_organisation_runs_at_a_time(
    client: Client, alpha: Tenant, beta: Tenant, impatient: Path
) -> None:
    with import_._admission.admit(alpha.app.organisation_id):
        refused = import_samples(client, alpha.app, LINES)
        assert import_samples(client, beta.app, LINES).status_code == 200
    assert (refused.status_code, refused.json()["accepted"], int(refused["Retry-After"]) > 0) == (429, 0, True)
    assert "IMPORTS_PARALLEL_MAX" in refused.json()["remedy"]
    assert import_samples(client, alpha.app, LINES).status_code == 200


def test_an_import_in_another_process_counts_too_until_its_process_ends(
    client: Client, alpha: Tenant, impatient: Path
) -> None:
    lock = "import fcntl, os, sys; file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)"
    code = f"{lock}; fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2])); print('held', flush=True); input()"
    arguments = [sys.executable, "-c", code, str(impatient), str(alpha.app.organisation_id)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert import_samples(client, alpha.app, LINES).status_code == 429
        other.kill()
    assert import_samples(client, alpha.app, LINES).status_code == 200


def test_a_second_import_waits_for_the_first(client: Client, alpha: Tenant) -> None:
    with ThreadPoolExecutor(1) as pool:
        with import_._admission.admit(alpha.app.organisation_id):
            second = pool.submit(import_samples, Client(), alpha.app, LINES)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
        assert second.result(timeout=30).status_code == 200
