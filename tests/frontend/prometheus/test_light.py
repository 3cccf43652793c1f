"""Light queries are answered without a thread, as a thread answers them; what may not be light is left to one."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import RequestFactory

from frontend import queries
from frontend.prometheus import fast_path
from frontend.prometheus.parameters import FORM
from spm import query
from spm.accounts import tokens
from spm.accounts.models import App, Organisation, Token
from spm.errors import NotInMemory
from spm.limits import QUERY_PARALLEL_MAX
from spm.query.fake import FakeStorage
from spm.query.request import limits
from spm.query.request.pacing import QUERY_SHORT_BURST_S, process_pacer
from spm.web.http_protocol import Reply
from tests.support import process_state

pytestmark = pytest.mark.django_db
PATH = "/prometheus/api/v1/"
GOOD = {"query": "up", "start": "0", "end": "40", "step": "1"}
Parameters = dict[str, str]


class Memory(FakeStorage):
    """A storage that notes which of its data is read without waiting, and may refuse that."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.can = 0, True

    def in_memory(self) -> FakeStorage:
        """All of it is, unless a test says otherwise."""
        self.reads += 1
        if not self.can:
            raise NotInMemory("a row")
        return self


class Site:
    """The fast path of a process, and a token of an app with data."""

    def __init__(self, storage: Memory) -> None:
        self.storage = storage
        self.organisation = Organisation.objects.create(name="Ours")
        app = App.objects.create(organisation=self.organisation, name="shop")
        self.secret = tokens.issue(app, name="grafana", scopes=["read"])[1]
        self.application = fast_path.FastPath(lambda *_: pytest.fail("Django was called"))

    def environ(self, name: str, parameters: Parameters, form: Parameters | None = None, **more: str) -> dict[str, Any]:
        address = f"{PATH}{name}?{urlencode(parameters)}"
        headers = {"Authorization": f"Bearer {self.secret}", **more}
        if form is None:
            request = RequestFactory().get(address, headers=headers)
        else:
            request = RequestFactory().post(address, urlencode(form), FORM, headers=headers)
        return {"HTTP_HOST": "testserver", **request.META}

    def by_thread(self, name: str, parameters: Parameters, **how: Any) -> tuple[Any, ...]:
        """Status, headers and body of an answer by a thread."""
        return self._answer(self.application, self.environ(name, parameters, **how))

    def at_once(self, name: str, parameters: Parameters, **how: Any) -> tuple[Any, ...] | None:
        """An answer without a thread; ``None`` where there is none."""
        answer = self._answer(self.application.at_once, self.environ(name, parameters, **how))
        return answer or None

    def further(self, name: str, parameters: Parameters, form: Parameters | None = None, **how: Any) -> Reply | None:
        """An answer without a thread, and without a request that was read."""
        answer = self.application.further(self.environ(name, {}, form, **how))
        assert answer is not None
        return answer(f"{PATH}{name}?{urlencode(parameters)}".encode(), urlencode(form or {}).encode())

    def _answer(self, application: Any, environ: dict[str, Any]) -> tuple[Any, ...]:
        head: list[Any] = []
        body = application(environ, lambda *given: head.extend(given))
        return () if body is None else (*head, b"".join(body))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    process_state.forget_tokens()
    times = range(0, 50_000, 1_000)
    storage = Memory()
    for job in "abc":
        storage.add("up", {"job": job}, times, range(50))
    for number in range(limits.LIGHT_SERIES_MAX + 1):
        storage.add("many", {"n": str(number)}, [1_000], [1])
    storage.add("dense", {}, range(limits.LIGHT_SAMPLES_MAX + 1), range(limits.LIGHT_SAMPLES_MAX + 1))
    monkeypatch.setattr(query, "storage_for", lambda _: storage)
    monkeypatch.setattr(fast_path, "close_old_connections", lambda: None)
    monkeypatch.setattr(fast_path, "thread_cpu_s", lambda: 1.0)  # no query takes any time
    monkeypatch.setattr("frontend.prometheus.endpoint.LIGHT_TIMEOUT_S", 60)
    return Site(storage)


