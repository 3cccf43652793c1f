"""A query stays within its limits (samples, bytes, points, time, admission), and ends when its client leaves."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from django.test import Client, RequestFactory

from frontend import queries
from frontend.queries import cancellation_of
from spm import query
from spm.clock import FakeClock
from spm.errors import QueryCancelled, QueryRefused, QueryTimeout, QueryTooLarge
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.request.admission import MachineSlots, QueryAdmission
from spm.query.request.budget import CELL_BYTES, SAMPLE_BYTES, SERIES_BYTES, WORKING_COPIES, Budget, QueryLimits
from spm.store import matchers
from tests.support.people import Tenant
from tests.support.rows import START, envelope, stored
from tests.support.store_reader import reader


def budget(**allowed: Any) -> Budget:
    return Budget(QueryLimits(**allowed), FakeClock())


@pytest.mark.parametrize(
    ("allowed", "used", "message"),
    [
        ({"series": 3}, lambda b, n: b.charge_series(3 + n, "m"), "narrow"),
        ({"samples": 3}, lambda b, n: b.charge_samples(3 + n), "less time"),
        ({"cells": 6}, lambda b, n: b.check_cells(3, 2 + n, "m"), "longer step"),
        ({"shown": 3}, lambda b, n: b.check_points(3 + n), "export"),
        ({"bytes": 3 * SAMPLE_BYTES}, lambda b, n: b.charge_samples(3 + n), "MB"),
        ({"bytes": 6 * CELL_BYTES * WORKING_COPIES}, lambda b, n: b.check_cells(3, 2 + n, "m"), "MB"),
        ({"bytes": 3 * SERIES_BYTES}, lambda b, n: b.charge_series(3 + n, "m"), "MB"),
    ],
)
def test_budget_is_refused_one_over_its_limit_with_what_to_do(allowed: Any, used: Any, message: str) -> None:
    used(budget(**allowed), 0)
    with pytest.raises(QueryTooLarge, match=message):
        used(budget(**allowed), 1)


def test_bytes_that_are_released_do_not_count() -> None:
    small = budget(bytes=2 * SAMPLE_BYTES)
    small.charge_samples(2)
    small.charge_values(-2 * SAMPLE_BYTES)
    small.charge_samples(2)
    assert (small.usage.bytes, small.usage.bytes_peak, small.usage.samples) == (32, 32, 4)


def test_query_over_its_bytes_is_refused_by_the_engine() -> None:
    storage = FakeStorage().add("m", {}, list(range(1_000, 101_000, 1_000)), np.ones(100))
    small = Budget(QueryLimits(bytes=SERIES_BYTES + 99 * SAMPLE_BYTES), FakeClock())
    with pytest.raises(QueryTooLarge, match="MB"):
        Engine(storage, budget=small).instant("count_over_time(m[2m])", 101_000)


def test_a_query_after_its_deadline_ends_with_the_reason() -> None:
    clock = FakeClock()
    small = Budget(QueryLimits(timeout_s=2), clock)
    clock.advance(2_000)
    small.check_deadline()
    clock.advance(1)
    with pytest.raises(QueryTimeout, match="2 s"):
        small.check_deadline()


# --- clients that disconnect


def watched(gone: Callable[[], bool], clock: FakeClock) -> Any:
    request = RequestFactory().get("/")
    request.META["spm.client_gone"] = gone
    return cancellation_of(request.META, clock)


def test_client_that_disconnects_ends_its_query_between_two_steps() -> None:
    gone, clock = [False], FakeClock()
    small = Budget(QueryLimits(), clock, watched(lambda: gone[0], clock))
    for _ in range(3):
        clock.advance(200)
        small.check_deadline()
    gone[0] = True
    clock.advance(200)
    with pytest.raises(QueryCancelled):
        small.check_deadline()


def test_evaluation_stops_at_the_first_step_after_the_client_has_disconnected() -> None:
    selections = []

    class Watched(FakeStorage):
        def select(self, matchers: Any, start_ms: int, end_ms: int, *, check_deadline: Any = None) -> Any:
            selections.append(matchers)
            return super().select(matchers, start_ms, end_ms)

    def cancel() -> None:
        if selections:
            raise QueryCancelled("gone")

    with pytest.raises(QueryCancelled):
        Engine(Watched(), budget=Budget(QueryLimits(), FakeClock(), cancel)).instant("a + b + c + d", 1_000)
    assert len(selections) == 1


# --- admission


def test_running_queries_are_bounded_and_their_slots_free_after_errors() -> None:
    admission = QueryAdmission(running_max=2, waiting_max=0, wait_s=0.01)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), admission.admit(1):
            raise ZeroDivisionError
    refused = pytest.raises(QueryRefused, match="2 queries of your organisation")
    with admission.admit(1), admission.admit(1), admission.admit(2), refused, admission.admit(1):
        pass
    with admission.admit(1), admission.admit(1):
        pass


def test_a_waiting_query_gets_the_slot_that_becomes_free() -> None:
    admission = QueryAdmission(running_max=1, waiting_max=1, wait_s=30)
    first, admitted = admission.admit(1), threading.Event()
    first.__enter__()

    def wait() -> None:
        with admission.admit(1):
            admitted.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not admitted.wait(0.05)
    first.__exit__(None, None, None)
    assert admitted.wait(10)
    waiting.join()


def test_a_query_that_waits_too_long_or_is_cancelled_no_longer_counts_as_waiting() -> None:
    admission = QueryAdmission(running_max=1, waiting_max=1, wait_s=0.02)

    def cancel() -> None:
        raise QueryCancelled("gone")

    with admission.admit(1):
        for _ in range(3):
            with pytest.raises(QueryRefused, match="already"), admission.admit(1):
                pass
        with pytest.raises(QueryCancelled), admission.admit(1, cancel):
            pass
    with admission.admit(1):
        pass


HOLDER = """
import sys
from pathlib import Path
from spm.query.request.admission import MachineSlots
print(MachineSlots(Path(sys.argv[1]), 3).acquire(7), flush=True)
sys.stdin.read()
"""


def test_running_queries_are_bounded_for_all_processes_and_free_when_one_dies(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    other = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == b"21"
    admission = QueryAdmission(running_max=3, waiting_max=1, wait_s=0.05, machine_slots=MachineSlots(path, 3))
    with admission.admit(7), admission.admit(7):
        with pytest.raises(QueryRefused, match="already"), admission.admit(7):
            pass
        with admission.admit(8), admission.admit(8), admission.admit(8):  # another organisation has slots of its own
            pass
        other.kill()
        other.communicate()
        with admission.admit(7):
            pass
    with admission.admit(7), admission.admit(7), admission.admit(7):
        pass


def test_streams_are_bounded_and_count_as_waiting_queries() -> None:
    admission = QueryAdmission(running_max=1, waiting_max=2, wait_s=0.02, streams_max=2)
    with (
        admission.admit_stream(1),
        admission.admit(1),
        pytest.raises(QueryRefused, match="already"),
        admission.admit(1),
    ):
        pass
    with admission.admit_stream(1), admission.admit_stream(1):
        with (
            admission.admit_stream(2),
            admission.admit(1),
            pytest.raises(QueryRefused, match="2 more wait"),
            admission.admit(1),
        ):
            pass
        with pytest.raises(QueryRefused, match="2 exports"), admission.admit_stream(1):
            pass
    with admission.admit_stream(1), admission.admit_stream(1):
        pass


def test_a_started_stream_waits_for_admission_until_its_deadline() -> None:
    admission, checks = QueryAdmission(running_max=1, waiting_max=0, wait_s=0), list[int]()

    def check() -> None:
        checks.append(1)
        if len(checks) == 2:
            other.close()
        if len(checks) > 4:
            raise QueryTimeout("over")

    other = ExitStack()
    other.enter_context(admission.admit(1))
    with admission.admit(1, check, patient=True):
        with pytest.raises(QueryTimeout, match="waited"), admission.admit(1, check, patient=True):
            pass
        with pytest.raises(QueryRefused), admission.admit(1):
            pass
    with admission.admit(1):
        pass


@pytest.mark.django_db
def test_query_without_admission_is_a_429_that_says_when_to_retry(
    client: Client, alpha: Tenant, beta: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr(queries, "admission", admission)
    monkeypatch.setattr(query, "storage_for", lambda app: FakeStorage())

    def ask(tenant: Tenant) -> Any:
        return client.get("/prometheus/api/v1/query?query=1", headers={"Authorization": f"Bearer {tenant.token}"})

    with admission.admit(alpha.organisation.pk):
        refused, other = ask(alpha), ask(beta)
    assert (refused.status_code, json.loads(refused.content)["errorType"]) == (429, "too_many_requests")
    assert refused["Retry-After"]
    assert (other.status_code, ask(alpha).status_code) == (200, 200)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["label/host/values", "labels", "series"])
def test_names_have_the_time_limit_that_their_caller_sets(
    client: Client, alpha: Tenant, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = reader(stored(envelope([(number, START + 1, 1.0) for number in range(40)])))
    monkeypatch.setattr(query, "storage_for", lambda app: storage)
    match = matchers._match_regex

    def slow(texts: Any, matcher: Any) -> Any:
        time.sleep(0.05)
        return match(texts, matcher)

    monkeypatch.setattr(matchers, "MATCHED_BYTES_AT_ONCE", 20)
    monkeypatch.setattr(matchers, "_match_regex", slow)
    parameters = urlencode({"match[]": '{host=~"h.*9"}', "timeout": "0.1"})
    answer = client.get(f"/prometheus/api/v1/{path}?{parameters}", headers={"Authorization": f"Bearer {alpha.token}"})
    assert (answer.status_code, json.loads(answer.content)["errorType"]) == (503, "timeout")


@pytest.mark.timed
@pytest.mark.django_db
def test_timeout_of_a_query_ends_its_waiting_for_admission(
    client: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = QueryAdmission(running_max=1)
    monkeypatch.setattr(queries, "admission", admission)
    monkeypatch.setattr(query, "storage_for", lambda app: FakeStorage())
    with admission.admit(alpha.organisation.pk):
        begun = time.monotonic()
        refused = client.get(
            "/prometheus/api/v1/query?query=1&timeout=0.3", headers={"Authorization": f"Bearer {alpha.token}"}
        )
        assert time.monotonic() - begun < 5
    answer = json.loads(refused.content)
    assert (refused.status_code, answer["errorType"], refused["Retry-After"]) == (503, "timeout", "2")
    assert "waited to start" in answer["error"]


BOMBS = {
    "five thousand operands": "g" + "+g" * 5_000,
    "ten thousand parentheses": "(" * 10_000 + "g" + ")" * 10_000,
    "a megabyte of text": "g" * 1_000_000,
    "nearly a megabyte in a string": 'g{a="' + "x" * 900_000 + '"}',
}


@pytest.mark.timed
@pytest.mark.django_db
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize("path", ["query", "query_range", "format_query", "parse_query", "series"])
def test_a_bomb_is_refused_by_the_web_server_in_fifty_milliseconds(
    client: Client, alpha: Tenant, path: str, text: str
) -> None:
    parameters = urlencode({"match[]" if path == "series" else "query": text, "start": "1", "end": "2", "step": "1"})
    took = []
    for _ in range(3):  # others work on this machine, too
        began = time.thread_time()
        response = client.post(
            f"/prometheus/api/v1/{path}",
            parameters,
            content_type="application/x-www-form-urlencoded",
            headers={"Authorization": f"Bearer {alpha.token}"},
        )
        took.append(time.thread_time() - began)
        assert (response.status_code, json.loads(response.content)["errorType"]) == (400, "bad_data")
    assert min(took) < 0.05