QUESTIONS: list[tuple[str, Parameters, dict[str, Any]]] = [
    ("query_range", GOOD, {}),
    ("query", {"query": "sum(up)", "time": "9"}, {}),
    ("query", {}, {"form": {"query": "up", "time": "9", "limit": "1"}}),
    ("query_range", {"step": "1"}, {"form": {"query": "rate(up[10s])", "start": "1", "end": "40"}}),
    ("query_range", {**GOOD, "query": "up", "step": "0.5"}, {"Accept-Encoding": "gzip"}),
]


@pytest.mark.parametrize(("name", "parameters", "how"), QUESTIONS)
def test_a_query_that_was_light_is_answered_at_once_and_equally(
    name: str, parameters: Parameters, how: dict[str, Any], site: Site, django_assert_num_queries: Any
) -> None:
    assert site.at_once(name, parameters, **how) is None  # nothing is known of it
    answer = site.by_thread(name, parameters, **how)
    assert answer[0] == "200 OK"
    with django_assert_num_queries(0):
        assert site.at_once(name, parameters, **how) == answer
    assert site.storage.reads == 1


@pytest.mark.parametrize(("name", "parameters", "how"), QUESTIONS)
def test_a_thread_reads_no_parameter_that_the_loop_has_read(
    name: str, parameters: Parameters, how: dict[str, Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = site.by_thread(name, {**parameters, "timeout": "9"}, **how)
    environ = site.environ(name, {**parameters, "timeout": "9"}, **how)
    site.storage.can = False  # the loop reads what it is asked, and then leaves it to a thread
    assert site.application.at_once(environ, lambda *_: None) is None
    monkeypatch.setattr(fast_path, "fields", lambda _: pytest.fail("they were parsed twice"))
    head: list[Any] = []
    body = b"".join(site.application(environ, lambda *given: head.extend(given)))
    assert (*head, body) == alone


@pytest.mark.parametrize(("name", "parameters", "how"), QUESTIONS)
def test_a_light_query_under_a_head_that_was_read_is_answered_equally(
    name: str, parameters: Parameters, how: dict[str, Any], site: Site, django_assert_num_queries: Any, settings: Any
) -> None:
    settings.SECURE_HSTS_SECONDS, settings.SECURE_PROXY_SSL_HEADER = 60, ("HTTP_ACCEPT", "secure")
    how = {**how, "Accept": "secure"}
    assert site.further(name, parameters, **how) is None  # nothing is known of it
    status, headers, body = site.by_thread(name, parameters, **how)
    with django_assert_num_queries(0):
        reply = site.further(name, parameters, **how)
    assert reply is not None
    assert (f"{reply[0]} OK", reply[2]) == (status, body)
    lines = [f"{key.lower()}: {value}" for key, value in headers]
    assert sorted(reply[1].decode().split("\r\n")) == sorted([*lines, ""])
    assert "strict-transport-security: max-age=60" in lines


@pytest.mark.parametrize("parameters", [{**GOOD, "step": "2"}, {**GOOD, "asof": "1"}, {**GOOD, "start": "x"}, {}])
def test_no_other_query_under_such_a_head_is_answered(parameters: Parameters, site: Site) -> None:
    site.by_thread("query_range", GOOD)
    assert site.further("query_range", parameters) is None
    assert site.further("labels", GOOD) is None
    assert site.further("query_range", {**GOOD, "query": "up" + " " * limits.LIGHT_TEXT_CHARS_MAX}) is None


def test_a_query_that_fails_on_the_loop_is_not_tried_there_twice(site: Site) -> None:
    site.by_thread("query_range", GOOD)
    site.storage.can, before = False, site.storage.reads
    assert site.further("query_range", GOOD) is None
    assert site.at_once("query_range", GOOD) is None
    assert site.storage.reads == before + 1
    site.storage.can = True
    assert site.at_once("query_range", GOOD) is not None


def test_a_token_that_is_revoked_gets_no_answer_under_a_head_that_was_read(site: Site) -> None:
    site.by_thread("query_range", GOOD)
    answer = site.application.further(site.environ("query_range", GOOD))
    address = f"{PATH}query_range?{urlencode(GOOD)}".encode()
    assert answer is not None
    assert answer(address, b"") is not None
    tokens.revoke(Token.objects.get())
    assert answer(address, b"") is None


def test_the_query_of_a_refresh_is_known(site: Site) -> None:
    site.by_thread("query_range", GOOD)
    later = {**GOOD, "start": "5", "end": "46"}
    assert site.at_once("query_range", later) == site.by_thread("query_range", later)


NOT_LIGHT: dict[str, tuple[str, Parameters]] = {
    "many series": ("query", {"query": "many", "time": "2"}),
    "many samples": ("query", {"query": "sum_over_time(dense[5m])", "time": "10"}),
    "many cells": ("query_range", {**GOOD, "step": "0.05"}),  # of three series
    "an explanation": ("query", {"query": "up", "time": "2", "explain": "0"}),
    "the past": ("query", {"query": "up", "time": "2", "asof": "1"}),
    "a wrong query": ("query", {"query": "up{", "time": "2"}),
    "no query": ("query_range", {**GOOD, "query": ""}),
    "names": ("labels", {}),
    "a long text": ("query", {"query": "up" + " " * limits.LIGHT_TEXT_CHARS_MAX, "time": "2"}),
}


@pytest.mark.parametrize("case", NOT_LIGHT)
def test_other_calls_are_left_to_threads(case: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    name, parameters = NOT_LIGHT[case]
    monkeypatch.setattr(Memory, "asof", lambda self, _: self, raising=False)
    monkeypatch.setattr("frontend.prometheus.views.explanation_with_corrections", lambda *_: {})
    for _ in range(2):
        site.by_thread(name, parameters)
        assert site.at_once(name, parameters) is None


@pytest.mark.parametrize(
    "changed", [{"query": "up "}, {"step": "2"}, {"end": "400"}, {"lookback_delta": "9s"}, {"start": "x"}]
)
def test_another_question_than_the_one_that_was_light_is_left_to_a_thread(changed: Parameters, site: Site) -> None:
    site.by_thread("query_range", GOOD)
    assert site.at_once("query_range", {**GOOD, **changed}) is None


def test_a_query_that_took_long_is_left_to_threads_until_it_is_light_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([0, limits.LIGHT_S, 1, 1, 2, 3])
    monkeypatch.setattr(fast_path, "thread_cpu_s", lambda: next(seconds))
    for is_light in (False, True, False):
        site.by_thread("query_range", GOOD)
        assert (site.at_once("query_range", GOOD) is not None) == is_light


def grow(site: Site) -> None:
    times = range(0, 40_000, 5)
    site.storage.add("up", {"job": "a"}, times, [1.0] * len(times))


def branch(site: Site) -> None:
    for number in range(limits.LIGHT_SERIES_MAX):
        site.storage.add("up", {"job": f"new {number}"}, [1_000], [1])


def lose(site: Site) -> None:
    site.storage.can = False


def forget(_: Site) -> None:
    process_state.forget_tokens()


@pytest.mark.parametrize("change", [grow, branch, lose, forget])
def test_what_is_no_longer_light_is_answered_by_a_thread(change: Callable[[Site], None], site: Site) -> None:
    site.by_thread("query_range", GOOD)
    assert site.at_once("query_range", GOOD) is not None
    change(site)
    assert site.at_once("query_range", GOOD) is None
    assert site.by_thread("query_range", GOOD)[0] == "200 OK"
    if change in (grow, branch):
        assert not site.application._light.get(next(iter(site.application._light._entries)))


def test_a_query_that_takes_too_long_goes_on_in_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.by_thread("query_range", GOOD)
    monkeypatch.setattr("frontend.prometheus.endpoint.LIGHT_TIMEOUT_S", 0)
    assert site.at_once("query_range", GOOD) is None


def test_an_organisation_with_all_its_queries_at_work_waits_in_threads(site: Site) -> None:
    site.by_thread("query_range", GOOD)
    with ExitStack() as stack:
        for _ in range(QUERY_PARALLEL_MAX):
            stack.enter_context(queries.admission.admit(site.organisation.pk))
        assert site.at_once("query_range", GOOD) is None
    assert site.at_once("query_range", GOOD) is not None


def test_an_organisation_whose_short_queries_took_long_takes_turns_in_threads(site: Site) -> None:
    site.by_thread("query_range", GOOD)
    pacer, key = process_pacer(), site.organisation.pk
    pacer._allowances.put(key, (-QUERY_SHORT_BURST_S, pacer._clock.monotonic()))
    assert site.at_once("query_range", GOOD) is None
    pacer._allowances.put(key, (QUERY_SHORT_BURST_S, pacer._clock.monotonic()))
    assert json.loads((site.at_once("query_range", GOOD) or ())[-1])["status"] == "success"
